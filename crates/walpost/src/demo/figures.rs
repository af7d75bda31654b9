use serde::Serialize;

use super::oracle::Verdict;
use crate::table::{Table, thousands};

/// What the demo counted.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Figures {
    committed: u64,
    published: u64,
    applied: u64,
    lost: u64,
    published_twice: u64,
    applied_twice: u64,
    reordered: u64,
    replayed: u64,
    seconds: f64,
    #[serde(skip)]
    unknown: u64,
    #[serde(skip)]
    replayed_wrongly: u64,
}

impl Figures {
    pub(super) fn new(verdict: Verdict, replayed: (u64, u64), seconds: f64) -> Self {
        Self {
            committed: verdict.committed,
            published: verdict.published,
            applied: verdict.applied,
            lost: verdict.lost,
            published_twice: verdict.published_twice,
            applied_twice: verdict.applied_twice,
            reordered: verdict.reordered,
            replayed: replayed.0,
            seconds: (seconds * 10.0).round() / 10.0,
            unknown: verdict.unknown,
            replayed_wrongly: replayed.1,
        }
    }

    /// One line.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).expect("a struct of numbers")
    }

    /// For people.
    pub(crate) fn table(&self) -> Table {
        let mut table = Table::titled(["", "events", ""]).right([1]);
        let rows = [
            ("committed", self.committed, "in the outbox, with the order they changed"),
            ("published", self.published, "distinct events in the topic"),
            ("published twice", self.published_twice, copies(self.published_twice)),
            ("applied", self.applied, "distinct events with their effect"),
            ("applied twice", self.applied_twice, must_be_zero(self.applied_twice)),
            ("lost", self.lost, must_be_zero(self.lost)),
            ("reordered", self.reordered, must_be_zero(self.reordered)),
            ("rolled back, yet seen", self.unknown, must_be_zero(self.unknown)),
            ("replayed", self.replayed, "effects made once more after the offset reset"),
        ];
        for (name, number, meaning) in rows {
            table.row([name.to_owned(), thousands(number), meaning.to_owned()]);
        }
        table.row(["seconds".to_owned(), format!("{:.1}", self.seconds), String::new()]);
        table
    }

    /// What should not be, in one line.
    pub(crate) fn problem(&self) -> Option<String> {
        let missing = self.committed - self.replayed.min(self.committed);
        let wrong = [
            ("lost", self.lost),
            ("applied twice", self.applied_twice),
            ("reordered", self.reordered),
            ("rolled back, yet seen", self.unknown),
            ("not replayed exactly once", self.replayed_wrongly.max(missing)),
        ];
        let wrong: Vec<String> = wrong
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{} {name}", thousands(*count)))
            .collect();
        (!wrong.is_empty()).then(|| format!("the promise was broken: {}", wrong.join(", ")))
    }
}

/// No fault: what a killed relay has sent may come after its successor has
/// looked.
fn copies(count: u64) -> &'static str {
    match count {
        0 => "as promised",
        _ => "a killed relay's last request came late; dropped",
    }
}

fn must_be_zero(count: u64) -> &'static str {
    if count == 0 { "as promised" } else { "BROKEN, must be 0" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean() -> Figures {
        let verdict = Verdict { committed: 5, published: 5, applied: 5, ..Verdict::default() };
        Figures::new(verdict, (5, 0), 1.26)
    }

    #[test]
    fn the_json_line_has_exactly_these_members_in_this_order() {
        assert_eq!(
            clean().json(),
            r#"{"committed":5,"published":5,"applied":5,"lost":0,"published_twice":0,"applied_twice":0,"reordered":0,"replayed":5,"seconds":1.3}"#
        );
    }

    #[test]
    fn the_table_fits_80_columns_and_explains_copies() {
        let figures = Figures { committed: 50_000, published_twice: 312, ..clean() };
        let text = figures.table().to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("312  a killed relay's last request came late"), "{text}");
    }

    #[test]
    fn copies_in_the_topic_are_no_problem_and_all_else_is() {
        assert_eq!(Figures { published_twice: 9, ..clean() }.problem(), None);
        for broken in [
            Figures { lost: 1, ..clean() },
            Figures { applied_twice: 1, ..clean() },
            Figures { reordered: 1, ..clean() },
            Figures { unknown: 1, ..clean() },
            Figures { replayed: 4, ..clean() },
            Figures { replayed_wrongly: 1, ..clean() },
        ] {
            assert!(broken.problem().is_some_and(|problem| problem.contains(": 1 ")), "{broken:?}");
        }
    }
}
