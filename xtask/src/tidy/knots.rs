//! Modules with the same parent form no cycle, but for those that `xtask/cycles.txt` lists.

use std::collections::BTreeSet;

use super::tree::{Tree, Violation};
use crate::graph;

/// One cycle per line, as `crate: module module …`. The list can only shrink.
const LIST: &str = "xtask/cycles.txt";

/// A cycle, as a line of the list has it.
type Cycle = (String, BTreeSet<String>);

pub(super) fn listed(tree: &Tree) -> Vec<Violation> {
    let crates = match graph::load() {
        Ok(crates) => crates,
        Err(error) => {
            return vec![Violation::at(LIST, 0, format!("cannot read modules: {error:#}"))];
        }
    };
    let found = crates.iter().flat_map(|of| {
        let name = &of.source.name;
        of.sibling_cycles().into_iter().map(move |cycle| (name.clone(), cycle))
    });
    compared(tree.text(LIST).unwrap_or_default(), &found.collect::<Vec<_>>())
}

fn compared(list: &str, found: &[Cycle]) -> Vec<Violation> {
    let listed: Vec<Cycle> = list.lines().filter_map(read).collect();
    let covers =
        |listed: &Cycle, found: &Cycle| listed.0 == found.0 && found.1.is_subset(&listed.1);
    let mut violations = Vec::new();
    for cycle in found.iter().filter(|found| !listed.iter().any(|line| covers(line, found))) {
        let text = format!("new cycle of modules: {}; move what they share", written(cycle));
        violations.push(Violation::at(LIST, 0, text));
    }
    for (index, line) in listed.iter().enumerate().filter(|(_, line)| !found.contains(line)) {
        let left: Vec<String> =
            found.iter().filter(|found| covers(line, found)).map(written).collect();
        let text = match left.as_slice() {
            [] => "this cycle is gone; delete the line".to_owned(),
            left => format!("this cycle has shrunk; write {}", left.join(" and ")),
        };
        violations.push(Violation::at(LIST, index + 1, text));
    }
    violations
}

fn read(line: &str) -> Option<Cycle> {
    let (name, modules) = line.split_once(": ")?;
    Some((name.to_owned(), modules.split(' ').map(str::to_owned).collect()))
}

fn written((name, modules): &Cycle) -> String {
    graph::listed(name, modules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(list: &str, found: &[&str], expected: &[&str]) {
        let found: Vec<Cycle> = found.iter().filter_map(|line| read(line)).collect();
        let lines: Vec<String> = compared(list, &found).iter().map(ToString::to_string).collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_list_can_only_shrink() {
        says("a: x y z\n", &["a: x y z"], &[]);
        says(
            "a: x y\n",
            &["a: x y z"],
            &[
                "xtask/cycles.txt: new cycle of modules: a: x y z; move what they share",
                "xtask/cycles.txt:1: this cycle is gone; delete the line",
            ],
        );
        says(
            "a: x y z\n",
            &["a: x y"],
            &["xtask/cycles.txt:1: this cycle has shrunk; write a: x y"],
        );
        says(
            "a: x y\nb: x y\n",
            &["b: x y"],
            &["xtask/cycles.txt:1: this cycle is gone; delete the line"],
        );
    }
}
