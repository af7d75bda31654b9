/// The candidate with the fewest typing errors between it and `word`, if they
/// are few enough to be one. A word that lacks the beginning or the end of a
/// candidate, at a dot, is near to it as well.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (word.chars().count() / 5).clamp(1, 4);
    let rated = candidates.into_iter().map(|candidate| (errors(word, candidate), candidate));
    rated.filter(|(errors, _)| *errors <= limit).min().map(|(_, candidate)| candidate)
}

fn errors(word: &str, candidate: &str) -> usize {
    let is_part = |whole: &str, part: &str| {
        part.contains('.')
            && (whole.strip_prefix(part).is_some_and(|rest| rest.starts_with('.'))
                || whole.strip_suffix(part).is_some_and(|rest| rest.ends_with('.')))
    };
    match is_part(candidate, word) || is_part(word, candidate) {
        true => 1,
        false => distance(word, candidate),
    }
}

/// Insertions, deletions, substitutions, and swaps of two neighbours from
/// `left` to `right`.
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    // Further apart than any limit: not worth the table.
    if left.len().abs_diff(right.len()) > 4 {
        return usize::MAX;
    }
    let mut rows: Vec<Vec<usize>> = vec![(0..=right.len()).collect()];
    for i in 1..=left.len() {
        let mut row = vec![i];
        for j in 1..=right.len() {
            let substituted = rows[i - 1][j - 1] + usize::from(left[i - 1] != right[j - 1]);
            let mut least = substituted.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] =
        ["slot.name", "table.include.list", "database.hostname", "snapshot.mode"];

    #[test]
    fn typing_errors_are_few() {
        for (word, expected) in [
            ("slot.nmae", Some("slot.name")),
            ("slotname", Some("slot.name")),
            ("table.included.list", Some("table.include.list")),
            ("snapshot.mod", Some("snapshot.mode")),
            ("my.slot.name", Some("slot.name")),
            ("shop", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, NAMES), expected, "{word}");
        }
    }

    #[test]
    fn a_long_word_costs_no_table() {
        assert_eq!(nearest(&"x".repeat(1_000_000), NAMES), None);
    }
}
