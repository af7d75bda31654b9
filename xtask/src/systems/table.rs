use anyhow::{Result, bail, ensure};

/// The last column of each table.
const TESTS: &str = "tests";

/// What Walpost is held to, with the tests that show it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// In the document, from 1.
    pub(crate) line: usize,
    /// Its first cell.
    pub(crate) what: String,
    /// The whole of it.
    pub(crate) text: String,
    /// Tests, as `name` or `package::name`.
    pub(crate) names: Vec<String>,
}

/// Reads the rows of every table. The last cell of a row has names of tests
/// between backticks, and commas between them.
///
/// # Errors
/// If a table has no column of tests, a row has more or fewer cells than its
/// head, or there is no row at all: none of them is passed over.
pub(crate) fn rows(text: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut columns = None;
    for (index, line) in text.lines().enumerate() {
        let Some(cells) = cells(line) else {
            ensure!(!line.trim_start().starts_with('|'), "line {}: no end of row", index + 1);
            columns = None;
            continue;
        };
        match columns {
            None => {
                ensure!(
                    cells.last() == Some(&TESTS),
                    "line {}: a table whose last column is not {TESTS:?}",
                    index + 1
                );
                columns = Some(cells.len());
            }
            Some(count) if count != cells.len() => {
                bail!("line {}: {} cells, and its head has {count}", index + 1, cells.len());
            }
            Some(_) if cells.iter().all(|cell| cell.trim_matches(['-', ':']).is_empty()) => {}
            Some(_) => rows.push(Row {
                line: index + 1,
                what: cells.first().copied().unwrap_or_default().to_owned(),
                text: line.to_owned(),
                names: names(cells.last().copied().unwrap_or_default()),
            }),
        }
    }
    ensure!(!rows.is_empty(), "has no row");
    Ok(rows)
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let inside = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inside.split('|').map(str::trim).collect())
}

/// Text that is not between backticks counts as a name, so that a test whose
/// backticks are missing is not passed over.
fn names(cell: &str) -> Vec<String> {
    let names = cell.split(',').map(|name| name.trim().trim_matches('`').to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        rows(text).unwrap_err().to_string()
    }

    #[test]
    fn rows_are_read_with_their_tests() {
        let text = "# A\n\n| what | tests |\n|---|---|\n| b | `c`, `d::e` |\n\n\
                    | what | how | tests |\n|---|---|:-:|\n| f | g | |\n| h | `i` | j |\n";
        let read: Vec<_> =
            rows(text).unwrap().into_iter().map(|row| (row.line, row.what, row.names)).collect();
        let strings = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let expected: [(usize, String, Vec<String>); 3] = [
            (5, "b".to_owned(), strings(&["c", "d::e"])),
            (9, "f".to_owned(), strings(&[])),
            (10, "h".to_owned(), strings(&["j"])),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn no_row_is_passed_over() {
        assert_eq!(error("text"), "has no row");
        assert_eq!(error("| a | tests |\n|---|---|"), "has no row");
        assert_eq!(error("\n| a | b |"), "line 2: a table whose last column is not \"tests\"");
        assert_eq!(error("| a | tests |\n|--|--|\n| b |"), "line 3: 1 cells, and its head has 2");
        assert_eq!(error("| a | tests |\n|--|--|\n| b | c"), "line 3: no end of row");
    }
}
