use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use crate::{Break, Contract, Error, compatibility::compare, document};

/// The contracts of one folder, by the types of their events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contracts {
    by_type: BTreeMap<String, Contract>,
}

impl Contracts {
    /// Reads each `<domain>/<event>.md` of the folder; `README.md` is none.
    ///
    /// # Errors
    /// [`Error`] for the first file that cannot be read or is no contract, and
    /// where there is none at all.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, Error> {
        let folder = folder.as_ref();
        let mut files = Vec::new();
        for domain in children(folder)? {
            if domain.is_dir() {
                files.extend(children(&domain)?);
            }
        }
        files.retain(|path| Self::is_document(path));
        let documents = files.into_iter().map(|path| {
            let text = fs::read_to_string(&path)
                .map_err(|source| Error::Read { path: path.clone(), source })?;
            Ok((path, text))
        });
        let contracts = Self::parse(documents.collect::<Result<Vec<_>, Error>>()?)?;
        match contracts.by_type.is_empty() {
            true => Err(Error::Empty { path: folder.to_owned() }),
            false => Ok(contracts),
        }
    }

    /// The same from texts, each with the path that errors call it by.
    ///
    /// # Errors
    /// As [`load`](Self::load), but for there being none.
    pub fn parse(documents: impl IntoIterator<Item = (PathBuf, String)>) -> Result<Self, Error> {
        let mut by_type: BTreeMap<String, (PathBuf, Contract)> = BTreeMap::new();
        for (path, text) in documents {
            let contract = document::parse(&text)
                .map_err(|source| Error::Document { path: path.clone(), source })?;
            let event_type = contract.event_type.clone();
            if let Some((first, _)) = by_type.get(&event_type) {
                return Err(Error::Twice { event_type, first: first.clone(), second: path });
            }
            by_type.insert(event_type, (path, contract));
        }
        let by_type = by_type.into_iter().map(|(name, (_, contract))| (name, contract)).collect();
        Ok(Self { by_type })
    }

    /// Whether a path in the folder, relative or not, is that of a contract.
    pub fn is_document(path: &Path) -> bool {
        let is_markdown = path.extension().is_some_and(|end| end == "md");
        let in_domain = path.parent().is_some_and(|domain| domain.file_name().is_some());
        is_markdown && in_domain && path.file_stem().is_some_and(|stem| stem != "README")
    }

    /// All of them, by their events' types.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Contract> {
        self.by_type.values()
    }

    /// That of one type of event.
    pub fn get(&self, event_type: &str) -> Option<&Contract> {
        self.by_type.get(event_type)
    }

    /// What these contracts break of what they were before: consumers, and
    /// replays of events that are written already.
    ///
    /// A contract that is new breaks nothing; one that is gone does, since its
    /// events are still in topics and archives.
    pub fn breaks_since(&self, before: &Self) -> Vec<Break> {
        let of = |old: &Contract| match self.get(&old.event_type) {
            Some(new) => compare(old, new),
            None => vec![Break {
                event_type: old.event_type.clone(),
                reason: "its contract is gone, and events of it are still in topics and archives; \
                         keep the document"
                    .to_owned(),
            }],
        };
        before.iter().flat_map(of).collect()
    }
}

/// Paths in a folder, in their order.
fn children(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::Read { path: folder.to_owned(), source };
    let entries = fs::read_dir(folder).map_err(failed)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed));
    let mut paths: Vec<PathBuf> = paths.collect::<Result<_, _>>()?;
    paths.sort();
    Ok(paths)
}
