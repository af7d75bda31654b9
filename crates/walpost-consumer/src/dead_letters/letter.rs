//! What a dead letter says: pure.

use std::borrow::Cow;

use bytes::Bytes;
use walpost_event::SOURCE_HEADER as SOURCE;

/// Which row it is of; the names of its other headers begin so.
const MARK: &str = "walpost-dead-letter";
/// How the names of Kafka Connect's own headers of dead letters begin.
const CONNECT: &str = "__connect.errors.";
/// What is left of a longer text where the topic refuses the whole event.
const BARE_MAX_CHARS: usize = 1_000;
/// A longer key is left out there.
const BARE_KEY_MAX_BYTES: usize = 4_096;

/// A parked event whose dead letter is to be written.
#[derive(Clone)]
pub(super) struct Letter {
    pub(super) id: i64,
    /// Which time it is that the row was parked.
    pub(super) parking: i32,
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) event_id: Option<String>,
    pub(super) key: Option<Bytes>,
    pub(super) value: Option<Bytes>,
    pub(super) headers: Vec<(String, Option<Bytes>)>,
    pub(super) timestamp_ms: Option<i64>,
    pub(super) reason: String,
    pub(super) attempts: i32,
    /// As text.
    pub(super) parked_at: String,
}

/// How much of the event its dead letter has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form<'a> {
    /// All that there is.
    Whole,
    /// Neither value nor further headers, as the topic refuses the whole, and
    /// why.
    Bare(&'a str),
}

/// A record to be written, without its topic.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Paper {
    pub(super) key: Option<Bytes>,
    pub(super) value: Option<Bytes>,
    pub(super) headers: Vec<(String, Option<Bytes>)>,
}

impl Letter {
    /// Its record. No timestamp: that of the event may be beyond what the topic
    /// retains.
    pub(super) fn paper(&self, form: Form<'_>, consumer: &str) -> Paper {
        let bound = |text: &str| match form {
            Form::Whole => Bytes::copy_from_slice(text.as_bytes()),
            Form::Bare(_) => text.chars().take(BARE_MAX_CHARS).collect::<String>().into(),
        };
        let mut headers = match form {
            Form::Whole => self.kept_headers(),
            Form::Bare(_) => {
                let id = self.event_id.as_deref();
                let source = self.headers.iter().find(|(name, _)| name == SOURCE);
                let source = source.and_then(|(_, value)| str::from_utf8(value.as_deref()?).ok());
                let own = id.map(|id| ("id", id)).into_iter().chain(source.map(|it| (SOURCE, it)));
                own.map(|(name, text)| (name.to_owned(), Some(bound(text)))).collect()
            }
        };
        for (name, text) in self.marks(consumer) {
            headers.push((name, Some(bound(&text))));
        }
        let (key, value) = match form {
            Form::Whole => (self.key.clone(), self.value.clone()),
            Form::Bare(why) => {
                let why = format!("the topic refuses the whole event: {why}");
                headers.push((own("left-out"), Some(bound(&why))));
                (self.key.clone().filter(|key| key.len() <= BARE_KEY_MAX_BYTES), None)
            }
        };
        Paper { key, value, headers }
    }

    /// The event's own. Those of another dead letter, from which it was read,
    /// would say something untrue of this one.
    fn kept_headers(&self) -> Vec<(String, Option<Bytes>)> {
        let is_ours = |name: &str| name.starts_with(MARK) || name.starts_with(CONNECT);
        self.headers.iter().filter(|(name, _)| !is_ours(name)).cloned().collect()
    }

    /// Names and values of the headers that tell what happened.
    fn marks<'a>(&'a self, consumer: &'a str) -> Vec<(String, Cow<'a, str>)> {
        let Self { id, parking, topic, partition, offset, .. } = self;
        let row = format!("parked:{id}:{parking}:{topic}[{partition}]@{offset}");
        // Only what the handler was given has an id.
        let stage = if self.event_id.is_some() { "TASK_PUT" } else { "HEADER_CONVERTER" };
        let mut marks: Vec<(String, Cow<'a, str>)> = vec![
            (MARK.to_owned(), row.into()),
            (own("consumer"), consumer.into()),
            (own("reason"), self.reason.as_str().into()),
            (own("attempts"), self.attempts.to_string().into()),
            (own("parked-at"), self.parked_at.as_str().into()),
        ];
        let timestamp = self.timestamp_ms.map(|timestamp| timestamp.to_string());
        marks.extend(timestamp.map(|timestamp| (own("timestamp-ms"), timestamp.into())));
        marks.extend([
            (connect("topic"), topic.as_str().into()),
            (connect("partition"), partition.to_string().into()),
            (connect("offset"), offset.to_string().into()),
            (connect("connector.name"), consumer.into()),
            (connect("stage"), stage.into()),
            (connect("exception.message"), self.reason.as_str().into()),
        ]);
        marks
    }
}

fn own(name: &str) -> String {
    format!("{MARK}-{name}")
}

fn connect(name: &str) -> String {
    format!("{CONNECT}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(headers: &[(&str, Option<&'static [u8]>)]) -> Letter {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.map(Bytes::from_static)))
            .collect();
        Letter {
            id: 7,
            parking: 2,
            topic: "orders".to_owned(),
            partition: 3,
            offset: 42,
            event_id: Some("e1".to_owned()),
            key: Some(Bytes::from_static(b"k\xff")),
            value: Some(Bytes::from_static(b"\0v")),
            headers,
            timestamp_ms: Some(5),
            reason: "no such customer".to_owned(),
            attempts: 4,
            parked_at: "2026-05-01T12:00:00.000Z".to_owned(),
        }
    }

    fn told(paper: &Paper) -> Vec<(String, String)> {
        let text = |value: &Option<Bytes>| {
            String::from_utf8_lossy(value.as_deref().unwrap_or(b"<null>")).into_owned()
        };
        paper.headers.iter().map(|(name, value)| (name.clone(), text(value))).collect()
    }

    fn header_of(paper: &Paper, name: &str) -> Option<String> {
        told(paper).into_iter().find(|(found, _)| found == name).map(|(_, value)| value)
    }

    #[test]
    fn the_whole_has_what_the_event_had_and_says_what_happened_to_it() {
        let of = [
            ("id", Some(&b"e1"[..])),
            ("none", None),
            ("walpost-position", Some(b"0000001f:0/10:3")),
            ("walpost-dead-letter-reason", Some(b"of another letter")),
            ("__connect.errors.topic", Some(b"another")),
            ("id", Some(b"e2")),
        ];
        let paper = letter(&of).paper(Form::Whole, "shipping");
        assert_eq!(paper.key.as_deref(), Some(&b"k\xff"[..]));
        assert_eq!(paper.value.as_deref(), Some(&b"\0v"[..]));
        let expected = [
            ("id", "e1"),
            ("none", "<null>"),
            ("walpost-position", "0000001f:0/10:3"),
            ("id", "e2"),
            ("walpost-dead-letter", "parked:7:2:orders[3]@42"),
            ("walpost-dead-letter-consumer", "shipping"),
            ("walpost-dead-letter-reason", "no such customer"),
            ("walpost-dead-letter-attempts", "4"),
            ("walpost-dead-letter-parked-at", "2026-05-01T12:00:00.000Z"),
            ("walpost-dead-letter-timestamp-ms", "5"),
            ("__connect.errors.topic", "orders"),
            ("__connect.errors.partition", "3"),
            ("__connect.errors.offset", "42"),
            ("__connect.errors.connector.name", "shipping"),
            ("__connect.errors.stage", "TASK_PUT"),
            ("__connect.errors.exception.message", "no such customer"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(told(&paper), expected);
    }

    #[test]
    fn an_event_without_an_id_was_never_with_the_handler() {
        let mut letter = letter(&[]);
        (letter.event_id, letter.timestamp_ms) = (None, None);
        let paper = letter.paper(Form::Whole, "shipping");
        assert_eq!(header_of(&paper, "__connect.errors.stage").unwrap(), "HEADER_CONVERTER");
        assert_eq!(header_of(&paper, "walpost-dead-letter-timestamp-ms"), None);
        assert_eq!(header_of(&paper, "id"), None);
    }

    #[test]
    fn where_the_topic_refuses_the_whole_what_is_left_is_bounded() {
        let mut letter =
            letter(&[("id", Some(b"e1")), ("walpost-source", Some(b"shop")), ("big", Some(b"x"))]);
        letter.event_id = Some("é".repeat(5_000));
        letter.reason = "r".repeat(4_096);
        let why = "y".repeat(5_000);
        let paper = letter.paper(Form::Bare(&why), "shipping");
        assert_eq!((paper.key.as_deref(), &paper.value), (Some(&b"k\xff"[..]), &None));
        assert_eq!(header_of(&paper, "id"), Some("é".repeat(BARE_MAX_CHARS)));
        assert_eq!(header_of(&paper, "walpost-source").unwrap(), "shop");
        assert_eq!(header_of(&paper, "big"), None);
        assert_eq!(header_of(&paper, "walpost-dead-letter").unwrap(), "parked:7:2:orders[3]@42");
        let left_out = header_of(&paper, "walpost-dead-letter-left-out").unwrap();
        assert!(left_out.starts_with("the topic refuses the whole event: yyy"), "{left_out}");
        let bytes: usize =
            paper.headers.iter().map(|(_, v)| v.as_ref().map_or(0, Bytes::len)).sum();
        assert!(bytes < 10_000, "{bytes}");

        // Of an event that had none, none is made up.
        letter.headers.remove(1);
        assert_eq!(header_of(&letter.paper(Form::Bare(&why), "shipping"), "walpost-source"), None);

        letter.key = Some(vec![b'k'; BARE_KEY_MAX_BYTES + 1].into());
        assert!(letter.paper(Form::Bare(&why), "shipping").key.is_none());
    }
}
