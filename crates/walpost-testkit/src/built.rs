//! Programs of the workspace that the build of the tests has made.

use std::{env, path::PathBuf};

/// The program `name` of the same build as the test or program that runs:
/// `target/<profile>/<name>`. Cargo builds the programs of a package before it runs
/// its tests, and `cargo test` in the root of the workspace those of all packages.
///
/// # Panics
///
/// When it is not built.
#[track_caller]
#[must_use]
pub fn built_program(name: &str) -> PathBuf {
    found(profile_folder().join(name))
}

/// The program `name` of the profile `release`.
///
/// # Panics
///
/// When it is not built.
#[track_caller]
#[must_use]
pub fn release_program(name: &str) -> PathBuf {
    found(profile_folder().with_file_name("release").join(name))
}

/// Of the running program, which is in this folder, or in `deps` below it.
fn profile_folder() -> PathBuf {
    let program = env::current_exe().expect("the system names the running program");
    let folder = program.parent().expect("a program is in a folder");
    match folder.ends_with("deps") {
        true => folder.parent().expect("deps is in the folder of a profile").to_owned(),
        false => folder.to_owned(),
    }
}

#[track_caller]
fn found(program: PathBuf) -> PathBuf {
    assert!(
        program.is_file(),
        "{} is not built; run `cargo test` or `cargo build` in the root of the workspace",
        program.display(),
    );
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_profile_is_above_that_of_the_tests() {
        let own = env::current_exe().unwrap();
        assert_eq!(profile_folder(), own.ancestors().nth(2).unwrap());
    }

    #[test]
    #[should_panic(expected = "no-such-program is not built; run `cargo test`")]
    fn a_missing_program_is_named_with_the_command_that_builds_it() {
        let _ = built_program("no-such-program");
    }
}
