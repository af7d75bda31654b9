/// The candidate with the fewest typing errors between it and `word`, if they
/// are few enough to be one.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    let rated = candidates.into_iter().map(|candidate| (distance(word, candidate), candidate));
    rated.filter(|(distance, _)| *distance <= limit).min().map(|(_, candidate)| candidate)
}

/// Insertions, deletions, substitutions, and swaps of two neighbours from
/// `left` to `right`.
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
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

    #[test]
    fn counts_typing_errors() {
        assert_eq!(distance("slot", "slot"), 0);
        assert_eq!(distance("slto", "slot"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn offers_only_what_is_near() {
        assert_eq!(nearest("pipline", ["pipeline", "kafka"]), Some("pipeline"));
        assert_eq!(nearest("shop", ["pipeline", "kafka"]), None);
    }
}
