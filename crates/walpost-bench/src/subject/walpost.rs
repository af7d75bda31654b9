use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use walpost_local::{ChildGuard, Launch};

use super::{Job, Output, PUBLICATION, Subject, connector};
use crate::{
    encoding::Encoding,
    services::{DATABASE, Services},
};

/// The relay as a user runs it: `walpost run`, with its defaults unless told
/// otherwise.
#[derive(Debug)]
pub(crate) struct Walpost {
    name: &'static str,
    program: PathBuf,
    settings: Vec<String>,
    by_socket: bool,
}

impl Walpost {
    /// The binary, by default the one beside this program, and settings as
    /// `section.key=value`.
    pub(crate) fn new(program: Option<&Path>, settings: &[String]) -> Result<Self> {
        let program = match program {
            Some(program) => program.to_owned(),
            None => env::current_exe()?.with_file_name("walpost"),
        };
        if !program.is_file() {
            bail!(
                "there is no {}; build it with `cargo build --release -p walpost`, or name it \
                 with --walpost",
                program.display()
            );
        }
        // It runs in another folder.
        let program = program.canonicalize()?;
        Ok(Self { name: "walpost", program, settings: settings.to_vec(), by_socket: false })
    }

    /// The same under another name, beside one with other settings.
    pub(crate) fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// The same, that reads from PostgreSQL through its Unix socket.
    pub(crate) fn by_socket(self) -> Self {
        Self { by_socket: true, ..self }
    }

    /// What the command line says of it: Walpost's own file, or, for what only a
    /// connector's says, the very file that Debezium gets.
    fn configuration(&self, job: &Job<'_>) -> Result<Vec<OsString>> {
        if job.encoding == Encoding::Text {
            let config = job.folder.join("walpost.toml");
            fs::write(&config, config_text(job, &self.postgres_url(job.services)))
                .with_context(|| format!("writing {}", config.display()))?;
            return Ok(vec!["--config".into(), config.into()]);
        }
        let files = connector::write(job)?;
        let by_socket = self.by_socket.then(|| self.postgres_url(job.services));
        let mut arguments = vec!["--connector".into(), files.connector.into()];
        arguments.extend(["--worker".into(), files.worker.into()]);
        arguments.extend(["--set", "http.listen="].map(OsString::from));
        if let Some(url) = by_socket {
            arguments.extend(["--postgres".into(), url.into()]);
        }
        Ok(arguments)
    }

    fn postgres_url(&self, services: &Services) -> String {
        match self.by_socket {
            true => services.postgres.socket_conninfo(DATABASE),
            false => services.postgres.url(DATABASE),
        }
    }
}

impl Subject for Walpost {
    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self, _: &Services) -> Result<String> {
        let output = Command::new(&self.program).arg("--version").output()?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let socket = self.by_socket.then(|| "the Unix socket".to_owned());
        let other: Vec<String> = self.settings.iter().cloned().chain(socket).collect();
        Ok(match other.is_empty() {
            true => version,
            false => format!("{version} with {}", other.join(", ")),
        })
    }

    fn output(&self) -> Output {
        Output::Topic
    }

    fn start(&self, job: &Job<'_>) -> Result<ChildGuard> {
        Launch::new("walpost", &self.program, job.log())
            .args(self.configuration(job)?)
            .args(self.settings.iter().flat_map(|setting| ["--set", setting]))
            .arg("run")
            .directory(job.folder)
            .disposable(Some(job.services.folder()))
            .spawn()
            .context("starting walpost")
    }
}

/// The same record as Debezium's in `connectors/orders.json`. The rest is the
/// default.
fn config_text(job: &Job<'_>, postgres_url: &str) -> String {
    let services = job.services;
    let text = |value: &str| Value::from(value).to_string();
    format!(
        "[postgres]\nurl = {}\n\
         [pipeline]\nname = {slot}\nslot = {slot}\ninitial = \"skip\"\npublication = {}\n\
         [router]\nadditional_placement = \"type:header:eventType\"\ntopic_replacement = {}\n\
         [kafka]\n\"bootstrap.servers\" = {}\n\
         [http]\nlisten = \"\"\n",
        text(postgres_url),
        text(PUBLICATION),
        text(job.topic),
        text(&services.kafka.bootstrap()),
        slot = text(job.slot),
    )
}
