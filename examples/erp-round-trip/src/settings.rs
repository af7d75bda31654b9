//! What the environment says.

use std::{env, net::SocketAddr, str::FromStr, time::Duration};

use stand::Failed;

/// The source of the events at logistics, and the last part of its path.
pub(crate) const FINANCE: &str = "finance";
/// Where logistics takes the webhooks of finance.
pub(crate) const PATH: &str = "/webhooks/finance";
/// With which finance signs and logistics verifies. Elsewhere it is a file on
/// either side that only the service can read.
pub(crate) const KEY: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// Invoices, unless INVOICES says otherwise.
const INVOICES: i64 = 1_000;
/// Between two of them, unless PACE_MS says otherwise.
const PACE: Duration = Duration::from_millis(5);

/// How finance's outbox is read: SOURCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// From the WAL.
    Wal,
    /// By polling.
    Polling,
    /// Not by this program, which ends when it has paid: `walpost run` does.
    Elsewhere,
}

/// When logistics makes a shipment: MODE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Before it answers.
    Inline,
    /// Behind its answer.
    Inbox,
}

pub(crate) fn invoices() -> Result<i64, Failed> {
    read("INVOICES").map(|invoices| invoices.unwrap_or(INVOICES))
}

pub(crate) fn pace() -> Result<Duration, Failed> {
    Ok(read("PACE_MS")?.map_or(PACE, Duration::from_millis))
}

pub(crate) fn source() -> Result<Source, Failed> {
    match text("SOURCE").as_deref() {
        None | Some("wal") => Ok(Source::Wal),
        Some("polling") => Ok(Source::Polling),
        Some("elsewhere") => Ok(Source::Elsewhere),
        Some(other) => Err(format!("SOURCE is {other:?}; wal, polling or elsewhere").into()),
    }
}

pub(crate) fn mode() -> Result<Mode, Failed> {
    match text("MODE").as_deref() {
        None | Some("inline") => Ok(Mode::Inline),
        Some("inbox") => Ok(Mode::Inbox),
        Some(other) => Err(format!("MODE is {other:?}; inline or inbox").into()),
    }
}

/// The address at which logistics listens, and finance looks for it.
pub(crate) fn logistics() -> Result<SocketAddr, Failed> {
    read("LOGISTICS")?.ok_or_else(|| "LOGISTICS is not set; an address and a port".into())
}

/// The one wait before each further attempt, of which there is no end then.
pub(crate) fn retry_wait() -> Result<Option<Duration>, Failed> {
    Ok(read("RETRY_WAIT_MS")?.map(Duration::from_millis))
}

fn text(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.is_empty())
}

fn read<T: FromStr<Err: std::fmt::Display>>(name: &str) -> Result<Option<T>, Failed> {
    let parsed = text(name).map(|text| text.parse().map_err(|error| format!("{name}: {error}")));
    Ok(parsed.transpose()?)
}
