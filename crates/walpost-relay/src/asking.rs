//! Asking what an encoding needs to know: the catalog for tables, a schema
//! registry for ids.
//!
//! Beside the pipeline, one question at a time: the encoder is pure and says
//! what it lacks, and the event waits meanwhile.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::task::JoinHandle;
use uuid::Uuid;
use walpost_encode::{
    Part, UnknownSchema,
    avro::{Registry, RegistryConfig, RegistryError, RegistryErrorKind},
};
use walpost_event::{Relation, RetrySchedule, error_chain, jitter};

use crate::{
    catalog::{self, TableDescription},
    encoding::{EventEncoding, Registries},
    error::RelayError,
    id_space::IdSpaceTable,
    sql::Sql,
};

/// What an event waits to be told.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    /// What the catalog says of the table of this relation.
    Describe(Arc<Relation>),
    /// The id space of the table of this relation.
    IdSpace(Arc<Relation>, Arc<IdSpaceTable>),
    /// The id of a schema of this part of a record.
    Id { part: Part, schema: Box<UnknownSchema> },
}

/// What was said.
#[derive(Debug)]
pub(crate) enum Answer {
    Described(Arc<Relation>, TableDescription),
    IdSpace(Arc<Relation>, Uuid),
    Id {
        part: Part,
        schema: Box<UnknownSchema>,
        id: u32,
    },
    /// The registry gives the schema no id: its events are parked.
    Refused {
        schema: Box<UnknownSchema>,
        kind: RegistryErrorKind,
        detail: String,
    },
}

/// Who asks. Whoever drops it waits no longer for an answer.
pub(crate) struct Asker {
    sql: Sql,
    registries: Arc<Asked>,
    asking: Option<Asking>,
}

/// The registries by the converter that asks.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    key: Option<Registry>,
    value: Option<Registry>,
    header: Option<Registry>,
}

struct Asking {
    task: JoinHandle<Result<Answer, RelayError>>,
    /// Why the registry has not answered.
    trouble: Arc<Mutex<Option<String>>>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Asker {
    /// # Errors
    /// [`RelayError::Config`] for a registry without an address.
    pub(crate) fn new(sql: Sql, encoding: &EventEncoding) -> Result<Self, RelayError> {
        let registries = match encoding {
            EventEncoding::Plain(_) => Asked::default(),
            EventEncoding::Connect(options) => Asked::new(&options.registries)?,
        };
        Ok(Self { sql, registries: Arc::new(registries), asking: None })
    }

    /// Whether an answer is to come.
    pub(crate) fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    /// Begins to ask, unless an answer to another question is to come: then
    /// whoever needs this one asks again.
    pub(crate) fn ask(&mut self, question: Question) {
        if self.asking.is_some() {
            return;
        }
        let (sql, registries) = (self.sql.clone(), Arc::clone(&self.registries));
        let trouble = Arc::new(Mutex::new(None));
        let told = Arc::clone(&trouble);
        let task = tokio::spawn(async move {
            match question {
                Question::Describe(relation) => {
                    let description = catalog::describe(&sql, &relation).await?;
                    Ok(Answer::Described(relation, description))
                }
                Question::IdSpace(relation, table) => {
                    let id = table.of_relation(&sql, &relation).await?;
                    Ok(Answer::IdSpace(relation, id))
                }
                Question::Id { part, schema } => registries.id(part, schema, &told).await,
            }
        });
        self.asking = Some(Asking { task, trouble });
    }

    /// The answer, once there is one; for ever without a question. Loses nothing
    /// when it is cancelled.
    ///
    /// # Errors
    /// [`RelayError::RegistryAccess`] where the registry lets nobody in, and what
    /// has failed in asking the catalog.
    pub(crate) async fn answered(&mut self) -> Result<Answer, RelayError> {
        let Some(asking) = &mut self.asking else { return std::future::pending().await };
        let answer = (&mut asking.task).await.unwrap_or_else(|_| {
            let detail = "asking what an event needs was interrupted".to_owned();
            Err(RelayError::Sink { detail, transient: true })
        });
        self.asking = None;
        answer
    }

    /// Waits no longer for an answer.
    pub(crate) fn give_up(&mut self) {
        self.asking = None;
    }

    /// What an answer waits for, where it does not come.
    pub(crate) fn waits(&self) -> Option<String> {
        let trouble = &self.asking.as_ref()?.trouble;
        trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A registry, if there is one.
///
/// # Errors
/// [`RelayError::Config`] for one without an address.
pub(crate) fn registry(config: Option<&RegistryConfig>) -> Result<Option<Registry>, RelayError> {
    let registry = config.map(Registry::new).transpose();
    registry.map_err(|error| RelayError::Config(error_chain(&error)))
}

impl Asked {
    /// # Errors
    /// [`RelayError::Config`] for a registry without an address.
    pub(crate) fn new(registries: &Registries) -> Result<Self, RelayError> {
        Ok(Self {
            key: registry(registries.key.as_ref())?,
            value: registry(registries.value.as_ref())?,
            header: registry(registries.header.as_ref())?,
        })
    }

    fn of(&self, part: &Part) -> Option<&Registry> {
        match part {
            Part::Key => self.key.as_ref(),
            Part::Value | Part::Member(_) => self.value.as_ref(),
            Part::Header(_) => self.header.as_ref(),
        }
    }

    /// Asks until there is an answer: a registry that is away is no fault of the
    /// event, nor of those behind it.
    pub(crate) async fn id(
        &self,
        part: Part,
        schema: Box<UnknownSchema>,
        trouble: &Mutex<Option<String>>,
    ) -> Result<Answer, RelayError> {
        let Some(registry) = self.of(&part) else {
            return Err(RelayError::Config(format!("the converter of {part} has no registry")));
        };
        let schedule = RetrySchedule::backoff(Duration::from_millis(100), Duration::from_secs(30));
        let mut failures = 0;
        loop {
            let error = match registry.id(&schema).await {
                Ok(id) => {
                    if failures > 0 {
                        tracing::info!(failures, "the schema registry answers again");
                    }
                    return Ok(Answer::Id { part, schema, id });
                }
                Err(error) => error,
            };
            if error.kind().parks() {
                let (kind, detail) = (error.kind(), error_chain(&error));
                return Ok(Answer::Refused { schema, kind, detail });
            }
            if !error.kind().is_transient() {
                return Err(refused(&error));
            }
            failures += 1;
            let wait = schedule.delay(failures, jitter()).unwrap_or(Duration::from_secs(30));
            let waits = format!("events wait for the schema registry: {}", error_chain(&error));
            if failures == 1 {
                tracing::warn!("{waits}");
            }
            *trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(waits);
            tokio::time::sleep(wait).await;
        }
    }
}

fn refused(error: &RegistryError) -> RelayError {
    RelayError::RegistryAccess {
        problem: error_chain(error),
        remedy: "set the address of a schema registry and credentials that it takes, then start \
                 again"
            .to_owned(),
    }
}
