use super::{Judge, Unknown};
use crate::{
    nearest::nearest,
    verdicts::{Origin, Verdict},
};

impl Judge {
    /// Options that have no verdict yet, of an alias that is near to one of
    /// `aliases`: they were meant for it. One with a type of its own, beside one
    /// that has its own as well, is whole and only not in use.
    pub(crate) fn misspelt_aliases(&mut self, prefix: &str, aliases: &[String], note: &str) {
        let verdict = match self.unknown {
            Unknown::Refuse => Verdict::Refused,
            Unknown::Warn => Verdict::Ignored,
        };
        for index in 0..self.entries.len() {
            let entry = &self.entries[index];
            if entry.origin != Origin::Connector || entry.verdict.is_some() {
                continue;
            }
            let Some(name) = entry.property.name.strip_prefix(prefix) else { continue };
            let Some((alias, meant)) = meant(name, aliases) else { continue };
            let has_type =
                |alias: &str| self.has(Origin::Connector, &format!("{prefix}{alias}.type"));
            if has_type(alias) && has_type(meant) {
                continue;
            }
            let option = &name[alias.len()..];
            let note = format!("{note}; did you mean {prefix}{meant}{option}?");
            self.entries[index].verdict = Some((verdict, note));
        }
    }
}

/// Characters of an alias that is compared with others, so that a file of many
/// long ones takes no time.
const MAX_CHARS: usize = 40;

/// The alias that an option is of, and that which was meant: the nearest one, of
/// as many parts. Of a single letter none is near.
fn meant<'a>(name: &'a str, aliases: &'a [String]) -> Option<(&'a str, &'a str)> {
    let ends = name.match_indices('.').enumerate();
    let mut given = ends.map(|(dots, (end, _))| (dots, &name[..end]));
    given.find_map(|(dots, alias)| {
        if !(2..=MAX_CHARS).contains(&alias.chars().count()) {
            return None;
        }
        let alike = aliases.iter().filter(|known| known.matches('.').count() == dots);
        Some((alias, nearest(alias, alike.map(String::as_str))?))
    })
}
