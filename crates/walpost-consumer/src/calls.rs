//! What is measured of calls of the handler: their time, and spans.

use std::{future::Future, sync::Arc, time::Instant};

use metrics::Histogram;
use tracing::{Instrument, Span, field::Empty};

use crate::{Event, blocked::Polls};

/// Those of one partition.
pub(crate) struct Calls {
    consumer: String,
    seconds: Histogram,
    /// Between two events of a transaction.
    undo: Arc<str>,
    polls: Polls,
}

impl Calls {
    pub(crate) fn new(consumer: &str, seconds: Histogram, undo: &str) -> Self {
        let (consumer, undo) = (consumer.to_owned(), undo.into());
        Self { consumer, seconds, undo, polls: Polls::default() }
    }

    /// Which of them keep their thread.
    pub(crate) fn polls(&self) -> Polls {
        self.polls.clone()
    }

    /// Undoes what the handler of one event set in its session, before that of the
    /// next.
    pub(crate) fn undo(&self) -> Arc<str> {
        Arc::clone(&self.undo)
    }

    /// Runs one call of the handler with these events.
    pub(crate) async fn measure<T>(
        &self,
        events: &[Event],
        call: impl Future<Output = T>,
        succeeded: impl FnOnce(&T) -> bool,
    ) -> T {
        let span = match events {
            [event] => event_span(Some(&self.consumer), event),
            _ => slice_span(&self.consumer, events),
        };
        let started = Instant::now();
        let offset = events.first().map_or(0, Event::offset);
        let outcome = self.polls.watch(offset, call.instrument(span.clone())).await;
        self.seconds.record(started.elapsed());
        if !succeeded(&outcome) {
            span.record("otel.status_code", "ERROR");
        }
        outcome
    }
}

/// Around the handling of one event. Costs nothing unless somebody wants it.
pub(crate) fn event_span(consumer: Option<&str>, event: &Event) -> Span {
    let span = tracing::info_span!(
        "walpost.consume",
        consumer,
        topic = event.topic(),
        partition = event.partition(),
        offset = event.offset(),
        event_id = event.id(),
        event_type = event.event_type(),
        trace_id = Empty,
        parent_id = Empty,
        otel.kind = Empty,
        otel.status_code = Empty,
    );
    if !span.is_disabled()
        && let Some(trace) = event.trace_context()
    {
        span.record("trace_id", trace.trace_id());
        span.record("parent_id", trace.parent_id());
        #[cfg(feature = "opentelemetry")]
        crate::telemetry::follow(&span, &trace);
    }
    #[cfg(feature = "opentelemetry")]
    span.record("otel.kind", "consumer");
    span
}

/// Around the handling of many.
fn slice_span(consumer: &str, events: &[Event]) -> Span {
    let Some(first) = events.first() else { return Span::none() };
    let span = tracing::info_span!(
        "walpost.consume_slice",
        consumer,
        topic = first.topic(),
        partition = first.partition(),
        offset = first.offset(),
        last_offset = events.last().map(Event::offset),
        events = events.len(),
        otel.kind = Empty,
        otel.status_code = Empty,
    );
    #[cfg(feature = "opentelemetry")]
    if !span.is_disabled() {
        crate::telemetry::link(&span, events);
        span.record("otel.kind", "consumer");
    }
    span
}
