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
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "walpost", "--bin", "walpost"]);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
    assert!(status.success(), "cargo cannot build walpost");
    profile.join("walpost")
}
