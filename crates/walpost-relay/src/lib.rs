//! Reads a PostgreSQL outbox from the WAL and hands it to a sink.
//!
//! A [`Relay`] is one pipeline: a [`Source`] yields transactions in commit
//! order, the router turns rows into records, the encoder into messages, a
//! [`Sink`] makes them durable, and `ack.rs` says which position may be
//! confirmed. Nothing is confirmed before everything at or below it is
//! durable in the sink or parked in a committed row.
//!
//! The way of an event through the files: `wal/source.rs`,
//! `wal/transaction.rs`, `pipeline.rs`, `convert.rs`, the sink, `ack.rs`,
//! `checkpoint.rs`, and back to `wal/source.rs` as a confirmed position.

mod ack;
mod asking;
mod away;
mod beside;
mod catalog;
mod check;
mod checkpoint;
mod clock;
mod columns;
mod config;
mod convert;
mod dead_letters;
mod encoding;
mod error;
mod event_id;
mod filters;
mod floors;
mod forms;
mod headers;
mod heartbeat;
mod history;
mod id_space;
mod marking;
mod metrics;
mod moves;
mod parked;
mod pipeline;
mod policy;
mod polling;
mod proven;
mod published;
mod ready;
mod recovery;
mod relay;
mod replay;
mod resume;
mod retention;
mod session;
mod shadow;
mod sight;
#[cfg(test)]
mod simulation;
mod sink;
mod snapshot_again;
mod snapshot_modes;
mod source;
mod sql;
mod start;
mod status;
mod switch;
mod takeover;
mod wal;
mod watch;

pub use crate::{
    ack::Ticket,
    catalog::{TableDescription, describe_table},
    check::{CheckResult, Outcome, check},
    config::{
        Initial, LostSlot, NamedColumn, ParkMode, RelayConfig, SourceKind, StreamOrigin,
        TableFilter, TableName,
    },
    dead_letters::DeadLetters,
    encoding::{ConnectOptions, ContextHeaders, EventEncoding, Registries},
    error::{RelayError, ServerError, SourceError},
    filters::SkippedOperations,
    forms::Forms,
    headers::{DEAD_LETTER_HEADER, ID_HEADER, POSITION_HEADER, REPLAY_HEADER, SOURCE_HEADER},
    heartbeat::{Heartbeat, Heartbeats},
    metrics::describe_metrics,
    moves::{MoveOrder, MovePlan, MovedTable, make_move, plan_move},
    polling::{
        AppliesTo, PollingConfig, PollingRelay, PollingSight, Requeue, Requeued, check_polling,
        polling_sight, requeue,
    },
    published::{Marks, RecordPlace},
    ready::{Readiness, ReadyWatch},
    recovery::plan::{RecoveryPlan, plan_recovery, request_recovery},
    relay::{Relay, RunningRelay},
    replay::{
        Replay, ReplayFilter, ReplayFound, ReplayOrder, ReplayProgress, ReplayRow, ReplayState,
        ReplaySurvey, ReplayType, Replayed, Replayer, Unsendable,
    },
    retention::{
        Days, Pruned, RetentionConfig, check_retention, make_days, prunable, prunable_parked,
        prune, prune_parked,
    },
    shadow::{Shadow, ShadowEvent, ShadowMade},
    sight::{ParkedSight, SlotSight, SlotState},
    sink::{
        Delivery, DeliveryError, DeliveryErrorKind, Landed, Lane, NoteMarks, Place, Sink,
        TopicFloors, Unsent,
        transaction::{Transaction, TransactionDecision, TransactionOutcome},
    },
    snapshot_again::SnapshotAgain,
    snapshot_modes::{SelectOverride, Snapshot},
    source::{Source, SourceItem},
    status::{Phase, PipelineStatus},
    switch::{SourceSwitch, SwitchStep, SwitchTo, Switched},
    takeover::{
        HandBack, HandedBack, TakeOverOrder, TakeOverPart, TakeOverPlan, plan_hand_back,
        plan_take_over, take_over,
    },
    wal::{
        publication::{PublishedTable, publish_tables},
        row_filter::row_condition,
    },
    watch::budget::{BudgetLevel, BudgetSetting, WalBudget},
};
