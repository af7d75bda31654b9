//! Tables on a terminal.

use std::fmt::Write;

/// Rows of text under a head: the first column to the left, others to the right.
pub(crate) fn aligned(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    let mut line = |cells: &[String]| {
        for (column, cell) in cells.iter().enumerate() {
            let width = widths[column];
            let written = match column {
                0 => write!(text, "{cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
            written.expect("a String takes everything");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    };
    line(&head.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>());
    rows.iter().for_each(|row| line(row));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            [vec!["a".to_owned(), "10.5".to_owned()], vec!["bcd".to_owned(), "2".to_owned()]];
        assert_eq!(aligned(&["of", "s"], &rows), "of      s\na    10.5\nbcd     2\n");
    }
}
