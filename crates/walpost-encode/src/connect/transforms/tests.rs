use walpost_router::{Pattern, Rewrite};

use super::{
    super::{
        literal::literal,
        schema::{Kind, Schema},
        value::Value,
    },
    *,
};
use crate::error::EncodeErrorKind;

fn chain(actions: impl IntoIterator<Item = (Action, Option<Condition>)>) -> TransformChain {
    let step = |(action, condition)| Transform { action, condition };
    TransformChain::new(actions.into_iter().map(step).collect())
}

fn insert(name: &str, value: &str) -> Action {
    Action::InsertHeader { name: name.into(), value: literal(value).unwrap() }
}

fn of_topic(pattern: &str) -> Test {
    Test::TopicMatches(Pattern::new(pattern).unwrap())
}

fn names(record: &TypedRecord) -> Vec<&str> {
    record.headers.iter().map(|header| &*header.name).collect()
}

/// `{payload, kind, note}`, the last of which is null with the default `none`.
fn structure() -> TypedRecord {
    let text = || Schema::new(Kind::String);
    let note = Schema { default: Some(Value::String("none".into())), ..text().optional() };
    let kind = Schema::fields([("payload", text()), ("kind", text()), ("note", note)]);
    let schema = Schema::logical(kind, "a.Value", 3).optional();
    let value =
        Value::Struct(vec![Value::String("p".into()), Value::String("k".into()), Value::Null]);
    let value = TypedValue { schema: Some(schema.into()), value };
    TypedRecord { value, ..TypedRecord::new("t".into()) }
}

fn header_from(operation: HeaderOperation, replace_null_with_default: bool) -> TransformChain {
    let fields = vec![("kind".into(), "type".into()), ("note".into(), "note".into())];
    chain([(Action::HeaderFromValue { fields, operation, replace_null_with_default }, None)])
}

#[test]
fn each_sees_what_the_one_before_it_has_made() {
    let rename = Action::RenameTopic(Rewrite::new("outbox\\.(.*)", "$1").unwrap());
    let negated = Condition { test: Test::HasHeader("b".into()), negate: true };
    let mut chain = chain([
        (insert("a", "1"), None),
        (rename, None),
        (insert("b", "2"), Some(Condition { test: of_topic("order"), negate: false })),
        (insert("c", "3"), Some(negated)),
        (Action::DropHeaders(vec!["a".into()]), None),
        (insert("a", "x"), None),
    ]);
    let mut record = TypedRecord::new("outbox.order".into());
    assert_eq!(chain.apply(&mut record), Ok(Transformed::Kept));
    assert_eq!(&*record.topic, "order");
    assert_eq!(names(&record), ["b", "a"]);
    assert_eq!(record.headers[0].value.value, Value::Int8(2));
    let mut other = TypedRecord::new("else".into());
    assert_eq!(chain.apply(&mut other), Ok(Transformed::Kept));
    assert_eq!((&*other.topic, names(&other)), ("else", vec!["c", "a"]));
}

#[test]
fn a_filter_drops_what_its_predicate_holds_for() {
    let tombstone = Condition { test: Test::IsTombstone, negate: false };
    let mut chain = chain([(Action::Drop, Some(tombstone))]);
    assert_eq!(chain.apply(&mut TypedRecord::new("t".into())), Ok(Transformed::Dropped));
    assert_eq!(chain.apply(&mut structure()), Ok(Transformed::Kept));
}

#[test]
fn a_message_is_decoded_where_the_decoder_acts() {
    let decode = |pattern| {
        let condition = Condition { test: of_topic(pattern), negate: false };
        chain([(Action::DecodeMessages, Some(condition))])
    };
    let mut record = TypedRecord::new("p.message".into());
    assert_eq!(decode("p\\.message").apply(&mut record), Ok(Transformed::Decoded));
    assert_eq!(decode("p").apply(&mut record), Ok(Transformed::Kept));
}

#[test]
fn fields_are_copied_or_moved_into_headers() {
    let mut copied = structure();
    header_from(HeaderOperation::Copy, true).apply(&mut copied).unwrap();
    assert_eq!(names(&copied), ["type", "note"]);
    assert_eq!(copied.headers[1].value.value, Value::String("none".into()));
    assert_eq!(copied.value, structure().value);

    let mut moving = header_from(HeaderOperation::Move, false);
    let (mut first, mut second) = (structure(), structure());
    second.value.schema = first.value.schema.clone();
    moving.apply(&mut first).unwrap();
    moving.apply(&mut second).unwrap();
    assert_eq!(first.headers[1].value.value, Value::Null);
    assert_eq!(first.value.value, Value::Struct(vec![Value::String("p".into())]));
    let (left, again) = (first.value.schema.unwrap(), second.value.schema.unwrap());
    assert!(Arc::ptr_eq(&left, &again), "what is left has one schema");
    assert_eq!((left.name(), left.version, left.optional), (Some("a.Value"), Some(3), false));
    assert!(left.field("payload").is_some() && left.field("kind").is_none());
}

fn inserted(name: &str, optional: bool, of: Inserted) -> InsertedField {
    InsertedField { name: name.into(), optional, of }
}

#[test]
fn fields_are_added_behind_those_that_are_there() {
    let fields = vec![
        inserted("topic", true, Inserted::Topic),
        inserted("partition", true, Inserted::Partition),
        inserted("source", false, Inserted::Constant("db".into())),
    ];
    let action = Action::InsertFields { fields, replace_null_with_default: true };
    let mut chain = chain([(action, None)]);
    let mut records = [structure(), structure()];
    records[1].value.schema = records[0].value.schema.clone();
    records[1].partition = Some(7);
    for record in &mut records {
        chain.apply(record).unwrap();
    }
    let [first, second] = &records;
    let text = |text: &str| Value::String(text.into());
    let expected =
        [text("p"), text("k"), text("none"), text("t"), Value::Null, text("db")].to_vec();
    assert_eq!(first.value.value, Value::Struct(expected.clone()));
    let mut expected = expected;
    expected[4] = Value::Int32(7);
    assert_eq!(second.value.value, Value::Struct(expected));
    let [one, other] = records.each_ref().map(|record| record.value.schema.as_ref().unwrap());
    assert!(Arc::ptr_eq(one, other), "they have one schema");
    assert_eq!((one.name(), one.optional), (Some("a.Value"), false));
    let optional = ["topic", "partition", "source"].map(|name| one.field(name).unwrap().1);
    assert_eq!(optional.map(|field| field.schema.optional), [true, true, false]);
    let error = chain.apply(&mut records[0]).unwrap_err();
    assert_eq!(error.kind(), &EncodeErrorKind::FieldTwice { name: "topic".into() });
    let mut tombstone = TypedRecord::new("t".into());
    chain.apply(&mut tombstone).unwrap();
    assert!(tombstone.is_tombstone());
    let mut bare = TypedRecord { value: TypedValue::text("x".into()), ..tombstone };
    assert_eq!(chain.apply(&mut bare).unwrap_err().kind(), &EncodeErrorKind::NoStructure);
}

#[test]
fn a_value_without_the_field_is_to_be_parked() {
    let mut taken = header_from(HeaderOperation::Copy, true);
    let error = taken.apply(&mut TypedRecord::new("t".into())).unwrap_err();
    assert_eq!(error.kind(), &EncodeErrorKind::NoStructure);
    let fields = vec![("absent".into(), "x".into())];
    let action = Action::HeaderFromValue {
        fields,
        operation: HeaderOperation::Move,
        replace_null_with_default: true,
    };
    let error = chain([(action, None)]).apply(&mut structure()).unwrap_err();
    assert_eq!(error.kind(), &EncodeErrorKind::NoField { name: "absent".into() });
}
