//! Published packages of other languages, to test against: fetched by their own
//! tools, which know their registries, and checked by the sums in the lock file.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
};

use crate::unique_name;

/// That of Debian, as the tests of other programs in Python use it.
const PYTHON: &str = "/usr/bin/python3";

/// A folder with `node_modules` of what `lock`, the text of a
/// `package-lock.json`, pins for `manifest`, the text of a `package.json`.
/// Fetched by npm on first use and kept below `folder`.
///
/// # Panics
///
/// When npm is missing or fails.
#[must_use]
pub fn npm_packages(folder: &Path, manifest: &str, lock: &str) -> PathBuf {
    kept(folder, "npm", lock, |place| {
        write(&place.join("package.json"), manifest);
        write(&place.join("package-lock.json"), lock);
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-timeout=60000"])
            .current_dir(place);
        run("npm (Debian: npm)", &mut npm);
    })
}

/// A folder for `PYTHONPATH` with what `requirements` names, each with its
/// version and its sum. Fetched by pip on first use and kept below `folder`.
///
/// # Panics
///
/// When pip is missing or fails.
#[must_use]
pub fn python_packages(folder: &Path, requirements: &str) -> PathBuf {
    kept(folder, "python", requirements, |place| {
        let list = place.join("requirements.txt");
        write(&list, requirements);
        let mut pip = Command::new(PYTHON);
        pip.args(["-m", "pip", "--disable-pip-version-check", "--no-input", "install"])
            .args(["--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"])
            .args(["--timeout=60", "--root-user-action=ignore", "--target"])
            .arg(place)
            .arg("--requirement")
            .arg(&list);
        run("pip (Debian: python3-pip)", &mut pip);
    })
}

/// The folder for these `pins`, filled if it is not there. Whoever is first of
/// several at once is; the others throw away what they fetched.
fn kept(folder: &Path, kind: &str, pins: &str, fill: impl FnOnce(&Path)) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    pins.hash(&mut hasher);
    let place = folder.join(format!("{kind}-{:016x}", hasher.finish()));
    if place.is_dir() {
        return place;
    }
    let partial = folder.join(unique_name(&format!("{kind}-partial")));
    fs::create_dir_all(&partial)
        .unwrap_or_else(|error| panic!("cannot create {}: {error}", partial.display()));
    fill(&partial);
    if let Err(error) = fs::rename(&partial, &place) {
        assert!(place.is_dir(), "cannot keep {}: {error}", place.display());
        // It may stay: its name is nobody else's.
        let _ = fs::remove_dir_all(&partial);
    }
    place
}

fn write(path: &Path, text: &str) {
    fs::write(path, text)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

fn run(tool: &str, command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("the tests need {tool}, which cannot be run: {error}"));
    assert!(
        output.status.success(),
        "the tests need packages that {tool} cannot fetch ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_fetched_once_and_again_for_other_pins() {
        let folder = tempfile::tempdir().unwrap();
        let fetch = |pins| {
            let mut fetched = false;
            let place = kept(folder.path(), "kind", pins, |place| {
                write(&place.join("file"), pins);
                fetched = true;
            });
            assert_eq!(fs::read_to_string(place.join("file")).unwrap(), pins);
            fetched
        };
        assert!(fetch("a"));
        assert!(!fetch("a"));
        assert!(fetch("b"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    #[should_panic(expected = "cannot be run")]
    fn a_tool_that_is_missing_is_named() {
        run("such a tool", &mut Command::new("there-is-no-such-tool"));
    }

    #[test]
    #[should_panic(expected = "cannot fetch")]
    fn a_tool_that_fails_says_what_it_said() {
        run("false", &mut Command::new("false"));
    }
}
