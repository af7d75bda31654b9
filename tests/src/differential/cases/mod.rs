//! The cases, a file for each group or two.

mod avro;
mod columns;
mod converters;
mod examples;
mod expansion;
mod framework;
mod handling;
mod messages;
mod nulls;
mod operations;
mod placements;
mod routes;
mod snapshots;
mod tables;
mod transforms;
mod types;

use super::case::{Case, Group};
pub(super) use types::{TYPES, Type};

/// All of them.
#[must_use]
pub fn cases() -> Vec<Case> {
    [
        routes::all(),
        placements::all(),
        columns::all(),
        nulls::all(),
        expansion::all(),
        converters::all(),
        avro::all(),
        types::all(),
        handling::all(),
        operations::all(),
        messages::all(),
        tables::all(),
        snapshots::all(),
        transforms::all(),
        framework::all(),
        examples::all(),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_case_has_a_name_of_its_own_and_a_group() {
        let all = cases();
        let names: BTreeSet<&str> = all.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.len() >= 120, "{}", all.len());
        let groups: BTreeSet<Group> = all.iter().map(|case| case.group).collect();
        assert_eq!(groups.len(), 16);
    }
}
