//! Defaults of columns, as far as Debezium evaluates their expressions.

use super::{
    decimal::Decimal,
    description::{TypeDescription, TypeKind},
};

const CURRENT: [&str; 5] =
    ["current_timestamp", "current_time", "current_date", "localtime", "localtimestamp"];

/// The text, as PostgreSQL would send it, of the value that Debezium takes for
/// the default; `None` where it has none.
///
/// Literals are themselves. Whatever looks like a call of a function, such as
/// `now()` and `gen_random_uuid()`, is the zero of the type. Types that
/// Debezium knows no defaults of, domains among them, have none.
pub(crate) fn text(data_type: &TypeDescription, expression: &str) -> Option<String> {
    match &data_type.kind {
        TypeKind::Enum { .. } => return label(&data_type.name, expression),
        TypeKind::Base => {}
        TypeKind::Domain { .. } | TypeKind::Array { .. } => return None,
    }
    let name = &*data_type.name;
    let zero = zero_of(name)?;
    let expression = if is_trimmed(name) { expression.trim() } else { expression };
    if may_be_null(name) && expression.starts_with("NULL::") {
        return None;
    }
    let is_generated = is_call(expression) || CURRENT.contains(&&*expression.to_lowercase());
    let text = if is_generated { zero.to_owned() } else { literal(expression)? };
    match name {
        "bool" => Some(if text.eq_ignore_ascii_case("true") { "t" } else { "f" }.to_owned()),
        "numeric" => Decimal::parse(&text).map(|_| text),
        "time" if text == "00:00" => Some("00:00:00".to_owned()),
        "timestamp" | "timestamptz" if !text.contains(' ') => Some(match name {
            "timestamp" => format!("{text} 00:00:00"),
            _ => format!("{text} 00:00:00+00"),
        }),
        _ => Some(text),
    }
}

/// What Debezium puts for a value that is generated.
fn zero_of(name: &str) -> Option<&'static str> {
    Some(match name {
        "bit" => "00",
        "varbit" | "int2" | "int4" | "int8" => "0",
        "bool" => "false",
        "bpchar" | "varchar" | "text" | "xml" => "",
        "numeric" | "float4" | "float8" => "0.0",
        "json" | "jsonb" => "{}",
        "uuid" => "00000000-0000-0000-0000-000000000000",
        "date" | "timestamp" | "timestamptz" => "1970-01-01",
        "time" => "00:00",
        "interval" => "00:00:00",
        _ => return None,
    })
}

fn is_trimmed(name: &str) -> bool {
    !matches!(name, "bpchar" | "varchar" | "text" | "xml" | "json" | "jsonb")
}

fn may_be_null(name: &str) -> bool {
    matches!(name, "bool" | "numeric" | "float4" | "float8" | "int2" | "int4" | "int8")
}

/// A name, a parenthesis, and on the same line one that closes.
fn is_call(expression: &str) -> bool {
    let rest = expression.strip_prefix('(').unwrap_or(expression);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let behind = rest.trim_start_matches(is_name);
    let arguments = (behind.len() < rest.len()).then(|| behind.strip_prefix('(')).flatten();
    arguments.is_some_and(|arguments| arguments.split('\n').next().is_some_and(|l| l.contains(')')))
}

/// What stands between the first quotes, or all of it where there are none.
fn literal(expression: &str) -> Option<String> {
    let Some(start) = expression.find('\'') else {
        return (!expression.starts_with("NULL::")).then(|| expression.to_owned());
    };
    let body = &expression[start + 1..];
    let mut end = 0;
    loop {
        end += body[end..].find('\'')?;
        if !body[end + 1..].starts_with('\'') {
            return Some(body[..end].replace("''", "'"));
        }
        end += 2;
    }
}

/// The label of `'a'::mood`.
fn label(type_name: &str, expression: &str) -> Option<String> {
    let (value, cast) = expression.rsplit_once("::")?;
    let cast = cast.rsplit_once('.').map_or(cast, |(_, name)| name).trim_matches('"');
    let label = value.strip_prefix('\'')?.strip_suffix('\'')?;
    (cast == type_name).then(|| label.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, expression: &str) -> Option<String> {
        let kind = TypeKind::Base;
        text(&TypeDescription { oid: 0, name: name.into(), kind }, expression)
    }

    #[test]
    fn literals_are_themselves() {
        let cases = [
            ("text", "'it''s'::text", "it's"),
            ("jsonb", "'{\"a\": 1}'::jsonb", "{\"a\": 1}"),
            ("int4", "7", "7"),
            ("int4", "'-7'::integer", "-7"),
            ("bool", "true", "t"),
            ("numeric", "1.50", "1.50"),
            (
                "timestamp",
                "'2020-01-01 00:00:00'::timestamp without time zone",
                "2020-01-01 00:00:00",
            ),
        ];
        for (name, expression, expected) in cases {
            assert_eq!(of(name, expression).as_deref(), Some(expected), "{expression}");
        }
    }

    #[test]
    fn what_is_generated_is_zero() {
        let cases = [
            ("uuid", "gen_random_uuid()", "00000000-0000-0000-0000-000000000000"),
            ("timestamptz", "now()", "1970-01-01 00:00:00+00"),
            ("timestamp", "CURRENT_TIMESTAMP", "1970-01-01 00:00:00"),
            ("timestamp", "(now() AT TIME ZONE 'utc'::text)", "1970-01-01 00:00:00"),
            ("int8", "nextval('a_seq'::regclass)", "0"),
            ("time", "LOCALTIME", "00:00:00"),
        ];
        for (name, expression, expected) in cases {
            assert_eq!(of(name, expression).as_deref(), Some(expected), "{expression}");
        }
    }

    #[test]
    fn other_defaults_are_none() {
        assert_eq!(of("bytea", "'\\x00'::bytea"), None);
        assert_eq!(of("int4", "NULL::integer"), None);
        assert_eq!(of("text", "NULL::text"), None);
        assert_eq!(of("numeric", "(1 + 2)"), None);
        let labels = vec!["a".to_owned()];
        let mood = TypeDescription { oid: 1, name: "mood".into(), kind: TypeKind::Enum { labels } };
        assert_eq!(text(&mood, "'a'::mood").as_deref(), Some("a"));
        assert_eq!(text(&mood, "'a'::app.\"mood\"").as_deref(), Some("a"));
        assert_eq!(text(&mood, "'a'::text"), None);
    }
}
