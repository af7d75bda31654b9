use std::{collections::BTreeMap, fmt};

use crate::tidy::{Test, Tests};

use super::table::Row;

/// Whether each test that was run has passed.
pub(super) type Outcomes = BTreeMap<Test, bool>;

/// What became of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All of its tests ran and passed.
    Passed,
    /// Nothing was run, by request; these would be.
    Listed(Vec<Test>),
    /// These did not pass.
    Failed(Vec<Test>),
    /// These were to run and did not.
    RanNone(Vec<Test>),
    /// The row names no test.
    NoTest,
    /// There is no test of this name.
    Unknown(String),
    /// Several tests have this name.
    Ambiguous(String, Vec<Test>),
}

impl Verdict {
    pub(super) fn is_fine(&self) -> bool {
        matches!(self, Self::Passed | Self::Listed(_))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list =
            |tests: &[Test]| tests.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Listed(tests) => f.write_str(&list(tests)),
            Self::Failed(tests) => write!(f, "failed: {}", list(tests)),
            Self::RanNone(tests) => write!(f, "ran none: {}", list(tests)),
            Self::NoTest => f.write_str("names no test"),
            Self::Unknown(name) => write!(f, "{name} is no test"),
            Self::Ambiguous(name, tests) => {
                write!(f, "{name} is several tests, write package::name: {}", list(tests))
            }
        }
    }
}

/// The tests of a row, or why there are none to run.
///
/// # Errors
/// The verdict about a row that names no test, one that is not there, or one of
/// several.
pub(crate) fn find(row: &Row, tests: &Tests) -> Result<Vec<Test>, Verdict> {
    if row.names.is_empty() {
        return Err(Verdict::NoTest);
    }
    let one = |written: &String| {
        let (package, name) = match written.split_once("::") {
            Some((package, name)) => (Some(package), name),
            None => (None, written.as_str()),
        };
        let all = tests.get(name).map_or(&[][..], Vec::as_slice);
        let found = all.iter().filter(|test| package.is_none_or(|name| test.package == name));
        match found.cloned().collect::<Vec<_>>() {
            found if found.is_empty() => Err(Verdict::Unknown(written.clone())),
            mut found if found.len() == 1 => Ok(found.remove(0)),
            found => Err(Verdict::Ambiguous(written.clone(), found)),
        }
    };
    row.names.iter().map(one).collect()
}

/// Whether the tests of a row have shown what it says.
pub(super) fn judge(tests: &[Test], outcomes: &Outcomes) -> Verdict {
    let which = |outcome: Option<bool>| -> Vec<Test> {
        tests.iter().filter(|test| outcomes.get(test).copied() == outcome).cloned().collect()
    };
    let (failed, missing) = (which(Some(false)), which(None));
    if tests.is_empty() {
        Verdict::NoTest
    } else if !failed.is_empty() {
        Verdict::Failed(failed)
    } else if !missing.is_empty() {
        Verdict::RanNone(missing)
    } else {
        Verdict::Passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Target;

    fn test(package: &str, name: &str) -> Test {
        let target = Target::Test("it".to_owned());
        Test { package: package.to_owned(), target, path: format!("m::{name}") }
    }

    fn row(names: &[&str]) -> Row {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        Row { line: 1, what: String::new(), text: String::new(), names }
    }

    fn tests() -> Tests {
        let both = vec![test("p", "b"), test("q", "b")];
        Tests::from([("a".to_owned(), vec![test("p", "a")]), ("b".to_owned(), both)])
    }

    #[test]
    fn the_tests_of_a_row_are_found_by_name() {
        let found = find(&row(&["a", "q::b"]), &tests());
        assert_eq!(found, Ok(vec![test("p", "a"), test("q", "b")]));
    }

    #[test]
    fn a_row_without_tests_or_with_one_that_is_not_there_has_its_verdict() {
        for (names, expected) in [
            (&[][..], "names no test"),
            (&["c"], "c is no test"),
            (&["a", "q::a"], "q::a is no test"),
            (
                &["b"],
                "b is several tests, write package::name: -p p --test it m::b, -p q --test it m::b",
            ),
        ] {
            let verdict = find(&row(names), &tests()).unwrap_err();
            assert_eq!(verdict.to_string(), expected);
            assert!(!verdict.is_fine());
        }
    }

    #[test]
    fn a_row_has_passed_once_all_of_its_tests_ran_and_passed() {
        let both = [test("p", "a"), test("q", "b")];
        for (outcomes, expected, is_fine) in [
            ([Some(true), Some(true)], "passed", true),
            ([Some(true), Some(false)], "failed: -p q --test it m::b", false),
            ([None, Some(true)], "ran none: -p p --test it m::a", false),
            ([None, None], "ran none: -p p --test it m::a, -p q --test it m::b", false),
        ] {
            let ran = both.iter().cloned().zip(outcomes);
            let outcomes = ran.filter_map(|(test, outcome)| Some((test, outcome?))).collect();
            let verdict = judge(&both, &outcomes);
            assert_eq!((verdict.to_string().as_str(), verdict.is_fine()), (expected, is_fine));
        }
        assert_eq!(judge(&[], &Outcomes::new()), Verdict::NoTest);
    }
}
