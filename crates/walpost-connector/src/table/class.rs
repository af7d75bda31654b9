/// What a transform is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransformClass {
    /// The Outbox Event Router.
    Router,
    /// `DecodeLogicalDecodingMessageContent`.
    DecodeMessages,
    /// `RegexRouter`.
    RegexRouter,
    /// `InsertHeader`.
    InsertHeader,
    /// `DropHeaders`.
    DropHeaders,
    /// `HeaderFrom$Key`.
    HeaderFromKey,
    /// `HeaderFrom$Value`.
    HeaderFromValue,
    /// `InsertField$Key`.
    InsertFieldOfKey,
    /// `InsertField$Value`.
    InsertFieldOfValue,
    /// Kafka Connect's `Filter`.
    Filter,
}

/// What a predicate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PredicateClass {
    /// `TopicNameMatches`.
    TopicNameMatches,
    /// `HasHeaderKey`.
    HasHeaderKey,
    /// `RecordIsTombstone`.
    RecordIsTombstone,
}

/// What a converter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConverterClass {
    /// `StringConverter`.
    String,
    /// `JsonConverter`.
    Json,
    /// `ByteArrayConverter`.
    ByteArray,
    /// `BinaryDataConverter`, and its former name.
    BinaryData,
    /// `SimpleHeaderConverter`.
    SimpleHeader,
    /// Confluent's `AvroConverter`.
    Avro,
    /// Confluent's `JsonSchemaConverter`.
    JsonSchema,
    /// Confluent's `ProtobufConverter`.
    Protobuf,
    /// Apicurio's `AvroConverter`.
    ApicurioAvro,
}
