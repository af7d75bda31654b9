use std::collections::BTreeMap;

use super::tree::{Tree, Violation};

/// Where the crate finds them when it is packaged: a link, which the tree does
/// not follow.
const LINK: &str = "crates/walpost-migrate/migrations";

/// In each folder `0001_name.sql`, `0002_name.sql` and so on, with line ends as
/// the checksums need them; and no copy of it in the crate.
pub(super) fn numbered(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    if tree.exists(LINK) {
        violations.push(Violation::at(LINK, 0, "it has to be a symbolic link to migrations"));
    }
    for (path, text) in tree.files().filter(|(path, _)| path.starts_with("migrations/")) {
        let (folder, file) = path.rsplit_once('/').expect("it begins with a folder");
        if text.contains('\r') || !text.ends_with('\n') {
            let text = "every line has to end with a line feed alone";
            violations.push(Violation::at(path, 0, text));
        }
        let expected = folders.entry(folder).or_insert(0);
        *expected += 1;
        if number(file) != Some(*expected) {
            let text = format!("{expected:04}_name.sql is expected here, in lower case");
            violations.push(Violation::at(path, 0, text));
        }
    }
    violations
}

fn number(file: &str) -> Option<usize> {
    let (number, name) = file.strip_suffix(".sql")?.split_once('_')?;
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let is_name = number.len() == 4 && !name.is_empty() && name.bytes().all(is_plain);
    is_name.then(|| number.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::{super::tree::testing::says, *};

    #[test]
    fn each_folder_counts_from_one() {
        let files =
            ["migrations/a/0001_x.sql", "migrations/a/0002_y.sql", "migrations/b/0001_z.sql"];
        says(numbered, &files.map(|path| (path, "select 1;\n")), &[]);
    }

    #[test]
    fn gaps_twins_and_other_names_are_found() {
        let expected = "migrations/a/0003_y.sql: 0002_name.sql is expected here, in lower case";
        let files = ["migrations/a/0001_x.sql", "migrations/a/0003_y.sql"];
        says(numbered, &files.map(|path| (path, "\n")), &[expected]);
        let expected = "migrations/a/0001_y.sql: 0002_name.sql is expected here, in lower case";
        let files = ["migrations/a/0001_x.sql", "migrations/a/0001_y.sql"];
        says(numbered, &files.map(|path| (path, "\n")), &[expected]);
        let expected = "migrations/a/1_X.sql: 0001_name.sql is expected here, in lower case";
        says(numbered, &[("migrations/a/1_X.sql", "\n")], &[expected]);
    }

    #[test]
    fn a_copy_in_the_crate_is_found() {
        let expected =
            "crates/walpost-migrate/migrations: it has to be a symbolic link to migrations";
        for path in ["crates/walpost-migrate/migrations", "crates/walpost-migrate/migrations/a/b"] {
            says(numbered, &[(path, "../../migrations")], &[expected]);
        }
    }

    #[test]
    fn other_line_ends_are_found() {
        let expected = "migrations/a/0001_x.sql: every line has to end with a line feed alone";
        says(numbered, &[("migrations/a/0001_x.sql", "select 1;\r\n")], &[expected]);
        says(numbered, &[("migrations/a/0001_x.sql", "select 1;")], &[expected]);
    }
}
