//! Which module uses which, by where an item is defined and not by where it is re-exported.

use std::collections::{BTreeMap, BTreeSet};

use super::parse::{Segments, Source};

/// How many re-exports may lead from a name to its item.
const HOPS_MAX: usize = 16;

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Module(usize),
    /// An item that this module defines.
    Item(usize),
}

/// Modules by number, with those that each uses.
pub(crate) type Arrows = BTreeMap<usize, BTreeSet<usize>>;

/// The arrows between the modules of a crate.
pub(crate) fn between_modules(source: &Source) -> Arrows {
    let mut arrows = Arrows::new();
    for (index, module) in source.modules.iter().enumerate() {
        let globs = module.globs.iter().map(|path| (path, true));
        for (path, is_glob) in module.named.iter().map(|path| (path, false)).chain(globs) {
            let used = match source.find(index, path, 0) {
                Some(Found::Item(used)) => used,
                Some(Found::Module(used)) if is_glob => used,
                _ => continue,
            };
            if used != index {
                arrows.entry(index).or_default().insert(used);
            }
        }
    }
    arrows
}

impl Source {
    fn find(&self, at: usize, path: &[String], hops: usize) -> Option<Found> {
        let (first, mut rest) = path.split_first()?;
        let mut found = match first.as_str() {
            "crate" => Found::Module(0),
            "self" => Found::Module(at),
            "super" => Found::Module(self.modules[at].parent?),
            name => self.look_up(at, name, rest.is_empty(), hops)?,
        };
        while let (Found::Module(module), Some((name, behind))) = (found, rest.split_first()) {
            found = match name.as_str() {
                "super" => Found::Module(self.modules[module].parent?),
                name => self.look_up(module, name, behind.is_empty(), hops)?,
            };
            rest = behind;
        }
        Some(found)
    }

    /// A module and an item may share a name: the last segment is the item's.
    fn look_up(&self, at: usize, name: &str, is_last: bool, hops: usize) -> Option<Found> {
        if hops > HOPS_MAX {
            return None;
        }
        let module = &self.modules[at];
        let child = module.children.get(name).map(|child| Found::Module(*child));
        let item = module.items.contains(name).then_some(Found::Item(at));
        let own = if is_last { item.or(child) } else { child.or(item) };
        own.or_else(|| {
            let path = module.imports.get(name)?;
            // `use name::…` of another crate's root is no import of itself.
            let is_own = path.len() == 1 && path[0] == name;
            if is_own { None } else { self.find(at, path, hops + 1) }
        })
        .or_else(|| self.look_up_in_globs(at, &module.globs, name, is_last, hops))
    }

    fn look_up_in_globs(
        &self,
        at: usize,
        globs: &[Segments],
        name: &str,
        is_last: bool,
        hops: usize,
    ) -> Option<Found> {
        globs.iter().find_map(|path| match self.find(at, path, hops + 1)? {
            Found::Module(module) if module != at => self.look_up(module, name, is_last, hops + 1),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::parse::testing::source, *};

    fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        let source = source(files);
        let name = |index: usize| source.modules[index].path.join("::");
        between_modules(&source)
            .iter()
            .flat_map(|(from, to)| to.iter().map(|to| format!("{} -> {}", name(*from), name(*to))))
            .collect()
    }

    #[test]
    fn an_arrow_leads_to_the_defining_module() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::inner::Thing;"),
            ("a.rs", "pub mod inner;"),
            ("a/inner.rs", "pub struct Thing;"),
            ("b.rs", "use crate::Thing;\nfn f(_: Thing) {}"),
        ];
        assert_eq!(arrows(&files), [" -> a::inner", "b -> a::inner"]);
    }

    #[test]
    fn paths_in_bodies_and_through_modules_count() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub fn go() {}\npub enum E { V }"),
            ("b.rs", "use super::a;\nfn f() { a::go(); }\nfn g() -> a::E { a::E::V }"),
        ];
        assert_eq!(arrows(&files), ["b -> a"]);
    }

    #[test]
    fn globs_and_renames_are_followed() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "pub struct T;"),
            ("b.rs", "pub use crate::a::*;\npub use crate::a::T as U;"),
            ("c.rs", "fn f(_: crate::b::T, _: crate::b::U) {}"),
        ];
        assert_eq!(arrows(&files), ["b -> a", "c -> a"]);
    }

    #[test]
    fn an_item_and_a_module_of_one_name_are_told_apart() {
        let files = [
            ("lib.rs", "mod check; mod run; pub fn check() {}"),
            ("check.rs", "pub fn all() {}"),
            ("run.rs", "fn f() { crate::check::all(); }\nfn g() { crate::check(); }"),
        ];
        assert_eq!(arrows(&files), ["run -> ", "run -> check"]);
    }
}
