//! Converters here and there.

use serde_json::{Value as Json, json};
use walpost_encode::{
    avro::{AvroConverter, AvroOptions, SubjectName},
    connect::{Converter, DecimalFormat},
    json_schema::{JsonSchemaConverter, JsonSchemaOptions},
    protobuf::{ProtobufConverter, ProtobufOptions},
};

pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) class: &'static str,
    pub(crate) config: Json,
    pub(crate) is_key: bool,
    pub(crate) ours: Box<dyn Fn() -> Converter>,
}

const JSON_SCHEMA: &str = "io.confluent.connect.json.JsonSchemaConverter";
const PROTOBUF: &str = "io.confluent.connect.protobuf.ProtobufConverter";
const AVRO: &str = "io.confluent.connect.avro.AvroConverter";

pub(crate) fn ways() -> Vec<Way> {
    let mut ways = Vec::new();
    let mut json_schema = |name, config, is_key, options: JsonSchemaOptions| {
        let ours = move || Converter::JsonSchema(JsonSchemaConverter::new(options, is_key));
        ways.push(Way { name, class: JSON_SCHEMA, config, is_key, ours: Box::new(ours) });
    };
    let default = JsonSchemaOptions::default();
    json_schema("json schema", json!({}), false, default);
    json_schema("json schema, keys", json!({}), true, default);
    let strategy = "io.confluent.kafka.serializers.subject.RecordNameStrategy";
    let options = JsonSchemaOptions {
        subject: SubjectName::Record,
        decimal_format: DecimalFormat::Numeric,
        additional_properties: false,
        ignore_default: true,
        ..default
    };
    let config = json!({
        "value.subject.name.strategy": strategy,
        "decimal.format": "NUMERIC",
        "object.additional.properties": "false",
        "ignore.default.for.nullables": "true",
    });
    json_schema("json schema, otherwise", config, false, options);
    let mut avro = |name, config, options: AvroOptions| {
        let ours = move || Converter::Avro(AvroConverter::new(options, false));
        ways.push(Way { name, class: AVRO, config, is_key: false, ours: Box::new(ours) });
    };
    let default = AvroOptions::default();
    avro(
        "avro",
        json!({ "scrub.invalid.names": "true" }),
        AvroOptions { scrub_invalid_names: true, ..default },
    );
    let config = json!({
        "scrub.invalid.names": "true",
        "connect.meta.data": "false",
        "value.subject.name.strategy": "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy",
    });
    avro(
        "avro, otherwise",
        config,
        AvroOptions {
            scrub_invalid_names: true,
            connect_meta_data: false,
            subject: SubjectName::TopicRecord,
            ..default
        },
    );
    protobuf(&mut ways);
    ways
}

fn protobuf(ways: &mut Vec<Way>) {
    let mut way = |name, config, is_key, options: ProtobufOptions| {
        let ours = move || Converter::Protobuf(ProtobufConverter::new(options, is_key));
        ways.push(Way { name, class: PROTOBUF, config, is_key, ours: Box::new(ours) });
    };
    let default = ProtobufOptions::default();
    way("protobuf", json!({}), true, default);
    way(
        "protobuf, scrubbed",
        json!({ "scrub.invalid.names": "true", "ignore.default.for.nullables": "true" }),
        false,
        ProtobufOptions { scrub_invalid_names: true, ignore_default: true, ..default },
    );
    let config = json!({
        "scrub.invalid.names": "true",
        "optional.for.nullables": "true",
        "value.subject.name.strategy": "io.confluent.kafka.serializers.subject.RecordNameStrategy",
    });
    let options = ProtobufOptions {
        scrub_invalid_names: true,
        optional_for_nullables: true,
        subject: SubjectName::Record,
        ..default
    };
    way("protobuf, optional", config, false, options);
    let config = json!({ "scrub.invalid.names": "true", "wrapper.for.nullables": "true" });
    let options =
        ProtobufOptions { scrub_invalid_names: true, wrapper_for_nullables: true, ..default };
    way("protobuf, wrapped", config, false, options);
}
