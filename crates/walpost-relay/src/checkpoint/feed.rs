//! What brings the pipeline's events, as the row says it.

use serde_json::{Value, json};
use walpost_event::Lsn;

use crate::{config::RelayConfig, error::RelayError};

/// What brings the pipeline's events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Feed {
    /// The slot.
    Wal,
    /// Relays that poll the outbox table.
    Polling,
    /// What the cut sees is published from the WAL, and nothing else; the rows do
    /// not say so yet.
    ToPolling(Cut),
    /// Nobody polls any more but for the switch. Without a cut the slot is about
    /// to be created, or was and nobody noted it; with one, what it sees is
    /// polled.
    ToWal(Option<Cut>),
}

/// Parts the rows of the one source from those of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Sees the transactions that were committed below `position`, and no others.
    pub(crate) snapshot: String,
    pub(crate) position: Lsn,
}

impl Feed {
    pub(super) fn columns(&self) -> (&'static str, Option<Value>) {
        match self {
            Self::Wal => ("wal", None),
            Self::Polling => ("polling", None),
            Self::ToPolling(cut) => ("polling", Some(cut.to_json("polling"))),
            Self::ToWal(None) => ("polling", Some(json!({ "to": "wal" }))),
            Self::ToWal(Some(cut)) => ("polling", Some(cut.to_json("wal"))),
        }
    }

    pub(crate) fn from_columns(source: &str, switch: Option<&Value>) -> Option<Self> {
        let Some(switch) = switch else {
            return match source {
                "wal" => Some(Self::Wal),
                "polling" => Some(Self::Polling),
                _ => None,
            };
        };
        let cut = match &switch["snapshot"] {
            Value::Null => None,
            snapshot => Some(Cut {
                snapshot: snapshot.as_str()?.to_owned(),
                position: switch["position"].as_str()?.parse().ok()?,
            }),
        };
        match (switch["to"].as_str()?, cut) {
            ("polling", Some(cut)) => Some(Self::ToPolling(cut)),
            ("wal", cut) => Some(Self::ToWal(cut)),
            _ => None,
        }
    }

    /// A relay that reads the WAL may start.
    pub(crate) fn expect_wal(&self, config: &RelayConfig) -> Result<(), RelayError> {
        let (problem, remedy) = match self {
            Self::Wal => return Ok(()),
            Self::Polling => (
                "polls its outbox table, and this relay reads the WAL",
                "set pipeline.source = \"polling\", or stop its pollers and run `walpost source \
                 switch --to wal`",
            ),
            Self::ToPolling(_) => ("is being switched to polling", TO_POLLING),
            Self::ToWal(_) => ("is being switched to the WAL", TO_WAL),
        };
        Err(of_pipeline(config, problem, remedy))
    }

    /// A relay that polls may start, and go on.
    pub(crate) fn expect_polling(&self, config: &RelayConfig) -> Result<(), RelayError> {
        let (problem, remedy) = match self {
            Self::Polling => return Ok(()),
            Self::Wal => (
                "reads the WAL, and this relay polls its outbox table",
                "set pipeline.source = \"native\", or stop its relay and run `walpost source \
                 switch --to polling`",
            ),
            Self::ToPolling(_) => ("is being switched to polling", TO_POLLING),
            Self::ToWal(_) => ("is being switched to the WAL", TO_WAL),
        };
        Err(of_pipeline(config, problem, remedy))
    }
}

const TO_POLLING: &str = "finish it with `walpost source switch --to polling`, which goes on where \
                          it was";
const TO_WAL: &str = "finish it with `walpost source switch --to wal`, which goes on where it was, \
                      and start with pipeline.source = \"native\"";

fn of_pipeline(config: &RelayConfig, problem: &str, remedy: &str) -> RelayError {
    RelayError::prerequisite(format!("pipeline {:?} {problem}", config.pipeline), remedy)
}

impl Cut {
    fn to_json(&self, to: &str) -> Value {
        json!({ "to": to, "snapshot": self.snapshot, "position": self.position.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_read_as_it_was_written() {
        let cut = Cut { snapshot: "10:20:12,13".to_owned(), position: Lsn::from(0x1_0000_00a8) };
        for feed in [
            Feed::Wal,
            Feed::Polling,
            Feed::ToPolling(cut.clone()),
            Feed::ToWal(None),
            Feed::ToWal(Some(cut)),
        ] {
            let (source, switch) = feed.columns();
            assert_eq!(Feed::from_columns(source, switch.as_ref()), Some(feed));
        }
    }

    #[test]
    fn what_is_not_understood_is_no_source() {
        for switch in [json!({}), json!({ "to": "polling" }), json!({ "to": "wal", "snapshot": 1 })]
        {
            assert_eq!(Feed::from_columns("polling", Some(&switch)), None, "{switch}");
        }
        assert_eq!(Feed::from_columns("kafka", None), None);
    }

    #[test]
    fn each_source_starts_where_the_row_says_so_and_nowhere_else() {
        let config = RelayConfig::new("shop");
        let text = |refused: Result<(), RelayError>| refused.unwrap_err().to_string();
        assert!(Feed::Wal.expect_wal(&config).is_ok());
        assert!(Feed::Polling.expect_polling(&config).is_ok());
        assert!(text(Feed::Polling.expect_wal(&config)).contains("switch --to wal"));
        assert!(text(Feed::Wal.expect_polling(&config)).contains("switch --to polling"));
        let cut = Cut { snapshot: "1:1:".to_owned(), position: Lsn::from(1) };
        for (feed, way) in [(Feed::ToPolling(cut), "--to polling"), (Feed::ToWal(None), "--to wal")]
        {
            assert!(text(feed.expect_wal(&config)).contains(way));
            assert!(text(feed.expect_polling(&config)).contains(way));
        }
    }
}
