mod aliases;
mod scope;

use std::collections::HashMap;

use walpost_router::Pattern;

pub(crate) use self::scope::Scope;
use crate::{
    layer::Setting,
    nearest::nearest,
    properties::{Properties, Property},
    secret::HIDDEN,
    table::{self, Kind, Of, Rule, Standing},
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
            let shown = property.shown();
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
                let near = nearest_rule(name, &rules);
                // Misspelt, a secret is one all the same.
                if near.is_some_and(Rule::is_secret) {
                    entry.hide();
                }
                entry.verdict = Some(no_rule(near.map(|near| near.name), &prefix, unknown));
                continue;
            };
            // Debezium knows the old name no more, and reads the new one.
            if let Standing::Removed(now) = rule.standing
                && self.index.contains_key(&(origin, format!("{prefix}{now}")))
            {
                let note = format!("Debezium removed it, and {now} is set; remove it");
                entry.verdict = Some((Verdict::Ignored, note));
                continue;
            }
            entry.verdict = Some(entry.by(rule));
            if !matches!(entry.verdict, Some((Verdict::Refused, _))) {
                entry.compile(rule.kind);
            }
        }
        Scope::new(self, origin, prefix, rules)
    }

    /// All properties of a file by their whole names, none of them judged by it.
    pub(crate) fn plain(&mut self, origin: Origin) -> Scope<'_> {
        Scope::new(self, origin, String::new(), Vec::new())
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

    /// Has the key of a property say `other` where it says `text`; whether it did.
    pub(crate) fn replace(&mut self, property: &str, text: &str, other: &str) -> bool {
        let mut laid = self.settings.iter_mut().filter(|setting| setting.property == property);
        match laid.find(|setting| setting.value.as_text() == Some(text)) {
            Some(setting) => {
                setting.value = other.into();
                true
            }
            None => false,
        }
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
    fn hide(&mut self) {
        if !self.property.is_placeholder() {
            self.shown = HIDDEN.to_owned();
        }
    }

    fn by(&mut self, rule: &'static Rule) -> (Verdict, String) {
        if rule.is_secret() {
            self.hide();
        }
        let value = &self.property.value;
        let is_one_of =
            |values: &[&str]| values.iter().any(|known| known.eq_ignore_ascii_case(value.trim()));
        match rule.standing {
            // Of a file none is read; what a placeholder stands for may have one.
            _ if value.contains('\0') => {
                let note = "it has the character with the number 0; remove it";
                (Verdict::Refused, note.to_owned())
            }
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

/// The rule that a name without one may have been meant for.
fn nearest_rule(name: &str, rules: &[&'static Rule]) -> Option<&'static Rule> {
    let is_meant = |rule: &&&'static Rule| {
        !rule.name.ends_with('*') && !matches!(rule.standing, Standing::Removed(_))
    };
    let near = nearest(name, rules.iter().filter(is_meant).map(|rule| rule.name))?;
    rules.iter().copied().find(|rule| rule.name == near)
}

fn no_rule(near: Option<&str>, prefix: &str, unknown: Unknown) -> (Verdict, String) {
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
