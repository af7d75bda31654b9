//! What lets a relay start, and harms it or others later: settings of the
//! server, and what stands between the server and us.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use walpost_postgres::Database;

use super::{CheckResult, Outcome, filters, ok, warn};
use crate::{
    config::RelayConfig,
    error::{RelayError, SourceError},
    recovery,
    sql::Sql,
};

const SETTINGS: &str = "\
    select name::text, setting from pg_settings where name in ('max_slot_wal_keep_size',
        'synchronous_standby_names', 'idle_replication_slot_timeout')";

/// A session may be so much older than its connection, by the rounding of
/// clocks.
const OLDER_MIN: Duration = Duration::from_secs(1);

/// What the server's settings mean for a slot. `application` is the name under
/// which the relay streams.
pub(super) async fn settings(sql: &Sql, application: &str) -> Result<Vec<CheckResult>, RelayError> {
    let rows = sql.query("reading the server's settings", SETTINGS, &[]).await?;
    let settings: HashMap<String, String> =
        rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let setting = |name: &str| settings.get(name).map(String::as_str);
    let keep = setting("max_slot_wal_keep_size").and_then(|text| text.parse().ok());
    let mut results = vec![
        wal_limit(keep.unwrap_or(-1)),
        synchronous(setting("synchronous_standby_names").unwrap_or_default(), application),
    ];
    results.extend(setting("idle_replication_slot_timeout").map(idle));
    Ok(results)
}

/// Puts into the log what [`check`](super::check) would warn of, of row filters
/// and of messages.
pub(crate) async fn warn_of(
    database: &Database,
    config: &RelayConfig,
    id_column: &str,
    took_messages: bool,
) {
    let mut found = Vec::from_iter(untaken_messages(config, took_messages));
    let limit = Duration::from_millis(config.statement_timeout_ms);
    if let Ok((client, _)) = database.connect_to_one().await {
        found.extend(filters::check(&Sql::new(Arc::new(client), limit), config, id_column).await);
    }
    for CheckResult { name, detail, next_step, .. } in
        found.iter().filter(|found| found.outcome != Outcome::Ok)
    {
        tracing::warn!(next_step, "{name}: {detail}");
    }
}

/// Messages were events of the pipeline, and are none any more.
pub(super) fn untaken_messages(config: &RelayConfig, took_messages: bool) -> Option<CheckResult> {
    (took_messages && config.row_filter.is_some() && config.event_prefixes().is_empty()).then(
        || {
            warn(
                "messages",
                format!(
                    "pipeline {:?} has published messages of pg_logical_emit_message, and with its \
                 row_filter it takes none any more",
                    config.pipeline
                ),
                "set pipeline.row_filter_messages = true, or message_prefixes = [] once no program \
             sends messages",
            )
        },
    )
}

/// Whether the tables tell what a slot has not brought that is lost.
pub(super) async fn recovery(
    sql: &Sql,
    config: &RelayConfig,
) -> Result<Vec<CheckResult>, RelayError> {
    let mut found = Vec::new();
    for table in &config.tables {
        let columns = recovery::columns(sql, table).await?;
        let Some(missing) = columns.missing() else { continue };
        let next_step = format!(
            "before the first start, or with the relay stopped until it is done, run `{}`, which \
             locks and rewrites the table",
            columns.add(table)
        );
        let detail = format!(
            "table {table} has no {missing}: if the slot is lost, nothing tells which of its rows \
             are not published"
        );
        found.push(warn("recovery of a lost slot", detail, &next_step));
    }
    Ok(found)
}

/// `max_slot_wal_keep_size` in MB, -1 for no limit.
fn wal_limit(keep_mb: i64) -> CheckResult {
    let name = "WAL limit";
    match keep_mb {
        0.. => ok(
            name,
            format!(
                "max_slot_wal_keep_size is {keep_mb} MB: beyond it the server gives the slot up"
            ),
        ),
        _ => warn(
            name,
            "max_slot_wal_keep_size is unlimited: while the relay is down, WAL is kept until the \
             server's disk is full"
                .to_owned(),
            "set max_slot_wal_keep_size to what the disk bears, or watch \
             walpost_slot_retained_bytes and set pipeline.wal_budget_bytes",
        ),
    }
}

/// Who is a synchronous standby is waited for by every COMMIT.
fn synchronous(names: &str, application: &str) -> CheckResult {
    let name = "synchronous standbys";
    if !names_match(names, application) {
        let none = if names.is_empty() { "none" } else { "the relay is none of them" };
        return ok(name, none.to_owned());
    }
    warn(
        name,
        format!(
            "synchronous_standby_names is {names:?}, which matches the relay ({application:?}): \
             COMMITs may wait until the relay has confirmed them, and for ever while Kafka is away"
        ),
        "name the standbys there, without *, or add another application_name to postgres.url",
    )
}

/// Whether `synchronous_standby_names` has `application`: names, `n (names)`,
/// `FIRST n (names)` or `ANY n (names)`, each of them quoted or not.
fn names_match(names: &str, application: &str) -> bool {
    let names = match (names.find('('), names.rfind(')')) {
        (Some(open), Some(close)) if open < close => &names[open + 1..close],
        _ => names,
    };
    names.split(',').any(|name| {
        let name = name.trim();
        let quoted = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
        let name = quoted.map_or_else(|| name.to_owned(), |name| name.replace("\"\"", "\""));
        name == "*" || name.eq_ignore_ascii_case(application)
    })
}

/// PostgreSQL 18: seconds, 0 for never.
fn idle(timeout: &str) -> CheckResult {
    let name = "idle slots";
    if timeout == "0" {
        return ok(name, "idle_replication_slot_timeout is off".to_owned());
    }
    warn(
        name,
        format!(
            "idle_replication_slot_timeout is {timeout} s: the server gives the slot up when no \
             relay has read it for so long"
        ),
        "set idle_replication_slot_timeout = 0, or make it longer than any time in which no relay \
         may run",
    )
}

/// Our session and when we set out to connect: a session that is older is kept
/// by somebody for us. `refusal` is what the replication connection met.
pub(super) async fn direct(
    sql: &Sql,
    began: Instant,
    refusal: Option<&RelayError>,
) -> Result<CheckResult, RelayError> {
    let age = "select extract(epoch from clock_timestamp() - backend_start)::float8 \
               from pg_stat_activity where pid = pg_backend_pid()";
    let row = sql.opt("reading the age of the session", age, &[]).await?;
    let age = row.and_then(|row| row.get::<_, Option<f64>>(0));
    let age = Duration::try_from_secs_f64(age.unwrap_or(0.0)).unwrap_or_default();
    // Asked for before this is measured, so that a slow answer makes no session old.
    Ok(pooler(age, began.elapsed(), refusal.is_some_and(is_poolers)))
}

/// PgBouncer's answer to what a replication connection asks for; the server has
/// no such message.
fn is_poolers(error: &RelayError) -> bool {
    matches!(
        error,
        RelayError::Source(SourceError::Server(refused))
            if refused.code == "08P01"
                && refused.message().contains("unsupported startup parameter")
    )
}

fn pooler(session: Duration, connected_for: Duration, refused_by_it: bool) -> CheckResult {
    let name = "direct connection";
    let next_step = "name the server itself in postgres.url: replication and the relay's sessions \
                     do not go through PgBouncer";
    if refused_by_it {
        let detail = "a pooler such as PgBouncer answers, and takes no replication".to_owned();
        return super::fail(name, detail, next_step);
    }
    if session >= connected_for + OLDER_MIN {
        let detail = format!(
            "the server's session is {} s old and our connection is not: a pooler is in between",
            session.as_secs()
        );
        return warn(name, detail, next_step);
    }
    ok(name, "nothing seems to be in between".to_owned())
}

#[cfg(test)]
mod tests {
    use walpost_postgres::shown::ServerMessage;

    use super::*;
    use crate::check::Outcome;

    #[test]
    fn the_names_of_synchronous_standbys_are_read_in_all_their_forms() {
        for (names, matches) in [
            ("", false),
            ("s1, s2", false),
            ("s1, Walpost", true),
            ("*", true),
            ("FIRST 2 (s1, s2, walpost)", true),
            ("ANY 1 (s1, \"*\")", true),
            ("2 (s1, \"walpost\")", true),
            ("ANY 1 (walpost2, \"wal,post\")", false),
            ("first", false),
        ] {
            assert_eq!(names_match(names, "walpost"), matches, "{names}");
        }
    }

    #[test]
    fn each_setting_that_harms_is_a_warning_with_what_to_do() {
        for (result, outcome) in [
            (wal_limit(-1), Outcome::Warn),
            (wal_limit(1_024), Outcome::Ok),
            (wal_limit(0), Outcome::Ok),
            (synchronous("*", "walpost"), Outcome::Warn),
            (synchronous("s1", "walpost"), Outcome::Ok),
            (idle("0"), Outcome::Ok),
            (idle("3600"), Outcome::Warn),
        ] {
            assert_eq!(result.outcome, outcome, "{result:?}");
            assert_eq!(result.next_step.is_some(), outcome == Outcome::Warn, "{result:?}");
        }
    }

    #[test]
    fn a_pooler_is_known_by_its_refusal_or_by_an_old_session() {
        let seconds = Duration::from_secs;
        assert_eq!(pooler(seconds(3), seconds(3), false).outcome, Outcome::Ok);
        assert_eq!(pooler(seconds(90), seconds(3), false).outcome, Outcome::Warn);
        assert_eq!(pooler(seconds(0), seconds(3), true).outcome, Outcome::Fail);
        let refusal = |state: &str, message: &str| {
            let refused = ServerMessage { state, message, ..ServerMessage::default() };
            is_poolers(&RelayError::Source(SourceError::Server(refused.into())))
        };
        assert!(refusal("08P01", "unsupported startup parameter: replication"));
        assert!(refusal("08P01", "unsupported startup parameter in options: wal_sender_timeout"));
        assert!(!refusal("08P01", "invalid startup packet layout"));
        assert!(!refusal("28000", "unsupported startup parameter: replication"));
    }
}
