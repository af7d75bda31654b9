//! Cycles: sets of modules of which each uses each other, if not directly.

use std::collections::{BTreeMap, BTreeSet};

use super::{arrows::Arrows, parse::Source};

/// The strongly connected components of more than one node, the largest first.
pub(crate) fn of(arrows: &Arrows) -> Vec<BTreeSet<usize>> {
    let mut search = Search::new(arrows);
    for node in arrows.keys() {
        if !search.order.contains_key(node) {
            search.visit(*node);
        }
    }
    let mut found = search.found;
    found.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    found
}

/// Tarjan's algorithm. The depth is that of the longest way, at most the number of modules.
struct Search<'a> {
    arrows: &'a Arrows,
    order: BTreeMap<usize, usize>,
    lowest: BTreeMap<usize, usize>,
    open: Vec<usize>,
    found: Vec<BTreeSet<usize>>,
}

impl<'a> Search<'a> {
    fn new(arrows: &'a Arrows) -> Self {
        Self {
            arrows,
            order: BTreeMap::new(),
            lowest: BTreeMap::new(),
            open: Vec::new(),
            found: Vec::new(),
        }
    }

    fn visit(&mut self, node: usize) {
        let number = self.order.len();
        self.order.insert(node, number);
        self.lowest.insert(node, number);
        self.open.push(node);
        for &next in self.arrows.get(&node).into_iter().flatten() {
            if !self.order.contains_key(&next) {
                self.visit(next);
                self.lower(node, self.lowest[&next]);
            } else if self.open.contains(&next) {
                self.lower(node, self.order[&next]);
            }
        }
        if self.lowest[&node] == number {
            let start = self.open.iter().position(|open| *open == node).expect("it is open");
            let component: BTreeSet<usize> = self.open.drain(start..).collect();
            if component.len() > 1 {
                self.found.push(component);
            }
        }
    }

    fn lower(&mut self, node: usize, to: usize) {
        let lowest = self.lowest.get_mut(&node).expect("it was visited");
        *lowest = (*lowest).min(to);
    }
}

/// Modules with the same parent that form a cycle, where what lies below a module counts as its own.
/// An arrow between a module and its parent is free.
pub(crate) fn among_siblings(source: &Source, arrows: &Arrows) -> Vec<BTreeSet<usize>> {
    let mut found = Vec::new();
    for (parent, module) in source.modules.iter().enumerate() {
        if module.children.len() > 1 {
            found.extend(of(&lifted(source, arrows, parent)));
        }
    }
    found
}

/// The arrows between the children of a module.
pub(crate) fn lifted(source: &Source, arrows: &Arrows, parent: usize) -> Arrows {
    let mut lifted = Arrows::new();
    for (from, uses) in arrows {
        let Some(from) = source.child_above(*from, parent) else { continue };
        let uses = uses.iter().filter_map(|to| source.child_above(*to, parent));
        lifted.entry(from).or_default().extend(uses.filter(|to| *to != from));
    }
    lifted
}

impl Source {
    /// The child of `parent` that is this module or holds it.
    fn child_above(&self, mut module: usize, parent: usize) -> Option<usize> {
        loop {
            let above = self.modules[module].parent?;
            if above == parent {
                return Some(module);
            }
            module = above;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{arrows::between_modules, parse::testing::source},
        *,
    };

    fn arrows(of: &[(usize, &[usize])]) -> Arrows {
        of.iter().map(|(from, to)| (*from, to.iter().copied().collect())).collect()
    }

    #[test]
    fn cycles_are_components_of_more_than_one() {
        let found =
            of(&arrows(&[(1, &[2]), (2, &[3]), (3, &[1, 4]), (4, &[5]), (5, &[4]), (6, &[1])]));
        assert_eq!(found, [BTreeSet::from([1, 2, 3]), BTreeSet::from([4, 5])]);
        assert!(of(&arrows(&[(1, &[2, 3]), (2, &[3])])).is_empty());
    }

    #[test]
    fn siblings_count_with_what_lies_below_them_and_parents_are_free() {
        let source = source(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "mod deep;\npub struct A;\nfn f() { deep::go() }"),
            ("a/deep.rs", "use super::A;\npub fn go() { crate::b::go() }"),
            ("b.rs", "pub fn go() {}\nfn f(_: crate::a::A) {}"),
        ]);
        let arrows = between_modules(&source);
        let found = among_siblings(&source, &arrows);
        let names = |set: &BTreeSet<usize>| -> Vec<String> {
            set.iter().map(|index| source.modules[*index].path.join("::")).collect()
        };
        assert_eq!(found.iter().map(names).collect::<Vec<_>>(), [["a", "b"]]);
    }
}
