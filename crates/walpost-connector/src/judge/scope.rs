use walpost_router::Pattern;

use super::{Entry, Judge};
use crate::{
    choices::Choice,
    layer::{Setting, SettingValue},
    table::{Native, Rule, When},
    verdicts::{Origin, Row, Verdict},
};

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

impl<'a> Scope<'a> {
    pub(super) fn new(
        judge: &'a mut Judge,
        origin: Origin,
        prefix: String,
        rules: Vec<&'static Rule>,
    ) -> Self {
        Self { judge, origin, prefix, rules }
    }
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
        // Of a replacement the groups of its regex are told.
        let regex = name.replace("replacement", "regex");
        let hides = self.entry(name).is_none_or(Entry::hides)
            || self.entry(&regex).is_some_and(Entry::hides);
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
