use std::collections::BTreeMap;

use serde::Deserialize;

/// The configuration as it is written: one field for each key of the default
/// file, none with a default of its own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) postgres: PostgresSection,
    pub(crate) pipeline: PipelineSection,
    pub(crate) polling: PollingSection,
    pub(crate) router: RouterSection,
    pub(crate) encode: EncodeSection,
    pub(crate) kafka: BTreeMap<String, String>,
    pub(crate) sink: SinkSection,
    pub(crate) webhook: WebhookSection,
    /// Each with what holds for all.
    pub(crate) destinations: BTreeMap<String, DestinationSection>,
    pub(crate) retention: RetentionSection,
    pub(crate) inbox: InboxSection,
    pub(crate) idempotency: IdempotencySection,
    pub(crate) replay: ReplaySection,
    pub(crate) http: HttpSection,
    pub(crate) connect: ConnectSection,
    pub(crate) log: LogSection,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PostgresSection {
    pub(crate) url: String,
    pub(crate) url_file: String,
    pub(crate) password_file: String,
}

/// Without the url, which may hold a password.
impl std::fmt::Debug for PostgresSection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PostgresSection")
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PipelineSection {
    pub(crate) name: String,
    pub(crate) slot: String,
    pub(crate) publication: String,
    pub(crate) tables: Vec<String>,
    pub(crate) row_filter: String,
    pub(crate) row_filter_messages: bool,
    pub(crate) allow_overlap: bool,
    pub(crate) message_prefixes: Vec<String>,
    pub(crate) schema: String,
    pub(crate) source: String,
    pub(crate) initial: String,
    pub(crate) on_lost_slot: String,
    pub(crate) create_slot: bool,
    pub(crate) create_publication: bool,
    pub(crate) mark_published: bool,
    pub(crate) park: String,
    pub(crate) parked_halt_after: u64,
    pub(crate) missing_topic_timeout_ms: u64,
    pub(crate) dead_letter_topic: String,
    pub(crate) max_event_bytes: u64,
    pub(crate) in_flight_max_events: u64,
    pub(crate) checkpoint_interval_ms: u64,
    pub(crate) settle_ms: u64,
    pub(crate) resume_max_ids: u64,
    pub(crate) statement_timeout_ms: u64,
    pub(crate) slot_timeout_ms: u64,
    pub(crate) wal_sender_timeout_ms: u64,
    pub(crate) drain_timeout_ms: u64,
    pub(crate) start_timeout_ms: u64,
    pub(crate) ready_stuck_ms: u64,
    pub(crate) wal_budget_bytes: u64,
    pub(crate) position_header: bool,
    pub(crate) source_header: bool,
    pub(crate) ignored_records: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PollingSection {
    pub(crate) id_column: String,
    pub(crate) aggregate_columns: Vec<String>,
    pub(crate) order_columns: Vec<String>,
    pub(crate) status_column: String,
    pub(crate) pending_value: String,
    pub(crate) published_value: String,
    pub(crate) failed_value: String,
    pub(crate) attempts_column: String,
    pub(crate) next_attempt_at_column: String,
    pub(crate) last_attempt_at_column: String,
    pub(crate) published_at_column: String,
    pub(crate) last_error_column: String,
    pub(crate) created_at_column: String,
    pub(crate) retry_limit_column: String,
    pub(crate) retry_wait_ms_column: String,
    pub(crate) retry_delays: Vec<String>,
    pub(crate) max_attempts: u64,
    pub(crate) max_attempts_applies_to: String,
    pub(crate) poll_interval_ms: u64,
    pub(crate) notify_channel: String,
    pub(crate) claim_max_aggregates: u64,
    pub(crate) aggregate_max_events: u64,
    pub(crate) claim_max_events: u64,
    pub(crate) claim_max_bytes: u64,
    pub(crate) send_timeout_ms: u64,
    pub(crate) claim_timeout_ms: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouterSection {
    pub(crate) event_id: String,
    pub(crate) event_key: String,
    pub(crate) event_type: String,
    pub(crate) event_payload: String,
    pub(crate) event_timestamp: String,
    pub(crate) additional_placement: String,
    pub(crate) additional_missing: String,
    pub(crate) null_header: String,
    pub(crate) headers_column: String,
    pub(crate) invalid_operation: String,
    pub(crate) route_by_field: String,
    pub(crate) topic_regex: String,
    pub(crate) topic_replacement: String,
    pub(crate) tombstone_on_empty_payload: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EncodeSection {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) json_payload: String,
    pub(crate) null_key: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SinkSection {
    pub(crate) kind: String,
    pub(crate) publish: String,
    pub(crate) transactional_id: String,
    pub(crate) transaction_interval_ms: u64,
    pub(crate) queue_max_bytes: u64,
    pub(crate) sasl_password_file: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhookSection {
    pub(crate) destination_column: String,
    pub(crate) key_column: String,
    pub(crate) path_column: String,
    pub(crate) content_type_column: String,
    pub(crate) retry_limit_column: String,
    pub(crate) retry_wait_ms_column: String,
    pub(crate) body_max_bytes: u64,
    pub(crate) alert_destination: String,
    pub(crate) alert_format: String,
    pub(crate) alert_window_s: u64,
    pub(crate) notify: bool,
    pub(crate) prune: bool,
    pub(crate) archive_after_days: u64,
    pub(crate) delete_after_days: u64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DestinationSection {
    pub(crate) url: String,
    pub(crate) events: Vec<String>,
    pub(crate) method: String,
    pub(crate) headers: Vec<String>,
    pub(crate) key_headers: Vec<String>,
    pub(crate) key: String,
    pub(crate) body: String,
    pub(crate) token_file: String,
    pub(crate) token_variable: String,
    pub(crate) signing_key_files: Vec<String>,
    pub(crate) signing_key_variables: Vec<String>,
    pub(crate) retry_waits: Vec<String>,
    pub(crate) retry_limit: u64,
    pub(crate) retry_jitter_percent: u64,
    pub(crate) retry_after_max_s: u64,
    pub(crate) on_unknown_outcome: String,
    pub(crate) timeout_ms: u64,
    pub(crate) connect_timeout_ms: u64,
    pub(crate) idle_timeout_ms: u64,
    pub(crate) concurrency: u64,
    pub(crate) rate_per_second: u64,
    pub(crate) rate_burst: u64,
    pub(crate) breaker_failures: u64,
    pub(crate) breaker_wait_s: u64,
    pub(crate) breaker_wait_max_s: u64,
    pub(crate) in_flight_max_bytes: u64,
    pub(crate) retry_share_percent: u64,
    pub(crate) order: String,
    pub(crate) on_head_failure: String,
    pub(crate) poll_interval_ms: u64,
    pub(crate) lease_ms: u64,
    pub(crate) allow_ports: Vec<String>,
    pub(crate) proxy: String,
    pub(crate) allow_http: bool,
    pub(crate) allow_private_networks: bool,
}

/// Without the url and the headers, which may hold secrets.
impl std::fmt::Debug for DestinationSection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DestinationSection")
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetentionSection {
    pub(crate) enabled: bool,
    pub(crate) keep_days: u64,
    pub(crate) archive_days: u64,
    pub(crate) parked_days: u64,
    pub(crate) batch_rows: u64,
    pub(crate) pause_ms: u64,
    pub(crate) interval_minutes: u64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InboxSection {
    pub(crate) prune: bool,
    pub(crate) url: String,
    pub(crate) url_file: String,
    pub(crate) schema: String,
    pub(crate) payload_days: u64,
    pub(crate) keep_days: u64,
}

/// Without the url, which may hold a password.
impl std::fmt::Debug for InboxSection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InboxSection")
    }
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IdempotencySection {
    pub(crate) prune: bool,
    pub(crate) url: String,
    pub(crate) url_file: String,
    pub(crate) schema: String,
}

/// Without the url, which may hold a password.
impl std::fmt::Debug for IdempotencySection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IdempotencySection")
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplaySection {
    pub(crate) dedup_window_hours: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpSection {
    pub(crate) listen: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConnectSection {
    pub(crate) listen: String,
    pub(crate) token_file: String,
    pub(crate) token_variable: String,
    pub(crate) worker_id: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogSection {
    pub(crate) level: String,
    pub(crate) format: String,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}
