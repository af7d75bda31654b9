//! A crate's modules as `syn` reads them: what each defines, imports and names.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, File, Item, ItemMod, UseTree,
    visit::{self, Visit},
};

/// A path as segments, such as `["crate", "ack", "Ticket"]`.
pub(crate) type Segments = Vec<String>;

/// The modules of one crate; the first one is its root. Tests are left out.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) modules: Vec<Module>,
}

/// One module, in a file or inline.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// From the crate's root; empty for the root.
    pub(crate) path: Segments,
    pub(crate) parent: Option<usize>,
    pub(crate) children: BTreeMap<String, usize>,
    /// Lines of the file, 0 for an inline module.
    pub(crate) lines: usize,
    /// Names of functions, types, traits, constants and macros.
    pub(crate) items: BTreeSet<String>,
    /// Local names with the paths that they stand for.
    pub(crate) imports: BTreeMap<String, Segments>,
    /// Paths whose contents are imported by `*`.
    pub(crate) globs: Vec<Segments>,
    /// Paths in types, expressions, patterns and macros.
    pub(crate) named: BTreeSet<Segments>,
}

impl Source {
    /// Reads a crate from its root file.
    ///
    /// # Errors
    /// If a file cannot be read or parsed.
    pub(crate) fn load(name: &str, root: &Path) -> Result<Self> {
        let mut source = Self { name: name.to_owned(), modules: Vec::new() };
        let folder = root.parent().context("a root file lies in a folder")?;
        source.load_file(Segments::new(), None, root, folder)?;
        Ok(source)
    }

    fn load_file(
        &mut self,
        path: Segments,
        parent: Option<usize>,
        file: &Path,
        folder: &Path,
    ) -> Result<usize> {
        let text =
            fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let parsed =
            syn::parse_file(&text).with_context(|| format!("parsing {}", file.display()))?;
        let File { items, .. } = parsed;
        self.add(path, parent, text.lines().count(), &items, folder)
    }

    /// `folder` is where the files of the module's children lie.
    fn add(
        &mut self,
        path: Segments,
        parent: Option<usize>,
        lines: usize,
        items: &[Item],
        folder: &Path,
    ) -> Result<usize> {
        let index = self.modules.len();
        self.modules.push(Module { path: path.clone(), parent, lines, ..Module::default() });
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            if let Item::Mod(module) = item {
                let child = self.add_child(&path, index, module, folder)?;
                self.modules[index].children.insert(module.ident.to_string(), child);
            } else {
                self.modules[index].take(item);
            }
        }
        Ok(index)
    }

    fn add_child(
        &mut self,
        path: &[String],
        parent: usize,
        module: &ItemMod,
        folder: &Path,
    ) -> Result<usize> {
        let name = module.ident.to_string();
        let path = [path, std::slice::from_ref(&name)].concat();
        let inner = folder.join(&name);
        if let Some((_, items)) = &module.content {
            return self.add(path, Some(parent), 0, items, &inner);
        }
        let flat: PathBuf = folder.join(format!("{name}.rs"));
        let file = if flat.exists() { flat } else { inner.join("mod.rs") };
        self.load_file(path, Some(parent), &file, &inner)
    }
}

impl Module {
    fn take(&mut self, item: &Item) {
        match item {
            Item::Use(item) => self.import(&item.tree, &mut Segments::new()),
            item => {
                self.items.extend(name(item));
                Names(self).visit_item(item);
            }
        }
    }

    fn import(&mut self, tree: &UseTree, before: &mut Segments) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(&path.tree, before);
                before.pop();
            }
            UseTree::Name(name) => self.import_as(&name.ident.to_string(), before, None),
            UseTree::Rename(rename) => {
                let local = rename.rename.to_string();
                self.import_as(&rename.ident.to_string(), before, Some(local));
            }
            UseTree::Glob(_) => self.globs.push(before.clone()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, before)),
        }
    }

    fn import_as(&mut self, name: &str, before: &[String], local: Option<String>) {
        let path = match name {
            "self" => before.to_vec(),
            name => [before, &[name.to_owned()]].concat(),
        };
        let Some(last) = path.last().cloned() else { return };
        self.named.insert(path.clone());
        self.imports.insert(local.unwrap_or(last), path);
    }
}

/// Collects the paths below an item.
struct Names<'a>(&'a mut Module);

impl Visit<'_> for Names<'_> {
    fn visit_path(&mut self, path: &syn::Path) {
        let segments = path.segments.iter().map(|segment| segment.ident.to_string());
        self.0.named.insert(segments.collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, of: &syn::Macro) {
        self.0.named_in_tokens(of.tokens.clone());
        visit::visit_macro(self, of);
    }

    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        self.0.import(&item.tree, &mut Segments::new());
    }

    fn visit_item_fn(&mut self, item: &syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }
}

impl Module {
    /// A macro's arguments are no syntax tree: what looks like a path counts as one.
    fn named_in_tokens(&mut self, tokens: TokenStream) {
        let mut path = Segments::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if colons == 2 && !path.is_empty() => {
                    path.push(ident.to_string());
                }
                TokenTree::Ident(ident) => {
                    self.end_path(&mut path);
                    path.push(ident.to_string());
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => {
                    self.end_path(&mut path);
                    self.named_in_tokens(group.stream());
                }
                _ => self.end_path(&mut path),
            }
            colons = 0;
        }
        self.end_path(&mut path);
    }

    /// A single word in small letters may be a variable.
    fn end_path(&mut self, path: &mut Segments) {
        let path = std::mem::take(path);
        let is_type = |name: &String| name.starts_with(char::is_uppercase);
        if path.len() > 1 || path.first().is_some_and(is_type) {
            self.named.insert(path);
        }
    }
}

fn name(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Macro(item) => item.ident.as_ref()?.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        Item::Union(item) => item.ident.to_string(),
        _ => return None,
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an item is built for tests alone: `#[test]`, `#[cfg(test)]`, `#[cfg(all(test, …))]`.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        if path.is_ident("test") {
            return true;
        }
        let Ok(list) = attribute.meta.require_list() else { return false };
        path.is_ident("cfg") && needs_test(list.tokens.clone())
    })
}

fn needs_test(condition: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = condition.into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(word)] => word == "test",
        [TokenTree::Ident(word), TokenTree::Group(group)] if word == "all" => {
            let parts: Vec<TokenTree> = group.stream().into_iter().collect();
            let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
            parts.split(is_comma).any(|part| needs_test(part.iter().cloned().collect()))
        }
        _ => false,
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// A crate of files, whose root is `lib.rs`.
    pub(crate) fn source(files: &[(&str, &str)]) -> Source {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let file = folder.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        Source::load("sample", &folder.path().join("lib.rs")).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::{testing::source, *};

    #[test]
    fn modules_are_found_in_files_folders_and_inline() {
        let source = source(&[
            ("lib.rs", "mod a;\nmod b { mod c; }\n#[cfg(test)]\nmod left_out;"),
            ("a/mod.rs", "mod d;"),
            ("a/d.rs", "fn f() {}"),
            ("b/c.rs", ""),
        ]);
        let paths: Vec<String> =
            source.modules.iter().map(|module| module.path.join("::")).collect();
        assert_eq!(paths, ["", "a", "a::d", "b", "b::c"]);
    }

    #[test]
    fn code_of_tests_names_nothing() {
        let source = source(&[(
            "lib.rs",
            "#[cfg(all(test, unix))]\nuse crate::x::Y;\n#[cfg(not(test))]\nuse crate::x::Z;\n\
             #[test]\nfn t() { crate::u::V::new(); }",
        )]);
        let named: Vec<String> =
            source.modules[0].named.iter().map(|path| path.join("::")).collect();
        assert_eq!(named, ["crate::x::Z"]);
    }

    #[test]
    fn paths_in_macros_count() {
        let source = source(&[(
            "lib.rs",
            "fn f() { assert!(matches!(x, a::B | C { .. }), \"{}\", d::e(y)) }",
        )]);
        let named: BTreeSet<String> =
            source.modules[0].named.iter().map(|path| path.join("::")).collect();
        for path in ["a::B", "C", "d::e"] {
            assert!(named.contains(path), "{named:?}");
        }
        assert!(!named.contains("x"), "{named:?}");
    }
}
