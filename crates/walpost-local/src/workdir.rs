//! Folders of running services.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process,
};

use tempfile::TempDir;

use crate::{Lifetime, LocalError, signal::is_alive};

/// A Unix socket address holds 108 bytes on Linux and 104 elsewhere.
pub(crate) const MAX_SOCKET_DIR_BYTES: usize = 85;
const MAX_BASE_BYTES: usize = 50;

/// Where a service keeps its files.
#[derive(Debug)]
pub(crate) enum WorkDir {
    /// Removed on drop, or by the next start when we are killed.
    Temporary(TempDir),
    /// Named by the user, and kept.
    Kept(PathBuf),
}

impl WorkDir {
    /// The folder that the user of `service` named, or a temporary one, which ends
    /// with this process: no service may outlive it there.
    pub(crate) fn open(
        service: &'static str,
        home: Option<&Path>,
        lifetime: Lifetime,
    ) -> Result<Self, LocalError> {
        match home {
            Some(path) => Self::kept(path),
            None if lifetime != Lifetime::Guard => Err(LocalError::Setting {
                service,
                reason: "to outlive this process it needs a `home` that stays".into(),
            }),
            None => Self::temporary(),
        }
    }

    /// A new temporary folder `walpost-<pid>-<random>` with a short path.
    /// Those of owners that are gone are removed first.
    pub(crate) fn temporary() -> Result<Self, LocalError> {
        let base = base();
        remove_stale(&base);
        let folder = tempfile::Builder::new()
            .prefix(&format!("walpost-{}-", process::id()))
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir_in(&base)
            .map_err(LocalError::io("create a folder in", base.display()))?;
        Ok(Self::Temporary(folder))
    }

    fn kept(path: &Path) -> Result<Self, LocalError> {
        fs::create_dir_all(path).map_err(LocalError::io("create", path.display()))?;
        let path = path.canonicalize().map_err(LocalError::io("resolve", path.display()))?;
        Ok(Self::Kept(path))
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Kept(path) => path,
        }
    }

    /// The folder to remove when the owner is killed.
    pub(crate) fn disposable(&self) -> Option<&Path> {
        match self {
            Self::Temporary(folder) => Some(folder.path()),
            Self::Kept(_) => None,
        }
    }
}

pub(crate) fn base() -> PathBuf {
    let base = env::temp_dir();
    if base.as_os_str().len() <= MAX_BASE_BYTES { base } else { PathBuf::from("/tmp") }
}

/// Best effort: another user's folders, or a race with another cleaner, are
/// nobody's problem.
fn remove_stale(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if owner(&name.to_string_lossy()).is_some_and(|pid| !is_alive(pid)) {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

fn owner(name: &str) -> Option<u32> {
    name.strip_prefix("walpost-")?.split_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_detached_needs_a_folder_that_stays() {
        let error = WorkDir::open("Kafka", None, Lifetime::Unbounded).unwrap_err();
        assert!(matches!(error, LocalError::Setting { service: "Kafka", .. }), "{error}");
        let home = tempfile::tempdir().unwrap();
        let inside = home.path().join("a/b");
        let kept = WorkDir::open("Kafka", Some(&inside), Lifetime::Unbounded).unwrap();
        assert!(kept.disposable().is_none() && kept.path().is_dir());
        let temporary = WorkDir::open("Kafka", None, Lifetime::Guard).unwrap();
        let path = temporary.path().to_owned();
        assert_eq!(temporary.disposable(), Some(&*path));
        drop(temporary);
        assert!(!path.exists());
    }

    #[test]
    fn the_owner_is_read_from_the_name() {
        assert_eq!(owner("walpost-12-aB3"), Some(12));
        assert_eq!(owner("walpost-demo-aB3"), None);
        assert_eq!(owner("other-12-aB3"), None);
    }

    #[test]
    fn folders_of_dead_owners_go_and_those_of_living_ones_stay() {
        let base = tempfile::tempdir().unwrap();
        let mut child = process::Command::new("true").spawn().unwrap();
        let dead = base.path().join(format!("walpost-{}-x", child.id()));
        let alive = base.path().join(format!("walpost-{}-x", process::id()));
        child.wait().unwrap();
        fs::create_dir(&dead).unwrap();
        fs::create_dir(&alive).unwrap();
        remove_stale(base.path());
        assert!(!dead.exists());
        assert!(alive.exists());
    }
}
