use std::collections::HashMap;

use uuid::Uuid;
use walpost_encode::{
    Encoder,
    avro::{AvroConverter, AvroOptions, RegistryErrorKind},
    connect::{
        Action, CatalogColumn, Condition, Converters, HeaderConverter, ShapeOptions, Test,
        Transform, Transforms, TypingOptions,
    },
};
use walpost_event::{Column, ReplicaIdentity, type_oid};
use walpost_router::{Pattern, RouterConfig};

use super::*;
use crate::{
    catalog::TableDescription,
    encoding::{ConnectOptions, ContextHeaders, Registries},
};

fn relation(columns: &[&str]) -> Arc<Relation> {
    let column = |name: &&str| Column {
        name: (*name).into(),
        type_oid: type_oid::TEXT,
        type_modifier: -1,
        is_key: false,
    };
    Arc::new(Relation {
        oid: 9,
        schema: "shop".to_owned(),
        name: "outbox".to_owned(),
        replica_identity: ReplicaIdentity::Default,
        columns: columns.iter().map(column).collect(),
    })
}

fn outbox() -> Arc<Relation> {
    relation(&["id", "aggregatetype", "aggregateid", "type", "payload"])
}

fn insert(relation: &Arc<Relation>, payload: Option<&str>) -> RowChange {
    let row = [Some("e"), Some("order"), Some("a"), Some("T"), payload];
    RowChange::insert(Row::from_text(Arc::clone(relation), row))
}

/// The payload may be null and has this default.
fn described(relation: &Relation, default: Option<&str>) -> TableDescription {
    let column = |column: &Column| CatalogColumn {
        key_place: None,
        name: Arc::clone(&column.name),
        type_oid: column.type_oid,
        nullable: &*column.name == "payload",
        default: default.filter(|_| &*column.name == "payload").map(str::to_owned),
    };
    TableDescription {
        columns: relation.columns.iter().map(column).collect(),
        types: HashMap::new(),
    }
}

fn options() -> ConnectOptions {
    let string = || walpost_encode::connect::Converter::String;
    ConnectOptions {
        shape: ShapeOptions { topic_prefix: "p".to_owned(), ..ShapeOptions::default() },
        typing: TypingOptions::default(),
        transforms: Transforms::default(),
        converters: Converters { key: string(), value: string(), header: HeaderConverter::Simple },
        registries: Registries::default(),
        context_headers: ContextHeaders::None,
    }
}

fn converter(options: ConnectOptions) -> Converter {
    let router = Router::new(RouterConfig::default()).expect("the defaults");
    let config = RelayConfig { source_header: false, ..RelayConfig::new("shop") };
    Converter::new(router, &options.into(), &config)
}

fn question(made: Result<Message, Unmade>) -> Question {
    match made {
        Err(Unmade::Ask(question)) => question,
        Err(Unmade::Park(parking)) => panic!("it is parked: {parking:?}"),
        Err(Unmade::Dropped) => panic!("it is dropped"),
        Ok(_) => panic!("it is a message"),
    }
}

fn value(made: Result<Message, Unmade>) -> Option<String> {
    let Ok(message) = made else { panic!("it is no message") };
    message.value.map(|value| String::from_utf8(value.to_vec()).expect("text"))
}

fn detail(made: Result<Message, Unmade>) -> String {
    let Err(Unmade::Park(Parking { detail, .. })) = made else { panic!("it is not parked") };
    detail
}

#[test]
fn a_table_is_described_once_and_again_when_the_stream_says_so() {
    let mut converter = converter(options());
    let outbox = outbox();
    let null = insert(&outbox, None);
    let Question::Describe(asked) = question(converter.message(&null, None)) else {
        panic!("the table is not known")
    };
    converter.learn(Answer::Described(asked, described(&outbox, None)));
    assert_eq!(value(converter.message(&null, None)), None);
    // As a parked row has it.
    let alike = Arc::new(Relation::clone(&outbox));
    assert_eq!(value(converter.message(&insert(&alike, Some("1")), None)).as_deref(), Some("1"));

    converter.forget(&outbox);
    let Question::Describe(asked) = question(converter.message(&null, None)) else {
        panic!("it may have changed")
    };
    converter.learn(Answer::Described(asked, described(&outbox, Some("'d'::text"))));
    assert_eq!(value(converter.message(&null, None)).as_deref(), Some("d"));

    let wider = relation(&["id", "aggregatetype", "aggregateid", "type", "payload", "more"]);
    let row = [Some("e"), Some("order"), Some("a"), Some("T"), Some("1"), None];
    let change = RowChange::insert(Row::from_text(wider, row));
    assert!(matches!(question(converter.message(&change, None)), Question::Describe(_)));
}

fn with_avro() -> ConnectOptions {
    let mut options = options();
    let avro = AvroConverter::new(AvroOptions::default(), false);
    options.converters.value = walpost_encode::connect::Converter::Avro(avro);
    options
}

#[test]
fn a_schema_that_is_refused_is_told_once_and_asked_about_again() {
    let mut converter = converter(with_avro());
    let outbox = outbox();
    let change = insert(&outbox, Some("1"));
    converter.learn(Answer::Described(Arc::clone(&outbox), described(&outbox, None)));
    for _ in 0..2 {
        let Question::Id { schema, .. } = question(converter.message(&change, None)) else {
            panic!("the schema is not known")
        };
        assert_eq!(&*schema.subject, "outbox.event.order-value");
        let kind = RegistryErrorKind::Incompatible;
        converter.learn(Answer::Refused { schema, kind, detail: "no".to_owned() });
        assert_eq!(detail(converter.message(&change, None)), "no");
    }
    let Question::Id { part, schema } = question(converter.message(&change, None)) else {
        panic!("the schema is not known")
    };
    converter.learn(Answer::Id { part, schema, id: 7 });
    let Ok(message) = converter.message(&change, None) else { panic!("it is no message") };
    assert_eq!(message.value.as_deref(), Some(&[0, 0, 0, 0, 7, 2, 2, b'1'][..]));
}

/// The registry may take the subject for anything, and what it says of it for an
/// answer to every event.
#[test]
fn nobody_is_asked_about_a_topic_that_cannot_be() {
    let mut converter = converter(with_avro());
    let outbox = outbox();
    converter.learn(Answer::Described(Arc::clone(&outbox), described(&outbox, None)));
    for route in ["/../other-value/versions?x=", "a b", "ä", ""] {
        let row = [Some("e"), Some(route), Some("a"), Some("T"), Some("1")];
        let change = RowChange::insert(Row::from_text(Arc::clone(&outbox), row));
        let made = converter.message(&change, None);
        match route {
            // A prefix is a name as well.
            "" => assert!(matches!(question(made), Question::Id { .. })),
            _ => assert!(detail(made).contains("a topic's name has 1 to 249"), "{route}"),
        }
    }
}

#[test]
fn what_the_router_does_not_see_is_no_event() {
    let of = |pattern: &str| Condition {
        test: Test::TopicMatches(Pattern::new(pattern).expect("a pattern")),
        negate: false,
    };
    let drop = |pattern| vec![Transform { action: Action::Drop, condition: Some(of(pattern)) }];
    let cases = [
        (Transforms { before: drop(r"p\.shop\.outbox"), ..Transforms::default() }, true),
        (Transforms { before: drop(r"outbox\.event\.order"), ..Transforms::default() }, false),
        (Transforms { router: Some(of(r"p\.shop\.other")), ..Transforms::default() }, true),
        (Transforms { after: drop(r"outbox\.event\.order"), ..Transforms::default() }, true),
    ];
    let outbox = outbox();
    for (index, (transforms, is_dropped)) in cases.into_iter().enumerate() {
        let mut converter = converter(ConnectOptions { transforms, ..options() });
        converter.learn(Answer::Described(Arc::clone(&outbox), described(&outbox, None)));
        let made = converter.message(&insert(&outbox, Some("1")), None);
        assert_eq!(matches!(made, Err(Unmade::Dropped)), is_dropped, "{index}");
    }
}

#[test]
fn headers_of_the_context_are_of_rows_and_not_of_messages() {
    let decode = Transform { action: Action::DecodeMessages, condition: None };
    let transforms = Transforms { before: vec![decode], ..Transforms::default() };
    let context_headers = ContextHeaders::Three;
    let mut converter = converter(ConnectOptions { transforms, context_headers, ..options() });
    let outbox = outbox();
    converter.learn(Answer::Described(Arc::clone(&outbox), described(&outbox, None)));
    let names = |made: Result<Message, Unmade>| -> Vec<String> {
        let Ok(message) = made else { panic!("it is no message") };
        message.headers.iter().map(|header| header.name.to_string()).collect()
    };
    let of_row = names(converter.message(&insert(&outbox, Some("1")), None));
    assert_eq!(of_row.len(), 4);
    assert_eq!(of_row[3], "id");
    let content = r#"{"id":"e","aggregatetype":"order","aggregateid":"a","payload":"x"}"#;
    let content = Bytes::from_static(content.as_bytes());
    let row = converter.router.row_from_message(&content).expect("an object");
    let of_message = names(converter.message(&RowChange::insert(row), Some(&content)));
    assert_eq!(of_message, ["id"]);
}

#[test]
fn a_table_is_asked_about_once_before_its_first_event_has_a_source() {
    let router = Router::new(RouterConfig::default()).expect("the defaults");
    let encoding = Encoding { key: Encoder::Raw, value: Encoder::Raw };
    let mut converter = Converter::new(router, &encoding.into(), &RelayConfig::new("shop"));
    let (outbox, space) = (outbox(), Uuid::from_u128(7));
    let Question::IdSpace(asked, _) = question(converter.message(&insert(&outbox, None), None))
    else {
        panic!("the table is not known")
    };
    converter.learn(Answer::IdSpace(asked, space));
    // By its object id: another relation of it, as after a change of its columns.
    let wider = relation(&["id", "aggregatetype", "aggregateid", "type", "payload", "more"]);
    let row = [Some("e"), Some("order"), Some("a"), Some("T"), Some("1"), None];
    let change = RowChange::insert(Row::from_text(wider, row));
    let Ok(message) = converter.message(&change, None) else { panic!("it is no message") };
    let source = message.headers.iter().find(|header| &*header.name == "walpost-source");
    assert_eq!(source.unwrap().value.as_deref(), Some(space.to_string().as_bytes()));
}

/// A row of the partitioned table `oid`, with the id and the transaction that it names.
fn parted_of(oid: u32, id: &str, xid: &str, operation: Operation) -> RowChange {
    let column = |name: &str, type_oid| Column {
        name: name.into(),
        type_oid,
        type_modifier: -1,
        is_key: name == "id",
    };
    let columns = vec![column("id", type_oid::TEXT), column("xid", type_oid::XID8)];
    let relation = Relation { oid, columns, ..(*relation(&[])).clone() };
    let row = Row::from_text(Arc::new(relation), [Some(id), Some(xid)]);
    RowChange { operation, row, old: None }
}

fn parted(id: &str, xid: &str, operation: Operation) -> RowChange {
    parted_of(9, id, xid, operation)
}

fn moving(has_deletes: bool) -> Converter {
    let router = Router::new(RouterConfig::default()).unwrap();
    let plain = Encoding { key: Encoder::Raw, value: Encoder::Raw };
    let mut spaces = IdSpaces::default();
    // 9 and 10 are partitions of one table.
    for (oid, space) in [(8, 1), (9, 2), (10, 2)] {
        spaces.learn(
            parted_of(oid, "", "", Operation::Insert).row.relation(),
            Uuid::from_u128(space),
        );
    }
    Converter::new(router, &plain.into(), &RelayConfig::new("shop"))
        .with_spaces(spaces)
        .with_moves(Moves::new([8, 9, 10].into(), has_deletes))
}

#[test]
fn a_row_that_comes_behind_its_delete_was_moved() {
    let mut converter = moving(true);
    let insert = |id: &str| parted(id, "7", Operation::Insert);
    converter.begin(9);
    assert!(!converter.is_moved(&insert("a")).unwrap());
    converter.note_delete(&parted("a", "7", Operation::Delete));
    assert!(!converter.is_moved(&insert("b")).unwrap());
    assert!(converter.is_moved(&insert("a")).unwrap());
    assert!(!converter.is_moved(&insert("a")).unwrap(), "one insert for one delete");
    converter.note_delete(&parted("a", "7", Operation::Delete));
    converter.begin(10);
    assert!(!converter.is_moved(&insert("a")).unwrap(), "another transaction");
}

#[test]
fn a_deleted_row_says_nothing_of_a_row_of_another_table() {
    let mut converter = moving(true);
    converter.begin(9);
    converter.note_delete(&parted_of(8, "1", "7", Operation::Delete));
    let insert = |oid| parted_of(oid, "1", "9", Operation::Insert);
    assert!(!converter.is_moved(&insert(9)).unwrap(), "an event of its own");
    converter.note_delete(&parted_of(9, "1", "7", Operation::Delete));
    assert!(converter.is_moved(&insert(10)).unwrap(), "to another partition");
    assert!(converter.is_moved(&insert(8)).unwrap());
}

#[test]
fn what_was_replicated_is_no_move() {
    let mut converter = moving(false);
    let insert = |xid: &str| parted("a", xid, Operation::Insert);
    converter.begin(9);
    assert!(!converter.is_moved(&insert("9")).unwrap(), "its own transaction");
    assert!(!converter.is_moved(&insert("4294967305")).unwrap(), "in a later epoch");
    assert!(!converter.is_moved(&insert("12")).unwrap(), "of another cluster");
    let moved = converter.is_moved(&insert("8")).unwrap_err().to_string();
    assert!(moved.contains("an earlier transaction"), "{moved}");
    converter.replicated();
    assert!(!converter.is_moved(&insert("8")).unwrap());
    converter.begin(9);
    assert!(converter.is_moved(&insert("8")).is_err());
}
