//! Data that begins as another server's.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{LocalError, account::Account, command};

const COPY_LIMIT: Duration = Duration::from_secs(120);

/// The data folder of a stopped server, and what becomes of a copy.
#[derive(Debug, Clone)]
pub(super) struct Seed {
    pub(super) data: PathBuf,
    pub(super) role: Role,
}

/// What a copy does at its first start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Goes on with the same timeline.
    Clone,
    /// Follows a primary.
    Standby,
    /// Begins a timeline of its own.
    Restore,
}

impl Role {
    fn signal_file(self) -> Option<&'static str> {
        match self {
            Self::Clone => None,
            Self::Standby => Some("standby.signal"),
            Self::Restore => Some("recovery.signal"),
        }
    }
}

impl Seed {
    /// Fills the empty folder `to`. The settings of the other server are left
    /// out of it.
    pub(super) fn copy_to(&self, to: &Path, account: Option<&Account>) -> Result<(), LocalError> {
        if self.data.join("postmaster.pid").exists() {
            return Err(LocalError::Setting {
                service: super::NAME,
                reason: "its data can be copied only from a server that is stopped".to_owned(),
            });
        }
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(self.data.join(".")).arg(to);
        command::run("copying a data folder", &mut copy, COPY_LIMIT)?;
        fs::set_permissions(to, fs::Permissions::from_mode(0o700))
            .map_err(LocalError::io("change the mode of", to.display()))?;
        let conf = to.join("postgresql.conf");
        fs::read_to_string(&conf)
            .and_then(|text| fs::write(&conf, without_includes(&text)))
            .map_err(LocalError::io("write", conf.display()))?;
        let Some(name) = self.role.signal_file() else { return Ok(()) };
        let signal = to.join(name);
        fs::write(&signal, "").map_err(LocalError::io("write", signal.display()))?;
        account.map_or(Ok(()), |account| account.own(&signal))
    }
}

fn without_includes(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("include = "));
    lines.map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_of_the_other_server_are_left_out() {
        let text = "a = 1\n#include_dir = 'x'\n\ninclude = '/other/settings.conf'\n";
        assert_eq!(without_includes(text), "a = 1\n#include_dir = 'x'\n\n");
    }

    #[test]
    fn the_data_of_a_running_server_is_not_copied() {
        let from = tempfile::tempdir().unwrap();
        fs::write(from.path().join("postmaster.pid"), "1").unwrap();
        let seed = Seed { data: from.path().to_owned(), role: Role::Clone };
        let error = seed.copy_to(from.path(), None).unwrap_err().to_string();
        assert!(error.contains("stopped"), "{error}");
    }
}
