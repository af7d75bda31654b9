/// The candidate with the fewest typing errors between it and `word`, if they
/// are few enough to be one.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    let rated = candidates.into_iter().map(|candidate| (distance(word, candidate), candidate));
    rated.filter(|(distance, _)| *distance <= limit).min().map(|(_, candidate)| candidate)
}

/// Insertions, deletions and substitutions from `left` to `right`.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (above, from) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (index, to) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[index + 1];
            row[index + 1] = substituted.min(row[index] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_typing_errors() {
        assert_eq!(distance("slot", "slot"), 0);
        assert_eq!(distance("slto", "slot"), 2);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn offers_only_what_is_near() {
        assert_eq!(nearest("pipline", ["pipeline", "kafka"]), Some("pipeline"));
        assert_eq!(nearest("shop", ["pipeline", "kafka"]), None);
    }
}
