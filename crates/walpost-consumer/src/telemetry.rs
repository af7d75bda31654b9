//! Traces that go on from the application that wrote an event.

use opentelemetry::{
    Context,
    trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState},
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::{Event, TraceContext};

/// Links that one span has at most, which is what exporters keep by default.
const MAX_LINKS: usize = 128;

/// Makes `span` a child of the span in which the event was written.
pub(crate) fn follow(span: &Span, trace: &TraceContext<'_>) {
    let Some(remote) = remote(trace) else { return };
    // A subscriber without a layer for it has nowhere to keep it.
    let _ = span.set_parent(Context::new().with_remote_span_context(remote));
}

/// Links `span` to the spans in which the events were written.
pub(crate) fn link(span: &Span, events: &[Event]) {
    let traces = events.iter().filter_map(Event::trace_context);
    let mut last = None;
    let distinct = traces.filter(|trace| {
        let is_other = last != Some((trace.trace_id(), trace.parent_id()));
        last = Some((trace.trace_id(), trace.parent_id()));
        is_other
    });
    for remote in distinct.filter_map(|trace| remote(&trace)).take(MAX_LINKS) {
        span.add_link(remote);
    }
}

fn remote(trace: &TraceContext<'_>) -> Option<SpanContext> {
    let state = trace.tracestate().and_then(|list| list.parse::<TraceState>().ok());
    let remote = SpanContext::new(
        TraceId::from_hex(trace.trace_id()).ok()?,
        SpanId::from_hex(trace.parent_id()).ok()?,
        TraceFlags::new(trace.flags()),
        true,
        state.unwrap_or_default(),
    );
    remote.is_valid().then_some(remote)
}
