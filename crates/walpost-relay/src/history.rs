//! Whether slot and checkpoint belong to the server and to each other. Pure.

use walpost_event::Lsn;

use crate::{
    checkpoint::Checkpoint,
    config::RelayConfig,
    error::RelayError,
    published::RecordPlace,
    wal::{Switch, preflight::Server},
};

/// Positions of another cluster or slot mean nothing here.
pub(crate) fn same_cluster(
    checkpoint: &Checkpoint,
    config: &RelayConfig,
    server: &Server,
) -> Result<(), RelayError> {
    let remedy = format!(
        "make sure which server this is; to start afresh, delete the pipeline's row in \
         {}.checkpoint",
        config.schema
    );
    if checkpoint.system_id != server.system_id {
        return Err(RelayError::prerequisite(
            format!(
                "pipeline {:?} was started on cluster {}, this is cluster {}",
                config.pipeline, checkpoint.system_id, server.system_id
            ),
            remedy,
        ));
    }
    if checkpoint.slot != config.slot {
        return Err(RelayError::prerequisite(
            format!(
                "pipeline {:?} was started on slot {:?}, the configuration names {:?}",
                config.pipeline, checkpoint.slot, config.slot
            ),
            remedy,
        ));
    }
    Ok(())
}

/// After a promotion or a restore: whether what the pipeline has confirmed is
/// also the past of the server's timeline `now`, whose `history` lists the
/// timelines before it, if the server still knows. The position at which the
/// checkpoint's timeline was left.
pub(crate) fn continued(
    checkpoint: &Checkpoint,
    config: &RelayConfig,
    now: u32,
    history: Option<&[Switch]>,
) -> Result<Lsn, RelayError> {
    let (then, confirmed) = (checkpoint.timeline, checkpoint.confirmed);
    let left = history.map(|history| history.iter().find(|switch| switch.timeline == then));
    let what = match left {
        Some(Some(switch)) if confirmed <= switch.at => return Ok(switch.at),
        Some(Some(switch)) => format!(
            "its timeline {now} left that one at {}: what was committed above is not in this \
             database",
            switch.at
        ),
        Some(None) => format!("its timeline {now} does not descend from that one"),
        None => format!("it no longer has the history of its timeline {now}"),
    };
    Err(RelayError::prerequisite(
        format!(
            "pipeline {:?} had published up to {confirmed} on timeline {then} of the server, and \
             now {what}",
            config.pipeline
        ),
        go_on_here(config),
    ))
}

/// How to go on with a server whose past is not the pipeline's.
fn go_on_here(config: &RelayConfig) -> String {
    format!(
        "make sure that this is the server to go on with; then delete the pipeline's row in \
         {}.checkpoint and start with initial = \"skip\": the relay goes on where the slot \
         stands, and events from there on may come a second time; where there is no slot, \
         `initial` decides about the rows of the outbox table",
        config.schema
    )
}

/// The first point at which the server has left a timeline and behind which the
/// checkpoint does not stand yet. A record of this pipeline from there on may
/// be the abandoned timeline's: at the same position, and with an id that the
/// server draws again, stands another event now.
///
/// Below that point both timelines are one. Behind it only a run on the new
/// timeline has brought the checkpoint, and the floors that it committed there
/// stand above all that it had read back, so nothing of the abandoned timeline
/// is read any more. Without a `history` nothing counts.
pub(crate) fn left_at(
    checkpoint: &Checkpoint,
    now: u32,
    history: Option<&[Switch]>,
) -> Option<Lsn> {
    let Some(history) = history else { return Some(checkpoint.confirmed) };
    let open = |switch: &&Switch| {
        checkpoint.confirmed < switch.at || checkpoint.timeline <= switch.timeline
    };
    history.iter().filter(|switch| switch.timeline < now).find(open).map(|switch| switch.at)
}

/// What was published was on the server's disk before. A server that has not
/// written that far was set back without a new timeline, or is another one.
pub(crate) fn not_set_back(
    config: &RelayConfig,
    published: Lsn,
    record: Option<&RecordPlace>,
    flushed: Lsn,
) -> Result<(), RelayError> {
    if published < flushed || published == Lsn::ZERO {
        return Ok(());
    }
    let record = record.map(RecordPlace::to_string).unwrap_or_default();
    Err(RelayError::prerequisite(
        format!(
            "pipeline {:?} has published an event from {published}, record {record}, and the \
             server's WAL ends at {flushed}: it was set back without a new timeline, as by a \
             snapshot of its disk, or it is a copy, and what was committed since is not in this \
             database; or another program has written the record",
            config.pipeline
        ),
        format!(
            "look at the record: if another program has written it, set pipeline.ignored_records \
             = [{record:?}], and nothing comes a second time; else {}",
            go_on_here(config)
        ),
    ))
}

/// The slot follows committed checkpoints, so one that is ahead was moved or
/// created anew by somebody else: a new one never begins in the past.
pub(crate) fn not_ahead(
    checkpoint: &Checkpoint,
    config: &RelayConfig,
    slot: Lsn,
) -> Result<(), RelayError> {
    if slot <= checkpoint.confirmed {
        return Ok(());
    }
    if config.accept_advanced_slot || config.drop_slot_on_stop {
        tracing::warn!(
            slot = config.slot,
            position = %slot,
            published_up_to = %checkpoint.confirmed,
            "the slot is ahead of what is published, and is taken as it is, as the configuration \
             says: events in between are lost"
        );
        return Ok(());
    }
    Err(RelayError::prerequisite(
        format!(
            "slot {:?} stands at {slot}, ahead of {} up to which pipeline {:?} has published: \
             somebody advanced it or created it anew, or a standby took over that had the slot \
             and not yet the checkpoint; events in between may be missing",
            config.slot, checkpoint.confirmed, config.pipeline
        ),
        format!(
            "publish what is missing from the outbox table (behind a failover without \
             synchronized_standby_slots that is nothing), then delete the pipeline's row in \
             {}.checkpoint and start with initial = \"skip\" to accept the slot as it is",
            config.schema
        ),
    ))
}

/// There is a checkpoint, and no slot.
pub(crate) fn slot_gone(checkpoint: &Checkpoint, config: &RelayConfig) -> RelayError {
    RelayError::prerequisite(
        format!(
            "slot {:?} is gone: it was dropped, or a standby took over that did not have it; \
             pipeline {:?} had published up to {}",
            config.slot, config.pipeline, checkpoint.confirmed
        ),
        format!(
            "run `walpost slot recover`, which says whether the outbox table still has what was \
             committed since and has the next start publish it; or publish it yourself, delete \
             the pipeline's row in {}.checkpoint and start with initial = \"skip\"; with initial = \"publish\" \
             the whole table is published again",
            config.schema
        ),
    )
}

#[cfg(test)]
mod tests {
    use walpost_event::Generation;

    use super::*;
    use crate::checkpoint::InitialState;

    fn checkpoint(timeline: u32, confirmed: u64) -> Checkpoint {
        Checkpoint {
            confirmed: Lsn::from(confirmed),
            initial: InitialState::Done,
            ..Checkpoint::new(Generation::from(7), "1", timeline, "walpost_shop")
        }
    }

    /// What is said of a checkpoint on this timeline with this position, on a
    /// server whose timeline 5 descends from 2 (left at 200) and 4 (at 400).
    fn verdict(timeline: u32, confirmed: u64) -> Result<Lsn, String> {
        let switch = |timeline, at| Switch { timeline, at: Lsn::from(at) };
        let history = [switch(2, 200), switch(4, 400)];
        let checkpoint = checkpoint(timeline, confirmed);
        continued(&checkpoint, &RelayConfig::new("shop"), 5, Some(&history))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_was_confirmed_before_a_switch_is_a_common_past() {
        assert_eq!(verdict(4, 400), Ok(Lsn::from(400)));
        assert_eq!(verdict(2, 200), Ok(Lsn::from(200)));
        assert_eq!(verdict(2, 0), Ok(Lsn::from(200)));
    }

    #[test]
    fn what_was_confirmed_beyond_it_or_elsewhere_is_refused() {
        let text = verdict(4, 401).unwrap_err();
        assert!(text.contains("published up to 0/191 on timeline 4"), "{text}");
        assert!(text.contains("timeline 5 left that one at 0/190"), "{text}");
        assert!(text.contains("delete the pipeline's row"), "{text}");
        // Above the switch of its own timeline, although below the next one's.
        assert!(verdict(2, 300).is_err());
        for timeline in [1, 3, 5, 6] {
            let text = verdict(timeline, 1).unwrap_err();
            assert!(text.contains("does not descend"), "{timeline}: {text}");
        }
        let config = RelayConfig::new("shop");
        let text = continued(&checkpoint(4, 1), &config, 5, None).unwrap_err().to_string();
        assert!(text.contains("no longer has the history"), "{text}");
    }

    #[test]
    fn records_count_up_to_the_first_switch_that_the_checkpoint_has_not_passed() {
        let switch = |timeline, at| Switch { timeline, at: Lsn::from(at) };
        let history = [switch(2, 200), switch(4, 400)];
        let left = |timeline, confirmed| {
            left_at(&checkpoint(timeline, confirmed), 5, Some(&history)).map(u64::from)
        };
        // Written before a switch, also exactly at it.
        assert_eq!((left(2, 100), left(2, 200)), (Some(200), Some(200)));
        assert_eq!((left(4, 300), left(4, 400)), (Some(400), Some(400)));
        // Taken by a run on the new timeline that did not get far.
        assert_eq!((left(5, 399), left(4, 199)), (Some(400), Some(200)));
        // Behind all of them.
        assert_eq!((left(5, 400), left(5, 500)), (None, None));
        assert_eq!(left_at(&checkpoint(1, 7), 1, Some(&[])), None);
        assert_eq!(left_at(&checkpoint(5, 7), 5, None), Some(Lsn::from(7)));
    }

    #[test]
    fn what_was_published_is_on_the_servers_disk() {
        let config = RelayConfig::new("shop");
        assert!(not_set_back(&config, Lsn::from(9), None, Lsn::from(10)).is_ok());
        assert!(not_set_back(&config, Lsn::ZERO, None, Lsn::ZERO).is_ok());
        let record: RecordPlace = "orders/3@7".parse().unwrap();
        let error = not_set_back(&config, Lsn::from(16), Some(&record), Lsn::from(16));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("event from 0/10, record orders/3@7, and the server's"), "{error}");
        assert!(error.contains("the server's WAL ends at 0/10"), "{error}");
        assert!(error.contains("pipeline.ignored_records = [\"orders/3@7\"]"), "{error}");
        assert!(error.contains("delete the pipeline's row"), "{error}");
    }

    #[test]
    fn a_slot_may_be_behind_and_never_ahead() {
        let config = RelayConfig::new("shop");
        for slot in [0, 9, 10] {
            assert!(not_ahead(&checkpoint(1, 10), &config, Lsn::from(slot)).is_ok(), "{slot}");
        }
        assert!(not_ahead(&checkpoint(1, 10), &config, Lsn::from(11)).is_err());
    }
}
