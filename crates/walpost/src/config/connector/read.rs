use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf, absolute},
};

use clap::{Args, ValueEnum};
use walpost_connector::{
    Allowed, Connector, Judgement, MAX_BYTES, Origin, Properties, ProviderError, Providers,
    ResolveError, Row, Setting, Unknown, Verdicts, judge,
};
use walpost_event::error_chain;
use walpost_router::Pattern;

use super::{relay, transforms};
use crate::config::{error::ConfigError, layers::HEADING, origin};

/// A connector's file, and how to read it.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ConnectorArgs {
    /// File of a Debezium connector as it is, JSON or properties; --config comes before it
    #[arg(long = "connector", id = "file", value_name = "FILE", global = true, help_heading = HEADING)]
    pub(crate) file: Option<PathBuf>,
    /// File of the Kafka Connect worker that it runs in
    #[arg(long, value_name = "FILE", global = true, help_heading = HEADING)]
    worker: Option<PathBuf>,
    /// File, or folder, that ${file:…} and ${dir:…} in both may read; none unless it is named
    #[arg(long = "allow-placeholders", value_name = "PATH", global = true, help_heading = HEADING)]
    allowed_paths: Vec<PathBuf>,
    /// Variables that ${env:…} in both may read, a regular expression of whole names
    #[arg(long = "allow-env", value_name = "REGEX", global = true, help_heading = HEADING)]
    allowed_variables: Option<String>,
    /// What becomes of a connector with properties that are unknown: refuse, or warn
    #[arg(
        long = "unknown",
        value_enum,
        value_name = "WHAT",
        hide_possible_values = true,
        global = true,
        help_heading = HEADING
    )]
    unknown: Option<OnUnknown>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnUnknown {
    /// It does not start
    Refuse,
    /// It starts without them, as in Debezium
    Warn,
}

/// A connector with the verdict on each of its properties.
#[derive(Debug)]
pub(crate) struct ConnectorFile {
    /// As it was named.
    pub(crate) file: String,
    worker: Option<String>,
    judgement: Judgement,
    /// The options that name it, for hints; `None` where it came over HTTP.
    options: Option<String>,
    /// The row of the placeholder that leads nowhere.
    unresolved: Option<(Origin, String)>,
}

impl ConnectorArgs {
    /// Names the connector's file, where that is not done by an option.
    pub(crate) fn name(&mut self, file: Option<&PathBuf>) {
        if file.is_some() {
            self.file = file.cloned();
        }
    }

    /// Whether a connector's file is named.
    pub(crate) fn is_named(&self) -> bool {
        self.file.is_some()
    }

    /// Reads the files and judges them; `None` where none is named. Whatever is
    /// refused is in the verdicts.
    pub(crate) fn read(&self) -> Result<Option<ConnectorFile>, ConfigError> {
        let Some(path) = &self.file else {
            return match &self.worker {
                Some(_) => Err(ConfigError::WorkerAlone),
                None => Ok(None),
            };
        };
        let connector = properties(path)?;
        let (worker, mut providers) = self.surroundings()?;
        let mut unresolved = Unresolved::default();
        let connector = unresolved.resolve(Origin::Connector, connector, &mut providers).named();
        let worker =
            worker.map(|worker| unresolved.resolve(Origin::Worker, worker, &mut providers));
        let mut file = ConnectorFile::judged(
            path.display().to_string(),
            self.worker_name(),
            (&connector, worker.as_ref()),
            self.unknown(),
        );
        for (origin, property, note) in &unresolved.found {
            file.judgement.refuse(*origin, property, note.clone());
        }
        let first = unresolved.found.into_iter().next();
        file.unresolved = first.map(|(origin, property, _)| (origin, property));
        file.options = Some(self.options(path));
        Ok(Some(file))
    }

    /// As they are written at the command line.
    fn options(&self, connector: &Path) -> String {
        let path = |path: &PathBuf| path.display().to_string();
        let mut options = vec![("--connector", connector.display().to_string())];
        options.extend(self.worker.iter().map(|file| ("--worker", path(file))));
        let allowed =
            self.allowed_paths.iter().map(|allowed| ("--allow-placeholders", path(allowed)));
        options.extend(allowed);
        options.extend(self.allowed_variables.iter().map(|names| ("--allow-env", names.clone())));
        let warns = matches!(self.unknown, Some(OnUnknown::Warn));
        options.extend(warns.then(|| ("--unknown", "warn".to_owned())));
        let options =
            options.into_iter().map(|(name, value)| format!(" {name} {}", quoted(&value)));
        options.collect()
    }

    /// The worker's file as it is written, and where placeholders lead.
    pub(super) fn surroundings(&self) -> Result<(Option<Properties>, Providers), ConfigError> {
        let worker = self.worker.as_deref().map(properties).transpose()?;
        let providers = Providers::new(self.allowed()?);
        let Some(properties) = &worker else { return Ok((worker, providers)) };
        let file = self.worker_name().unwrap_or_default();
        let providers = providers.with_worker(properties);
        Ok((worker, providers.map_err(|source| ConfigError::Provider { file, source })?))
    }

    /// The worker's file as it was named.
    pub(super) fn worker_name(&self) -> Option<String> {
        self.worker.as_ref().map(|path| path.display().to_string())
    }

    pub(super) fn unknown(&self) -> Unknown {
        match self.unknown {
            None | Some(OnUnknown::Refuse) => Unknown::Refuse,
            Some(OnUnknown::Warn) => Unknown::Warn,
        }
    }

    fn allowed(&self) -> Result<Allowed, ConfigError> {
        let mut allowed = Allowed::nothing();
        for path in &self.allowed_paths {
            let unreadable = |source| ConfigError::ConnectorFile { path: path.clone(), source };
            allowed = allowed.with_path(absolute(path).map_err(unreadable)?);
        }
        match &self.allowed_variables {
            Some(names) => {
                let names = Pattern::new(names).map_err(ConfigError::AllowedVariables)?;
                Ok(allowed.with_environment(names))
            }
            None => Ok(allowed),
        }
    }
}

/// A value for a shell.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    match !value.is_empty() && value.chars().all(is_plain) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', r"'\''")),
    }
}

/// What only those who use it can read, with why it cannot be.
fn unreadable(connector: &Connector) -> Vec<(String, String)> {
    let transforms = transforms::unreadable(&connector.transforms);
    transforms.chain(relay::unreadable(connector)).collect()
}

fn properties(path: &Path) -> Result<Properties, ConfigError> {
    let bytes = read_bounded(path)
        .map_err(|source| ConfigError::ConnectorFile { path: path.to_owned(), source })?;
    Properties::read(&bytes)
        .map_err(|source| ConfigError::Properties { file: path.display().to_string(), source })
}

/// One byte more than there may be is enough to be refused.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Placeholders that lead nowhere: whose, of which property, and why.
#[derive(Default)]
struct Unresolved {
    found: Vec<(Origin, String, String)>,
}

impl Unresolved {
    /// The properties with their placeholders replaced; as they are written if one
    /// cannot be, so that the others have their verdicts all the same.
    fn resolve(
        &mut self,
        origin: Origin,
        properties: Properties,
        providers: &mut Providers,
    ) -> Properties {
        let written = properties.clone();
        match properties.resolve(|asked| providers.lookup(asked)) {
            Ok(resolved) => resolved,
            Err(error) => {
                self.found.push((origin, error.property().to_owned(), unresolved(&error)));
                written
            }
        }
    }
}

/// Why a placeholder leads nowhere, of a property that is named beside it, and what
/// to do at the command line, where the file itself is right.
pub(super) fn unresolved(error: &ResolveError<ProviderError>) -> String {
    let ResolveError::Lookup { source, .. } = error else { return error_chain(error) };
    let advice = match source {
        ProviderError::Nothing { provider, path, key } => allowing(provider, path, key),
        ProviderError::Forbidden { path } => {
            format!(", with --allow-placeholders {}", path.display())
        }
        ProviderError::ForbiddenVariable { name } => {
            format!("; an --allow-env that matches {name} allows it")
        }
        _ => String::new(),
    };
    format!("{}{advice}", error_chain(source))
}

fn allowing(provider: &str, path: &str, key: &str) -> String {
    match provider {
        "env" if path.is_empty() => format!(", or allow it, with --allow-env {key}"),
        "file" | "dir" | "directory" if !path.is_empty() => {
            format!(", or allow it, with --allow-placeholders {path}")
        }
        _ => ", or allow it, with --allow-placeholders PATH or --allow-env REGEX; providers other \
             than those of files, folders and the environment are not known"
            .to_owned(),
    }
}

impl ConnectorFile {
    /// A connector and the worker's properties, placeholders replaced, judged under
    /// these names.
    pub(super) fn judged(
        file: String,
        worker: Option<String>,
        (connector, of_worker): (&Properties, Option<&Properties>),
        unknown: Unknown,
    ) -> Self {
        let mut judgement = judge(connector, of_worker, unknown);
        let unreadable = judgement.connector.as_ref().map(unreadable).unwrap_or_default();
        for (property, note) in unreadable {
            judgement.refuse(Origin::Connector, &property, note);
        }
        Self { file, worker, judgement, options: None, unresolved: None }
    }

    /// What becomes of each property.
    pub(crate) fn verdicts(&self) -> &Verdicts {
        &self.judgement.verdicts
    }

    /// The options that name it, each behind a blank.
    pub(super) fn options(&self) -> Option<&str> {
        self.options.as_deref()
    }

    /// What no key of ours says; `None` if something is refused.
    pub(crate) fn connector(&self) -> Option<&Connector> {
        self.judgement.connector.as_ref()
    }

    /// The keys of ours that it sets.
    pub(in crate::config) fn settings(&self) -> &[Setting] {
        self.judgement.settings()
    }

    /// Fails with the first property that is refused.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let refused: Vec<&Row> = self.verdicts().refused().collect();
        let is_unresolved = |row: &&&Row| {
            let named =
                |(origin, name): &(Origin, String)| row.origin == *origin && row.property == *name;
            self.unresolved.as_ref().is_some_and(named)
        };
        match refused.iter().find(is_unresolved).or_else(|| refused.first()) {
            None => Ok(()),
            Some(row) => Err(ConfigError::Property {
                place: self.place(row.origin, row.at.map(|at| at.line)),
                row: row.to_string(),
                others: refused.len() - 1,
                file: self.file.clone(),
            }),
        }
    }

    /// A row for people who start it all the same.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        self.verdicts()
            .warnings()
            .map(|row| format!("{}: {row}", self.place(row.origin, row.at.map(|at| at.line))))
    }

    /// Where a key of ours comes from.
    pub(in crate::config) fn origin(&self, setting: &Setting) -> origin::Origin {
        origin::Origin::Property {
            name: setting.property.clone(),
            file: self.file_of(setting.origin).to_owned(),
            line: setting.at.map(|at| at.line),
        }
    }

    fn place(&self, origin: Origin, line: Option<u32>) -> String {
        let file = self.file_of(origin);
        line.map_or_else(|| file.to_owned(), |line| format!("{file} line {line}"))
    }

    fn file_of(&self, origin: Origin) -> &str {
        match origin {
            Origin::Connector => &self.file,
            Origin::Worker => self.worker.as_deref().unwrap_or_default(),
        }
    }
}
