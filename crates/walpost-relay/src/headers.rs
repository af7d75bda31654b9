use std::{fmt::Write, sync::Arc};

use bytes::{Bytes, BytesMut};
pub use walpost_event::SOURCE_HEADER;
use walpost_event::{Generation, Header, Headers, Lsn, Position};

use crate::config::RelayConfig;

/// Header with the event's generation and position: `1f3a9c2e:16/B374D848:7`.
pub const POSITION_HEADER: &str = "walpost-position";
/// Header that the router writes the event's id to, before all others of that
/// name.
pub const ID_HEADER: &str = "id";
/// Header of a record that was published later than in its place in the stream,
/// or once more, on purpose. Of a parked event that was sent on it says which
/// row, and the event's generation and position: `parked:7:1f3a9c2e:16/B374D848:7`.
/// Of one that a replay has published once more it says which: `replay:7`; of
/// one that a start has, which publishes all rows again, where the WAL was then:
/// `snapshot:16/B374D848`.
pub const REPLAY_HEADER: &str = "walpost-replay";
/// Header of a dead letter: which row of the table `parked` it is of, and the
/// event's generation and position, as `parked:7:1f3a9c2e:16/B374D848:7`. Its
/// record proves of no event that it was published.
pub const DEAD_LETTER_HEADER: &str = "walpost-dead-letter";

/// How the names of Walpost's own headers begin.
pub(crate) const OWN: &str = "walpost-";

/// Adds the position to messages.
pub(crate) struct OwnHeaders {
    position: Option<Arc<str>>,
    generation: String,
    /// Values of many messages in one allocation.
    scratch: BytesMut,
}

impl OwnHeaders {
    pub(crate) fn new(config: &RelayConfig, generation: Generation) -> Self {
        Self {
            position: config.position_header.then(|| POSITION_HEADER.into()),
            generation: generation.to_string(),
            scratch: BytesMut::new(),
        }
    }

    pub(crate) fn add(&mut self, headers: &mut Headers, position: Position) {
        if let Some(name) = &self.position {
            self.scratch.reserve(64);
            write!(self.scratch, "{}:{position}", self.generation).expect("room was reserved");
            let value = Some(self.scratch.split().freeze());
            add_before_source(headers, Header { name: name.clone(), value });
        }
    }
}

/// Marks records that are published once more: they have no position, which nobody
/// knows of a row.
pub(crate) struct ReplayHeader(Header);

impl ReplayHeader {
    /// That of the replay with this number.
    pub(crate) fn new(replay: i64) -> Self {
        Self::saying(format!("replay:{replay}"))
    }

    /// That of a start that publishes all rows once more, which was at this
    /// position.
    pub(crate) fn of_start(position: Lsn) -> Self {
        Self::saying(format!("snapshot:{position}"))
    }

    fn saying(replay: String) -> Self {
        Self(Header { name: REPLAY_HEADER.into(), value: Some(Bytes::from(replay)) })
    }

    pub(crate) fn add(&self, headers: &mut Headers) {
        add_before_source(headers, self.0.clone());
    }
}

/// Replaces Walpost's own headers by the source, if there is one. Those that an
/// application hands on from what it has consumed would say something untrue about
/// this record.
pub(crate) fn set_source(headers: &mut Headers, source: Option<Header>) {
    headers.retain(|header| !header.name.starts_with(OWN));
    headers.extend(source);
}

fn add_before_source(headers: &mut Headers, header: Header) {
    let has_source = headers.last().is_some_and(|last| &*last.name == SOURCE_HEADER);
    headers.insert(headers.len() - usize::from(has_source), header);
}

/// What [`REPLAY_HEADER`] says of a parked event.
pub(crate) fn parked_replay(id: i64, generation: Generation, position: Position) -> String {
    format!("parked:{id}:{generation}:{position}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_source_and_position_and_none_that_is_handed_on() {
        let source = || Header { name: SOURCE_HEADER.into(), value: Some("a table".into()) };
        let mut own = OwnHeaders::new(&RelayConfig::new("shop"), Generation::from(0x1f));
        let mut headers = Headers::new();
        for name in [REPLAY_HEADER, SOURCE_HEADER, "mine"] {
            headers.push(Header { name: name.into(), value: Some("handed on".into()) });
        }
        set_source(&mut headers, Some(source()));
        own.add(&mut headers, Position { commit_lsn: Lsn::from(0x10), ordinal: 7 });
        let text = |header: &Header| String::from_utf8(header.value.clone().unwrap().to_vec());
        let names = |headers: &Headers| -> Vec<String> {
            headers.iter().map(|header| header.name.to_string()).collect()
        };
        assert_eq!(names(&headers), ["mine", "walpost-position", "walpost-source"]);
        assert_eq!(text(&headers[1]).unwrap(), "0000001f:0/10:7");
        assert_eq!(text(&headers[2]).unwrap(), "a table");

        set_source(&mut headers, None);
        own.add(&mut headers, Position { commit_lsn: Lsn::from(0x10), ordinal: 8 });
        assert_eq!(names(&headers), ["mine", "walpost-position"]);

        set_source(&mut headers, Some(source()));
        ReplayHeader::new(7).add(&mut headers);
        assert_eq!(names(&headers), ["mine", "walpost-replay", "walpost-source"]);
        assert_eq!(text(&headers[1]).unwrap(), "replay:7");
        set_source(&mut headers, Some(source()));
        ReplayHeader::of_start(Lsn::from(0x10)).add(&mut headers);
        assert_eq!(text(&headers[1]).unwrap(), "snapshot:0/10");
    }
}
