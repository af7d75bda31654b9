//! Spans around handlers, and traces that go on from the application.

use opentelemetry::trace::{SpanKind, Status as SpanStatus, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use rdkafka::message::{Header, OwnedHeaders};
use tracing_subscriber::{filter::LevelFilter, layer::SubscriberExt};
use walpost_consumer::{Event, Handler, HandlerError, SliceError, tokio_postgres::Transaction};

use crate::support::{Ask, Effects, World, effect, ids, run};

const SECRET: &str = "s3cr3t";

/// What an exporter gets of the spans of this thread.
struct Exported {
    exporter: InMemorySpanExporter,
    provider: SdkTracerProvider,
    _guard: tracing::subscriber::DefaultGuard,
}

impl Exported {
    fn begin(level: LevelFilter) -> Self {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let subscriber = tracing_subscriber::registry().with(level).with(layer);
        let guard = tracing::subscriber::set_default(subscriber);
        Self { exporter, provider, _guard: guard }
    }

    /// Those of the consumer's own, in the order of their ends.
    fn spans(&self) -> Vec<SpanData> {
        self.provider.force_flush().unwrap();
        let all = self.exporter.get_finished_spans().unwrap();
        let ours = all.into_iter().filter(|span| span.name.starts_with("walpost.consume"));
        ours.collect()
    }
}

fn attribute(span: &SpanData, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == key);
    found.map(|attribute| attribute.value.to_string())
}

/// Trace, parent and header of an event by its number.
fn context(number: u64) -> (String, String, String) {
    let (trace, parent) = (format!("{:032x}", number + 0xabc), format!("{:016x}", number + 0xdef));
    let header = format!("00-{trace}-{parent}-01");
    (trace, parent, header)
}

/// Events with contents that no span may have, and contexts.
async fn publish(world: &World, count: u64) {
    for number in 0..count {
        let (_, _, header) = context(number);
        let id = format!("e{number}");
        let headers = OwnedHeaders::new()
            .insert(Header { key: "id", value: Some(&id) })
            .insert(Header { key: "eventType", value: Some("OrderPlaced") })
            .insert(Header { key: "traceparent", value: Some(&header) })
            .insert(Header { key: "tracestate", value: Some("vendor=1") })
            .insert(Header { key: "tenant", value: Some(SECRET) });
        world.publish_with_headers(0, SECRET, headers).await;
    }
}

#[tokio::test]
async fn an_event_alone_goes_on_with_the_trace_of_its_writer() {
    let exported = Exported::begin(LevelFilter::INFO);
    let world = World::new(1).await;
    publish(&world, 3).await;
    let consumer = world.consumer().max_batch_events(1);
    let mut running = run(consumer.handler(Ask(|_: &Event| Ok(()))).unwrap());
    running.until_applied(3).await;
    running.stop().await.unwrap();
    let spans = exported.spans();
    assert_eq!(spans.len(), 3);
    for (number, span) in (0..).zip(&spans) {
        let (trace, parent, _) = context(number);
        assert_eq!(span.name, "walpost.consume");
        assert_eq!(span.span_kind, SpanKind::Consumer);
        assert_eq!(span.status, SpanStatus::Unset);
        assert_eq!(span.span_context.trace_id().to_string(), trace);
        assert_eq!(span.parent_span_id.to_string(), parent);
        assert!(span.parent_span_is_remote);
        assert_eq!(span.span_context.trace_state().header(), "vendor=1");
        let expected = [
            ("consumer", world.name.clone()),
            ("topic", world.topic.clone()),
            ("partition", "0".to_owned()),
            ("offset", number.to_string()),
            ("event_id", format!("e{number}")),
            ("event_type", "OrderPlaced".to_owned()),
            ("trace_id", trace),
            ("parent_id", parent),
        ];
        for (key, value) in expected {
            assert_eq!(attribute(span, key), Some(value), "{key}");
        }
    }
    let shown = format!("{spans:?}");
    assert!(!shown.contains(SECRET), "a span has contents: {shown}");
}

#[tokio::test]
async fn a_slice_is_one_span_with_links_to_the_writers() {
    let exported = Exported::begin(LevelFilter::INFO);
    let world = World::new(1).await;
    publish(&world, 5).await;
    let consumer = world.consumer().max_batch_events(5).max_batch_wait_ms(60_000);
    let mut running = run(consumer.handler(Effects).unwrap());
    running.until_applied(5).await;
    running.stop().await.unwrap();
    let spans = exported.spans();
    let [span] = &spans[..] else { panic!("one span, not {spans:?}") };
    assert_eq!((&*span.name, &span.span_kind), ("walpost.consume_slice", &SpanKind::Consumer));
    for (key, value) in [("offset", "0"), ("last_offset", "4"), ("events", "5")] {
        assert_eq!(attribute(span, key).as_deref(), Some(value), "{key}");
    }
    let linked = span.links.iter().map(|link| link.span_context.span_id().to_string());
    let expected = (0..5).map(|number| context(number).1);
    assert_eq!(linked.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    assert!(!format!("{spans:?}").contains(SECRET));
}

#[tokio::test]
async fn in_a_slice_each_event_that_is_handled_alone_has_its_own_trace() {
    let exported = Exported::begin(LevelFilter::INFO);
    let world = World::new(1).await;
    publish(&world, 4).await;
    let consumer = world.consumer().max_batch_events(4).max_batch_wait_ms(60_000);
    let mut running = run(consumer.handler(Ask(|_: &Event| Ok(()))).unwrap());
    running.until_applied(4).await;
    running.stop().await.unwrap();
    let spans = exported.spans();
    let (slices, alone): (Vec<_>, Vec<_>) =
        spans.iter().partition(|span| span.name == "walpost.consume_slice");
    assert_eq!((slices.len(), slices[0].links.len()), (1, 4));
    let parents = alone.iter().map(|span| span.parent_span_id.to_string());
    let expected = (0..4).map(|number| context(number).1);
    assert_eq!(parents.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

/// Refuses one event.
struct Refusing;

impl Handler for Refusing {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        self.handle_slice(tx, std::slice::from_ref(event)).await.map_err(SliceError::into_inner)
    }

    async fn handle_slice(&self, tx: &Transaction<'_>, events: &[Event]) -> Result<(), SliceError> {
        for event in events {
            effect(tx, event).await?;
        }
        match events.iter().position(|event| event.id() == "e1") {
            Some(index) => Err(SliceError::at(index, HandlerError::park("no customer"))),
            None => Ok(()),
        }
    }
}

#[tokio::test]
async fn a_call_that_failed_says_so_and_what_follows_is_traced_too() {
    let exported = Exported::begin(LevelFilter::INFO);
    let world = World::new(1).await;
    // Two more than go together, so that what is left of a batch waits for no other.
    publish(&world, 5).await;
    let consumer = world.consumer().max_batch_events(3).max_batch_wait_ms(60_000);
    let mut running = run(consumer.handler(Refusing).unwrap());
    running.until("a parked event", |status| status.counts.parked == 1).await;
    running.until_applied(2).await;
    running.stop().await.unwrap();
    let spans = exported.spans();
    let failed: Vec<_> =
        spans.iter().filter(|span| matches!(span.status, SpanStatus::Error { .. })).collect();
    assert_eq!(failed.len(), 2, "all of them, and the one: {spans:?}");
    assert_eq!(attribute(failed[1], "event_id").as_deref(), Some("e1"));
    assert_eq!(failed[1].parent_span_id.to_string(), context(1).1);
}

#[tokio::test]
async fn without_a_context_a_span_has_a_trace_of_its_own_and_without_a_listener_there_is_none() {
    let world = World::new(1).await;
    world.publish(0, ids("a", 2)).await;
    {
        let exported = Exported::begin(LevelFilter::WARN);
        let mut running = run(world.consumer().handler(Ask(|_: &Event| Ok(()))).unwrap());
        running.until_applied(2).await;
        running.stop().await.unwrap();
        assert_eq!(exported.spans().len(), 0);
    }
    let exported = Exported::begin(LevelFilter::INFO);
    world.publish(0, ids("b", 1)).await;
    let mut running = run(world.consumer().handler(Ask(|_: &Event| Ok(()))).unwrap());
    running.until_applied(1).await;
    running.stop().await.unwrap();
    let spans = exported.spans();
    assert_eq!(spans.len(), 1);
    assert!(!spans[0].parent_span_is_remote);
    assert_eq!(attribute(&spans[0], "trace_id"), None);
}
