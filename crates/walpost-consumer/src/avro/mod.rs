//! Values in Avro, under schemas of a registry.

mod ask;
mod cache;
mod framing;
mod layout;
mod stack;
mod strict;
mod walk;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use apache_avro::{
    Schema, from_value, reader::datum::GenericDatumReader, schema::ResolvedSchema, types::Value,
};
use reqwest::Client;
use serde::de::DeserializeOwned;

use self::{
    ask::{Answer, Asking},
    cache::Cache,
    framing::framed,
    layout::{FLAT_LEVELS, Layout, MAX_LEVELS},
    strict::Strict,
    walk::Refusal,
};
use crate::{Error, Event, HandlerError};

/// Schemas that are kept, unless told otherwise.
const MAX_SCHEMAS: usize = 1_000;
const ANSWER_LIMIT_MS: u64 = 5_000;

/// A schema registry with Confluent's API (Confluent, Karapace, Apicurio at
/// `/apis/ccompat/v7`), which says under which schema a value was written.
///
/// Cheap to clone; clones share the schemas that were fetched. Keep one in the
/// handler:
///
/// ```
/// use walpost_consumer::{
///     AvroRegistry, Event, Handler, HandlerError, tokio_postgres::Transaction,
/// };
///
/// #[derive(serde::Deserialize)]
/// struct OrderPlaced {
///     order: i64,
/// }
///
/// struct Shipping {
///     registry: AvroRegistry,
/// }
///
/// impl Handler for Shipping {
///     async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
///         let placed: OrderPlaced = event.avro(&self.registry).await?;
///         tx.execute("insert into shipment (order_id) values ($1)", &[&placed.order]).await?;
///         Ok(())
///     }
/// }
///
/// let registry = AvroRegistry::builder("http://localhost:8081").build()?;
/// # Ok::<(), walpost_consumer::Error>(())
/// ```
///
/// # Bounds
/// Records, arrays and maps within each other: 128. Items of all arrays and maps
/// of a value together: one for each byte of its data, and 1,000 more, because
/// items such as null take none. What is beyond is parked before anything is
/// built of it. Only values under schemas that allow it are looked through,
/// which is found out once for each schema; what is nested deeper than 8 is
/// decoded on a thread of its own, with a stack that is large enough.
#[derive(Clone)]
pub struct AvroRegistry {
    asking: Arc<Asking>,
    cache: Arc<Mutex<Cache>>,
}

/// What an [`AvroRegistry`] is made of. Made by [`AvroRegistry::builder`].
#[must_use]
pub struct AvroRegistryBuilder {
    url: String,
    basic: Option<(String, String)>,
    bearer: Option<String>,
    max_schemas: usize,
    answer_limit_ms: u64,
}

impl AvroRegistry {
    /// The registry at `url`, up to before `/schemas/ids`.
    pub fn builder(url: impl Into<String>) -> AvroRegistryBuilder {
        AvroRegistryBuilder {
            url: url.into(),
            basic: None,
            bearer: None,
            max_schemas: MAX_SCHEMAS,
            answer_limit_ms: ANSWER_LIMIT_MS,
        }
    }

    async fn schema(&self, id: u32) -> Result<Arc<Written>, HandlerError> {
        let cached = self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(id);
        if let Some(schema) = cached {
            return Ok(schema);
        }
        let texts = match self.asking.schema(id).await? {
            Answer::Found(texts) => texts,
            Answer::Unknown => {
                return Err(HandlerError::retry(format!(
                    "schema id {id} is unknown to the registry"
                )));
            }
            Answer::NotAvro(kind) => {
                return Err(HandlerError::park(format!("schema id {id} is {kind}, expected Avro")));
            }
        };
        let written = Arc::new(Written::parse(id, &texts)?);
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.put(id, Arc::clone(&written));
        Ok(written)
    }
}

impl AvroRegistryBuilder {
    /// User and password.
    pub fn basic_auth(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.basic = Some((user.into(), password.into()));
        self
    }

    /// A token.
    pub fn bearer_auth(mut self, token: impl Into<String>) -> Self {
        self.bearer = Some(token.into());
        self
    }

    /// Schemas that are kept, 1 to 100,000; 1,000 unless set. Beyond that the
    /// oldest is fetched again when it is needed.
    pub fn max_schemas(mut self, schemas: usize) -> Self {
        self.max_schemas = schemas;
        self
    }

    /// Longest wait for an answer, 100 to 60,000 milliseconds; 5,000 unless set.
    /// It counts as time of the handler.
    pub fn answer_limit_ms(mut self, milliseconds: u64) -> Self {
        self.answer_limit_ms = milliseconds;
        self
    }

    /// The registry. Nothing is asked yet.
    ///
    /// # Errors
    /// [`Error::Setting`] for a setting that is out of its bounds.
    pub fn build(self) -> Result<AvroRegistry, Error> {
        let refused = |setting: &str, problem: &str| Error::Setting {
            setting: setting.to_owned(),
            problem: problem.to_owned(),
        };
        let url = self.url.trim_end_matches('/').to_owned();
        if reqwest::Url::parse(&url).map_or(true, |url| !matches!(url.scheme(), "http" | "https")) {
            return Err(refused("url of the registry", "is none, use https://host:port/path"));
        }
        if !(1..=100_000).contains(&self.max_schemas) {
            return Err(refused("max_schemas", "is out of bounds, use 1 to 100000"));
        }
        if !(100..=60_000).contains(&self.answer_limit_ms) {
            return Err(refused("answer_limit_ms", "is out of bounds, use 100 to 60000"));
        }
        let client = Client::builder()
            .timeout(Duration::from_millis(self.answer_limit_ms))
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|_| refused("url of the registry", "no HTTP client could be made"))?;
        Ok(AvroRegistry {
            asking: Arc::new(Asking { client, url, basic: self.basic, bearer: self.bearer }),
            cache: Arc::new(Mutex::new(Cache::new(self.max_schemas))),
        })
    }
}

/// Without address and secrets.
impl fmt::Debug for AvroRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AvroRegistry")
    }
}

/// Without address and secrets.
impl fmt::Debug for AvroRegistryBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AvroRegistryBuilder")
            .field("max_schemas", &self.max_schemas)
            .field("answer_limit_ms", &self.answer_limit_ms)
            .finish_non_exhaustive()
    }
}

/// The schema that values were written under, and those that it names.
pub(crate) struct Written {
    id: u32,
    schema: Schema,
    named: Vec<Schema>,
    /// Where the schema alone does not bound a value.
    layout: Option<Layout>,
}

impl Written {
    /// `texts` are the named ones, then the schema.
    fn parse(id: u32, texts: &[String]) -> Result<Self, HandlerError> {
        let broken = || HandlerError::park(format!("schema id {id} is no valid Avro schema"));
        let (text, named) = texts.split_last().ok_or_else(broken)?;
        let (schema, named) = Schema::parse_str_with_list(text, named).map_err(|_| broken())?;
        let names = ResolvedSchema::new_with_schemata(named.iter().chain([&schema]).collect());
        let names = names.map_err(|_| broken())?;
        let layout = Layout::new(&schema, names.get_names()).ok_or_else(broken)?;
        let layout = layout.is_unbounded().then_some(layout);
        Ok(Self { id, schema, named, layout })
    }

    fn read<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, HandlerError> {
        let id = self.id;
        let levels = self.layout.as_ref().map_or(Ok(0), |layout| layout.walk(bytes));
        let levels = levels.map_err(|refusal| self.refused(refusal))?;
        let value = if levels > FLAT_LEVELS {
            stack::with_levels(levels, || self.decode(bytes))?
        } else {
            self.decode(bytes)
        };
        let value = value.ok_or_else(|| self.refused(Refusal::NotWritten))?;
        from_value(&value).map_err(|_| {
            HandlerError::park(format!("the value, of schema id {id}, is Avro of another shape"))
        })
    }

    /// `None` if the bytes are anything but one value.
    fn decode(&self, bytes: &[u8]) -> Option<Value> {
        let reader = GenericDatumReader::builder(&self.schema);
        let reader = reader.writer_schemata(self.named.iter().chain([&self.schema]).collect());
        let mut bytes = Strict(bytes);
        let value = reader.ok()?.build().ok()?.read_value(&mut bytes).ok()?;
        bytes.0.is_empty().then_some(value)
    }

    fn refused(&self, refusal: Refusal) -> HandlerError {
        let id = self.id;
        HandlerError::park(match refusal {
            Refusal::TooDeep => {
                format!("the value, of schema id {id}, is nested deeper than {MAX_LEVELS} levels")
            }
            Refusal::TooManyItems => {
                format!(
                    "the value, of schema id {id}, says to have more items than its size allows"
                )
            }
            Refusal::NotWritten => format!("the value is not written under schema id {id}"),
        })
    }
}

impl Event {
    /// Reads the value as Avro in Confluent's framing: a zero byte, the id of
    /// the schema that it was written under, and the data. The registry is asked
    /// for a schema once.
    ///
    /// The writer's schema decides how the data is read, and serde what the type
    /// takes of it: fields that the type does not name are passed over, and one
    /// that the writer did not know needs `#[serde(default)]`.
    ///
    /// # Errors
    /// No text shows contents.
    /// - [`HandlerError::Park`] if there is no value, or it is not framed, not
    ///   written under its schema, or not of the type's shape, or beyond the
    ///   bounds that [`AvroRegistry`] names.
    /// - [`HandlerError::Retry`] for a schema id that the registry does not know:
    ///   parked after [`Builder::max_attempts`](crate::Builder::max_attempts),
    ///   because a replica of a registry may hear of a new one late.
    /// - [`HandlerError::Transient`] where the registry does not answer, or no
    ///   thread starts for a nested value: tried again for ever.
    ///   [`HandlerError::Halt`] where the registry refuses us.
    pub async fn avro<T: DeserializeOwned>(
        &self,
        registry: &AvroRegistry,
    ) -> Result<T, HandlerError> {
        let (id, data) = framed(self.value()).map_err(HandlerError::park)?;
        registry.schema(id).await?.read(data)
    }
}

#[cfg(test)]
mod tests {
    use apache_avro::{types::Record, writer::datum::GenericDatumWriter};

    use super::*;

    const ORDER: &str = r#"{"type":"record","name":"Order","fields":[
        {"name":"id","type":"string"},{"name":"total","type":["null","int"]},
        {"name":"place","type":"Place"}]}"#;
    const PLACE: &str =
        r#"{"type":"record","name":"Place","fields":[{"name":"city","type":"string"}]}"#;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Order {
        id: String,
        total: Option<i32>,
        #[serde(default)]
        note: String,
    }

    fn plain() -> Written {
        let text = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},
            {"name":"total","type":["null","int"]},{"name":"more","type":"long"}]}"#;
        Written::parse(7, &[text.to_owned()]).unwrap()
    }

    fn written(schema: &Schema) -> Vec<u8> {
        let mut record = Record::new(schema).unwrap();
        record.put("id", "s3cr3t");
        record.put("total", Some(12));
        record.put("more", 5i64);
        GenericDatumWriter::builder(schema).build().unwrap().write_value_to_vec(record).unwrap()
    }

    #[test]
    fn the_writers_schema_reads_and_serde_takes_what_it_needs() {
        let schema = plain();
        let order: Order = schema.read(&written(&schema.schema)).unwrap();
        assert_eq!(order, Order { id: "s3cr3t".into(), total: Some(12), note: String::new() });
    }

    #[test]
    fn named_schemas_come_from_the_list() {
        let schema = Written::parse(7, &[PLACE.to_owned(), ORDER.to_owned()]).unwrap();
        // id "a", total 12, city "b".
        let order: Order = schema.read(&[2, b'a', 2, 24, 2, b'b']).unwrap();
        assert_eq!(order.total, Some(12));
        assert!(Written::parse(7, &[ORDER.to_owned()]).is_err(), "without Place");
    }

    #[test]
    fn what_cannot_be_read_is_parked_without_contents() {
        #[derive(Debug, serde::Deserialize)]
        struct Other {
            #[expect(dead_code, reason = "it cannot be read")]
            id: i64,
        }
        let schema = plain();
        let whole = written(&schema.schema);
        let longer: Vec<u8> = whole.iter().copied().chain([0]).collect();
        for bytes in [&whole[..whole.len() - 1], &longer, b""] {
            let error = schema.read::<Order>(bytes).unwrap_err();
            assert!(matches!(error, HandlerError::Park(_)) && !error.report().contains("s3cr3t"));
        }
        let error = schema.read::<Other>(&whole).unwrap_err();
        assert!(error.report().ends_with("of schema id 7, is Avro of another shape"));
        assert!(!error.report().contains("s3cr3t"));
    }

    #[test]
    fn settings_have_bounds_and_show_no_secret() {
        let url = |url: &str| AvroRegistry::builder(url).build().map(drop);
        assert!(url("https://registry:8081/").is_ok());
        assert!(url("ftp://registry").is_err() && url("registry").is_err());
        assert!(AvroRegistry::builder("http://r").max_schemas(0).build().is_err());
        assert!(AvroRegistry::builder("http://r").answer_limit_ms(1).build().is_err());
        let builder = AvroRegistry::builder("http://u:s3cr3t@r").basic_auth("u", "s3cr3t");
        let text = format!("{builder:?}");
        assert!(!format!("{text} {:?}", builder.build()).contains("s3cr3t"));
    }
}
