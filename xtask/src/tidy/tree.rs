use std::{collections::BTreeMap, fmt, fs, path::Path};

use anyhow::{Context, Result};

use super::{items::Rust, scan::Scan};

/// The text files of the repository, by path with `/`, relative to its root.
#[derive(Debug)]
pub(super) struct Tree {
    files: BTreeMap<String, String>,
    rust: BTreeMap<String, Rust>,
}

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Violation {
    path: String,
    /// From 1; 0 for the whole file.
    line: usize,
    text: String,
    rule: &'static str,
}

impl Violation {
    pub(super) fn at(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, text: text.into(), rule: "" }
    }

    pub(super) fn of(self, rule: &'static str) -> Self {
        Self { rule, ..self }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.text)?;
        if !self.rule.is_empty() {
            write!(f, " ({})", self.rule)?;
        }
        Ok(())
    }
}

impl Tree {
    /// Reads everything that `.gitignore` does not name.
    pub(super) fn load(root: &Path) -> Result<Self> {
        let ignore = fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
        let mut ignored = vec!["/.git".to_owned()];
        ignored.extend(ignore.lines().filter(|line| line.starts_with('/')).map(str::to_owned));
        let mut files = BTreeMap::new();
        read_folder(root, "", &ignored, &mut files)?;
        Ok(Self::new(files))
    }

    fn new(files: BTreeMap<String, String>) -> Self {
        let rust = files
            .iter()
            .filter(|(path, _)| path.ends_with(".rs"))
            .map(|(path, text)| (path.clone(), Rust::new(path, Scan::new(text))))
            .collect();
        Self { files, rust }
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    pub(super) fn rust(&self) -> impl Iterator<Item = (&str, &Rust)> {
        self.rust.iter().map(|(path, rust)| (path.as_str(), rust))
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether `path` is a file, or a folder with files.
    pub(super) fn exists(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.files.contains_key(path) || self.files.keys().any(|file| file.starts_with(&folder))
    }
}

fn read_folder(
    root: &Path,
    folder: &str,
    ignored: &[String],
    files: &mut BTreeMap<String, String>,
) -> Result<()> {
    let path = root.join(folder);
    let entries = fs::read_dir(&path).with_context(|| format!("cannot list {}", path.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let below = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        if ignored.contains(&format!("/{below}")) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            read_folder(root, &below, ignored, files)?;
        } else if kind.is_file()
            && let Ok(text) = String::from_utf8(fs::read(entry.path())?)
        {
            files.insert(below, text);
        }
    }
    Ok(())
}

/// What the tests of the rules share.
#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Runs `rule` over `files` and compares what it says.
    #[track_caller]
    pub(crate) fn says(
        rule: fn(&Tree) -> Vec<Violation>,
        files: &[(&str, &str)],
        expected: &[&str],
    ) {
        let found: Vec<String> = rule(&tree(files)).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    pub(crate) fn tree(files: &[(&str, &str)]) -> Tree {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Tree::new(files.collect())
    }
}
