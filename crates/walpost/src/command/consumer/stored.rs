//! What the database holds of a consumer's partitions.

use serde_json::{Value, json};
use tokio_postgres::{Client, Row};

use super::{Place, Which};
use crate::{
    command::sql,
    failure::{Exit, Failure},
};

/// One partition of a consumer.
#[derive(Clone, Debug)]
pub(super) struct Position {
    pub(super) id: i32,
    pub(super) consumer: String,
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) group: String,
    pub(super) cluster_id: String,
    pub(super) topic_id: String,
    pub(super) epoch: i64,
    pub(super) next_offset: Option<i64>,
    pub(super) run: i32,
    pub(super) reset_id: Option<String>,
    /// Other offsets that Kafka may hold.
    pub(super) known: Vec<i64>,
    pub(super) parked: i64,
    /// Chosen events that a reset has still to make again.
    pub(super) again: i64,
    pub(super) last_reset: Option<Reset>,
    pub(super) halted: Option<Halted>,
}

/// Why a partition is halted, until a member claims it again.
#[derive(Clone, Debug)]
pub(super) struct Halted {
    pub(super) at: String,
    pub(super) reason: String,
}

impl Halted {
    pub(super) fn json(&self) -> Value {
        json!({ "at": self.at, "reason": self.reason })
    }
}

/// A reset that was carried out.
#[derive(Clone, Debug)]
pub(super) struct Reset {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) at: String,
    pub(super) mode: String,
    pub(super) from: Option<i64>,
    pub(super) to: i64,
    pub(super) run: i32,
    pub(super) events_per_s: Option<i32>,
    pub(super) chosen_events: Option<i32>,
    pub(super) chosen_by: Option<String>,
    pub(super) asked_by: Option<String>,
    pub(super) reason: Option<String>,
}

impl Reset {
    fn read(row: &Row, first: usize) -> Self {
        Self {
            topic: row.get(first),
            partition: row.get(first + 1),
            at: row.get(first + 2),
            mode: row.get(first + 3),
            from: row.get(first + 4),
            to: row.get(first + 5),
            run: row.get(first + 6),
            events_per_s: row.get(first + 7),
            chosen_events: row.get(first + 8),
            chosen_by: row.get(first + 9),
            asked_by: row.get(first + 10),
            reason: row.get(first + 11),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "topic": self.topic,
            "partition": self.partition,
            "at": self.at,
            "mode": self.mode,
            "from_offset": self.from,
            "to_offset": self.to,
            "run": self.run,
            "events_per_second": self.events_per_s,
            "chosen_events": self.chosen_events,
            "chosen_by": self.chosen_by,
            "asked_by": self.asked_by,
            "reason": self.reason,
        })
    }
}

/// Columns of [`Reset`], and how many they are.
const RESET_COLUMNS: usize = 12;
const RESET: &str = "r.topic, r.part, to_char(r.at at time zone 'utc', \
    'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), r.mode, r.from_offset, r.to_offset, r.run, r.events_per_s, \
    r.chosen_events, r.chosen_by, r.asked_by, r.reason";

/// The partitions of `consumer`, or of all, in order.
pub(super) async fn positions(
    client: &Client,
    schema: &str,
    consumer: Option<&str>,
) -> Result<Vec<Position>, Failure> {
    let s = sql::quoted(schema);
    let query = format!(
        "select q.id, q.consumer, q.topic, q.part, q.group_id, q.cluster_id, q.topic_id, q.epoch, \
         q.next_offset, q.run, q.reset_id::text, q.known, \
         (select count(*) from {s}.consumer_parked p where p.pos_id = q.id \
         and p.state <> 'discarded'), \
         (select count(*) from {s}.consumer_again a \
          where a.pos_id = q.id and a.off >= q.next_offset), {RESET}, \
         to_char(h.at at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), h.reason \
         from {s}.position q left join {s}.consumer_halted h on h.pos_id = q.id \
         left join lateral (select * from {s}.consumer_reset r \
         where r.pos_id = q.id order by r.at desc limit 1) r on true \
         where $1::text is null or q.consumer = $1 order by q.consumer, q.topic, q.part"
    );
    let rows = client.query(&query, &[&consumer]).await.map_err(failed(schema))?;
    let read = |row: &Row| Position {
        id: row.get(0),
        consumer: row.get(1),
        topic: row.get(2),
        partition: row.get(3),
        group: row.get(4),
        cluster_id: row.get(5),
        topic_id: row.get(6),
        epoch: row.get(7),
        next_offset: row.get(8),
        run: row.get(9),
        reset_id: row.get(10),
        known: row.get(11),
        parked: row.get(12),
        again: row.get(13),
        last_reset: row.get::<_, Option<String>>(14).map(|_| Reset::read(row, 14)),
        halted: row
            .get::<_, Option<String>>(14 + RESET_COLUMNS)
            .map(|at| Halted { at, reason: row.get(15 + RESET_COLUMNS) }),
    };
    Ok(rows.iter().map(read).collect())
}

/// What keeps the consumer's effects from being made twice, where a member has
/// told.
pub(super) async fn guard(
    client: &Client,
    schema: &str,
    consumer: &str,
) -> Result<Option<String>, Failure> {
    let query = format!("select guard from {}.consumer where name = $1", sql::quoted(schema));
    let row = client.query_opt(&query, &[&consumer]).await.map_err(failed(schema))?;
    Ok(row.and_then(|row| row.get(0)))
}

/// The last resets of a consumer, the newest first.
pub(super) async fn resets(
    client: &Client,
    schema: &str,
    consumer: &str,
    limit: u32,
) -> Result<Vec<Reset>, Failure> {
    let query = format!(
        "select {RESET} from {}.consumer_reset r where r.consumer = $1 order by r.at desc limit $2",
        sql::quoted(schema)
    );
    let rows = client.query(&query, &[&consumer, &i64::from(limit)]).await;
    Ok(rows.map_err(failed(schema))?.iter().map(|row| Reset::read(row, 0)).collect())
}

/// The partitions that a command is about, none of them unread.
pub(super) async fn chosen(
    client: &Client,
    place: &Place,
    which: &Which,
) -> Result<Vec<Position>, Failure> {
    let mut positions = positions(client, &place.schema, Some(&which.name)).await?;
    if positions.is_empty() {
        return Err(unknown(&which.name));
    }
    positions.retain(|one| which.topic.as_ref().is_none_or(|topic| *topic == one.topic));
    if let Some(missing) =
        which.partitions.iter().find(|wanted| positions.iter().all(|one| one.partition != **wanted))
    {
        let text = format!("consumer {} has not read partition {missing}", which.name);
        return Err(nothing(&text, &which.name));
    }
    let wanted =
        |one: &Position| which.partitions.is_empty() || which.partitions.contains(&one.partition);
    positions.retain(|one| wanted(one) && one.next_offset.is_some());
    if positions.is_empty() {
        let text = format!("consumer {} has read nothing of that", which.name);
        return Err(nothing(&text, &which.name));
    }
    Ok(positions)
}

pub(super) fn unknown(consumer: &str) -> Failure {
    let text = format!("no consumer {consumer} has read anything");
    Failure::found(Exit::Nothing, &text).next_step(
        "see the names with `walpost consumer list`; they are those given to the builder",
    )
}

fn nothing(text: &str, consumer: &str) -> Failure {
    Failure::found(Exit::Nothing, text)
        .next_step(format!("see topics and partitions with `walpost consumer show {consumer}`"))
}

/// What an operator's role needs, as docs/consumer.md has it.
fn grants(schema: &str) -> String {
    let s = sql::quoted(schema);
    format!(
        "let an owner run this, with the name of your role for OPERATOR: grant usage on schema \
         {s} to OPERATOR; grant select on {s}.done, {s}.consumer, {s}.consumer_reset, \
         {s}.consumer_again, {s}.consumer_halted to OPERATOR; grant select (pos_id, off, state) on \
         {s}.consumer_parked to OPERATOR; grant select, update on {s}.position to OPERATOR; \
         grant insert, update on {s}.consumer_reset to OPERATOR; grant insert, delete on \
         {s}.consumer_again to OPERATOR; `prune` also needs: grant delete on {s}.done to OPERATOR"
    )
}

/// A statement failed, which may mean that the tables are not those of this
/// version.
pub(super) fn failed(schema: &str) -> impl Fn(tokio_postgres::Error) -> Failure {
    move |error| {
        let code = error.code().map(|code| code.code().to_owned());
        let failure = sql::failed(schema, None)(error);
        match code.as_deref() {
            Some("42P01" | "42703" | "42883" | "3F000") => failure.next_step(format!(
                "run `walpost migrate --set consumer` on the database of the effects, or name the \
                 schema with --schema, which is {schema:?}"
            )),
            Some("42501") => failure.next_step(grants(schema)),
            Some("55P03") => failure.next_step(
                "its owner is in the middle of a batch; try again, or see what holds the row of \
                 position with pg_locks",
            ),
            _ => failure,
        }
    }
}
