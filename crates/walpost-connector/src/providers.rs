//! Where placeholders lead: files, folders of files, and the environment. The
//! one file of this crate that reads any of them, and only what it is allowed.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Component, Path, PathBuf},
};

use walpost_router::{Pattern, PatternError};

use crate::{
    error::ReadError,
    java_properties::{Charset, entries},
    lists,
    placeholders::Reference,
    properties::{MAX_BYTES, Properties},
    secret::Secret,
};

/// What providers may read at all, whatever a worker's file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    paths: Vec<PathBuf>,
    environment: Option<Pattern>,
}

impl Allowed {
    /// Nothing: for configurations from the network, whose placeholders are all
    /// refused.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Every file that this process can read, and its whole environment: for
    /// files that an operator names, and Kafka Connect's default.
    pub fn everything() -> Self {
        let any = Pattern::new("(?s).*").expect("it compiles");
        Self { paths: vec![PathBuf::from("/")], environment: Some(any) }
    }

    /// The same with the files at or below `path`, which is absolute.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.paths.push(path.into());
        self
    }

    /// The same with the variables whose names match.
    #[must_use]
    pub fn with_environment(mut self, names: Pattern) -> Self {
        self.environment = Some(names);
        self
    }
}

/// Providers by their names in placeholders: `file`, `dir`, `directory` and
/// `env`, and those of a worker's `config.providers`.
#[derive(Clone, Debug)]
pub struct Providers {
    allowed: Allowed,
    known: BTreeMap<String, Provider>,
    /// What was read, by the path without links: each file once.
    files: BTreeMap<PathBuf, Secret>,
}

#[derive(Clone, Debug)]
struct Provider {
    kind: Kind,
    /// `allowed.paths` of the worker; `None` for no further bound.
    paths: Option<Vec<PathBuf>>,
    /// `allowlist.pattern` of the worker.
    names: Option<Pattern>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    File,
    Directory,
    Environment,
}

/// A placeholder leads nowhere, or a provider cannot be used. Names what was
/// looked for, never what was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// Nothing may be read.
    #[error("${{{provider}:…}} is not resolved here; write the value itself")]
    Nothing {
        /// Name of the provider.
        provider: String,
        /// What stands between the first two colons; empty where there is but one.
        path: String,
        /// The rest.
        key: String,
    },
    /// No provider of this name.
    #[error(
        "there is no provider {provider:?}; write file, dir or env, or name it in config.providers of the worker's file"
    )]
    Unknown {
        /// The name.
        provider: String,
    },
    /// A class that Walpost has no counterpart of.
    #[error(
        "config.providers.{provider}.class is {class}, which walpost has not; mount the secrets as files and use FileConfigProvider or DirectoryConfigProvider, or use EnvVarConfigProvider"
    )]
    Class {
        /// Name of the provider.
        provider: String,
        /// Its class; empty where there is none.
        class: String,
    },
    /// A parameter of a provider.
    #[error("{property} cannot be used")]
    Parameter {
        /// The property of the worker.
        property: String,
        /// Why.
        #[source]
        source: PatternError,
    },
    /// A path that may not be read.
    #[error("{} is outside of the paths that may be read; move the file there, or allow its folder", .path.display())]
    Forbidden {
        /// The path.
        path: PathBuf,
    },
    /// A variable that may not be read.
    #[error("the variable {name} may not be read; allow it, or take another one")]
    ForbiddenVariable {
        /// Its name.
        name: String,
    },
    /// A variable that is not set, or no Unicode.
    #[error("the variable {name} is not set; set it for this process")]
    NoVariable {
        /// Its name.
        name: String,
    },
    /// A path is missing, or stands where none belongs.
    #[error("a placeholder of {provider} is written ${{{provider}:{form}}}")]
    Form {
        /// Name of the provider.
        provider: String,
        /// What follows it.
        form: &'static str,
    },
    /// A file that cannot be read.
    #[error("cannot read {}; make it readable for this user", .path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file that is too large or no UTF-8.
    #[error("{} is no UTF-8 of at most {max_bytes} bytes", .path.display())]
    Content {
        /// The path.
        path: PathBuf,
        /// The bound.
        max_bytes: usize,
    },
    /// A file that is no Java properties file.
    #[error("{} is no properties file", .path.display())]
    Syntax {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: ReadError,
    },
    /// A properties file without the property.
    #[error("{} has no property {key}; add it there", .path.display())]
    NoKey {
        /// The path.
        path: PathBuf,
        /// The property.
        key: String,
    },
}

impl Providers {
    /// `file`, `dir`, `directory` and `env`, within bounds.
    ///
    /// ```
    /// use walpost_connector::{Allowed, Properties, Providers};
    ///
    /// let given = Properties::from_pairs([("database.password", "${env:PGPASSWORD}")]);
    /// let mut none = Providers::new(Allowed::nothing());
    /// assert!(given.resolve(|asked| none.lookup(asked)).is_err());
    /// ```
    pub fn new(allowed: Allowed) -> Self {
        let provider = |kind| Provider { kind, paths: None, names: None };
        let known = [
            ("file", Kind::File),
            ("dir", Kind::Directory),
            ("directory", Kind::Directory),
            ("env", Kind::Environment),
        ];
        let known = known.map(|(name, kind)| (name.to_owned(), provider(kind)));
        Self { allowed, known: known.into(), files: BTreeMap::new() }
    }

    /// The same with the providers of a worker's file: the names of
    /// `config.providers`, each with `config.providers.<name>.class` and
    /// `config.providers.<name>.param.*`. Its bounds hold beside our own.
    ///
    /// # Errors
    /// For a class other than Kafka's three providers and Strimzi's for the
    /// environment, and for an `allowlist.pattern` that does not compile.
    pub fn with_worker(mut self, worker: &Properties) -> Result<Self, ProviderError> {
        for name in lists::split(worker.get("config.providers").unwrap_or_default()) {
            let property = |rest: &str| format!("config.providers.{name}.{rest}");
            let class = worker.get(&property("class")).unwrap_or_default().trim();
            let kind = match class {
                "org.apache.kafka.common.config.provider.FileConfigProvider" => Kind::File,
                "org.apache.kafka.common.config.provider.DirectoryConfigProvider" => {
                    Kind::Directory
                }
                "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
                | "io.strimzi.kafka.EnvVarConfigProvider" => Kind::Environment,
                _ => {
                    let class = class.to_owned();
                    return Err(ProviderError::Class { provider: name, class });
                }
            };
            let list =
                lists::split(worker.get(&property("param.allowed.paths")).unwrap_or_default());
            let paths = list.into_iter().map(PathBuf::from).collect::<Vec<_>>();
            let paths = (!paths.is_empty()).then_some(paths);
            let pattern = property("param.allowlist.pattern");
            let names = worker.get(&pattern).map(Pattern::new).transpose();
            let names =
                names.map_err(|source| ProviderError::Parameter { property: pattern, source })?;
            self.known.insert(name, Provider { kind, paths, names });
        }
        Ok(self)
    }

    /// What stands behind a placeholder; for [`Properties::resolve`].
    ///
    /// A file is a Java properties file in UTF-8, of a folder the file named by
    /// the key is the value, line end and all. Links are followed, and what they
    /// lead to has to be allowed.
    ///
    /// # Errors
    /// [`ProviderError`] where nothing stands there (which Kafka Connect leaves
    /// as it is written), or it may not be read.
    pub fn lookup(&mut self, asked: Reference<'_>) -> Result<String, ProviderError> {
        let provider = asked.provider.to_owned();
        if self.allowed == Allowed::nothing() {
            let (path, key) = (asked.path.to_owned(), asked.key.to_owned());
            return Err(ProviderError::Nothing { provider, path, key });
        }
        let Some(found) = self.known.get(asked.provider).cloned() else {
            return Err(ProviderError::Unknown { provider });
        };
        let form = match found.kind {
            Kind::File => "/path/to/file.properties:property",
            Kind::Directory => "/path/to/folder:file",
            Kind::Environment => "VARIABLE",
        };
        let has_path = !asked.path.is_empty();
        if asked.key.is_empty() || has_path == matches!(found.kind, Kind::Environment) {
            return Err(ProviderError::Form { provider, form });
        }
        match found.kind {
            Kind::File => self.property(&found, Path::new(asked.path), asked.key),
            Kind::Directory => {
                let mut parts = Path::new(asked.key).components();
                match (parts.next(), parts.next()) {
                    (Some(Component::Normal(file)), None) => {
                        self.content(&found, &Path::new(asked.path).join(file))
                    }
                    _ => Err(ProviderError::Form { provider, form }),
                }
            }
            Kind::Environment => self.variable(&found, asked.key),
        }
    }

    fn property(
        &mut self,
        provider: &Provider,
        path: &Path,
        key: &str,
    ) -> Result<String, ProviderError> {
        let text = self.content(provider, path)?;
        let path = path.to_owned();
        let properties = entries(&text, Charset::Utf8)
            .map_err(|source| ProviderError::Syntax { path: path.clone(), source })?;
        // As in Java, the last one of a name holds.
        let found = properties.into_iter().rev().find(|property| property.name == key);
        let missing = || ProviderError::NoKey { path, key: key.to_owned() };
        Ok(found.ok_or_else(missing)?.value)
    }

    /// The text of a file that may be read.
    fn content(&mut self, provider: &Provider, path: &Path) -> Result<String, ProviderError> {
        let forbidden = || ProviderError::Forbidden { path: path.to_owned() };
        // Before anything is asked of the disk, which would tell what is there.
        let is_plain = path.is_absolute()
            && path.components().all(|part| !matches!(part, Component::ParentDir));
        let named = |roots: &[PathBuf]| roots.iter().any(|root| path.starts_with(root));
        if !is_plain || !named(&self.allowed.paths) || !provider.paths.as_deref().is_none_or(named)
        {
            return Err(forbidden());
        }
        let unreadable = |source| ProviderError::Read { path: path.to_owned(), source };
        let real = path.canonicalize().map_err(unreadable)?;
        let below = |roots: &[PathBuf]| {
            let mut roots = roots.iter().filter_map(|root| root.canonicalize().ok());
            roots.any(|root| real.starts_with(root))
        };
        if !below(&self.allowed.paths) || !provider.paths.as_deref().is_none_or(below) {
            return Err(forbidden());
        }
        if let Some(text) = self.files.get(&real) {
            return Ok(text.expose().to_owned());
        }
        let bytes = read_bounded(&real).map_err(unreadable)?;
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let content = || ProviderError::Content { path: path.to_owned(), max_bytes: MAX_BYTES };
        let text = text.ok_or_else(content)?;
        self.files.insert(real, Secret::new(text.as_str()));
        Ok(text)
    }

    fn variable(&self, provider: &Provider, name: &str) -> Result<String, ProviderError> {
        let may = |names: &Pattern| names.matches(name);
        let is_allowed = self.allowed.environment.as_ref().is_some_and(may)
            && provider.names.as_ref().is_none_or(may);
        let name = name.to_owned();
        match is_allowed {
            true => std::env::var(&name).map_err(|_| ProviderError::NoVariable { name }),
            false => Err(ProviderError::ForbiddenVariable { name }),
        }
    }
}

/// A regular file of at most [`MAX_BYTES`]; `None` for a larger one.
fn read_bounded(path: &Path) -> io::Result<Option<Vec<u8>>> {
    use io::Read;
    // Before it is opened, which would wait for the other end of a pipe.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let file = fs::File::open(path)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= MAX_BYTES).then_some(bytes))
}
