//! Every metric of receiving, through the `metrics` facade.

use std::time::Duration;

use metrics::{counter, describe_counter, describe_histogram, histogram};

use super::{problem::Problem, store::Stored};

/// Says what each metric means. Called when a receiver is built.
pub(super) fn describe() {
    describe_counter!("walpost_webhook_received_total", "Requests, by source and outcome");
    describe_counter!("walpost_webhook_refused_total", "Signatures that were refused, by problem");
    describe_histogram!("walpost_webhook_receive_seconds", "Time from a request to its answer");
}

/// What became of a request, as the label `outcome`.
pub(super) fn answered(source: &str, answer: &Result<Stored, Problem>, took: Duration) {
    let outcome = match answer {
        Ok(stored) => stored.outcome(),
        Err(problem) => of_problem(problem),
    };
    let labels = [("source", source.to_owned()), ("outcome", outcome.to_owned())];
    counter!("walpost_webhook_received_total", &labels).increment(1);
    let seconds = took.as_secs_f64();
    histogram!("walpost_webhook_receive_seconds", "source" => source.to_owned()).record(seconds);
    if let Err(Problem::SignatureRefused { problem }) = answer {
        let labels = [("source", source.to_owned()), ("problem", (*problem).to_owned())];
        counter!("walpost_webhook_refused_total", &labels).increment(1);
    }
}

fn of_problem(problem: &Problem) -> &'static str {
    match problem {
        Problem::SignatureRefused { .. } => "refused",
        Problem::Method
        | Problem::BodyIncomplete
        | Problem::NoJson
        | Problem::Malformed { .. }
        | Problem::IdMissing { .. }
        | Problem::TypeMissing { .. }
        | Problem::Unfit { .. } => "invalid",
        Problem::BodyTooLarge { .. } => "too_large",
        Problem::IdReused => "conflict",
        Problem::BodyLate | Problem::TimedOut => "timed_out",
        Problem::Busy => "busy",
        Problem::StoreUnavailable => "store_error",
        Problem::HandlerFailed => "failed",
    }
}
