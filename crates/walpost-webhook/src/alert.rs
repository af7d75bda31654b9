//! What people are told about deliveries that need them: pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::{Message, NewDelivery};

/// Whom to tell, and how. An alert is a delivery like any other: a row that is
/// created in the transaction which ends what it is about, and sent with retries.
///
/// Of each kind and destination there is one alert in a window, whichever process
/// it comes from: its id has the number of the window.
///
/// ```
/// use std::time::Duration;
/// use walpost_webhook::{AlertFormat, Alerts};
///
/// let mut alerts = Alerts::to("operators");
/// alerts.format = AlertFormat::Slack;
/// alerts.window = Duration::from_secs(60);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Alerts {
    /// Name of the destination that they are sent to. About its own deliveries
    /// there is none.
    pub destination: String,
    /// How they are written.
    pub format: AlertFormat,
    /// For how long one alert stands for all of its kind; 15 minutes.
    pub window: Duration,
}

/// How an alert is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlertFormat {
    /// As Slack's incoming webhooks take it: an object with `text`.
    #[default]
    Slack,
    /// An object with `type`, `destination`, `delivery`, `attempts`, `outcome`,
    /// `at_ms` and `text`.
    Json,
}

/// What an alert is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// A delivery has no attempt left.
    Failed,
    /// Nobody knows whether a delivery arrived.
    Unknown,
    /// The destination wants nothing more.
    Disabled,
    /// Nothing is sent to the destination for a while.
    BreakerOpen,
}

/// The delivery that has brought it about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cause<'a> {
    pub(crate) destination: &'a str,
    pub(crate) delivery: i64,
    pub(crate) attempts: u32,
    pub(crate) outcome: &'a str,
    /// Of the answer.
    pub(crate) status: Option<u16>,
}

impl Alerts {
    /// In Slack's format, one in 15 minutes.
    pub fn to(destination: impl Into<String>) -> Self {
        Self {
            destination: destination.into(),
            format: AlertFormat::Slack,
            window: Duration::from_secs(15 * 60),
        }
    }

    /// The alert; `None` about its own destination.
    pub(crate) fn alert(
        &self,
        about: About,
        cause: Cause<'_>,
        now: SystemTime,
    ) -> Option<NewDelivery> {
        if cause.destination == self.destination {
            return None;
        }
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let window = since.as_secs() / self.window.as_secs().max(1);
        let kind = about.name();
        let id = format!("walpost:{kind}:{}:{window}", cause.destination);
        let text = about.text(cause);
        let body = match self.format {
            AlertFormat::Slack => json!({ "text": text }),
            AlertFormat::Json => json!({
                "type": format!("walpost.webhook.{kind}"),
                "destination": cause.destination,
                "delivery": cause.delivery,
                "attempts": cause.attempts,
                "outcome": cause.outcome,
                "status": cause.status,
                "at_ms": u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
                "text": text,
            }),
        };
        let message = Message::new(id.clone(), body.to_string());
        let mut alert = NewDelivery::new(&self.destination, id, message);
        alert.event_type = Some(format!("walpost.webhook.{kind}"));
        Some(alert)
    }
}

impl About {
    fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Disabled => "disabled",
            Self::BreakerOpen => "breaker_open",
        }
    }

    /// What happened, and what now.
    fn text(self, cause: Cause<'_>) -> String {
        let Cause { destination, delivery, attempts, outcome, status } = cause;
        let status = status.map_or_else(String::new, |status| format!(" {status}"));
        let outcome = format!("{outcome}{status}");
        let happened = match self {
            Self::Failed => format!(
                "a delivery to {destination} has failed after {attempts} attempts ({outcome}). \
                 Look at `walpost webhook show {delivery}`, mend the receiver, then \
                 `walpost webhook retry {delivery}`"
            ),
            Self::Unknown => format!(
                "nobody knows whether a delivery to {destination} arrived ({outcome}). Ask the \
                 receiver about the key that `walpost webhook show {delivery}` shows, then retry \
                 or settle it"
            ),
            Self::Disabled => format!(
                "{destination} has answered 410 and is disabled; what is for it is held. \
                 `walpost webhook resume {destination}` sends it"
            ),
            Self::BreakerOpen => format!(
                "{destination} is away ({outcome}): nothing is sent there for a while, then one \
                 delivery at a time until one arrives. `walpost webhook list` shows what waits"
            ),
        };
        format!("walpost: {happened}. Further ones like it are not told for a while")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAUSE: Cause<'_> = Cause {
        destination: "logis\"tics",
        delivery: 7,
        attempts: 8,
        outcome: "http_5xx",
        status: Some(503),
    };

    fn at(secs: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(secs)
    }

    #[test]
    fn there_is_one_alert_of_each_kind_and_destination_in_a_window() {
        let alerts = Alerts::to("operators");
        let id = |about, cause, secs| alerts.alert(about, cause, at(secs)).unwrap().event_id;
        let first = id(About::Failed, CAUSE, 900);
        assert_eq!(first, id(About::Failed, Cause { delivery: 8, ..CAUSE }, 1_799));
        assert_ne!(first, id(About::Failed, CAUSE, 1_800));
        assert_ne!(first, id(About::Unknown, CAUSE, 900));
        assert_ne!(first, id(About::Failed, Cause { destination: "other", ..CAUSE }, 900));
        let own = Cause { destination: "operators", ..CAUSE };
        assert_eq!(alerts.alert(About::Failed, own, at(900)), None);
    }

    #[test]
    fn each_format_is_json_that_says_what_to_do() {
        let mut alerts = Alerts::to("operators");
        for about in [About::Failed, About::Unknown, About::Disabled, About::BreakerOpen] {
            alerts.format = AlertFormat::Slack;
            let slack = alerts.alert(about, CAUSE, at(900)).unwrap();
            let slack: serde_json::Value = serde_json::from_slice(&slack.message.body).unwrap();
            assert_eq!(slack.as_object().unwrap().len(), 1);
            let text = slack["text"].as_str().unwrap();
            assert!(text.contains("logis\"tics") && text.contains("`walpost webhook "), "{text}");
            alerts.format = AlertFormat::Json;
            let json = alerts.alert(about, CAUSE, at(900)).unwrap();
            let json: serde_json::Value = serde_json::from_slice(&json.message.body).unwrap();
            assert_eq!((&json["delivery"], &json["attempts"]), (&7.into(), &8.into()));
            assert_eq!(json["status"], 503);
            assert!(about == About::Disabled || text.contains("(http_5xx 503)"), "{text}");
            assert_eq!((&json["at_ms"], &json["text"]), (&900_000.into(), &slack["text"]));
        }
    }
}
