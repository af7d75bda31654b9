use super::*;
use crate::tables::Column;

fn table(columns: &[(&str, bool, bool)]) -> Table {
    let column = |(name, in_key, left_out): &(&str, bool, bool)| Column {
        name: (*name).to_owned(),
        in_key: *in_key,
        left_out: *left_out,
    };
    Table::named("t", columns.iter().map(column).collect())
}

fn state(rows: &[&[&str]]) -> Snapshot {
    let value = |value: &&str| (*value != "null").then(|| (*value).to_owned());
    let rows = rows.iter().map(|row| row.iter().map(value).collect()).collect();
    Snapshot { tables: [("t".to_owned(), rows)].into() }
}

fn texts(table: Table, before: &Snapshot, after: &Snapshot, how: Comparing) -> Vec<String> {
    let changes = compare(&[table], before, after, how);
    changes.iter().flat_map(|change| &change.rows).map(ToString::to_string).collect()
}

const RUNS: Comparing = Comparing { whole: false, contents: false };

#[test]
fn rows_are_told_by_their_keys() {
    let of = || table(&[("id", true, false), ("a", false, false), ("b", false, false)]);
    let before = state(&[&["1", "x", "y"], &["2", "x", "y"], &["3", "x", "null"]]);
    let after = state(&[&["4", "x", "y"], &["3", "z", "w"], &["1", "x", "y"]]);
    let expected = ["deleted id = 2", "updated id = 3: a, b", "inserted id = 4"];
    assert_eq!(texts(of(), &before, &after, RUNS), expected);
    let contents = Comparing { contents: true, ..RUNS };
    let shown = texts(of(), &before, &after, contents);
    assert_eq!(shown[1], "updated id = 3: a from x to z b from null to w");
    assert_eq!(texts(of(), &before, &before, RUNS), [""; 0]);
}

#[test]
fn a_key_that_is_left_out_tells_no_rows_apart() {
    let of = || table(&[("id", true, true), ("a", false, false)]);
    let before = state(&[&["1", "x"], &["2", "x"], &["3", "y"]]);
    // Other ids, the same rows.
    assert_eq!(
        texts(of(), &before, &state(&[&["7", "y"], &["8", "x"], &["9", "x"]]), RUNS),
        [""; 0]
    );
    // How often counts too.
    let once = state(&[&["1", "x"], &["3", "y"], &["4", "y"]]);
    assert_eq!(texts(of(), &before, &once, RUNS), ["deleted ", "inserted "]);
    let whole = Comparing { whole: true, ..RUNS };
    let expected = ["deleted id = 2", "inserted id = 4"];
    assert_eq!(texts(of(), &before, &once, whole), expected);
}

#[test]
fn a_column_that_is_left_out_is_not_compared() {
    let of = |left_out| table(&[("id", true, false), ("at", false, left_out)]);
    let (before, after) = (state(&[&["1", "now"]]), state(&[&["1", "then"]]));
    assert_eq!(texts(of(true), &before, &after, RUNS), [""; 0]);
    assert_eq!(texts(of(false), &before, &after, RUNS), ["updated id = 1: at"]);
}

#[test]
fn what_differs_between_undisturbed_runs_is_left_out() {
    let mut tables = [table(&[("id", true, false), ("at", false, false)])];
    let one = state(&[&["1", "a"], &["2", "b"]]);
    let other = state(&[&["2", "c"], &["1", "a"]]);
    assert_eq!(leave_out_unsteady(&mut tables, &one, &other), Ok(()));
    let left_out: Vec<bool> = tables[0].columns.iter().map(|column| column.left_out).collect();
    assert_eq!(left_out, [false, true]);
    let more = state(&[&["1", "a"]]);
    assert_eq!(leave_out_unsteady(&mut tables, &one, &more), Err("t".to_owned()));
}

#[test]
fn a_text_names_the_first_rows_and_counts_the_others() {
    let of = table(&[("id", true, false)]);
    let ids: Vec<String> = (0..25).map(|id| format!("{id:02}")).collect();
    let rows: Vec<[&str; 1]> = ids.iter().map(|id| [id.as_str()]).collect();
    let rows: Vec<&[&str]> = rows.iter().map(<[&str; 1]>::as_slice).collect();
    let changes = compare(&[of], &state(&[]), &state(&rows), RUNS);
    let text = changes[0].to_string();
    assert_eq!(changes[0].counts(), (25, 0, 0));
    assert!(text.starts_with("t ") && text.contains("inserted id = 09"), "{text}");
    assert!(text.ends_with("and 15 more") && !text.contains("id = 10"), "{text}");
}
