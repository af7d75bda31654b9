use super::{
    crates::UNSAFE_CRATE,
    tree::{Tree, Violation},
};

/// Files of tests that may sleep, because none of it orders anything.
const MAY_SLEEP: [&str; 4] = [
    // Moments between kills, drawn at random.
    "crates/walpost-consumer/tests/it/member.rs",
    // Asks for a condition again and again, up to a deadline.
    "crates/walpost-local/tests/it/guard.rs",
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

pub(super) fn no_ignored_test(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, rust) in tree.rust() {
        for (offset, _) in rust.scan.words().filter(|(_, word)| *word == "ignore") {
            let before = rust.scan.code[..offset].trim_end();
            if before.ends_with("#[") || before.ends_with(',') && is_in_attribute(before) {
                let text = "an ignored test: mend it, or assert what happens today";
                violations.push(Violation::at(path, rust.scan.line(offset), text));
            }
        }
    }
    violations
}

/// Whether text that ends with `before` goes on inside of `#[…]`, as in
/// `#[cfg_attr(unix, ignore)]`.
fn is_in_attribute(before: &str) -> bool {
    before.rfind("#[").is_some_and(|start| !before[start..].contains(']'))
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
    fn ignored_tests_are_found() {
        let text = "#[test]\n#[ignore = \"slow\"]\nfn a() {}\n#[cfg_attr(unix, ignore)]\nfn b() {}\n\
                    fn c(a: u8, ignore: u8) {}\n";
        says(
            no_ignored_test,
            &[("a.rs", text)],
            &[
                "a.rs:2: an ignored test: mend it, or assert what happens today",
                "a.rs:4: an ignored test: mend it, or assert what happens today",
            ],
        );
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
