//! Whether the database has what a consumer needs, before it joins the group.

use std::time::{Duration, Instant};

use tokio_postgres::types::Type;
use walpost_event::RetrySchedule;

use crate::{
    BoxError, Database, Error,
    database_error::{READ_ONLY, Verdict, how_to_connect, how_to_use, postgres_error},
    report::report,
    settings::Settings,
    sql::{NEWEST, Sql},
    tell::{Reminder, seconds, tell},
};

/// What the role of the connection finds, by the catalogs alone: they can be
/// read without any right on the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    role: String,
    /// Whether the newest table is there.
    migrated: bool,
    encoding: String,
    /// A standby, or a session in which nothing can be written.
    read_only: bool,
    usage: bool,
    /// Whether every function may be called.
    execute: bool,
    /// Rights on tables, such as `select on done`, that the role has not.
    missing: Vec<String>,
    /// Declared constraints that the database has no usable index of.
    unknown_keys: Vec<String>,
}

/// Waits for the database, and looks whether it has the tables, and whether
/// they may be used.
pub(crate) async fn database_is_ready(
    database: &Database,
    sql: &Sql,
    settings: &Settings,
) -> Result<(), Error> {
    let backoff = RetrySchedule::backoff(Duration::from_millis(200), Duration::from_secs(10));
    let (since, mut reminder, mut failures) = (Instant::now(), Reminder::default(), 0);
    loop {
        let away = match look(database, sql, settings).await {
            Ok(found) => {
                if reminder.was_told() {
                    let (place, after) = (database.place(), seconds(since.elapsed()));
                    tell!(info, { place = place, after = after }, "the database answers");
                }
                return judge(found, sql, settings);
            }
            Err(Failed::Away(reason)) => reason,
            Err(Failed::Refused(error)) => return Err(error),
        };
        failures += 1;
        if reminder.is_due(Instant::now()) {
            let (place, after) = (database.place(), seconds(since.elapsed()));
            tell!(
                warn,
                { place = place, after = after, reason = away },
                "the database cannot be reached, nothing is consumed until it can; trying again"
            );
        }
        tokio::time::sleep(backoff.delay(failures, 0.0).unwrap_or_default()).await;
    }
}

enum Failed {
    /// It will pass.
    Away(String),
    Refused(Error),
}

async fn look(database: &Database, sql: &Sql, settings: &Settings) -> Result<Found, Failed> {
    let client = database.connect().await.map_err(|error| not_connected(database, error))?;
    let schema = settings.schema.as_str();
    let row = client.query_typed_one(&sql.rights, &[(&schema, Type::TEXT)]).await;
    let row = row.map_err(not_looked)?;
    let keys = settings.guard.constraints();
    let unknown = client.query_typed(UNKNOWN_KEYS, &[(&keys, Type::TEXT_ARRAY)]).await;
    let unknown_keys = unknown.map_err(not_looked)?.iter().map(|row| row.get(0)).collect();
    Ok(Found {
        role: row.get(0),
        migrated: row.get(1),
        usage: row.get(2),
        execute: row.get(3),
        missing: row.get(4),
        encoding: row.get(5),
        read_only: row.get(6),
        unknown_keys,
    })
}

/// $1 names: those without a unique index that is checked at once. Reads the
/// catalogs alone.
const UNKNOWN_KEYS: &str = "select k.name from unnest($1::text[]) k(name) where not exists ( \
     select from pg_class c join pg_index i on i.indexrelid = c.oid \
     where c.relname = k.name and i.indisunique and i.indimmediate) order by k.name";

fn not_looked(error: tokio_postgres::Error) -> Failed {
    match Verdict::of(&error) {
        Verdict::Transient | Verdict::Cancelled => Failed::Away(report(&error)),
        _ => Failed::Refused(Error::Database {
            attempted: format!("looking for the consumer's tables failed; {}", how_to_use(&error)),
            source: error.into(),
        }),
    }
}

fn not_connected(database: &Database, error: BoxError) -> Failed {
    let known = postgres_error(&error);
    if known.is_none_or(|known| Verdict::of(known) == Verdict::Transient) {
        return Failed::Away(report(&*error));
    }
    let (place, how) = (database.place(), how_to_connect(known));
    let attempted = format!("connecting to {place} was refused; {how}");
    Failed::Refused(Error::Database { attempted, source: error })
}

fn judge(found: Found, sql: &Sql, settings: &Settings) -> Result<(), Error> {
    let Found { role, migrated, encoding, read_only, usage, execute, missing, unknown_keys } =
        found;
    if read_only {
        let attempted = "looking for the consumer's tables found a server that rejects writes";
        let (attempted, source) = (attempted.to_owned(), READ_ONLY.into());
        return Err(Error::Database { attempted, source });
    }
    // SQL_ASCII stores whatever it is given.
    if !["UTF8", "SQL_ASCII"].contains(&encoding.as_str()) {
        let problem = format!(
            "its encoding is {encoding}, in which not every id and reason can be stored; use a \
             database in UTF8"
        );
        return Err(Error::Setting { setting: "database".to_owned(), problem });
    }
    let schema = settings.schema.clone();
    if !migrated {
        let source = format!("the function {NEWEST} is missing").into();
        return Err(Error::NotMigrated { schema, source });
    }
    let others = [(usage, "usage"), (execute, "execute on functions")];
    let lacking = others.into_iter().filter(|(has, _)| !has).map(|(_, right)| right.to_owned());
    let lacking: Vec<String> = lacking.chain(missing).collect();
    if lacking.is_empty() {
        return known_keys(&unknown_keys);
    }
    let grant = sql.grants(&role, !execute);
    Err(Error::NotGranted { role, schema, missing: lacking.join(", "), grant })
}

fn known_keys(unknown: &[String]) -> Result<(), Error> {
    let Some(first) = unknown.first() else { return Ok(()) };
    let problem = format!(
        "the database of the effects has no unique index {first} that is checked at once \
         ({} of the declared ones are unknown); create it not deferrable, or correct the name",
        unknown.len()
    );
    Err(Error::Setting { setting: "guard".to_owned(), problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(change: impl FnOnce(&mut Found)) -> Result<(), String> {
        let mut found = Found {
            role: "app".into(),
            migrated: true,
            encoding: "UTF8".into(),
            read_only: false,
            usage: true,
            execute: true,
            missing: Vec::new(),
            unknown_keys: Vec::new(),
        };
        change(&mut found);
        let settings = Settings::new("shipping".into());
        judge(found, &Sql::new(&settings), &settings).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_missing_is_named_with_the_statements_that_grant_it() {
        assert_eq!(judged(|_| ()), Ok(()));
        let text = judged(|found| found.encoding = "LATIN1".into()).unwrap_err();
        assert!(text.contains("database") && text.contains("its encoding is LATIN1"), "{text}");
        let text = judged(|found| found.usage = false).unwrap_err();
        assert!(
            text.starts_with("connected, but role app lacks usage in schema walpost;"),
            "{text}"
        );
        assert!(text.contains("grant usage on schema \"walpost\" to \"app\";"), "{text}");
        assert!(!text.contains("grant execute"), "{text}");
        let text = judged(|found| {
            found.execute = false;
            found.missing = vec!["select on done".into(), "insert on position".into()];
        });
        let text = text.unwrap_err();
        let lacks = "lacks execute on functions, select on done, insert on position in";
        assert!(text.contains(lacks) && text.contains("grant execute on all functions"), "{text}");
    }

    #[test]
    fn a_business_key_that_is_unknown_is_named() {
        let text = judged(|found| found.unknown_keys = vec!["a_key".into()]).unwrap_err();
        assert!(
            text.starts_with("setting guard: ") && text.contains("unique index a_key"),
            "{text}"
        );
    }

    #[test]
    fn a_read_only_server_is_refused_at_the_start() {
        let found = |found: &mut Found| found.read_only = true;
        let text = judged(found).unwrap_err();
        assert!(text.contains("rejects writes"), "{text}");
    }

    #[test]
    fn missing_tables_come_first() {
        let text = judged(|found| (found.migrated, found.usage) = (false, false)).unwrap_err();
        assert!(text.contains("walpost migrate --set consumer"), "{text}");
    }
}
