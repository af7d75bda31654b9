//! Conditions of rows, as the relay writes them for the server.

use crate::proven::sees;

/// A row of the outbox, as far as conditions ask for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) xid: u32,
    pub(super) aggregate: usize,
    /// It is parked, and nothing else has its contents.
    pub(super) is_alone: bool,
}

/// Whether a row is as the condition says.
///
/// # Panics
/// If the relay says something that was never said before.
pub(super) fn holds(condition: &str, row: Row) -> bool {
    let mut reader = Reader { rest: condition, row };
    let value = reader.any();
    assert!(reader.rest.trim().is_empty(), "{:?} is left of {condition:?}", reader.rest);
    value
}

/// The row filter of those of some aggregates.
pub(super) fn filter(aggregates: &[usize]) -> String {
    let list: Vec<String> = aggregates.iter().map(usize::to_string).collect();
    format!("aggregate = any ('{{{}}}')", list.join(","))
}

/// The aggregates of such a one.
pub(super) fn aggregates(filter: &str) -> Vec<usize> {
    let list = filter.split(['{', '}']).nth(1).unwrap_or_default();
    list.split(',').filter_map(|one| one.parse().ok()).collect()
}

struct Reader<'a> {
    rest: &'a str,
    row: Row,
}

impl<'a> Reader<'a> {
    fn takes(&mut self, word: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(word);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn until(&mut self, end: &str) -> &'a str {
        let (text, rest) = self.rest.split_once(end).unwrap_or_else(|| {
            panic!("{:?} has no {end:?}", self.rest);
        });
        self.rest = rest;
        text
    }

    fn any(&mut self) -> bool {
        let mut value = self.all();
        while self.takes("or ") {
            value |= self.all();
        }
        value
    }

    fn all(&mut self) -> bool {
        let mut value = self.one();
        while self.takes("and ") {
            value &= self.one();
        }
        value
    }

    fn one(&mut self) -> bool {
        if self.takes("not ") {
            return !self.one();
        }
        let value = self.term();
        if self.takes("is not true") { !value } else { value }
    }

    fn term(&mut self) -> bool {
        if self.takes("(") {
            let value = self.any();
            assert!(self.takes(")"), "{:?} has no end", self.rest);
            return value;
        }
        if self.takes("case ") {
            return self.case();
        }
        if self.takes("pg_visible_in_snapshot(") {
            let snapshot = self.until("::pg_snapshot)").split('\'').nth(1).unwrap_or_default();
            return sees(snapshot, self.row.xid);
        }
        if self.takes("aggregate = any ('{") {
            let of = self.row.aggregate.to_string();
            return self.until("}')").split(',').any(|one| one == of);
        }
        if self.takes("o.created_at < ") {
            // All rows are old enough.
            return self.until(" days'").starts_with("clock_timestamp() - interval '");
        }
        if self.takes("exists (select from \"walpost\".parked p where p.event_id = case when o.\"id\" is not null then format('%s', o.\"id\") end") {
            let rest = self.until(") = 0)");
            let known = "and p.state in ('open', 'sending') and num_nonnulls(p.topic, \
                         p.row_columns, p.message_content";
            assert_eq!(rest.trim(), known);
            return self.row.is_alone;
        }
        let is_true = self.takes("true");
        assert!(is_true || self.takes("false"), "{:?} is none of ours", self.rest);
        is_true
    }

    fn case(&mut self) -> bool {
        let mut found = None;
        while self.takes("when ") {
            let applies = self.any();
            assert!(self.takes("then "), "{:?} has no value", self.rest);
            let value = self.any();
            found = found.or(applies.then_some(value));
        }
        assert!(self.takes("else "), "{:?} has no other value", self.rest);
        let other = self.any();
        assert!(self.takes("end"), "{:?} has no end", self.rest);
        found.unwrap_or(other)
    }
}
