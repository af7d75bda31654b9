use std::{path::PathBuf, process::Command, sync::OnceLock};

/// The program `walpost`, built when it is not up to date.
///
/// # Panics
/// When it cannot be built.
pub fn walpost_binary() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(build).clone()
}

fn build() -> PathBuf {
    // target/<profile>/deps/<test>-<hash>
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(|deps| deps.parent()).unwrap();
    cargo_builds(profile.ends_with("release"));
    profile.join("walpost")
}

/// The optimised program `walpost`, built when it is not up to date, for another
/// program of this package to run.
///
/// # Panics
/// When it cannot be built.
pub fn release_binary() -> PathBuf {
    // target/<profile>/<program>
    let program = std::env::current_exe().unwrap();
    let target = program.parent().and_then(|profile| profile.parent()).unwrap();
    cargo_builds(true);
    target.join("release").join("walpost")
}

/// The program `walpost-test-consumer`, built when it is not up to date, for
/// another program of this package to run.
///
/// # Panics
/// When it cannot be built.
pub fn test_consumer_binary() -> PathBuf {
    test_program("walpost-test-consumer")
}

/// The program `walpost-test-receiver`, likewise.
///
/// # Panics
/// When it cannot be built.
pub fn test_receiver_binary() -> PathBuf {
    test_program("walpost-test-receiver")
}

fn test_program(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let release = program.parent().is_some_and(|profile| profile.ends_with("release"));
    cargo_builds_of(["walpost-tests", name], release);
    program.with_file_name(name)
}

fn cargo_builds(release: bool) {
    cargo_builds_of(["walpost", "walpost"], release);
}

fn cargo_builds_of([package, program]: [&str; 2], release: bool) {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", package, "--bin", program]);
    if release {
        cargo.arg("--release");
    }
    // Those of the test's own package: some build scripts look at them, and with them
    // whatever depends on those would be built again.
    for (name, _) in std::env::vars_os() {
        let is_of_package =
            |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(is_of_package) {
            cargo.env_remove(name);
        }
    }
    let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
    assert!(status.success(), "cargo cannot build {program}");
}
