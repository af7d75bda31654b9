use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{LocalError, command};

const VERSION_LIMIT: Duration = Duration::from_secs(30);
/// Where Linux distributions keep those that are not on `PATH`.
const INSTALLED: &str = "/usr/lib/jvm";

/// The Java to run `program` with, a version of at least `oldest`: that of
/// `JAVA_HOME`, the first on `PATH`, or another that is installed.
///
/// # Errors
///
/// When there is none, or all are older.
pub fn find_java(program: &'static str, oldest: u32) -> Result<PathBuf, LocalError> {
    find(program, oldest)
}

/// The Java to run `program` with: that of `JAVA_HOME`, the first on `PATH`, or
/// another that is installed, whichever is not older than `oldest`.
pub(crate) fn find(program: &'static str, oldest: u32) -> Result<PathBuf, LocalError> {
    let mut first_too_old = None;
    for java in candidates() {
        let output =
            command::run("java -version", Command::new(&java).arg("-version"), VERSION_LIMIT)?;
        match version(&output.stderr) {
            Some((_, major)) if major >= oldest => return Ok(java),
            found => {
                let found = found.map_or("of unknown version".into(), |(text, _)| text.to_owned());
                first_too_old.get_or_insert((found, java));
            }
        }
    }
    Err(match first_too_old {
        Some((found, path)) => LocalError::JavaTooOld { program, oldest, found, path },
        None => LocalError::ToolMissing {
            tool: "java".into(),
            purpose: "run what is written in Java",
            install: "Java 17 or newer (Debian: openjdk-17-jre-headless), 21 for a schema registry",
        },
    })
}

/// Has a program unpack its native libraries in `folder`: in the folder for
/// temporary files they would stay when it is killed.
pub(crate) fn temporary_files(folder: &Path) -> OsString {
    let mut option = OsString::from("-Djava.io.tmpdir=");
    option.push(folder);
    option
}

fn candidates() -> impl Iterator<Item = PathBuf> {
    let home = env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin/java"));
    let mut installed: Vec<PathBuf> = fs::read_dir(INSTALLED)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin/java"))
        .collect();
    installed.sort();
    let all = home.into_iter().chain(command::on_path("java")).chain(installed);
    all.filter(|java| java.is_file())
}

/// The text and the major number of `version "17.0.15" 2025-04-15`.
fn version(output: &str) -> Option<(&str, u32)> {
    let text = output.split('"').nth(1)?;
    let digits = text.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((text, digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_old_and_new_are_understood() {
        assert_eq!(version("openjdk version \"17.0.15\" 2025"), Some(("17.0.15", 17)));
        assert_eq!(version("openjdk version \"25-ea\" 2025"), Some(("25-ea", 25)));
        assert_eq!(version("java version \"1.8.0_292\""), Some(("1.8.0_292", 1)));
        assert_eq!(version("no java"), None);
    }
}
