use super::{
    crates::UNSAFE_CRATE,
    tree::{Tree, Violation},
};

/// Files of tests that may sleep, because none of it orders anything.
const MAY_SLEEP: [&str; 10] = [
    // Moments between kills, drawn at random.
    "crates/walpost-consumer/tests/it/member.rs",
    // Handlers that block their thread.
    "crates/walpost-consumer/tests/it/blocked.rs",
    "crates/walpost-consumer/tests/it/told.rs",
    // Counts connections again and again until the test ends.
    "crates/walpost-consumer/tests/it/connections.rs",
    // A transaction that commits while a handler is tried again.
    "crates/walpost-consumer/tests/it/patience.rs",
    // A time in which a reading must not end.
    "crates/walpost-kafka/src/spans.rs",
    // Asks for a condition again and again, up to a deadline.
    "crates/walpost-local/tests/it/guard.rs",
    // A time in which a table has another name.
    "crates/walpost-relay/tests/it/relations.rs",
    // The time of a simulated world, which passes at once.
    "crates/walpost-relay/src/simulation/world.rs",
    // Moments between faults, drawn at random, and how long a fault lasts.
    "tests/src/chaos/moments.rs",
];

pub(super) fn no_unsafe(tree: &Tree) -> Vec<Violation> {
    let home = format!("crates/{UNSAFE_CRATE}/");
    let mut violations = Vec::new();
    for (path, rust) in tree.rust().filter(|(path, _)| !path.starts_with(&home)) {
        for (offset, _) in rust.scan.words().filter(|(_, word)| *word == "unsafe") {
            let text = format!("unsafe code belongs into {UNSAFE_CRATE}");
            violations.push(Violation::at(path, rust.scan.line(offset), text));
        }
    }
    violations
}

pub(super) fn no_sleep_in_tests(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, rust) in tree.rust() {
        let mut sleeps = rust.scan.words().filter(|(offset, word)| {
            let before = rust.scan.code[..*offset].trim_end();
            matches!(*word, "sleep" | "sleep_until" | "sleep_ms")
                && rust.is_test(*offset)
                && !before.ends_with('.')
                && !before.ends_with("fn")
        });
        if MAY_SLEEP.contains(&path) {
            if sleeps.next().is_none() {
                let text = "sleeps no longer: remove it from MAY_SLEEP in xtask/src/tidy";
                violations.push(Violation::at(path, 0, text));
            }
            continue;
        }
        for (offset, _) in sleeps {
            let text = "a test sleeps: wait for a condition with a deadline";
            violations.push(Violation::at(path, rust.scan.line(offset), text));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::{super::tree::testing::says, *};

    #[test]
    fn unsafe_code_has_one_home() {
        let text = "// unsafe\nfn a() { unsafe { b(\"unsafe\") } }\n";
        says(no_unsafe, &[("crates/walpost-librdkafka/src/a.rs", text)], &[]);
        let expected = "crates/a/src/lib.rs:2: unsafe code belongs into walpost-librdkafka";
        says(no_unsafe, &[("crates/a/src/lib.rs", text)], &[expected]);
    }

    #[test]
    fn tests_that_sleep_are_found() {
        let text = "use std::thread;\nfn a() { thread::sleep(b); }\n\
                    #[cfg(test)]\nmod tests {\n    fn c() { tokio::time::sleep(d); stop.sleep(e) }\n}\n";
        let expected = "crates/a/src/lib.rs:5: a test sleeps: wait for a condition with a deadline";
        says(no_sleep_in_tests, &[("crates/a/src/lib.rs", text)], &[expected]);
        let expected =
            "crates/a/tests/it/b.rs:1: a test sleeps: wait for a condition with a deadline";
        says(no_sleep_in_tests, &[("crates/a/tests/it/b.rs", "fn a() { sleep(b) }")], &[expected]);
    }

    #[test]
    fn a_stale_permission_is_found() {
        let expected = format!(
            "{}: sleeps no longer: remove it from MAY_SLEEP in xtask/src/tidy",
            MAY_SLEEP[0]
        );
        says(no_sleep_in_tests, &[(MAY_SLEEP[0], "fn a() { sleep(b) }")], &[]);
        says(no_sleep_in_tests, &[(MAY_SLEEP[0], "fn a() {}")], &[&expected]);
    }
}
