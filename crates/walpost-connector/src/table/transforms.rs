use super::{
    Kind::{Boolean, List, OneOf, Regex, Replaced, Text},
    Of, PredicateClass, Rule, Section, TransformClass, honoured, ignored, refused, router,
};
use crate::choices::Choice;
use walpost_encode::connect::HeaderOperation;

pub(super) const COMMON: Section = transform(
    "Of every transform",
    &[],
    &[
        honoured("type", super::Kind::Class, "", "class of the transform"),
        honoured("predicate", Text, "", "alias of the condition under which it acts"),
        honoured("negate", Boolean, "false", "act where the condition does not hold"),
        ignored("plugin.version", Text, "", "Walpost is of one version"),
    ],
);

pub(super) const PREDICATE_COMMON: Section = predicate(
    "Of every predicate",
    &[],
    &[
        honoured("type", super::Kind::Class, "", "class of the condition"),
        ignored("plugin.version", Text, "", "Walpost is of one version"),
    ],
);

pub(super) const ROUTER: Section = transform(
    "Outbox Event Router",
    &[("io.debezium.transforms.outbox.EventRouter", TransformClass::Router)],
    router::RULES,
);

pub(super) const DECODE: Section = transform(
    "Logical messages as rows",
    &[(
        "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent",
        TransformClass::DecodeMessages,
    )],
    &[honoured(
        "fields.null.include",
        Boolean,
        "false",
        "members that are null stay; else they are left out, and what needs one is parked",
    )],
);

pub(super) const REGEX_ROUTER: Section = transform(
    "RegexRouter",
    &[("org.apache.kafka.connect.transforms.RegexRouter", TransformClass::RegexRouter)],
    &[
        honoured("regex", Replaced, "", "matched against the whole topic"),
        honoured("replacement", Text, "", "the new topic, in Java's syntax of replacements"),
    ],
);

pub(super) const INSERT_HEADER: Section = transform(
    "InsertHeader",
    &[("org.apache.kafka.connect.transforms.InsertHeader", TransformClass::InsertHeader)],
    &[
        honoured("header", Text, "", "name of the header"),
        honoured(
            "value.literal",
            Text,
            "",
            "its value; what looks like a number, a boolean, an array or a map is one",
        ),
    ],
);

pub(super) const DROP_HEADERS: Section = transform(
    "DropHeaders",
    &[("org.apache.kafka.connect.transforms.DropHeaders", TransformClass::DropHeaders)],
    &[honoured("headers", List, "", "names of the headers that go")],
);

pub(super) const HEADER_FROM: Section = transform(
    "HeaderFrom",
    &[
        ("org.apache.kafka.connect.transforms.HeaderFrom$Key", TransformClass::HeaderFromKey),
        ("org.apache.kafka.connect.transforms.HeaderFrom$Value", TransformClass::HeaderFromValue),
    ],
    &[
        honoured("fields", List, "", "fields that become headers"),
        honoured("headers", List, "", "names of these headers, as many"),
        honoured("operation", OneOf(HeaderOperation::NAMES), "", "whether the field stays"),
        honoured("replace.null.with.default", Boolean, "true", "a default instead of null"),
    ],
);

pub(super) const INSERT_FIELD: Section = transform(
    "InsertField",
    &[
        (
            "org.apache.kafka.connect.transforms.InsertField$Value",
            TransformClass::InsertFieldOfValue,
        ),
        ("org.apache.kafka.connect.transforms.InsertField$Key", TransformClass::InsertFieldOfKey),
    ],
    &[
        honoured("static.field", Text, "", "name of a field; one that ends with ! is required"),
        honoured("static.value", Text, "", "its value, a text"),
        honoured("topic.field", Text, "", "name of a field with the topic"),
        honoured("partition.field", Text, "", "name of a field with a partition that is placed"),
        refused(
            "timestamp.field",
            "a record has its time when it is sent; remove it, and place the column of the time by \
             table.fields.additional.placement",
        ),
        refused("offset.field", "a record has its offset when it is in Kafka; remove it"),
        honoured("replace.null.with.default", Boolean, "true", "a default instead of null"),
    ],
);

pub(super) const FILTER: Section = transform(
    "Filter",
    &[("org.apache.kafka.connect.transforms.Filter", TransformClass::Filter)],
    &[],
);

pub(super) const TOPIC_NAME_MATCHES: Section = predicate(
    "TopicNameMatches",
    &[(
        "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        PredicateClass::TopicNameMatches,
    )],
    &[honoured("pattern", Regex, "", "matches the whole topic")],
);

pub(super) const HAS_HEADER_KEY: Section = predicate(
    "HasHeaderKey",
    &[(
        "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
        PredicateClass::HasHeaderKey,
    )],
    &[honoured("name", Text, "", "a header of this name is there")],
);

pub(super) const RECORD_IS_TOMBSTONE: Section = predicate(
    "RecordIsTombstone",
    &[(
        "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
        PredicateClass::RecordIsTombstone,
    )],
    &[],
);

const fn transform(
    title: &'static str,
    classes: &'static [(&'static str, TransformClass)],
    rules: &'static [Rule],
) -> Section {
    Section { title, of: Of::Transform(classes), rules }
}

const fn predicate(
    title: &'static str,
    classes: &'static [(&'static str, PredicateClass)],
    rules: &'static [Rule],
) -> Section {
    Section { title, of: Of::Predicate(classes), rules }
}

/// Why a class of transforms is refused, and what to write; for those that
/// people have.
pub(crate) const REFUSED: &[(&str, &str)] = &[
    (
        "io.debezium.transforms.Filter",
        "it runs a script, which Walpost has not; write a row filter (pipeline.row_filter), or \
         leave the rows out where they are written",
    ),
    (
        "io.debezium.transforms.ContentBasedRouter",
        "it runs a script, which Walpost has not; let route.by.field name a column that says the \
         topic",
    ),
    (
        "io.debezium.transforms.ExtractNewRecordState",
        "it takes change events apart, and behind the router there are none; remove it",
    ),
    (
        "io.debezium.transforms.ByLogicalTableRouter",
        "it names topics of change events; write RegexRouter behind the router",
    ),
    (
        "io.debezium.connector.mongodb.transforms.outbox.MongoEventRouter",
        "it is MongoDB's; write io.debezium.transforms.outbox.EventRouter",
    ),
    (
        "io.debezium.transforms.tracing.ActivateTracingSpan",
        "Walpost makes no spans; remove it, and place the column of the context as a header",
    ),
    (
        "org.apache.kafka.connect.transforms.InsertField",
        "its class says whether it changes key or value; write InsertField$Value",
    ),
    (
        "org.apache.kafka.connect.transforms.HeaderFrom",
        "its class says whether it reads key or value; write HeaderFrom$Value or HeaderFrom$Key",
    ),
];
