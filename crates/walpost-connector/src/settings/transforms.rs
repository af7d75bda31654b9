use std::collections::BTreeMap;

use walpost_encode::connect::{HeaderOperation, Inserted, InsertedField};
use walpost_router::{Pattern, Rewrite, RewriteError};

use super::router::{self, OutboxRouter};
use crate::{
    judge::{Judge, Scope},
    table::{
        self, Of, PREDICATES, PredicateClass, TRANSFORMS, TransformClass, transforms as rules,
    },
    verdicts::{Origin, Verdict},
};

/// What happens to a record on its way, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transforms {
    /// Before the router: they see rows and messages.
    pub before: Vec<Transform>,
    /// The Outbox Event Router.
    pub router: OutboxRouter,
    /// Behind the router: they see records.
    pub after: Vec<Transform>,
}

/// One transform beside the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transform {
    /// Its alias.
    pub alias: String,
    /// What it does.
    pub action: Action,
    /// When; `None` for always.
    pub condition: Option<Condition>,
}

/// What a transform does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `DecodeLogicalDecodingMessageContent`: a logical message whose content is
    /// a JSON object becomes a row with its members.
    DecodeMessages {
        /// `fields.null.include`, default false: members that are null stay.
        keeps_null: bool,
    },
    /// `RegexRouter`: another topic, where the regex matches the whole of it.
    RenameTopic(Rewrite),
    /// `InsertHeader`, at the end of the headers.
    InsertHeader {
        /// Its name.
        name: String,
        /// `value.literal`. Kafka Connect infers its type: a number, a boolean, an
        /// array, a map, `null`, and else a text.
        literal: String,
    },
    /// `DropHeaders`: all of these names.
    DropHeaders(Vec<String>),
    /// `HeaderFrom$Value`: fields of the value's structure become headers.
    HeaderFromValue {
        /// Each field with the name of its header.
        fields: Vec<(String, String)>,
        /// Whether the field stays.
        operation: HeaderOperation,
        /// A default instead of null. Default true.
        replace_null_with_default: bool,
    },
    /// `InsertField$Value`: fields behind those of the value's structure.
    InsertFields {
        /// The fields, in order.
        fields: Vec<InsertedField>,
        /// A default instead of null, of the fields before. Default true.
        replace_null_with_default: bool,
    },
    /// `Filter`: there is no record any more.
    Drop,
}

/// Under what condition a transform acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Alias of the predicate.
    pub alias: String,
    /// What is looked at.
    pub test: Test,
    /// `negate`: act where the test fails.
    pub negate: bool,
}

/// What a predicate looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// `TopicNameMatches`: the pattern matches the whole topic.
    TopicMatches(Pattern),
    /// `HasHeaderKey`: a header of this name is there.
    HasHeader(String),
    /// `RecordIsTombstone`: there is no value.
    IsTombstone,
}

/// Transforms, and predicates, of one connector.
const MAX_ALIASES: usize = 100;

impl Transforms {
    /// Whether logical messages become rows, and so events.
    pub fn decodes_messages(&self) -> bool {
        self.keeps_null_members().is_some()
    }

    /// Whether members of decoded messages that are null stay; `None` where no
    /// message is decoded.
    pub fn keeps_null_members(&self) -> Option<bool> {
        self.before.iter().find_map(|step| match step.action {
            Action::DecodeMessages { keeps_null } => Some(keeps_null),
            _ => None,
        })
    }
}

enum Step {
    Router(Box<OutboxRouter>),
    Other(Transform),
}

pub(crate) fn read(judge: &mut Judge) -> Option<Transforms> {
    let aliases = aliases(judge, "transforms");
    let tests = predicates(judge);
    let (mut before, mut router, mut after) = (Vec::new(), None, Vec::new());
    let mut is_meant = false;
    for alias in &aliases {
        let class = judge.plain(Origin::Connector).given(&format!("transforms.{alias}.type"));
        match step(judge, alias, &aliases, &tests) {
            Some(Step::Router(found)) if router.is_none() => router = Some(*found),
            Some(Step::Router(_)) => {
                refuse_type(judge, alias, "there is a router before it; remove one");
            }
            Some(Step::Other(step)) if router.is_none() => before.push(step),
            Some(Step::Other(step)) => after.push(step),
            None => is_meant |= class.is_none_or(|class| may_be_the_router(&class)),
        }
    }
    let of_predicates: Vec<String> = tests.into_keys().collect();
    for (prefix, list, aliases) in
        [("transforms.", "transforms", &aliases), ("predicates.", "predicates", &of_predicates)]
    {
        let note = format!("{list} does not name it, and Kafka Connect reads it only then");
        judge.misspelt_aliases(prefix, aliases, &note);
        judge.leave(Origin::Connector, prefix, Verdict::Ignored, &note);
    }
    if router.is_none() && !is_meant {
        judge.plain(Origin::Connector).refuse(
            "transforms",
            "there is no outbox event router among them, and Walpost publishes nothing else; \
             write a transform with the type io.debezium.transforms.outbox.EventRouter",
        );
    }
    let transforms = Transforms { before, router: router?, after };
    check_order(judge, &transforms);
    Some(transforms)
}

/// Whether a transform of this class that could not be read may be the router.
fn may_be_the_router(class: &str) -> bool {
    match table::transform(class) {
        Some(known) => known == TransformClass::Router,
        None => why_refused(class).is_none() || class.ends_with("EventRouter"),
    }
}

/// Of a class that Walpost knows and has not.
fn why_refused(class: &str) -> Option<&'static str> {
    rules::REFUSED.iter().find(|(refused, _)| *refused == class).map(|(_, why)| *why)
}

/// The aliases of a list, each once.
fn aliases(judge: &mut Judge, list: &str) -> Vec<String> {
    let mut scope = judge.plain(Origin::Connector);
    let given = crate::lists::split(&scope.given(list).unwrap_or_default());
    let mut aliases: Vec<String> = Vec::new();
    if given.len() > MAX_ALIASES {
        let note = format!("it has {} names; write at most {MAX_ALIASES}", given.len());
        scope.refuse(list, note);
    }
    for alias in given.into_iter().take(MAX_ALIASES) {
        match aliases.contains(&alias) {
            true => scope.refuse(list, format!("{alias} is there twice; remove one of them")),
            false => aliases.push(alias),
        }
    }
    aliases
}

fn refuse_type(judge: &mut Judge, alias: &str, note: &str) {
    judge.plain(Origin::Connector).refuse(&format!("transforms.{alias}.type"), note);
}

/// The options of an alias under the rules of its class; `None` where the class
/// is refused.
fn of_class<'a, T>(
    judge: &'a mut Judge,
    (of, list, alias): (Of, &str, &str),
    aliases: &[String],
    by_name: fn(&str) -> Option<T>,
) -> Option<(Scope<'a>, T)> {
    let prefix = format!("{list}.{alias}.");
    let mut plain = judge.plain(Origin::Connector);
    let class = plain.require(&format!("{prefix}type"), "the class of it");
    let found = class.as_deref().and_then(by_name);
    let Some((class, found)) = class.clone().zip(found) else {
        if let Some(class) = class {
            let choices = || {
                let names = table::classes(of);
                format!("Walpost has no such class; write one of {}", names.join(", "))
            };
            let note = why_refused(&class).map_or_else(choices, str::to_owned);
            plain.refuse(&format!("{prefix}type"), note);
        }
        judge.leave(
            Origin::Connector,
            &prefix,
            Verdict::Ignored,
            "what it is an option of is refused",
        );
        return None;
    };
    // Options of `a.b` are none of `a`.
    let others = aliases.iter().filter_map(|other| other.strip_prefix(&format!("{alias}.")));
    let others: Vec<String> = others.map(|rest| format!("{rest}.")).collect();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    let rules = table::rules_of(of, &class);
    Some((judge.scope((of, Origin::Connector), prefix, rules, &others), found))
}

fn predicates(judge: &mut Judge) -> BTreeMap<String, Option<Test>> {
    let aliases = aliases(judge, "predicates");
    let mut tests = BTreeMap::new();
    for alias in &aliases {
        let asked = (PREDICATES, "predicates", alias.as_str());
        let found = of_class(judge, asked, &aliases, table::predicate);
        let test = found.and_then(|(mut scope, class)| match class {
            PredicateClass::TopicNameMatches => {
                scope.require("pattern", "a regular expression")?;
                scope.patterns("pattern").pop().map(Test::TopicMatches)
            }
            PredicateClass::HasHeaderKey => {
                scope.require("name", "the name of a header").map(Test::HasHeader)
            }
            PredicateClass::RecordIsTombstone => Some(Test::IsTombstone),
        });
        tests.insert(alias.clone(), test);
    }
    tests
}

fn step(
    judge: &mut Judge,
    alias: &str,
    aliases: &[String],
    tests: &BTreeMap<String, Option<Test>>,
) -> Option<Step> {
    let asked = (TRANSFORMS, "transforms", alias);
    let (mut scope, class) = of_class(judge, asked, aliases, table::transform)?;
    let condition = condition(&mut scope, tests);
    let alias = alias.to_owned();
    let action = match class {
        TransformClass::Router => {
            return router::read(&mut scope, alias, condition).map(Box::new).map(Step::Router);
        }
        TransformClass::DecodeMessages => {
            Action::DecodeMessages { keeps_null: scope.boolean("fields.null.include") }
        }
        TransformClass::RegexRouter => rename(&mut scope)?,
        TransformClass::InsertHeader => insert_header(&mut scope)?,
        TransformClass::DropHeaders => {
            scope.require("headers", "the names of the headers")?;
            Action::DropHeaders(scope.list("headers"))
        }
        TransformClass::HeaderFromValue => header_from(&mut scope)?,
        TransformClass::InsertFieldOfValue => insert_fields(&mut scope)?,
        TransformClass::HeaderFromKey | TransformClass::InsertFieldOfKey => {
            let note = "the key behind the router is one value and has no fields; write \
                        table.fields.additional.placement for a header of a column";
            scope.refuse("type", note);
            return None;
        }
        TransformClass::Filter => {
            if condition.is_none() {
                scope.refuse(
                    "predicate",
                    "it is missing, and every record would be dropped; write one",
                );
            }
            Action::Drop
        }
    };
    Some(Step::Other(Transform { alias, action, condition }))
}

fn insert_header(scope: &mut Scope<'_>) -> Option<Action> {
    let name = scope.require("header", "the name of the header");
    if !scope.has("value.literal") {
        scope.refuse("value.literal", "it is missing; write the value of the header");
    }
    Some(Action::InsertHeader { name: name?, literal: scope.trimmed("value.literal")? })
}

fn condition(scope: &mut Scope<'_>, tests: &BTreeMap<String, Option<Test>>) -> Option<Condition> {
    let Some(alias) = scope.given("predicate") else {
        if scope.has("negate") {
            scope.ignore("negate", "there is no predicate that it could be of");
        }
        return None;
    };
    let Some(test) = tests.get(&alias) else {
        scope.refuse("predicate", "predicates does not name it; add it there, or remove this");
        return None;
    };
    Some(Condition { alias, test: test.clone()?, negate: scope.boolean("negate") })
}

fn rename(scope: &mut Scope<'_>) -> Option<Action> {
    let regex = scope.require("regex", "a regular expression");
    if !scope.has("replacement") {
        scope.refuse("replacement", "it is missing; write the new topic");
    }
    let replacement = scope.trimmed("replacement")?;
    match Rewrite::new(&regex?, &replacement) {
        Ok(rewrite) => Some(Action::RenameTopic(rewrite)),
        Err(error @ RewriteError::Pattern(_)) => {
            scope.refuse_for("regex", &error, "another one");
            None
        }
        Err(error) => {
            scope.refuse_for(
                "replacement",
                &error,
                "groups that the regex has, and \\$ for a dollar sign",
            );
            None
        }
    }
}

fn header_from(scope: &mut Scope<'_>) -> Option<Action> {
    let fields = scope.require("fields", "the fields of the value");
    let headers = scope.require("headers", "the names of the headers");
    scope.require("operation", "copy or move")?;
    (fields.is_some() && headers.is_some()).then_some(())?;
    let (fields, headers) = (scope.list("fields"), scope.list("headers"));
    if fields.len() != headers.len() {
        let note =
            format!("there are {} for {} fields; write as many", headers.len(), fields.len());
        scope.refuse("headers", note);
        return None;
    }
    Some(Action::HeaderFromValue {
        fields: fields.into_iter().zip(headers).collect(),
        operation: scope.given_choice("operation")?,
        replace_null_with_default: scope.boolean("replace.null.with.default"),
    })
}

fn insert_fields(scope: &mut Scope<'_>) -> Option<Action> {
    const FIELD: &str = "static.field";
    const VALUE: &str = "static.value";
    let mut fields = Vec::new();
    for (option, of) in [("topic.field", Inserted::Topic), ("partition.field", Inserted::Partition)]
    {
        fields.extend(scope.given(option).map(|name| inserted(&name, of)));
    }
    match (scope.given(FIELD), scope.trimmed(VALUE)) {
        (Some(name), Some(value)) => {
            fields.push(inserted(&name, Inserted::Constant(value.into())));
        }
        (Some(_), None) => {
            scope.refuse(VALUE, "it is missing; write the value of the field");
            return None;
        }
        (None, Some(_)) => scope.ignore(VALUE, "static.field names no field that it could be of"),
        (None, None) => {}
    }
    if fields.is_empty() {
        scope.refuse(FIELD, "it is missing, and nothing would be added; write the field's name");
        return None;
    }
    let replace_null_with_default = scope.boolean("replace.null.with.default");
    Some(Action::InsertFields { fields, replace_null_with_default })
}

/// The last character of a name may say whether null is a value.
fn inserted(name: &str, of: Inserted) -> InsertedField {
    let required = name.strip_suffix('!');
    let plain = required.or_else(|| name.strip_suffix('?')).unwrap_or(name);
    InsertedField { name: plain.into(), optional: required.is_none(), of }
}

/// What stands on the wrong side of the router.
fn check_order(judge: &mut Judge, transforms: &Transforms) {
    for transform in &transforms.before {
        if matches!(transform.action, Action::HeaderFromValue { .. } | Action::InsertFields { .. })
        {
            let note = "before the router the value is a change event, which Walpost does not \
                        make; write the alias behind the router's in transforms";
            refuse_type(judge, &transform.alias, note);
        }
        // Of two the first one is looked at, by consumers and at a start.
        if matches!(&transform.action, Action::InsertHeader { name, .. } if name == "id") {
            let note = "before the router's own header id, by which every event is known, it would \
                        be that of all events; write the alias behind the router's in transforms, \
                        or another header";
            refuse_type(judge, &transform.alias, note);
        }
    }
    for transform in &transforms.after {
        match &transform.action {
            Action::DropHeaders(names) if names.iter().any(|name| name == "id") => {
                let note = "but by the header id a first start and a recovery know what they have \
                            published: without it an interrupted one publishes that again";
                let name = format!("transforms.{}.headers", transform.alias);
                judge.plain(Origin::Connector).tell(&name, note);
            }
            Action::DecodeMessages { .. } => {
                let note = "behind the router it sees no message; write the alias before the \
                            router's in transforms";
                refuse_type(judge, &transform.alias, note);
            }
            Action::InsertFields { .. } if !transforms.router.makes_structure() => {
                let note = "the value is the bare payload, to which no field can be added; write \
                            table.fields.additional.placement for an envelope, or InsertHeader \
                            for a header";
                refuse_type(judge, &transform.alias, note);
            }
            Action::HeaderFromValue { .. } if !transforms.router.makes_structure() => {
                let note = "the value is the bare payload and has no fields; write \
                            table.fields.additional.placement for a header of a column";
                refuse_type(judge, &transform.alias, note);
            }
            _ => {}
        }
    }
}
