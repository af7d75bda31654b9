//! Null where a function of the contract needs a value.

use crate::support::World;

/// Arguments that may be left out.
const OPTIONAL: [(&str, &[&str]); 6] = [
    ("claim", &["k"]),
    ("batch_begin", &["le"]),
    ("request_parked", &["who"]),
    ("operator_reset", &["chosen", "chosen_by", "events_per_s", "seen", "who", "why"]),
    ("change_consumer", &["g", "k"]),
    ("event_source", &["source_header"]),
];

/// A function with the names and types of its arguments.
struct Function {
    name: String,
    arguments: Vec<(String, String)>,
}

impl Function {
    /// A call with null for those that `is_null` says, and some value for others.
    fn call(&self, is_null: impl Fn(&str) -> bool) -> String {
        let value = |(name, of): &(String, String)| match of.as_str() {
            of if is_null(name) => format!("null::{of}"),
            "integer" | "bigint" => "1".to_owned(),
            "text" => "'x'".to_owned(),
            "boolean" => "true".to_owned(),
            "uuid" => "gen_random_uuid()".to_owned(),
            "timestamp with time zone" => "now()".to_owned(),
            of if of.ends_with("[]") => format!("'{{}}'::{of}"),
            of => panic!("{}: no value of {of}", self.name),
        };
        let values: Vec<String> = self.arguments.iter().map(value).collect();
        format!("select * from walpost.{}({})", self.name, values.join(", "))
    }

    fn is_optional(&self, argument: &str) -> bool {
        OPTIONAL.iter().any(|(name, may)| *name == self.name && may.contains(&argument))
    }
}

/// All of the schema but triggers, and the one that refuses.
async fn functions(world: &World) -> Vec<Function> {
    let sql = "select proname::text, coalesce(proargnames[:pronargs], '{}'), \
               array(select format_type(t.kind, null) from unnest(proargtypes) t(kind)) \
               from pg_proc where pronamespace = 'walpost'::regnamespace \
               and prorettype <> 'trigger'::regtype and proname <> 'refuse_null' order by 1";
    let rows = world.client.query(sql, &[]).await.unwrap();
    let function = |row: &tokio_postgres::Row| {
        let (names, types): (Vec<String>, Vec<String>) = (row.get(1), row.get(2));
        Function { name: row.get(0), arguments: names.into_iter().zip(types).collect() }
    };
    rows.iter().map(function).collect()
}

/// What is said to a call, with its SQLSTATE; nothing where it is carried out.
async fn refusal(world: &World, call: &str) -> Option<(String, String)> {
    let error = world.client.simple_query(call).await.err()?;
    let error = error.as_db_error().unwrap_or_else(|| panic!("{call}: {error}"));
    Some((error.code().code().to_owned(), error.message().to_owned()))
}

#[tokio::test]
async fn every_function_names_the_argument_that_must_not_be_null() {
    let world = World::new(1).await;
    let functions = functions(&world).await;
    let mut refused = 0;
    for function in &functions {
        for (argument, _) in &function.arguments {
            let call = function.call(|name| name == argument);
            let refusal = refusal(&world, &call).await;
            if function.is_optional(argument) {
                assert!(refusal.is_none_or(|(state, _)| state != "22004"), "{call}");
                continue;
            }
            let (state, message) = refusal.unwrap_or_else(|| panic!("{call} is carried out"));
            let told = message.strip_prefix(&format!("{}: {argument}", function.name));
            let told = told.filter(|rest| rest.starts_with([' ', '(']));
            assert_eq!((state.as_str(), told.is_some()), ("22004", true), "{call}: {message}");
            refused += 1;
        }
    }
    assert_eq!((functions.len(), refused), (21, 62));
    for (call, expected) in [
        (
            "operator_reset('x', 'x', 1, null, 'chosen', null, null, null, null, null, null)",
            "operator_reset: chosen must not be null",
        ),
        ("request_parked(null, null, null)", "request_parked: ids, what must not be null"),
        ("batch_begin(1, 1, 1, 1, '{1,null}', null)", "batch_begin: kn (known) must not be null"),
        ("start_at(1, 1, 1, '{null}')", "start_at: kn (known) must not be null"),
    ] {
        let refusal = refusal(&world, &format!("select walpost.{call}")).await;
        assert_eq!(refusal, Some(("22004".to_owned(), expected.to_owned())));
    }
}
