//! Why a partition halts, and how to go on: what an operator reads.

use postgres_protocol::escape::escape_literal;

use super::{Interrupt, Partition, claim::Claimed};
use crate::{Handler, OnReset, kafka::TopicIdentity};

/// The next offset is in the log, but may not be read: no loss, and no halt.
pub(super) fn behind_open_transactions(next: i64, readable: i64) -> Interrupt {
    Interrupt::Fault(format!(
        "effects are to go on at offset {next}, but a transaction below it is still open, and \
         only what is before {readable} may be read. They go on when it is committed or aborted; \
         if its producer is gone for good, end it with kafka-transactions"
    ))
}

impl<H: Handler> Partition<H> {
    /// The next offset is not in the log, which goes from `low` to before
    /// `high`.
    pub(super) fn outside_of_log(&self, next: i64, low: i64, high: i64) -> Interrupt {
        if next < low {
            return Interrupt::Halt(format!(
                "effects end before offset {next}, but the topic's retention has removed offsets \
                 {next} to {last} unread. To go on without them, run {skip} on the database, and \
                 restart",
                last = low - 1,
                skip = self.reset_statement(low, "skip"),
            ));
        }
        Interrupt::Halt(format!(
            "effects end before offset {next}, but the log ends at {high}: Kafka has lost records \
             whose effects were made. {}",
            self.ways_on(low, high)
        ))
    }

    /// The database is older than the group, and the topic no longer has what
    /// follows its effects.
    pub(super) fn older_than_the_topic(&self, next: i64, low: i64, group: i64) -> Interrupt {
        Interrupt::Halt(format!(
            "the database is older than the group: its effects end before offset {next}, the \
             group's offset is {group}, and the topic's retention has removed offsets {next} to \
             {last}; restore a newer copy of the database and restart, or, to continue without \
             these events, run {skip} on the database and restart",
            last = low - 1,
            skip = self.reset_statement(low, "skip"),
        ))
    }

    /// This consumer has read the partition, and the database has no start of it.
    pub(super) fn no_row(&self, group: i64, low: i64) -> Interrupt {
        Interrupt::Halt(format!(
            "the database has no offset of this partition, but the group's offset {group} was \
             committed by this consumer, so the database is older than the group; restore a newer \
             copy of the database and restart, or stop the consumer, choose the start and restart: \
             {from_low} applies every event that the topic still has, {from_group} skips the \
             events before {group}",
            from_low = self.kafkas_tool(low),
            from_group = self.kafkas_tool(group),
        ))
    }

    /// The record at `offset`, the last one whose effect was made, is another
    /// one now. Leader epochs, then and now.
    pub(super) fn log_replaced(&self, offset: i64, epochs: (i32, i32), low: i64) -> Interrupt {
        let (then, now) = epochs;
        Interrupt::Halt(format!(
            "the record at offset {offset}, the last whose effect was made, was of leader epoch \
             {then}, and the record that is there now is of leader epoch {now}: Kafka has lost \
             records whose effects were made, and taken others in their place. {}",
            self.ways_on(low, offset + 1)
        ))
    }

    /// After a loss of records in Kafka.
    fn ways_on(&self, low: i64, end: i64) -> String {
        format!(
            "To apply what has come in their place and has no effect yet, run {fill} on the \
             database, and restart; {low} is the oldest record, any later one of before the loss \
             will do. To go on at {end} without that, run {on} and restart",
            fill = self.reset_statement(low, "fill"),
            on = self.reset_statement(end, "fill"),
        )
    }

    pub(super) fn ambiguous(&self, claimed: &Claimed, offset: i64) -> Interrupt {
        let next = claimed.next_offset.unwrap_or_default();
        let settings = &self.shared.settings;
        let mode = match (settings.on_reset, offset > next) {
            (_, true) => "skip",
            (OnReset::Refuse, false) if !settings.guard.has_rows() => "fill",
            (OnReset::Fill, false) => "fill",
            (OnReset::Rerun | OnReset::Refuse, false) => "rerun",
        };
        Interrupt::Halt(format!(
            "the group's offset {offset} carries no marker, and may be a commit of before a crash \
             or the wish to go back there; effects end before {next}. {}. If it was meant, run \
             {} on the database, and restart",
            self.undo(next),
            self.reset_statement(offset, mode)
        ))
    }

    pub(super) fn refused(&self, claimed: &Claimed, to: i64, is_confirmed: bool) -> Interrupt {
        let next = claimed.next_offset.unwrap_or_default();
        let policy = match (self.shared.settings.on_reset, to > next) {
            (OnReset::Fill, true) => "on_reset = fill refuses to skip events",
            _ => "on_reset = refuse",
        };
        let has_rows = self.shared.settings.guard.has_rows();
        let carried_out = match (has_rows, to > next) {
            (true, _) => "start with on_reset = rerun (effects are made again, or events skipped) \
                          or fill (only missing ones are made)"
                .to_owned(),
            (false, false) => "start with on_reset = fill (only missing ones are made)".to_owned(),
            (false, true) => {
                format!("run {} on the database, and restart", self.reset_statement(to, "skip"))
            }
        };
        // No command passes over a reset that a member has confirmed.
        let undo = match is_confirmed {
            true => self.undo_with_kafkas_tool(next),
            false => self.undo(next),
        };
        Interrupt::Halt(format!(
            "the group's offset was reset to {to}, effects end before {next}, and {policy}. \
             {undo}. To carry the reset out, {carried_out}"
        ))
    }

    /// The row of the partition is of another group, cluster or topic id.
    pub(super) fn placed_otherwise(&self, stored: [&str; 3], now: &TopicIdentity) -> Interrupt {
        let [group, cluster, topic] = stored;
        let settings = &self.shared.settings;
        Interrupt::Halt(format!(
            "the stored position belongs to group {group}, cluster {cluster}, topic id {topic}; \
             now it is group {}, cluster {}, topic id {}. If another group or cluster was \
             meant, correct the configuration. If the topic was created anew or the consumer is to move, delete \
             the row of consumer {}, topic {}, part {} from {}.position and restart: it then \
             starts as a new one, and events that are done stay done",
            settings.group_id(),
            now.cluster_id,
            now.topic_id,
            settings.consumer,
            self.of.topic,
            self.of.partition,
            self.shared.sql.schema(),
        ))
    }

    /// The name is that of a consumer in another group.
    pub(super) fn named_otherwise(&self, group: &str) -> Interrupt {
        let settings = &self.shared.settings;
        let (consumer, now) = (&settings.consumer, settings.group_id());
        Interrupt::Halt(format!(
            "consumer {consumer} works in group {group}, and here it is group {now}: two \
             applications of one name would take each other's effects for their own. Give this \
             one another name; or, if the consumer is to change its group, stop its members, run \
             {} on the database, and restart",
            self.change_statement(&escape_literal(now), "null")
        ))
    }

    /// The consumer's effects are told by something else.
    pub(super) fn guarded_otherwise(&self, guard: &str) -> Interrupt {
        let called = |guard: &str| match guard {
            "rows" => "rows of done".to_owned(),
            "redis" => "keys in Redis".to_owned(),
            other => format!("a {other}"),
        };
        let (consumer, now) = (&self.shared.settings.consumer, self.shared.settings.guard.as_str());
        Interrupt::Halt(format!(
            "consumer {consumer} is guarded by {}, and here it is {}, which does not know the \
             effects of before. Use the same guard in all members; or, if it is to change, stop \
             them, run {} on the database, and restart",
            called(guard),
            called(now),
            self.change_statement("null", &escape_literal(now))
        ))
    }

    fn change_statement(&self, group: &str, guard: &str) -> String {
        let (schema, consumer) = (self.shared.sql.schema(), &self.shared.settings.consumer);
        let consumer = escape_literal(consumer);
        format!("select {schema}.change_consumer({consumer}, {group}, {guard})")
    }

    /// How to take a reset back, also with Kafka's own tool.
    fn undo(&self, next: i64) -> String {
        format!(
            "If no reset was meant, stop the consumer and run walpost consumer sync-offsets {} \
             --yes, or {}",
            self.shared.settings.consumer,
            self.kafkas_tool(next)
        )
    }

    fn undo_with_kafkas_tool(&self, next: i64) -> String {
        format!("If no reset was meant, stop the consumer and run {}", self.kafkas_tool(next))
    }

    fn kafkas_tool(&self, next: i64) -> String {
        let (group, of) = (self.shared.settings.group_id(), &self.of);
        let (topic, partition) = (&of.topic, of.partition);
        format!(
            "kafka-consumer-groups --group {group} --topic {topic}:{partition} --reset-offsets \
             --to-offset {next} --execute"
        )
    }

    /// What sets the offset in the database.
    fn reset_statement(&self, to: i64, mode: &str) -> String {
        let (schema, consumer) = (self.shared.sql.schema(), &self.shared.settings.consumer);
        let (topic, partition) = (&self.of.topic, self.of.partition);
        let (consumer, topic) = (escape_literal(consumer), escape_literal(topic));
        format!("select {schema}.reset_partition({consumer}, {topic}, {partition}, {to}, '{mode}')")
    }
}
