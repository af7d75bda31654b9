use super::tree::{Tree, Violation};

/// Folders whose names mark a path between backticks as one of this
/// repository.
const FOLDERS: [&str; 8] =
    ["connectors/", "crates/", "docs/", "fuzz/", "migrations/", "xtask/", ".ci/", ".cargo/"];

/// Relative links of documents lead to a file, and to a heading in it; paths
/// between backticks exist.
pub(super) fn resolve(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".md")) {
        for (index, line) in text.lines().enumerate() {
            let broken_links = links(line).filter(|link| !leads(tree, path, link));
            let broken_paths = paths(line).filter(|named| !tree.exists(named));
            for broken in broken_links.chain(broken_paths) {
                let text = format!("{broken} leads nowhere");
                violations.push(Violation::at(path, index + 1, text));
            }
        }
    }
    violations
}

/// The targets of `[text](target)` that are no addresses.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

/// What stands between backticks and begins with one of our folders.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).filter(|text| {
        FOLDERS.iter().any(|folder| text.starts_with(folder))
            && !text.contains(['*', '{', '<', ' ', '…'])
    })
}

fn leads(tree: &Tree, from: &str, link: &str) -> bool {
    let (target, heading) = link.split_once('#').map_or((link, None), |(t, h)| (t, Some(h)));
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let path = if target.is_empty() { from.to_owned() } else { join(folder, target) };
    let has_heading = |heading: &str| {
        let mut headings = tree.text(&path).unwrap_or_default().lines().filter_map(slug);
        headings.any(|slug| slug == heading)
    };
    tree.exists(&path) && heading.is_none_or(has_heading)
}

fn join(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The name by which a heading is linked to.
fn slug(line: &str) -> Option<String> {
    let heading = line.strip_prefix('#')?.trim_start_matches('#').trim();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    Some(kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect())
}

#[cfg(test)]
mod tests {
    use super::{super::tree::testing::says, *};

    #[test]
    fn links_lead_to_files_folders_and_headings() {
        let text = "[a](../README.md#what-it-is) [b](b.md) [c](https://example.org) [d](#d)\n# D\n\
                    `crates/x` `crates/*/src` `cargo run`\n";
        let files = [
            ("docs/a.md", text),
            ("README.md", "## What it *is*\n"),
            ("docs/b.md", ""),
            ("crates/x/a.rs", ""),
        ];
        says(resolve, &files, &[]);
    }

    #[test]
    fn dead_links_and_paths_are_found() {
        let text = "\n[a](b.md) [c](#d) `crates/x/y.rs`\n";
        says(
            resolve,
            &[("docs/a.md", text)],
            &[
                "docs/a.md:2: b.md leads nowhere",
                "docs/a.md:2: #d leads nowhere",
                "docs/a.md:2: crates/x/y.rs leads nowhere",
            ],
        );
    }
}
