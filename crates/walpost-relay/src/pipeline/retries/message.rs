//! What is sent of a parked event.

use walpost_event::{Generation, Header, Message, Position, Row, RowChange};
use walpost_pgoutput::LogicalMessage;

use crate::{
    convert::{Unmade, content},
    headers::{OwnHeaders, REPLAY_HEADER, parked_replay},
    id_space::IdSpace,
    parked::{Aggregate, Contents, ParkReason, Parking, StoredEvent},
    pipeline::Pipeline,
    sink::Sink,
    source::Source,
};

impl<S: Source, K: Sink> Pipeline<S, K> {
    /// The record of a parked event, marked: the one that was kept, or else the
    /// one that it becomes with the configuration of today.
    pub(super) fn retried_message(&mut self, event: StoredEvent) -> Result<Message, Unmade> {
        let StoredEvent { id, generation, position, source, id_space, contents, .. } = event;
        let contents = match (event.row, event.from_table) {
            (Some(Ok(row)), _) => {
                self.is_its_row(&row, event.aggregate.as_ref(), event.reason)?;
                Some(Contents::Row(row))
            }
            (Some(Err(parking)), true) => return Err(parking.into()),
            (Some(Err(parking)), false) => match contents {
                Some(Contents::LeftOut) => return Err(left_out(&parking.detail).into()),
                contents => contents,
            },
            (None, _) => contents,
        };
        let unreadable = || Parking {
            reason: ParkReason::Undecodable,
            detail: "its columns do not have the form in which this version keeps events; discard \
                     it once its effect is made otherwise"
                .to_owned(),
        };
        let (row, emitted) = match contents.ok_or_else(unreadable)? {
            Contents::Record(mut message) => {
                mark_retried(&mut message, id, generation, position);
                return Ok(message);
            }
            Contents::Row(row) => (row, None),
            Contents::Message(content) => {
                let lsn = position.commit_lsn;
                let message = LogicalMessage { transactional: true, lsn, prefix: source, content };
                (self.converter.message_row(&message)?, Some(message))
            }
            Contents::LeftOut => return Err(left_out("it is no row").into()),
        };
        let source = id_space.map(|id| IdSpace::new(id).header());
        let change = RowChange::insert(row);
        let mut message = self.converter.message_of(&change, content(emitted.as_ref()), source)?;
        OwnHeaders::new(&self.config, generation).add(&mut message.headers, position);
        mark_retried(&mut message, id, generation, position);
        Ok(message)
    }

    /// Its aggregate is the one whose order the parked event keeps.
    fn is_its_row(
        &self,
        row: &Row,
        aggregate: Option<&Aggregate>,
        reason: ParkReason,
    ) -> Result<(), Parking> {
        let now = Aggregate::new(&self.converter.identity(row));
        // The row of one that could not be routed or read may have been corrected.
        let may_differ = matches!(reason, ParkReason::Unroutable | ParkReason::Undecodable);
        match aggregate {
            Some(aggregate) if *aggregate != now && !may_differ => {
                let detail =
                    "its row in the outbox table is of another aggregate now; discard it, \
                              or give the row its aggregate back"
                        .to_owned();
                Err(Parking { reason, detail })
            }
            _ => Ok(()),
        }
    }
}

fn left_out(why: &str) -> Parking {
    Parking {
        reason: ParkReason::Oversize,
        detail: format!(
            "nothing of its contents was kept ({why}), so it cannot be sent on: insert it again as \
             a new row of the outbox, with a max_event_bytes that takes it, and discard this one"
        ),
    }
}

fn mark_retried(message: &mut Message, id: i64, generation: Generation, position: Position) {
    let value = Some(parked_replay(id, generation, position).into_bytes().into());
    message.headers.push(Header { name: REPLAY_HEADER.into(), value });
}
