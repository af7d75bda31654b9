use tokio_postgres::types::Type;

use crate::{error::RelayError, sql::Sql};

/// The first version whose logical slots may survive a promotion.
const FAILOVER_VERSION_MIN: u32 = 170_000;

/// What is in the way of going on after a standby was promoted: what it is, and
/// what to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub(crate) problem: String,
    pub(crate) remedy: String,
}

/// What the server says of the slot and its standbys.
struct Standbys {
    /// Physical slots, which standbys read from.
    physical: Vec<String>,
    failover: bool,
    synchronized: String,
}

/// Looks whether a promotion would keep the slot `name` with all that was
/// published. Nothing where no standby has a slot.
pub(crate) async fn obstacle(
    sql: &Sql,
    name: &str,
    server_version: u32,
) -> Result<Option<Obstacle>, RelayError> {
    if server_version < FAILOVER_VERSION_MIN {
        return Ok(None);
    }
    let query = "select array(select slot_name::text from pg_replication_slots \
                 where slot_type = 'physical' order by slot_name), \
                 coalesce((select failover from pg_replication_slots where slot_name = $1), true), \
                 current_setting('synchronized_standby_slots')";
    let row = sql.one("looking for standbys", query, &[(&name, Type::TEXT)]).await?;
    let (physical, failover, synchronized) = (row.get(0), row.get(1), row.get(2));
    Ok(judge(name, &Standbys { physical, failover, synchronized }))
}

fn judge(name: &str, standbys: &Standbys) -> Option<Obstacle> {
    let Standbys { physical, failover, synchronized } = standbys;
    if physical.is_empty() {
        return None;
    }
    if !failover {
        return Some(Obstacle {
            problem: format!("slot {name:?} does not survive the promotion of a standby"),
            remedy: format!(
                "stop the relay and run `ALTER_REPLICATION_SLOT {} (FAILOVER true)` on a \
                 replication connection, and set sync_replication_slots on the standby",
                super::quote_identifier(name)
            ),
        });
    }
    synchronized.trim().is_empty().then(|| Obstacle {
        problem: "synchronized_standby_slots is empty: after a failover events may have been \
                  published that the new primary does not have"
            .to_owned(),
        remedy: format!(
            "name the slot of the standby to fail over to in synchronized_standby_slots on the \
             primary; its physical slots are {}",
            physical.join(", ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(physical: &[&str], failover: bool, synchronized: &str) -> Option<Obstacle> {
        let physical = physical.iter().map(|name| (*name).to_owned()).collect();
        judge("shop", &Standbys { physical, failover, synchronized: synchronized.to_owned() })
    }

    #[test]
    fn without_a_standby_there_is_nothing_to_say() {
        assert_eq!(found(&[], false, ""), None);
        assert_eq!(found(&["second"], true, "second"), None);
    }

    #[test]
    fn a_promotion_that_would_lose_the_slot_or_events_is_told() {
        let slot = found(&["second"], false, "second").unwrap();
        assert!(slot.problem.contains("does not survive"), "{slot:?}");
        assert!(
            slot.remedy.contains("ALTER_REPLICATION_SLOT \"shop\" (FAILOVER true)"),
            "{slot:?}"
        );
        let events = found(&["second", "third"], true, " ").unwrap();
        assert!(events.problem.contains("synchronized_standby_slots is empty"), "{events:?}");
        assert!(events.remedy.ends_with("are second, third"), "{events:?}");
    }
}
