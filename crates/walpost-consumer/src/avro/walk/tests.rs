use apache_avro::{
    Days, Decimal, Duration, Millis, Months, Schema, Uuid,
    schema::{InnerDecimalSchema, NamesRef, NamespaceRef, ResolvedSchema},
    types::Value,
    writer::datum::GenericDatumWriter,
};
use proptest::{collection::vec, prelude::*};

use super::{
    super::{Written, layout::FLAT_LEVELS},
    *,
};

const NODE: &str =
    r#"{"type":"record","name":"Node","fields":[{"name":"next","type":["null","Node"]}]}"#;
const NULLS: &str = r#"{"type":"array","items":"null"}"#;
const LEAVES: &str = r#"{"type":"record","name":"Leaves","namespace":"a.b","fields":[
    {"name":"null","type":"null"},{"name":"boolean","type":"boolean"},
    {"name":"int","type":"int"},{"name":"long","type":"long"},
    {"name":"float","type":"float"},{"name":"double","type":"double"},
    {"name":"bytes","type":"bytes"},{"name":"string","type":"string"},
    {"name":"fixed","type":{"type":"fixed","name":"Five","size":5}},
    {"name":"again","type":["null","string","a.b.Five"]},
    {"name":"kind","type":{"type":"enum","name":"Kind","symbols":["A","B","C"]}},
    {"name":"other","type":"Kind"},
    {"name":"date","type":{"type":"int","logicalType":"date"}},
    {"name":"time","type":{"type":"int","logicalType":"time-millis"}},
    {"name":"micros","type":{"type":"long","logicalType":"time-micros"}},
    {"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
    {"name":"local","type":{"type":"long","logicalType":"local-timestamp-micros"}},
    {"name":"uuid","type":{"type":"string","logicalType":"uuid"}},
    {"name":"uuid16","type":{"type":"fixed","name":"U","size":16,"logicalType":"uuid"}},
    {"name":"span","type":{"type":"fixed","name":"D","size":12,"logicalType":"duration"}},
    {"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}},
    {"name":"sum","type":{"type":"fixed","name":"S","size":8,"logicalType":"decimal",
        "precision":9,"scale":2}}]}"#;
/// The inner record inherits a namespace, the last one has its own.
const TREE: &str = r#"{"type":"record","name":"Comment","namespace":"shop.forum","fields":[
    {"name":"text","type":"string"},
    {"name":"by","type":{"type":"record","name":"User","fields":[{"name":"id","type":"long"}]}},
    {"name":"replies","type":{"type":"array","items":"Comment"}},
    {"name":"tags","type":{"type":"map","values":["null","User",
        {"type":"record","name":"other.Tag","fields":[{"name":"on","type":"shop.forum.User"},
            {"name":"more","type":{"type":"array","items":["null","other.Tag"]}}]}]}}]}"#;
const JSON: &str = r#"{"type":"record","name":"Json","fields":[{"name":"is","type":["null",
    "boolean","double","string",{"type":"array","items":"Json"},
    {"type":"map","values":"Json"}]}]}"#;
const NOTHINGS: &str = r#"{"type":"record","name":"Nothings","fields":[
    {"name":"nulls","type":{"type":"array","items":"null"}},
    {"name":"keys","type":{"type":"map","values":"null"}},
    {"name":"empty","type":{"type":"array","items":{"type":"record","name":"E","fields":[]}}},
    {"name":"lists","type":{"type":"array","items":{"type":"array","items":"E"}}},
    {"name":"fixed","type":{"type":"array","items":{"type":"fixed","name":"Z","size":0}}}]}"#;
const PLACE: &str = r#"{"type":"record","name":"geo.Place","fields":[{"name":"city","type":"string"},
    {"name":"near","type":["null","geo.Place"]}]}"#;
const ORDER: &str = r#"{"type":"record","name":"shop.Order","fields":[
    {"name":"from","type":"geo.Place"},{"name":"to","type":{"type":"array","items":"geo.Place"}}]}"#;

const SCHEMAS: &[&[&str]] =
    &[&[NODE], &[NULLS], &[LEAVES], &[TREE], &[JSON], &[NOTHINGS], &[PLACE, ORDER]];

fn written(texts: &[&str]) -> Written {
    let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    Written::parse(7, &texts).unwrap()
}

fn resolved(written: &Written) -> ResolvedSchema<'_> {
    let all = written.named.iter().chain([&written.schema]).collect();
    ResolvedSchema::new_with_schemata(all).unwrap()
}

/// Also of schemas that need no walk.
fn layout(written: &Written) -> Layout {
    Layout::new(&written.schema, resolved(written).get_names()).unwrap()
}

fn encoded(written: &Written, value: Value) -> Vec<u8> {
    let writer = GenericDatumWriter::builder(&written.schema);
    let writer = writer.resolved_schemata(resolved(written)).build().unwrap();
    writer.write_value_to_vec(value).unwrap()
}

fn walk(text: &str, data: &[u8]) -> Result<usize, Refusal> {
    layout(&written(&[text])).walk(data)
}

/// Makes a value of random bytes.
struct Dice<'a> {
    bytes: std::slice::Iter<'a, u8>,
    names: &'a NamesRef<'a>,
}

impl Dice<'_> {
    /// 0 at the end, so that a value comes to an end as well.
    fn roll(&mut self) -> u8 {
        self.bytes.next().copied().unwrap_or(0)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.roll()) % limit
    }

    /// From the smallest to the largest.
    fn number(&mut self) -> i64 {
        let shift = self.below(64);
        let bytes = [(); 8].map(|()| self.roll());
        i64::from_le_bytes(bytes) >> shift
    }

    fn int(&mut self) -> i32 {
        (self.number() >> 32) as i32
    }

    fn some_bytes(&mut self) -> Vec<u8> {
        let count = self.below(200);
        (0..count).map(|_| self.roll()).collect()
    }

    fn text(&mut self) -> String {
        self.some_bytes().into_iter().map(char::from).collect()
    }

    fn leaf(&mut self, schema: &Schema) -> Value {
        match schema {
            Schema::Null => Value::Null,
            Schema::Boolean => Value::Boolean(self.roll() > 127),
            Schema::Int => Value::Int(self.int()),
            Schema::Long => Value::Long(self.number()),
            Schema::Float => Value::Float(self.int() as f32),
            Schema::Double => Value::Double(self.number() as f64),
            Schema::Bytes => Value::Bytes(self.some_bytes()),
            Schema::String => Value::String(self.text()),
            Schema::Fixed(fixed) => Value::Fixed(fixed.size, vec![self.roll(); fixed.size]),
            Schema::Enum(of) => {
                let index = self.below(of.symbols.len());
                Value::Enum(index as u32, of.symbols[index].clone())
            }
            Schema::Date => Value::Date(self.int()),
            Schema::TimeMillis => Value::TimeMillis(self.int()),
            Schema::TimeMicros => Value::TimeMicros(self.number()),
            Schema::TimestampMillis => Value::TimestampMillis(self.number()),
            Schema::LocalTimestampMicros => Value::LocalTimestampMicros(self.number()),
            Schema::Uuid(_) => Value::Uuid(Uuid::from_bytes([self.roll(); 16])),
            Schema::Duration(_) => {
                let days = Days::new(u32::from(self.roll()));
                Value::Duration(Duration::new(Months::new(7), days, Millis::new(9)))
            }
            Schema::Decimal(decimal) => {
                let size = match &decimal.inner {
                    InnerDecimalSchema::Fixed(fixed) => fixed.size,
                    InnerDecimalSchema::Bytes => 1 + self.below(4),
                };
                let bytes: Vec<u8> = (0..size.min(4)).map(|_| self.roll()).collect();
                Value::Decimal(Decimal::from(bytes))
            }
            other => panic!("no value is made for {other:?}"),
        }
    }

    fn value(&mut self, schema: &Schema, within: NamespaceRef<'_>, depth: usize) -> Value {
        // Deep values stay small.
        let mut items = if depth > 12 { 0 } else { self.below(4) };
        match schema {
            Schema::Ref { name } => {
                let name = name.fully_qualified_name(within);
                let schema = self.names[&*name];
                self.value(schema, name.namespace(), depth)
            }
            Schema::Record(record) => {
                let name = record.name.fully_qualified_name(within);
                let mut value = |schema: &Schema| self.value(schema, name.namespace(), depth + 1);
                let fields = record.fields.iter();
                Value::Record(
                    fields.map(|field| (field.name.clone(), value(&field.schema))).collect(),
                )
            }
            Schema::Union(union) => {
                let index = if depth > 12 { 0 } else { self.below(union.variants().len()) };
                let value = self.value(&union.variants()[index], within, depth);
                Value::Union(index as u32, Box::new(value))
            }
            Schema::Array(array) => {
                if matches!(&*array.items, Schema::Null) {
                    items = 3 * usize::from(self.roll());
                }
                let values = (0..items).map(|_| self.value(&array.items, within, depth + 1));
                Value::Array(values.collect())
            }
            Schema::Map(map) => {
                let entry = |at: usize| {
                    let key = format!("{at}{}", self.text());
                    (key, self.value(&map.types, within, depth + 1))
                };
                Value::Map((0..items).map(entry).collect())
            }
            leaf => self.leaf(leaf),
        }
    }
}

fn any_data() -> impl Strategy<Value = (&'static [&'static str], Vec<u8>)> {
    (proptest::sample::select(SCHEMAS), vec(any::<u8>(), 0..1_500)).prop_map(|(texts, bytes)| {
        let written = written(texts);
        let names = resolved(&written);
        let mut dice = Dice { bytes: bytes.iter(), names: names.get_names() };
        let value = dice.value(&written.schema, None, 0);
        let data = encoded(&written, value);
        (texts, data)
    })
}

proptest! {
    #[test]
    fn what_the_encoder_wrote_is_taken_whole_and_no_part_of_it((texts, data) in any_data()) {
        let written = written(texts);
        let layout = layout(&written);
        prop_assert!(layout.walk(&data).is_ok());
        prop_assert!(written.decode(&data).is_some());
        for end in (0..data.len()).rev().take(300) {
            prop_assert_eq!(layout.walk(&data[..end]), Err(Refusal::NotWritten));
            prop_assert!(written.decode(&data[..end]).is_none(), "cut at {}", end);
        }
        let longer: Vec<u8> = data.iter().copied().chain([0]).collect();
        prop_assert_eq!(layout.walk(&longer), Err(Refusal::NotWritten));
    }

    /// So that no record is parked for the walk alone.
    #[test]
    fn what_the_walk_does_not_follow_the_decoder_refuses(
        (texts, mut data) in any_data(),
        faults in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let written = written(texts);
        for (at, byte) in faults {
            if !data.is_empty() {
                let at = at.index(data.len());
                data[at] = byte;
            }
        }
        if layout(&written).walk(&data) == Err(Refusal::NotWritten) {
            prop_assert!(written.decode(&data).is_none());
        }
    }
}

#[test]
fn levels_are_counted_without_the_unions_between_them() {
    #[derive(serde::Deserialize)]
    struct Node {
        next: Option<Box<Node>>,
    }
    let nodes = |count: usize| [vec![2; count - 1], vec![0]].concat();
    let schema = written(&[NODE]);
    for count in [1, FLAT_LEVELS, FLAT_LEVELS + 1, MAX_LEVELS] {
        assert_eq!(walk(NODE, &nodes(count)), Ok(count));
        // On the stack of this thread, or on one that is large enough.
        let mut node = schema.read::<Node>(&nodes(count)).unwrap();
        for _ in 1..count {
            node = *node.next.unwrap();
        }
        assert!(node.next.is_none());
    }
    for count in [MAX_LEVELS + 1, 1_000_000] {
        assert_eq!(walk(NODE, &nodes(count)), Err(Refusal::TooDeep));
    }
    // Arrays, too: Json of an array of one Json, and so on.
    let json = |count: usize| [[8, 2].repeat(count), vec![0], [0].repeat(count)].concat();
    assert_eq!(walk(JSON, &json(63)), Ok(127));
    written(&[JSON]).read::<serde::de::IgnoredAny>(&json(63)).unwrap();
    assert_eq!(walk(JSON, &json(64)), Err(Refusal::TooDeep));
    let endless = r#"{"type":"record","name":"N","fields":[{"name":"n","type":"N"}]}"#;
    assert_eq!(walk(endless, &[]), Err(Refusal::TooDeep));
}

#[test]
fn items_are_bounded_by_the_bytes_over_all_blocks_and_lists() {
    let count = |items: i64| encoded(&written(&[r#""long""#]), Value::Long(items));
    let block = |items: i64| [count(items), vec![0]].concat();
    assert_eq!(walk(NULLS, &block(1_003)), Ok(1));
    assert_eq!(walk(NULLS, &block(1_004)), Err(Refusal::TooManyItems));
    assert_eq!(walk(NULLS, &block(9_000_000)), Err(Refusal::TooManyItems));
    assert_eq!(walk(NULLS, &block(i64::MAX)), Err(Refusal::TooManyItems));
    let sized = [count(i64::MIN), count(0), vec![0]].concat();
    assert_eq!(walk(NULLS, &sized), Err(Refusal::TooManyItems));
    let halves = [count(600), count(-600), count(0), vec![0]].concat();
    assert_eq!(walk(NULLS, &halves), Err(Refusal::TooManyItems));
    let lists = r#"{"type":"array","items":{"type":"array","items":"null"}}"#;
    let two = [count(2), block(600), block(600), vec![0]].concat();
    assert_eq!(walk(lists, &two), Err(Refusal::TooManyItems));
}

#[test]
fn blocks_come_with_their_size_or_without() {
    let ints = r#"{"type":"array","items":"int"}"#;
    let map = r#"{"type":"map","values":"int"}"#;
    // 1, 2, 3 and {"a": 1, "b": 2}.
    for data in [&[6, 2, 4, 6, 0][..], &[5, 6, 2, 4, 6, 0], &[2, 2, 3, 4, 4, 6, 0]] {
        assert_eq!(walk(ints, data), Ok(1), "{data:?}");
    }
    for data in [&[4, 2, b'a', 2, 2, b'b', 4, 0][..], &[3, 12, 2, b'a', 2, 2, b'b', 4, 0]] {
        assert_eq!(walk(map, data), Ok(1), "{data:?}");
    }
    // No end, a key of a negative length, a number of eleven bytes.
    for (text, data) in
        [(ints, &[6, 2, 4, 6][..]), (map, &[2, 1, 2, 0]), (r#""long""#, &[0x80; 11])]
    {
        assert_eq!(walk(text, data), Err(Refusal::NotWritten), "{text}");
    }
    let big = r#"{"type":"bytes","logicalType":"big-decimal"}"#;
    assert!(written(&[big]).decode(&[6, 2, 1, 0]).is_some());
    assert_eq!(walk(big, &[6, 2, 1, 0]), Ok(0));
}
