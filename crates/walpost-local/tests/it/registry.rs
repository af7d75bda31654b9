use std::{env, fs, process};

use walpost_local::Registry;

#[test]
#[ignore = "deep: needs Java 21"]
fn what_it_unpacks_is_in_its_own_folder_and_goes_with_it() {
    let registry = Registry::start_new().unwrap();
    assert!(unpacked() > 0);
    drop(registry);
    assert_eq!(unpacked(), 0);
}

/// How many folders for what the registry unpacks our services have.
fn unpacked() -> usize {
    let own = format!("walpost-{}-", process::id());
    let entries = fs::read_dir(env::temp_dir()).unwrap().flatten();
    let homes = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&own));
    homes.filter(|home| home.path().join("vertx-cache").is_dir()).count()
}
