//! `cargo xtask graph`: crates and modules, who uses whom, and where they form cycles.

mod arrows;
mod cycles;
mod parse;
mod svg;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{
    options::Options,
    suite::{self, table::aligned},
};
use arrows::Arrows;
use parse::Source;

/// A crate of the workspace, as its manifest has it.
#[derive(Debug)]
struct Package {
    name: String,
    /// The root file of the library, else of the program.
    root: PathBuf,
    /// Crates of the workspace that it uses, not counting those of tests.
    uses: BTreeSet<String>,
    is_published: bool,
}

/// A crate with its modules.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) source: Source,
    arrows: Arrows,
    uses: BTreeSet<String>,
}

/// Prints the crates; with `--crate NAME` the modules of one; with `--svg FILE` draws the crates.
///
/// # Errors
/// If an option is unknown, or a manifest or a source file cannot be read.
pub(crate) fn run(options: &[&str]) -> Result<()> {
    let options = Options::parse(options, &["--crate", "--svg"], &["--cycles", "--json"])?;
    if let Some(file) = options.value("--svg") {
        return fs::write(file, picture(packages()?)).with_context(|| format!("writing {file}"));
    }
    let crates = load()?;
    match options.value("--crate") {
        Some(name) => {
            let one = crates.iter().find(|of| of.source.name == name);
            let one = one.with_context(|| format!("no crate {name:?} in this workspace"))?;
            print!("{}", modules(one));
        }
        None if options.has("--cycles") => print!("{}", cycles(&crates)),
        None if options.has("--json") => println!("{}", as_json(&crates)),
        None => print!("{}", overview(&crates)),
    }
    Ok(())
}

/// All crates of the workspace, by name.
///
/// # Errors
/// If a manifest or a source file cannot be read.
pub(crate) fn load() -> Result<Vec<Parsed>> {
    let mut packages = packages()?;
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    let parse = |Package { name, root, uses, .. }: Package| {
        let source = Source::load(&name, &root)?;
        let arrows = arrows::between_modules(&source);
        Ok(Parsed { source, arrows, uses })
    };
    packages.into_iter().map(parse).collect()
}

fn packages() -> Result<Vec<Package>> {
    let metadata = suite::metadata()?;
    let packages = metadata["packages"].as_array().context("metadata has no packages")?;
    let names: BTreeSet<&str> = packages.iter().filter_map(|of| of["name"].as_str()).collect();
    packages.iter().map(|package| read(package, &names).context("reading metadata")).collect()
}

fn read(package: &Value, names: &BTreeSet<&str>) -> Option<Package> {
    let targets = package["targets"].as_array()?;
    let of_kind = |kind: &str| {
        let is_kind = |target: &&Value| target["kind"][0] == kind;
        targets.iter().find(is_kind)?["src_path"].as_str()
    };
    let uses = package["dependencies"].as_array()?.iter().filter_map(|dependency| {
        let name = dependency["name"].as_str()?;
        (dependency["kind"] != "dev" && names.contains(name)).then(|| name.to_owned())
    });
    Some(Package {
        name: package["name"].as_str()?.to_owned(),
        root: PathBuf::from(of_kind("lib").or_else(|| of_kind("bin"))?),
        uses: uses.collect(),
        // Metadata lists the registries that a crate may be published to; null for all.
        is_published: package["publish"].is_null(),
    })
}

impl Parsed {
    fn lines(&self) -> usize {
        self.source.modules.iter().map(|module| module.lines).sum()
    }

    /// Cycles among modules with the same parent, by their paths.
    pub(crate) fn sibling_cycles(&self) -> Vec<BTreeSet<String>> {
        let name = |index: &usize| self.source.modules[*index].path.join("::");
        let cycles = cycles::among_siblings(&self.source, &self.arrows);
        cycles.iter().map(|cycle| cycle.iter().map(name).collect()).collect()
    }

    /// Modules at the top of the crate, and how many of them are in the largest cycle.
    fn top(&self) -> (usize, usize) {
        let cycles = cycles::of(&cycles::lifted(&self.source, &self.arrows, 0));
        let largest = cycles.first().map_or(0, BTreeSet::len);
        (self.source.modules[0].children.len(), largest)
    }

    /// Modules in the largest cycle, wherever they lie.
    fn largest_cycle(&self) -> usize {
        cycles::of(&self.arrows).first().map_or(0, BTreeSet::len)
    }
}

/// All cycles of modules, as `xtask/cycles.txt` lists them.
fn cycles(crates: &[Parsed]) -> String {
    let lines = crates.iter().flat_map(|of| {
        let cycles = of.sibling_cycles().into_iter();
        cycles.map(|cycle| listed(&of.source.name, &cycle) + "\n")
    });
    lines.collect()
}

/// A cycle of a crate, as a line of `xtask/cycles.txt` has it.
pub(crate) fn listed(name: &str, cycle: &BTreeSet<String>) -> String {
    format!("{name}: {}", spaced(cycle))
}

fn spaced(cycle: &BTreeSet<String>) -> String {
    cycle.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// The crates that can be published, and how they use each other.
fn picture(packages: Vec<Package>) -> String {
    let published = packages.into_iter().filter(|of| of.is_published);
    svg::draw(&published.map(|of| (of.name, of.uses)).collect())
}

fn overview(crates: &[Parsed]) -> String {
    let rows: Vec<Vec<String>> = crates
        .iter()
        .map(|of| {
            let (modules, knotted) = of.top();
            let numbers = [
                of.lines(),
                modules,
                knotted,
                of.largest_cycle(),
                of.sibling_cycles().len(),
                of.uses.len(),
            ];
            let cells = numbers.iter().map(ToString::to_string);
            [of.source.name.clone()].into_iter().chain(cells).collect()
        })
        .collect();
    let head =
        ["crate", "lines", "top modules", "in a cycle", "all in a cycle", "sibling cycles", "uses"];
    aligned(&head, &rows)
}

fn as_json(crates: &[Parsed]) -> Value {
    let of = |of: &Parsed| {
        let (modules, knotted) = of.top();
        serde_json::json!({
            "crate": of.source.name,
            "lines": of.lines(),
            "top_modules": modules,
            "top_modules_in_largest_cycle": knotted,
            "modules_in_largest_cycle": of.largest_cycle(),
            "sibling_cycles": of.sibling_cycles(),
            "uses": of.uses,
        })
    };
    crates.iter().map(of).collect()
}

/// The top modules of a crate with what they use, and the cycles of the whole crate.
fn modules(of: &Parsed) -> String {
    let lifted = cycles::lifted(&of.source, &of.arrows, 0);
    let name = |index: &usize| of.source.modules[*index].path.join("::");
    let mut text = String::new();
    for child in of.source.modules[0].children.values() {
        let uses: Vec<String> = lifted.get(child).into_iter().flatten().map(name).collect();
        text += format!("{} -> {}", name(child), uses.join(", ")).trim_end();
        text.push('\n');
    }
    for cycle in of.sibling_cycles() {
        text += &format!("cycle of {}: {}\n", cycle.len(), spaced(&cycle));
    }
    text
}

/// Crates by name, with those that each uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy;

    #[test]
    fn the_picture_in_the_docs_is_current() {
        let drawn = picture(packages().unwrap());
        let kept = fs::read_to_string(tidy::root().join("docs/crates.svg")).unwrap_or_default();
        assert!(drawn == kept, "run: cargo xtask graph --svg docs/crates.svg");
    }
}
