use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{LocalError, command};

const OLDEST_MAJOR: u32 = 17;
const VERSION_LIMIT: Duration = Duration::from_secs(30);

/// The Java to use: that of `JAVA_HOME`, else the first on `PATH`.
pub(crate) fn find() -> Result<PathBuf, LocalError> {
    let java = env::var_os("JAVA_HOME")
        .map(|home| Path::new(&home).join("bin/java"))
        .filter(|java| java.is_file())
        .or_else(|| command::on_path("java"))
        .ok_or_else(|| LocalError::ToolMissing {
            tool: "java".into(),
            purpose: "run Kafka",
            install: "Java 17 or newer (Debian: openjdk-17-jre-headless)",
        })?;
    let output = command::run("java -version", Command::new(&java).arg("-version"), VERSION_LIMIT)?;
    match version(&output.stderr) {
        Some((_, major)) if major >= OLDEST_MAJOR => Ok(java),
        found => Err(LocalError::JavaTooOld {
            found: found.map_or("of unknown version".into(), |(text, _)| text.to_owned()),
            path: java,
        }),
    }
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
