use std::{fmt::Write, sync::Arc};

use bytes::{Bytes, BytesMut};
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
/// Header with the name of the pipeline: event ids are unique within it.
pub const SOURCE_HEADER: &str = "walpost-source";

/// How the names of Walpost's own headers begin.
pub(crate) const OWN: &str = "walpost-";

/// Adds Walpost's own headers to messages.
pub(crate) struct OwnHeaders {
    position: Option<Arc<str>>,
    source: Option<Header>,
    generation: String,
    /// Values of many messages in one allocation.
    scratch: BytesMut,
}

impl OwnHeaders {
    pub(crate) fn new(config: &RelayConfig, generation: Generation) -> Self {
        let value = Bytes::copy_from_slice(config.pipeline.as_bytes());
        let source = Header { name: SOURCE_HEADER.into(), value: Some(value) };
        Self {
            position: config.position_header.then(|| POSITION_HEADER.into()),
            source: config.source_header.then_some(source),
            generation: generation.to_string(),
            scratch: BytesMut::new(),
        }
    }

    /// Those that an application hands on from what it has consumed would say
    /// something untrue about this record.
    pub(crate) fn add(&mut self, headers: &mut Headers, position: Position) {
        headers.retain(|header| !header.name.starts_with(OWN));
        if let Some(name) = &self.position {
            self.scratch.reserve(64);
            write!(self.scratch, "{}:{position}", self.generation).expect("room was reserved");
            let value = Some(self.scratch.split().freeze());
            headers.push(Header { name: name.clone(), value });
        }
        if let Some(source) = &self.source {
            headers.push(source.clone());
        }
    }

    /// The same for a record that has no position, as it was not in the stream.
    pub(crate) fn add_source(&self, headers: &mut Headers) {
        headers.retain(|header| !header.name.starts_with(OWN));
        headers.extend(self.source.clone());
    }
}

/// Adds Walpost's own headers to records that are published once more: no
/// position, which nobody knows of a row.
pub(crate) struct ReplayHeaders {
    replay: Header,
    source: Option<Header>,
}

impl ReplayHeaders {
    /// Those of the replay with this number.
    pub(crate) fn new(config: &RelayConfig, replay: i64) -> Self {
        Self::saying(config, format!("replay:{replay}"))
    }

    /// Those of a start that publishes all rows once more, which was at this
    /// position.
    pub(crate) fn of_start(config: &RelayConfig, position: Lsn) -> Self {
        Self::saying(config, format!("snapshot:{position}"))
    }

    fn saying(config: &RelayConfig, replay: String) -> Self {
        let header = |name: &str, value: String| Header {
            name: name.into(),
            value: Some(Bytes::from(value)),
        };
        let source = || header(SOURCE_HEADER, config.pipeline.clone());
        Self { replay: header(REPLAY_HEADER, replay), source: config.source_header.then(source) }
    }

    pub(crate) fn add(&self, headers: &mut Headers) {
        headers.retain(|header| !header.name.starts_with(OWN));
        headers.push(self.replay.clone());
        headers.extend(self.source.clone());
    }
}

/// What [`REPLAY_HEADER`] says of a parked event.
pub(crate) fn parked_replay(id: i64, generation: Generation, position: Position) -> String {
    format!("parked:{id}:{generation}:{position}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_tells_where_it_stood_and_where_it_came_from() {
        let config = RelayConfig::new("shop");
        let mut own = OwnHeaders::new(&config, Generation::from(0x1f));
        let mut headers = Headers::new();
        own.add(&mut headers, Position { commit_lsn: Lsn::from(0x10), ordinal: 7 });
        let text = |header: &Header| String::from_utf8(header.value.clone().unwrap().to_vec());
        assert_eq!(&*headers[0].name, "walpost-position");
        assert_eq!(text(&headers[0]).unwrap(), "0000001f:0/10:7");
        assert_eq!(text(&headers[1]).unwrap(), "shop");

        for name in [REPLAY_HEADER, SOURCE_HEADER, "mine"] {
            headers.push(Header { name: name.into(), value: Some("handed on".into()) });
        }
        own.add(&mut headers, Position { commit_lsn: Lsn::from(0x10), ordinal: 8 });
        let names = |headers: &Headers| -> Vec<String> {
            headers.iter().map(|header| header.name.to_string()).collect()
        };
        assert_eq!(names(&headers), ["mine", "walpost-position", "walpost-source"]);

        ReplayHeaders::new(&config, 7).add(&mut headers);
        assert_eq!(names(&headers), ["mine", "walpost-replay", "walpost-source"]);
        assert_eq!(text(&headers[1]).unwrap(), "replay:7");
        ReplayHeaders::of_start(&config, Lsn::from(0x10)).add(&mut headers);
        assert_eq!(text(&headers[1]).unwrap(), "snapshot:0/10");
    }
}
