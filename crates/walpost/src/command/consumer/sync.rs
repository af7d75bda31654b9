//! The group's offsets in Kafka follow the stored ones. After a kill they lag
//! behind, and Kafka's own tools count from them.

use serde_json::{Value, json};
use walpost_consumer::operator::{Known, Marker, Owner, Standing};

use super::{
    Place, Which,
    cluster::{Cluster, Commit, Log, NotCommitted},
    kafka_failed,
    stored::{self, Position},
};
use crate::{
    command::{
        parked::{for_terminal, json_for_terminal},
        sql,
    },
    config::Config,
    failure::{Exit, Failure},
    output,
    table::Table,
};

/// Which offsets.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// Set them; without it they are compared
    #[arg(long)]
    yes: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub(super) json: bool,
}

/// What Kafka holds for a group, against the stored offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// The stored offset, with our marker.
    Same,
    Nothing,
    /// An earlier commit of ours.
    Behind,
    /// A commit of ours that the row does not know: the database is older than the
    /// group.
    Newer,
    /// A number without our marker: a wish, or what a tool has left of a commit.
    Unmarked,
    /// A reset that a member has confirmed, and nobody carried out yet.
    Pending,
}

impl Held {
    pub(super) fn of(stored: &Position, log: &Log, has_reset: bool) -> Self {
        let Some(offset) = log.committed.offset else { return Self::Nothing };
        let marker = Marker::parse(&log.committed.metadata);
        let Some(marker) = marker.filter(|marker| marker.is_of(&owner(stored))) else {
            return Self::Unmarked;
        };
        let Position { next_offset, known: offsets, epoch, .. } = stored;
        let (next_offset, epoch) = (*next_offset, *epoch);
        let reset = stored.reset_id.as_ref().and_then(|id| id.parse().ok());
        let row = Known { next_offset, offsets, epoch, reset, has_reset };
        match marker.standing(&row) {
            Standing::Newer => Self::Newer,
            _ if marker.offset != offset => Self::Unmarked,
            Standing::Pending(_) => Self::Pending,
            Standing::Known if Some(offset) == next_offset => Self::Same,
            Standing::Known => Self::Behind,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Same => "the same",
            Self::Nothing => "nothing",
            Self::Behind => "an earlier commit",
            Self::Newer => "newer than the database",
            Self::Unmarked => "without a marker",
            Self::Pending => "a reset to come",
        }
    }
}

/// One partition, compared.
pub(super) struct Compared {
    pub(super) stored: Position,
    pub(super) log: Log,
    pub(super) held: Held,
}

pub(super) async fn run(config: &Config, place: &Place, args: &Args) -> Result<(), Failure> {
    let cluster = Cluster::of(config)?;
    let client = sql::connect_to_ask(&place.database).await?;
    let stored = stored::chosen(&client, place, &args.which).await?;
    let compared = compare(&client, place, &cluster, stored, None).await?;
    if let Some(to_come) = compared.iter().find(|one| one.held == Held::Pending) {
        return Err(self::to_come(to_come));
    }
    let moves: Vec<&Compared> = compared.iter().filter(|one| one.held != Held::Same).collect();
    if args.yes && !moves.is_empty() {
        let synced = sync(&client, place, &cluster, &moves).await;
        synced.map_err(|failure| refused(&args.which.name, failure))?;
    }
    print(&compared, args)
}

fn print(compared: &[Compared], args: &Args) -> Result<(), Failure> {
    if args.json {
        let lines = compared.iter().map(|one| json_for_terminal(&json(one, args.yes)) + "\n");
        return output::print(lines.collect::<String>());
    }
    let mut table =
        Table::titled(["topic", "partition", "stored", "in Kafka", "which is"]).right([1, 2, 3]);
    let number = |number: Option<i64>| number.map_or("-".to_owned(), |number| number.to_string());
    for one in compared {
        table.row([
            for_terminal(&one.stored.topic),
            one.stored.partition.to_string(),
            number(one.stored.next_offset),
            number(one.log.committed.offset),
            one.held.as_str().to_owned(),
        ]);
    }
    output::print(table)?;
    let moved = compared.iter().filter(|one| one.held != Held::Same).count();
    match (moved, args.yes) {
        (0, _) => output::print("Kafka holds the stored offsets\n"),
        (moved, true) => output::print(format_args!("set {moved} to the stored offset\n")),
        (_, false) => {
            output::note("nothing was done; --yes sets them to the stored offsets");
            Ok(())
        }
    }
}

fn json(one: &Compared, done: bool) -> Value {
    json!({
        "topic": one.stored.topic,
        "partition": one.stored.partition,
        "stored_offset": one.stored.next_offset,
        "kafka_offset": one.log.committed.offset,
        "kafka_holds": one.held.as_str(),
        "done": done && one.held != Held::Same,
    })
}

/// Asks Kafka about each partition, which has to be of the cluster and topic
/// that was read.
pub(super) async fn compare(
    client: &tokio_postgres::Client,
    place: &Place,
    cluster: &Cluster,
    stored: Vec<Position>,
    time_ms: Option<i64>,
) -> Result<Vec<Compared>, Failure> {
    let mut compared = Vec::new();
    let of_group: Vec<&[Position]> = stored.chunk_by(|one, next| one.group == next.group).collect();
    for of_group in of_group {
        let logs = cluster.logs(of_group, time_ms).await;
        let logs = logs.map_err(|error| kafka_failed(&error))?;
        for (stored, log) in of_group.iter().zip(logs) {
            if (&stored.cluster_id, &stored.topic_id) != (&log.cluster_id, &log.topic_id) {
                return Err(another_topic(stored, &log));
            }
            let reset = Marker::parse(&log.committed.metadata).and_then(|marker| marker.reset);
            let reset = reset.map(|id| id.to_string());
            let carried_out = match &reset {
                Some(id) if reset != stored.reset_id => {
                    has_reset(client, place, stored, id).await?
                }
                _ => true,
            };
            let held = Held::of(stored, &log, carried_out);
            compared.push(Compared { stored: stored.clone(), log, held });
        }
    }
    Ok(compared)
}

async fn has_reset(
    client: &tokio_postgres::Client,
    place: &Place,
    stored: &Position,
    id: &str,
) -> Result<bool, Failure> {
    let query = format!(
        "select exists (select from {}.consumer_reset where pos_id = $1 and id = $2::text::uuid)",
        sql::quoted(&place.schema)
    );
    let row = client.query_one(&query, &[&stored.id, &id]).await;
    Ok(row.map_err(stored::failed(&place.schema))?.get(0))
}

/// What a member has confirmed is carried out, so nothing comes before it.
pub(super) fn to_come(one: &Compared) -> Failure {
    let (topic, partition) = (&one.stored.topic, one.stored.partition);
    let offset = one.log.committed.offset.unwrap_or_default();
    let text = format!(
        "a reset of {topic}[{partition}] to {offset} was confirmed by a member that then ended"
    );
    Failure::found(Exit::Running, &text)
        .next_step("start the consumer, which carries it out, and sync or reset after that")
}

fn another_topic(stored: &Position, log: &Log) -> Failure {
    let Position { topic, partition, cluster_id, topic_id, .. } = stored;
    let text = format!(
        "the stored offset of {topic}[{partition}] is of topic id {topic_id} in cluster \
         {cluster_id}; these brokers have topic id {} in cluster {}",
        log.topic_id, log.cluster_id
    );
    Failure::found(Exit::Kafka, &text).next_step(
        "name the brokers that the consumer reads from; where the topic was created anew, the \
         consumer says when it starts how to go on",
    )
}

/// Commits the stored offsets with their markers. A commit from outside is taken
/// while the group has no members, so none of theirs comes after it; and what a
/// member that starts in between does to the row, `offset_synced` sees: then
/// Kafka may hold a number that the member has left behind.
pub(super) async fn sync(
    client: &tokio_postgres::Client,
    place: &Place,
    cluster: &Cluster,
    moves: &[&Compared],
) -> Result<(), NotCommitted> {
    let mut groups: Vec<&str> = moves.iter().map(|one| &*one.stored.group).collect();
    groups.dedup();
    for group in groups {
        let of_group: Vec<&Position> =
            moves.iter().map(|one| &one.stored).filter(|one| one.group == group).collect();
        let commits: Vec<Commit> = of_group.iter().filter_map(|one| commit(one)).collect();
        cluster.commit(group, &commits).await?;
        let statement = format!("select {}.offset_synced($1, $2, $3)", sql::quoted(&place.schema));
        for one in of_group {
            let row = client
                .query_one(&statement, &[&one.id, &one.epoch, &one.next_offset])
                .await
                .map_err(|error| NotCommitted::Failed(error.to_string()))?;
            if !row.get::<_, bool>(0) {
                output::note(format_args!(
                    "a member has taken {}[{}] over meanwhile; look again with `walpost consumer \
                     sync-offsets {}`",
                    one.topic, one.partition, one.consumer
                ));
            }
        }
    }
    Ok(())
}

fn commit(stored: &Position) -> Option<Commit> {
    let offset = stored.next_offset?;
    let reset = stored.reset_id.as_ref().and_then(|id| id.parse().ok());
    let marker = owner(stored).marker(offset, stored.epoch, reset).to_string();
    Some(Commit { topic: stored.topic.clone(), partition: stored.partition, offset, marker })
}

fn owner(stored: &Position) -> Owner {
    Owner {
        consumer: stored.consumer.clone(),
        cluster: stored.cluster_id.clone(),
        topic: stored.topic_id.clone(),
    }
}

fn refused(name: &str, failure: NotCommitted) -> Failure {
    match failure {
        NotCommitted::HasMembers => {
            let text = format!("the group of consumer {name} has members, nothing was set");
            Failure::found(Exit::Kafka, &text).next_step(
                "they commit the stored offsets by themselves; stop all of them first, and wait \
                 for the session time-out of those that were killed",
            )
        }
        NotCommitted::Failed(text) => kafka_failed(&text),
    }
}
