use std::collections::HashMap;

use walpost_router::Pattern;

use crate::{
    choices::Choice,
    layer::{Setting, SettingValue},
    nearest::nearest,
    properties::{Properties, Property},
    secret::{HIDDEN, is_secret_name, without_user},
    table::{self, Kind, Native, Of, Rule, Standing, When},
    verdicts::{Origin, Row, Verdict, Verdicts},
};

/// What becomes of a property that nobody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unknown {
    /// The connector is refused, and the nearest name told.
    #[default]
    Refuse,
    /// It is passed over, as Debezium does, and told.
    Warn,
}

/// Characters of a value that a note shows.
const SHOWN_CHARS: usize = 60;

/// The properties of both files, and what is known of each.
pub(crate) struct Judge {
    entries: Vec<Entry>,
    index: HashMap<(Origin, String), usize>,
    absent: Vec<Row>,
    settings: Vec<Setting>,
    unknown: Unknown,
}

struct Entry {
    property: Property,
    origin: Origin,
    shown: String,
    /// Compiled when the rule was found.
    patterns: Vec<Pattern>,
    /// `None` until a rule has been found, or that there is none.
    verdict: Option<(Verdict, String)>,
}

impl Judge {
    pub(crate) fn new(
        connector: &Properties,
        worker: Option<&Properties>,
        unknown: Unknown,
    ) -> Self {
        let mut judge = Self {
            entries: Vec::new(),
            index: HashMap::new(),
            absent: Vec::new(),
            settings: Vec::new(),
            unknown,
        };
        let of = |properties: &Properties, origin| {
            properties.iter().map(move |property| (property.clone(), origin)).collect::<Vec<_>>()
        };
        let worker = worker.map(|worker| of(worker, Origin::Worker)).unwrap_or_default();
        for (property, origin) in of(connector, Origin::Connector).into_iter().chain(worker) {
            judge.index.insert((origin, property.name.clone()), judge.entries.len());
            let shown = shown(&property);
            let patterns = Vec::new();
            judge.entries.push(Entry { property, origin, shown, patterns, verdict: None });
        }
        judge
    }

    /// The properties that begin with `prefix` under these rules. Those that
    /// begin with one of `elsewhere` behind it are left for other scopes, unless
    /// a rule is of their very name.
    pub(crate) fn scope(
        &mut self,
        (of, origin): (Of, Origin),
        prefix: impl Into<String>,
        rules: impl IntoIterator<Item = &'static Rule>,
        elsewhere: &[&str],
    ) -> Scope<'_> {
        let (prefix, rules) = (prefix.into(), rules.into_iter().collect::<Vec<_>>());
        let unknown = match of {
            // Its file is for connectors and plug-ins of every kind.
            Of::Worker => Unknown::Warn,
            // They know names that the table may lack, and do something by them.
            Of::Converter(_) | Of::Producer | Of::Predicate(_) => Unknown::Refuse,
            Of::Connector | Of::Transform(_) | Of::TopicGroup => self.unknown,
        };
        for entry in self.entries.iter_mut().filter(|entry| entry.origin == origin) {
            let Some(name) = entry.property.name.strip_prefix(&prefix) else { continue };
            let is_ours = rules.iter().any(|rule| rule.name == name) && !elsewhere.contains(&name);
            let is_elsewhere = elsewhere.iter().any(|begin| name.starts_with(begin));
            if entry.verdict.is_some() || (is_elsewhere && !is_ours) {
                continue;
            }
            let Some(rule) = table::find(rules.iter().copied(), name) else {
                entry.verdict = Some(no_rule(name, &prefix, &rules, unknown));
                continue;
            };
            entry.verdict = Some(entry.by(rule));
            if !matches!(entry.verdict, Some((Verdict::Refused, _))) {
                entry.compile(rule.kind);
            }
        }
        Scope { judge: self, origin, prefix, rules }
    }

    /// All properties of a file by their whole names, none of them judged by it.
    pub(crate) fn plain(&mut self, origin: Origin) -> Scope<'_> {
        Scope { judge: self, origin, prefix: String::new(), rules: Vec::new() }
    }

    /// What begins with `prefix`, and which others have a rule for but these do
    /// not, is ignored.
    pub(crate) fn pass_over(
        &mut self,
        origin: Origin,
        prefix: &str,
        rules: &[&'static Rule],
        others: &[&'static Rule],
        note: &str,
    ) {
        for entry in self.entries.iter_mut().filter(|entry| entry.origin == origin) {
            let Some(name) = entry.property.name.strip_prefix(prefix) else { continue };
            let is_ours = table::find(rules.iter().copied(), name).is_some();
            let is_theirs = others.iter().any(|rule| rule.name == name);
            if entry.verdict.is_none() && is_theirs && !is_ours {
                entry.verdict = Some((Verdict::Ignored, note.to_owned()));
            }
        }
    }

    /// Whatever begins like this and has no verdict gets this one.
    pub(crate) fn leave(&mut self, origin: Origin, prefix: &str, verdict: Verdict, note: &str) {
        for entry in self.entries.iter_mut().filter(|entry| entry.origin == origin) {
            if entry.verdict.is_none() && entry.property.name.starts_with(prefix) {
                entry.verdict = Some((verdict, note.to_owned()));
            }
        }
    }

    fn entry(&self, origin: Origin, name: &str) -> Option<&Entry> {
        self.index.get(&(origin, name.to_owned())).map(|index| &self.entries[*index])
    }

    /// A property, whatever its verdict.
    pub(crate) fn property(&self, origin: Origin, name: &str) -> Option<&Property> {
        self.entry(origin, name).map(|entry| &entry.property)
    }

    /// Whether a property is given, whatever its verdict.
    pub(crate) fn has(&self, origin: Origin, name: &str) -> bool {
        self.entry(origin, name).is_some()
    }

    /// Whether nothing is refused so far.
    pub(crate) fn is_usable(&self) -> bool {
        let refused = |verdict: Verdict| verdict == Verdict::Refused;
        !self.absent.iter().any(|row| refused(row.verdict))
            && !self
                .entries
                .iter()
                .any(|entry| entry.verdict.as_ref().is_some_and(|(verdict, _)| refused(*verdict)))
    }

    /// Sets a key of Walpost's own.
    pub(crate) fn lay(&mut self, setting: Setting) {
        self.settings.push(setting);
    }

    /// What was laid.
    pub(crate) fn take_settings(&mut self) -> Vec<Setting> {
        std::mem::take(&mut self.settings)
    }

    /// Every property, whether a scope was about it or not.
    pub(crate) fn verdicts(self) -> Verdicts {
        let row = |entry: Entry| {
            let missed = || (Verdict::Refused, "there is no such property".to_owned());
            let (verdict, note) = entry.verdict.unwrap_or_else(missed);
            Row {
                property: entry.property.name,
                value: Some(entry.shown),
                origin: entry.origin,
                at: entry.property.at,
                verdict,
                note,
            }
        };
        Verdicts { rows: self.entries.into_iter().map(row).chain(self.absent).collect() }
    }
}

impl Entry {
    fn by(&mut self, rule: &'static Rule) -> (Verdict, String) {
        let hides = matches!(rule.kind, Kind::Password | Kind::Sql);
        if hides && !self.property.is_placeholder() {
            self.shown = HIDDEN.to_owned();
        }
        let value = &self.property.value;
        let is_one_of =
            |values: &[&str]| values.iter().any(|known| known.eq_ignore_ascii_case(value.trim()));
        match rule.standing {
            Standing::Refused(why) => (Verdict::Refused, why.to_owned()),
            Standing::Removed(now) => {
                (Verdict::Refused, format!("Debezium removed it; write {now}"))
            }
            Standing::Only(values, _) if is_one_of(values) => (Verdict::Honoured, String::new()),
            Standing::Only(_, why) => (Verdict::Refused, why.to_owned()),
            _ if rule.kind.problem(value).is_some() => (Verdict::Refused, self.problem(rule.kind)),
            Standing::Honoured(_) => (Verdict::Honoured, String::new()),
            Standing::Mapped(to) => (Verdict::Mapped, to.to_owned()),
            Standing::Ignored(why) => (Verdict::Ignored, why.to_owned()),
            Standing::Alias(of) => (Verdict::Mapped, of.to_owned()),
        }
    }

    /// Compiles what is a regular expression.
    fn compile(&mut self, kind: Kind) {
        match kind.patterns(&self.property.value) {
            Ok(patterns) => self.patterns = patterns,
            Err(expected) => {
                let expected = if self.hides() { kind.expected() } else { expected };
                let note = format!("it is {}; write {expected}", self.short());
                self.verdict = Some((Verdict::Refused, note));
            }
        }
    }

    /// Why the value is none of its kind. A value that comes from elsewhere does
    /// not show, nor does what a parser says of it.
    fn problem(&self, kind: Kind) -> String {
        let said = kind.problem(&self.property.value).filter(|_| !self.hides());
        let expected = said.unwrap_or_else(|| kind.expected());
        format!("it is {}; write {expected}", self.short())
    }

    fn hides(&self) -> bool {
        self.property.is_resolved() || self.shown != self.property.value
    }

    fn short(&self) -> String {
        match self.shown.char_indices().nth(SHOWN_CHARS) {
            Some((end, _)) => format!("{:?}…", &self.shown[..end]),
            None => format!("{:?}", self.shown),
        }
    }
}

fn no_rule(
    name: &str,
    prefix: &str,
    rules: &[&'static Rule],
    unknown: Unknown,
) -> (Verdict, String) {
    let names = rules
        .iter()
        .filter(|rule| !rule.name.ends_with('*') && !matches!(rule.standing, Standing::Removed(_)));
    let near = nearest(name, names.map(|rule| rule.name));
    match (unknown, near) {
        (Unknown::Warn, Some(near)) => {
            (Verdict::Ignored, format!("there is no such property; did you mean {prefix}{near}?"))
        }
        (Unknown::Warn, None) => (Verdict::Ignored, "there is no such property".to_owned()),
        (Unknown::Refuse, Some(near)) => {
            (Verdict::Refused, format!("there is no such property; did you mean {prefix}{near}?"))
        }
        (Unknown::Refuse, None) => (
            Verdict::Refused,
            "there is no such property; correct its name or remove it".to_owned(),
        ),
    }
}

/// What a person may see of a value.
fn shown(property: &Property) -> String {
    if property.is_placeholder() {
        return property.written.clone();
    }
    match is_secret_name(&property.name) {
        true => HIDDEN.to_owned(),
        false if property.written.contains("://") && property.written.contains('@') => {
            without_user(&property.written)
        }
        false => property.written.clone(),
    }
}

/// Properties that begin alike, with values of their kinds.
///
/// A value that is refused counts as not given, so that one mistake is told
/// once.
pub(crate) struct Scope<'a> {
    judge: &'a mut Judge,
    origin: Origin,
    prefix: String,
    rules: Vec<&'static Rule>,
}

impl Scope<'_> {
    fn entry(&self, name: &str) -> Option<&Entry> {
        self.judge.entry(self.origin, &format!("{}{name}", self.prefix))
    }

    fn rule(&self, name: &str) -> &'static Rule {
        let rule = self.rules.iter().find(|rule| rule.name == name);
        rule.unwrap_or_else(|| unreachable!("{name} is in the table: a test reads every setting"))
    }

    /// Whether the file has it, whatever its verdict.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }

    fn usable(&self, name: &str) -> Option<&Entry> {
        let usable = |entry: &&Entry| !matches!(entry.verdict, Some((Verdict::Refused, _)));
        self.entry(name).filter(usable)
    }

    /// The value as it is, if it is not refused: Debezium takes no blanks away
    /// of what it hands to the driver. Kafka Connect does of whatever else.
    pub(crate) fn raw(&self, name: &str) -> Option<&str> {
        self.usable(name).map(|entry| entry.property.value.as_str())
    }

    /// The value without blanks around it, also if nothing is left.
    pub(crate) fn trimmed(&self, name: &str) -> Option<String> {
        self.raw(name).map(|text| text.trim().to_owned())
    }

    /// The value's regular expressions.
    pub(crate) fn patterns(&self, name: &str) -> Vec<Pattern> {
        self.usable(name).map(|entry| entry.patterns.clone()).unwrap_or_default()
    }

    /// The value without blanks around it, if it is not blank.
    pub(crate) fn given(&self, name: &str) -> Option<String> {
        let trimmed = self.raw(name)?.trim();
        (!trimmed.is_empty()).then(|| trimmed.to_owned())
    }

    /// The same, or the default.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.given(name).or_else(|| self.rule(name).default.map(str::to_owned))
    }

    /// The same of a rule that has a default.
    pub(crate) fn text_or_default(&self, name: &str) -> String {
        self.text(name).unwrap_or_default()
    }

    pub(crate) fn boolean(&self, name: &str) -> bool {
        self.text(name).is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    pub(crate) fn given_number(&self, name: &str) -> Option<i64> {
        self.given(name)?.parse().ok()
    }

    /// The number or the default; 0 without one.
    pub(crate) fn number(&self, name: &str) -> i64 {
        self.text(name).and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// The same of what has no negative values.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.number(name).try_into().unwrap_or_default()
    }

    pub(crate) fn given_choice<T: Choice>(&self, name: &str) -> Option<T> {
        self.given(name).as_deref().and_then(T::parse)
    }

    /// The value or the default, which is one of the enum's.
    pub(crate) fn choice<T: Choice>(&self, name: &str) -> T {
        let default = || self.rule(name).default.and_then(T::parse);
        let found = self.given_choice(name).or_else(default);
        found.unwrap_or_else(|| unreachable!("{name} has a default that is one of its values"))
    }

    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        crate::lists::split(&self.text_or_default(name))
    }

    /// The rests of names that begin like this, with their values.
    pub(crate) fn beginning(&self, beginning: &str) -> Vec<(String, String)> {
        let begin = format!("{}{beginning}", self.prefix);
        let of = |entry: &Entry| {
            let rest = entry.property.name.strip_prefix(&begin)?;
            (entry.origin == self.origin).then(|| (rest.to_owned(), entry.property.value.clone()))
        };
        self.judge.entries.iter().filter_map(of).collect()
    }

    /// Sets the keys of all properties that set theirs by themselves.
    pub(crate) fn lay_plain(&mut self) {
        let laid: Vec<(&'static Rule, SettingValue)> =
            self.rules.iter().filter_map(|rule| Some((*rule, self.plain_value(rule)?))).collect();
        for (rule, value) in laid {
            self.lay(rule.name, value);
        }
    }

    fn plain_value(&self, rule: &Rule) -> Option<SettingValue> {
        let text = match rule.native?.when {
            When::Given => self.given(rule.name)?,
            When::Always => self.text(rule.name).unwrap_or_default(),
            When::Judged => return None,
        };
        Some(rule.kind.value(text))
    }

    /// Sets the key of a property to what is made of it.
    pub(crate) fn lay(&mut self, name: &str, value: impl Into<SettingValue>) {
        let native = self.rule(name).native;
        let Native { section, key, .. } =
            native.unwrap_or_else(|| unreachable!("{name} has a key in the table"));
        self.lay_at(name, (section, key), value);
    }

    /// Sets a key that no property of its own has, for what this one says.
    pub(crate) fn lay_at(
        &mut self,
        name: &str,
        (section, key): (&'static str, &'static str),
        value: impl Into<SettingValue>,
    ) {
        let entry = self.usable(name);
        let setting = Setting {
            section,
            key,
            value: value.into(),
            property: format!("{}{name}", self.prefix),
            origin: self.origin,
            at: entry.and_then(|entry| entry.property.at),
            is_default: entry.is_none(),
            is_secret: entry.is_some_and(Entry::hides),
        };
        self.judge.lay(setting);
    }

    /// Sets the key of a property to a text that must not show.
    pub(crate) fn lay_hidden(&mut self, name: &str, value: String) {
        self.lay(name, value);
        if let Some(setting) = self.judge.settings.last_mut() {
            setting.is_secret = true;
        }
    }

    /// The value, which has to be there.
    pub(crate) fn require(&mut self, name: &str, write: &str) -> Option<String> {
        if let Some(value) = self.given(name) {
            return Some(value);
        }
        let is_blank = self.raw(name).is_some();
        if is_blank || !self.has(name) {
            let state = if is_blank { "empty" } else { "missing" };
            self.refuse(name, format!("it is {state}; write {write}"));
        }
        None
    }

    /// Refuses a property; one that is not given is told as missing.
    pub(crate) fn refuse(&mut self, name: &str, note: impl Into<String>) {
        self.set(name, Verdict::Refused, note.into());
    }

    /// Refuses a value for what a parser says of it, unless that may be a secret.
    pub(crate) fn refuse_for(&mut self, name: &str, why: &dyn std::error::Error, write: &str) {
        let hides = self.entry(name).is_none_or(Entry::hides);
        let said = walpost_event::error_chain(why).replace('\n', " ");
        let note = if hides { "it cannot be used".to_owned() } else { said };
        self.refuse(name, format!("{note}; write {write}"));
    }

    pub(crate) fn map(&mut self, name: &str, note: impl Into<String>) {
        self.set(name, Verdict::Mapped, note.into());
    }

    pub(crate) fn ignore(&mut self, name: &str, note: impl Into<String>) {
        self.set(name, Verdict::Ignored, note.into());
    }

    /// Tells something of a property that is honoured, or is not given.
    pub(crate) fn tell(&mut self, name: &str, note: impl Into<String>) {
        self.set(name, Verdict::Honoured, note.into());
    }

    fn set(&mut self, name: &str, verdict: Verdict, note: String) {
        let property = format!("{}{name}", self.prefix);
        let index = self.judge.index.get(&(self.origin, property.clone()));
        match index.map(|index| &mut self.judge.entries[*index]) {
            // What is refused stays so, for its first reason.
            Some(Entry { verdict: Some((Verdict::Refused, _)), .. }) => {}
            Some(entry) => entry.verdict = Some((verdict, note)),
            None => {
                let origin = self.origin;
                let row = Row { property, value: None, origin, at: None, verdict, note };
                self.judge.absent.push(row);
            }
        }
    }
}
