use std::collections::BTreeSet;

/// Fails where a table of tests has not exactly the names of the failpoints that the
/// code has: a point that is new, or gone, fails it until there is a line for it.
///
/// # Panics
///
/// When they differ, with the names that one of them lacks.
#[track_caller]
pub fn covers_points<'a>(
    table: impl IntoIterator<Item = &'a str>,
    code: impl IntoIterator<Item = &'a str>,
) {
    let (table, code): (BTreeSet<&str>, BTreeSet<&str>) =
        (table.into_iter().collect(), code.into_iter().collect());
    assert!(!code.is_empty(), "the code has no failpoints: a feature is missing");
    let (missing, gone) = (&code - &table, &table - &code);
    assert!(
        missing.is_empty() && gone.is_empty(),
        "failpoints without a line in the table: {missing:?}; lines without a failpoint: {gone:?}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_covers_each_point_however_often() {
        covers_points(["after_a", "after_b", "after_a"], ["after_b", "after_a"]);
    }

    #[test]
    #[should_panic(expected = r#"without a line in the table: {"after_b"}"#)]
    fn a_new_point_is_missed() {
        covers_points(["after_a"], ["after_a", "after_b"]);
    }

    #[test]
    #[should_panic(expected = r#"without a failpoint: {"after_b"}"#)]
    fn a_line_of_a_point_that_is_gone_is_found() {
        covers_points(["after_a", "after_b"], ["after_a"]);
    }
}
