use super::tree::{Tree, Violation};

const README: &str = "README.md";
const EXAMPLE: &str = "crates/walpost-consumer/examples/readme.rs";

/// The first Rust block of the README is the example that is compiled.
pub(super) fn example(tree: &Tree) -> Vec<Violation> {
    let Some(readme) = tree.text(README) else {
        return vec![Violation::at(README, 0, "it is missing")];
    };
    let Some((line, block)) = rust_block(readme) else {
        return vec![Violation::at(README, 0, "it has no block of Rust")];
    };
    if tree.text(EXAMPLE) == Some(&block) {
        return Vec::new();
    }
    vec![Violation::at(README, line, format!("the block differs from {EXAMPLE}"))]
}

/// The first block of Rust, and the line that it begins behind.
fn rust_block(text: &str) -> Option<(usize, String)> {
    let begin = text.lines().position(|line| line == "```rust")?;
    let lines = text.lines().skip(begin + 1).take_while(|line| *line != "```");
    Some((begin + 1, lines.flat_map(|line| [line, "\n"]).collect()))
}

#[cfg(test)]
mod tests {
    use super::{super::tree::testing::says, *};

    #[test]
    fn the_example_is_the_one_that_is_compiled() {
        let readme = "# A\n```sh\nb\n```\n```rust\nfn main() {\n}\n```\n";
        says(example, &[(README, readme), (EXAMPLE, "fn main() {\n}\n")], &[]);
        let expected = format!("README.md:5: the block differs from {EXAMPLE}");
        says(example, &[(README, readme), (EXAMPLE, "fn main() {}\n")], &[&expected]);
        says(example, &[(README, readme)], &[&expected]);
        says(example, &[(README, "# A\n")], &["README.md: it has no block of Rust"]);
        says(example, &[], &["README.md: it is missing"]);
    }
}
