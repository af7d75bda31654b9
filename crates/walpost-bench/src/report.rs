//! Figures as tables and as lines of JSON.

pub(crate) mod consumer;
pub(crate) mod relay;
pub(crate) mod transaction;

use anyhow::Result;
use serde::Serialize;

/// Lines of JSON go to stdout; then the table goes to stderr, else it is what
/// goes to stdout.
fn print(json: Option<Vec<impl Serialize>>, table: &str) -> Result<()> {
    match json {
        Some(lines) => {
            eprintln!("\n{table}");
            for line in lines {
                println!("{}", serde_json::to_string(&line)?);
            }
        }
        None => println!("{table}"),
    }
    Ok(())
}

/// Rounded, so that a line of JSON does not claim more than was measured.
fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

/// `12,345`.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Columns aligned to the right, the first to the left.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
            match index {
                0 => line.push_str(&format!("{cell:<width$}")),
                _ => line.push_str(&format!("  {cell:>width$}")),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(999.4), "999");
        assert_eq!(grouped(1_000.0), "1,000");
        assert_eq!(grouped(1_234_567.0), "1,234,567");
    }

    #[test]
    fn columns_are_aligned_and_lines_have_no_tail() {
        let rows = [row(["a", "bb"]), row(["ccc", "d"]), row(["e", ""])];
        assert_eq!(aligned(&rows), "a    bb\nccc   d\ne\n");
    }

    #[test]
    fn figures_are_rounded_to_digits() {
        assert!((rounded(1.23456, 2) - 1.23).abs() < 1e-9);
        assert!((rounded(1_234.5, 0) - 1_235.0).abs() < 1e-9);
    }
}
