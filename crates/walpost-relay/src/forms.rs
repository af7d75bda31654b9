//! Records that are made of no row, as the connector writes its others.

use std::sync::Mutex as Shared;

use tokio::sync::Mutex;
use walpost_encode::{
    Unencoded,
    connect::{Converters, TransformChain, Transformed, TypedRecord},
};
use walpost_event::{Message, error_chain};

use crate::{
    asking::{Answer, Asked},
    encoding::{ConnectOptions, EventEncoding},
    error::RelayError,
};

/// Makes messages of records such as a [heartbeat's](crate::Heartbeat::record):
/// the transforms beside the router change them, the router lets them pass, and
/// the converters write them, under ids of the schema registry where they have
/// one.
#[derive(Debug)]
pub struct Forms {
    registries: Asked,
    making: Mutex<Making>,
}

#[derive(Debug)]
struct Making {
    before: TransformChain,
    after: TransformChain,
    converters: Converters,
}

impl Forms {
    /// Those of a connector's encoding.
    ///
    /// # Errors
    /// [`RelayError::Config`] for what cannot be: a converter that needs a schema
    /// registry and has none, a registry without an address.
    pub fn new(options: &ConnectOptions) -> Result<Self, RelayError> {
        EventEncoding::from(options.clone()).check()?;
        let transforms = options.transforms.clone();
        Ok(Self {
            registries: Asked::new(&options.registries)?,
            making: Mutex::new(Making {
                before: TransformChain::new(transforms.before),
                after: TransformChain::new(transforms.after),
                converters: options.converters.clone(),
            }),
        })
    }

    /// The message of a record, if the transforms leave one. Waits for a registry
    /// that is away.
    ///
    /// # Errors
    /// Text without contents: the record fits the transforms or the converters
    /// not, or the registry refuses its schema.
    pub async fn message(&self, mut record: TypedRecord) -> Result<Option<Message>, String> {
        let mut making = self.making.lock().await;
        let Making { before, after, converters } = &mut *making;
        for chain in [before, after] {
            let transformed = chain.apply(&mut record).map_err(|error| error_chain(&error))?;
            if transformed == Transformed::Dropped {
                return Ok(None);
            }
        }
        loop {
            let (part, schema) = match converters.convert(&record) {
                Ok(message) => return Ok(Some(message)),
                Err(Unencoded::Park(error)) => return Err(error_chain(&error)),
                Err(Unencoded::Ask { part, schema }) => (part, schema),
            };
            let waits = Shared::new(None);
            let answer = self.registries.id(part, schema, &waits).await;
            match answer.map_err(|error| error_chain(&error))? {
                Answer::Id { part, schema, id } => converters.learn(&part, &schema, id),
                Answer::Refused { detail, .. } => return Err(detail),
                Answer::Described(..) | Answer::IdSpace(..) => {
                    return Err("the registry has described a table".into());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use walpost_encode::connect::{
        Action, Condition, Converter, HeaderConverter, ShapeOptions, Test, Transform, Transforms,
        TypingOptions,
    };
    use walpost_router::Pattern;

    use super::*;
    use crate::encoding::{ContextHeaders, Registries};

    const TOPIC: &str = "__debezium-heartbeat.shop";

    fn forms(transforms: Transforms) -> Forms {
        let converters = Converters {
            key: Converter::String,
            value: Converter::String,
            header: HeaderConverter::Simple,
        };
        Forms::new(&ConnectOptions {
            shape: ShapeOptions::default(),
            typing: TypingOptions::default(),
            transforms,
            converters,
            registries: Registries::default(),
            context_headers: ContextHeaders::Four,
        })
        .unwrap()
    }

    fn step(action: Action, only: &str) -> Transform {
        let test = Test::TopicMatches(Pattern::new(only).unwrap());
        Transform { action, condition: Some(Condition { test, negate: false }) }
    }

    fn record() -> TypedRecord {
        TypedRecord::new(TOPIC.into())
    }

    #[tokio::test]
    async fn transforms_beside_the_router_are_those_of_every_record() {
        let header = Action::InsertHeader {
            name: "region".into(),
            value: walpost_encode::connect::literal("eu").unwrap(),
        };
        let before = vec![step(header.clone(), "__debezium.*"), step(header, "outbox.*")];
        let made = forms(Transforms { before, ..Transforms::default() }).message(record()).await;
        let message = made.unwrap().unwrap();
        assert_eq!((&*message.topic, message.headers.len()), (TOPIC, 1));

        let after = vec![step(Action::Drop, "__debezium.*")];
        let dropping = forms(Transforms { after, ..Transforms::default() });
        assert!(dropping.message(record()).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn the_routers_own_condition_is_about_what_it_routes() {
        let test = Test::TopicMatches(Pattern::new("nothing").unwrap());
        let router = Some(Condition { test, negate: false });
        let made = forms(Transforms { router, ..Transforms::default() }).message(record()).await;
        assert!(made.unwrap().is_some());
    }
}
