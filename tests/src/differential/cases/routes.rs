//! Topics: `route.by.field`, `route.topic.regex`, `route.topic.replacement`.

use super::{Case, Group::Routes};

fn case(name: &str) -> Case {
    Case::new(Routes, name)
}

pub(super) fn all() -> Vec<Case> {
    [by_default(), by_pattern(), by_another_column(), wrong()].concat()
}

fn by_default() -> Vec<Case> {
    vec![
        case("route: a topic for each aggregate type, case as it is")
            .insert([])
            .insert([("aggregatetype", "'{n}ORDER'")])
            .insert([("aggregatetype", "'{n}order_line.v-1'")])
            .insert([]),
        case("route: keys find their partitions")
            .insert([("aggregateid", "''")])
            .insert([("aggregateid", "'a'")])
            .insert([("aggregateid", "'10711fa5'")])
            .insert([("aggregateid", "'ключ'")])
            .insert([("aggregateid", "'0'")])
            .insert([("aggregateid", "'1'")])
            .insert([("aggregateid", "'2'")])
            .insert([("aggregateid", "'a longer key with spaces, and more'")])
            .insert([("aggregateid", "'a'")]),
        case("route: an empty value")
            .router("route.topic.replacement", "{n}.${routedByValue}")
            .insert([("aggregatetype", "''")])
            .insert([]),
        case("route: one topic for all")
            .router("route.topic.replacement", "{n}.all")
            .insert([])
            .insert([("aggregatetype", "'User'")]),
    ]
}

fn by_pattern() -> Vec<Case> {
    let pattern = |name: &str, regex: &str, replacement: &str| {
        case(name)
            .router("route.topic.regex", regex)
            .router("route.topic.replacement", replacement)
            .insert([])
            .insert([("aggregatetype", "'{n}User'")])
            .insert([("aggregatetype", "'{n}OrderLine'")])
    };
    vec![
        pattern(
            "pattern: a value that does not match is the topic",
            "(?<routedByValue>.*Order)",
            "events.${routedByValue}",
        ),
        pattern("pattern: part of the value is no match", "Order", "events.order"),
        pattern("pattern: numbered groups", "(z.+z)(.*)", "$2.$1.v1"),
        pattern("pattern: ten groups", "(z)(.)(.)(.)(.)(z)(.)(.)(.)(.*)", "$1$2$3$4$5$6.$10.$11"),
        pattern("pattern: named groups", "(?<id>z.+z)(?<kind>.*)", "${kind}-${id}"),
        pattern("pattern: the whole match", "(?<a>.*)", "all.$0"),
        pattern("pattern: a group that took no part", "(z.+z)(?:(User)|.*)", "$1.x$2"),
        pattern("pattern: escapes", "(z.+z)(.*)", "$1\\.\\a.$2"),
        pattern("pattern: a reluctant match replaces its first find", "{n}O.*?", "{n}y"),
        pattern("pattern: without regard to case", "(?i)(Z.+Z)order", "$1.o"),
        pattern("pattern: classes and bounds", "^(z\\d{4}z)([A-Z]\\p{Lower}+)$", "$1.$2"),
        pattern("pattern: look-behind", "(z.+(?<=z))((?!User).+)", "$1.$2.behind"),
        pattern("pattern: a possessive quantifier", "(z[0-9]++z)(\\w*+)", "$1.$2.kept"),
        pattern("pattern: a reference back", "(z)(.+?)\\1(?<kind>O\\p{L}+)", "$1$2$1.${kind}"),
        pattern("pattern: case of ASCII alone", "(?i)(Z.+Z)(ORDER|ÜSER)", "$1.$2.case"),
        pattern("pattern: look-ahead", "(z.+z)(?=O)(.*)", "$1.$2.ahead"),
        pattern("pattern: an empty name stays the value", "(?<routedByValue>.*)", "{n}"),
    ]
}

fn by_another_column() -> Vec<Case> {
    vec![
        case("route: by another column")
            .router("route.by.field", "type")
            .insert([("type", "'{n}placed'")])
            .insert([("type", "'{n}sent'")]),
        case("route: by an enum")
            .setup("create type kind as enum ('{n}one', '{n}two')")
            .column("aggregatetype", "kind not null")
            .insert([("aggregatetype", "'{n}two'")])
            .insert([("aggregatetype", "'{n}one'")]),
        case("route: by a uuid")
            .column("tenant", "uuid")
            .router("route.by.field", "tenant")
            .router("route.topic.replacement", "{n}.${routedByValue}")
            .insert([("tenant", "'59A42EFD-b015-44a9-9dde-cb36d9002425'")]),
        case("route: by json that is text")
            .column("kind", "json")
            .router("route.by.field", "kind")
            .router("route.topic.regex", "\"(.*)\"")
            .router("route.topic.replacement", "{n}.$1")
            .insert([("kind", "'\"order\"'")]),
        case("route: by char(n), which is padded")
            .column("aggregatetype", "char(8) not null")
            .router("route.topic.regex", "(\\w+) *")
            .router("route.topic.replacement", "{n}.$1")
            .insert([("aggregatetype", "'order'")]),
    ]
}

fn wrong() -> Vec<Case> {
    vec![
        case("route: NULL")
            .column("aggregatetype", "text")
            .insert([])
            .dies("NullPointerException")
            .insert([("aggregatetype", "null")])
            .insert([]),
        // A string is read as it is; other columns with the default in place of NULL.
        case("route: NULL, whatever the default")
            .column("kind", "text default '{n}usual'")
            .router("route.by.field", "kind")
            .insert([])
            .dies("NullPointerException")
            .insert([("kind", "null")]),
        case("route: a number")
            .column("kind", "int")
            .router("route.by.field", "kind")
            .router("route.topic.replacement", "{n}.${routedByValue}")
            .dies("'kind' is not of type STRING")
            .goes_out()
            .insert([("kind", "1")]),
        case("route: a column that is not there")
            .router("route.by.field", "nothing")
            .dies("nothing")
            .insert([]),
        case("route: a group that is not there")
            .router("route.topic.replacement", "{n}.${nothing}")
            .dies("No group with name {nothing}")
            .insert([]),
        case("route: a number of a group that is not there")
            .router("route.topic.replacement", "{n}.$7")
            .dies("No group 7")
            .insert([]),
        case("route: no topic has such a name")
            .insert([])
            .dies("InvalidTopicException")
            .insert([("aggregatetype", "'{n} order'")])
            .insert([]),
        case("route: no regular expression")
            .router("route.topic.regex", "(")
            .refused("Unclosed group near index 1"),
    ]
}
