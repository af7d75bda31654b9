//! One case, from its database to its verdict.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio_postgres::Client;

use super::{
    case::{Case, End},
    compare::{Tally, Terms, compare},
    difference::Difference,
    engine::{Ending, Engine, Running},
    stage::{Side, Stage},
};
use crate::chaos::off;

/// How many lines of a trace are shown.
const TRACE_LINES: usize = 12;
/// What Walpost says where an update is an error under which Debezium's task fails.
const FATAL: &str = "table.op.invalid.behavior is fatal";
/// Both clocks are the same; a time may have been rounded.
const ROUNDED: Duration = Duration::from_millis(1);

/// Plays a case under its token, and says what came of it.
pub(super) async fn play(stage: &Arc<Stage>, case: &Case, token: &str) -> Tally {
    let mut tally = Tally::default();
    let client = match prepare(stage, case, token).await {
        Ok(client) => client,
        Err(error) => {
            tally.unexplained(format!("the case cannot be set up: {error}"));
            return tally;
        }
    };
    let began = SystemTime::now() - ROUNDED;
    let started = start(stage, case, token).await;
    match (&started, &case.end) {
        (_, End::Refuses(text)) => {
            let said = refusals(stage, &client, &started).await;
            if let [Some(said), _] = &said {
                stage.note_failure(&case.name, cause(said));
            }
            judge_refusals(&mut tally, case.differs, text, &said);
        }
        ([Ok(oracle), Ok(other)], _) => {
            match run(stage, &client, case, token, [oracle, other]).await {
                Ok(endings) => {
                    if let [Ending::Died(trace), _] = &endings {
                        stage.note_failure(&case.name, cause(trace));
                    }
                    judge_endings(&mut tally, case, &endings, &stage.other);
                    if let (Engine::Walpost(_), Ending::Done, End::Dies(_)) =
                        (&stage.other, &endings[1], &case.end)
                    {
                        judge_parked(&mut tally, case, parked(&client).await);
                    }
                }
                Err(error) => tally.unexplained(format!("a row cannot be written: {error}")),
            }
            tally.add(compare_topics(stage, case, token, began).await);
        }
        _ => {
            for refusal in started.iter().filter_map(|started| started.as_ref().err()) {
                tally.unexplained(format!("the configuration is refused: {refusal}"));
            }
        }
    }
    let log = stage.folder.join(format!("walpost-{token}.log"));
    let log = (!tally.unexplained.is_empty()).then_some(log);
    for running in started.into_iter().flatten() {
        running.end(stage, &client, log.as_deref()).await;
    }
    drop_database(stage, client, token).await;
    tally
}

fn since_1970(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).expect("it is later than 1970");
    i64::try_from(since.as_millis()).expect("it fits for a long time")
}

/// The database of the case, with what is there before the connectors are.
async fn prepare(stage: &Stage, case: &Case, token: &str) -> Result<Client, String> {
    let admin = stage.servers.connect("postgres").await;
    let create = format!("create database {token} template template0");
    admin.batch_execute(&create).await.map_err(|error| told(&error))?;
    let client = stage.servers.connect(token).await;
    let publication = format!("create publication {token} for all tables");
    let all = case.setup_sql().into_iter().chain(case.stored.clone()).chain([publication]);
    for sql in all {
        client.batch_execute(&sql).await.map_err(|error| format!("{}: {sql}", told(&error)))?;
    }
    Ok(client)
}

/// Starts both; one after the other where the first one creates the publication.
async fn start(stage: &Stage, case: &Case, token: &str) -> [Result<Running, String>; 2] {
    let of = |side| stage.engine(side).start(stage, side, case, token);
    if case.property("publication.autocreate.mode").is_some() {
        let client = stage.servers.connect(token).await;
        let oracle = of(Side::Oracle).await;
        if let Ok(oracle) = &oracle {
            oracle.streams(stage, &client).await;
        }
        return [oracle, of(Side::Other).await];
    }
    <[_; 2]>::from(tokio::join!(of(Side::Oracle), of(Side::Other)))
}

/// Writes the rows once both read, and waits for them.
async fn run(
    stage: &Stage,
    client: &Client,
    case: &Case,
    token: &str,
    [oracle, other]: [&Running; 2],
) -> Result<[Ending; 2], String> {
    let mut refused = None;
    if case.streams {
        let (one, two) = tokio::join!(oracle.streams(stage, client), other.streams(stage, client));
        if [&one, &two].iter().any(|ending| matches!(ending, Ending::Waited(_))) {
            return Ok([one, two]);
        }
        refused = matches!(two, Ending::Refused(_)).then_some(two);
    }
    for sql in &case.rows {
        client.batch_execute(sql).await.map_err(|error| format!("{}: {sql}", told(&error)))?;
    }
    let others = async {
        match refused {
            Some(refused) => refused,
            None => other.ends(stage, client, case, token).await,
        }
    };
    let (one, two) = tokio::join!(oracle.ends(stage, client, case, token), others);
    Ok([one, two])
}

fn told(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}

/// What each says against the configuration, at once or before it reads anything.
async fn refusals(
    stage: &Stage,
    client: &Client,
    [oracle, other]: &[Result<Running, String>; 2],
) -> [Option<String>; 2] {
    let of = async |started: &Result<Running, String>| match started {
        Err(said) => Some(said.clone()),
        Ok(running) => match running.streams(stage, client).await {
            Ending::Died(said) | Ending::Refused(said) => Some(said),
            Ending::Done | Ending::Waited(_) => None,
        },
    };
    tokio::join!(of(oracle), of(other)).into()
}

fn judge_refusals(
    tally: &mut Tally,
    differs: Option<Difference>,
    text: &str,
    said: &[Option<String>; 2],
) {
    match said {
        [Some(said), None] if said.contains(text) && differs == Some(Difference::Accepted) => {
            tally.explained(Difference::Accepted);
        }
        [Some(said), Some(_)] if said.contains(text) => tally.same(),
        [Some(said), Some(_)] => {
            tally.unexplained(format!("it is refused otherwise:\n{}", first_lines(said)));
        }
        [Some(_), None] => tally.unexplained("Debezium alone refuses it".to_owned()),
        [None, _] => tally.unexplained("Debezium does not refuse it".to_owned()),
    }
}

/// Whether both have ended as they should: Debezium as the case says, and Walpost
/// having read everything.
fn judge_endings(tally: &mut Tally, case: &Case, endings: &[Ending; 2], other: &Engine) {
    let [oracle, ending] = endings;
    if let Err(what) = as_expected(case, oracle) {
        tally.unexplained(format!("Debezium {what}"));
    }
    let fails = matches!(case.end, End::Dies(_));
    match (other, ending) {
        (Engine::Debezium, ending) => match as_expected(case, ending) {
            Err(what) => tally.unexplained(format!("the other Debezium {what}")),
            Ok(()) if fails => tally.same(),
            Ok(()) => {}
        },
        (Engine::Walpost(_), Ending::Refused(said))
            if case.refusal.as_ref().is_some_and(|text| said.contains(text)) =>
        {
            tally.explained(Difference::Refused);
        }
        (Engine::Walpost(_), Ending::Done) if case.refusal.is_some() => {
            tally.unexplained("Walpost does not refuse it".to_owned());
        }
        (Engine::Walpost(_), Ending::Done) if fails => tally.explained(Difference::TaskFails),
        (Engine::Walpost(_), Ending::Done) => {}
        (Engine::Walpost(_), Ending::Refused(_)) if fails && case.expected == 0 => {
            tally.explained(Difference::RefusedAtStart);
        }
        // It ends where Debezium does, if it is told to.
        (Engine::Walpost(_), Ending::Died(log)) if fails && log.contains(FATAL) => tally.same(),
        (Engine::Walpost(_), Ending::Died(log) | Ending::Refused(log)) => {
            tally.unexplained(format!("Walpost has ended:\n{}", first_lines(log)));
        }
        (Engine::Walpost(_), Ending::Waited(count)) => {
            tally.unexplained(format!("Walpost has not read everything, but {count} records"));
        }
    }
}

/// How many events Walpost has parked.
async fn parked(client: &Client) -> i64 {
    let sql = "select count(*) from walpost.parked";
    client.query_one(sql, &[]).await.expect("it is migrated").get(0)
}

/// Where Debezium's task fails with an event: whether it went out or is parked, as
/// the case says.
fn judge_parked(tally: &mut Tally, case: &Case, parked: i64) {
    match (parked > 0, case.goes_out) {
        (true, false) | (false, true) => {}
        (true, _) => tally.unexplained(format!("Walpost parks {parked} events, and not none")),
        (false, _) => tally.unexplained("Walpost parks nothing".to_owned()),
    }
}

/// Whether a Debezium has ended as its case says.
fn as_expected(case: &Case, ending: &Ending) -> Result<(), String> {
    match (ending, &case.end) {
        (Ending::Done, End::Runs) => Ok(()),
        (Ending::Died(trace), End::Dies(text)) if trace.contains(text) => Ok(()),
        (Ending::Died(trace) | Ending::Refused(trace), _) => {
            Err(format!("fails:\n{}", first_lines(trace)))
        }
        (Ending::Waited(count), _) => Err(format!("has {count} records and not {}", case.expected)),
        (Ending::Done, _) => Err("does not fail".to_owned()),
    }
}

/// The innermost one that is told.
fn cause(trace: &str) -> &str {
    let mut causes = trace.lines().filter_map(|line| line.strip_prefix("Caused by: "));
    causes.next_back().unwrap_or_else(|| trace.lines().next().unwrap_or_default())
}

fn first_lines(text: &str) -> String {
    let cause = |line: &&str| !line.trim_start().starts_with("at ");
    text.lines().filter(cause).take(TRACE_LINES).collect::<Vec<_>>().join("\n")
}

/// Their topics, with settings and records.
async fn compare_topics(stage: &Arc<Stage>, case: &Case, token: &str, began: SystemTime) -> Tally {
    let (shared, name) = (stage.clone(), token.to_owned());
    let (topics, outputs) = off(move || {
        let taps = [Side::Oracle, Side::Other].map(|side| shared.tap(side));
        (taps.map(|tap| tap.topics(&name)), taps.map(|tap| tap.output(&name)))
    })
    .await;
    let parks = stage.other != Engine::Debezium;
    let terms = Terms {
        topic_prefix: case.topic_prefix(token).to_owned(),
        heartbeats: case.heartbeats(token),
        places: case.places_by_column(),
        // Heartbeats go on until here.
        window: since_1970(began)..=since_1970(SystemTime::now()),
        refuses: parks && case.refusal.is_some(),
        goes_on: matches!(case.end, End::Dies(_)) && parks,
        parks,
        differs: case.differs,
    };
    let [oracle, other] = &outputs;
    stage.note_records(&case.name, oracle);
    let mut tally = compare(oracle, other, &terms);
    let [ours, theirs] = [Side::Oracle, Side::Other].map(|side| stage.tap(side));
    let (one, two) = (ours.settings(&topics[0]).await, theirs.settings(&topics[1]).await);
    for (topic, settings) in &one {
        match two.get(topic) {
            Some(others) if others != settings => tally
                .unexplained(format!("topic {topic}: Debezium has {settings}, the other {others}")),
            // A topic that is not there has no records either.
            _ => {}
        }
    }
    ours.forget(&topics[0]).await;
    theirs.forget(&topics[1]).await;
    tally
}

async fn drop_database(stage: &Stage, client: Client, token: &str) {
    drop(client);
    let admin = stage.servers.connect("postgres").await;
    if let Err(error) = admin.batch_execute(&format!("drop database {token} with (force)")).await {
        eprintln!("debezium: the database {token} stays: {error}");
    }
}
