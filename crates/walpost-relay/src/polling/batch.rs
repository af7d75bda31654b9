//! Which of the rows that were read are sent, and behind which. Pure.

use std::collections::HashMap;

use walpost_event::RowChange;

use super::verdict::{Fate, Tried};

/// A row of a claim.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) id: String,
    /// The claimed row that it is, or stands behind.
    pub(super) head: u64,
    pub(super) pending: bool,
    pub(super) due: bool,
    /// No column of its order is null.
    pub(super) has_order: bool,
    pub(super) tried: Tried,
    pub(super) content: Content,
    pub(super) fate: Fate,
}

/// What a row holds.
#[derive(Debug)]
pub(super) enum Content {
    Row(Box<RowChange>),
    /// Larger than `max_event_bytes`.
    Oversize {
        size_bytes: usize,
    },
}

/// Rows of one aggregate, by their place among the candidates. Each is sent only
/// behind the one before it.
pub(super) type Lane = Vec<usize>;

/// The rows of each aggregate up to the first that is not to be sent now: what
/// is sent begins with the aggregate's first row that is not published, and has
/// no gap.
pub(super) fn lanes(candidates: &[Candidate]) -> Vec<Lane> {
    let mut places: HashMap<u64, usize> = HashMap::new();
    let mut lanes: Vec<Lane> = Vec::new();
    let mut ended: Vec<bool> = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let place = *places.entry(candidate.head).or_insert_with(|| {
            lanes.push(Lane::new());
            ended.push(false);
            lanes.len() - 1
        });
        ended[place] |= !(candidate.pending && candidate.due);
        if !ended[place] {
            lanes[place].push(index);
        }
    }
    lanes.retain(|lane| !lane.is_empty());
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(head: u64, pending: bool, due: bool) -> Candidate {
        Candidate {
            id: String::new(),
            head,
            pending,
            due,
            has_order: true,
            tried: Tried::default(),
            content: Content::Oversize { size_bytes: 0 },
            fate: Fate::Untouched,
        }
    }

    #[test]
    fn rows_stay_behind_those_of_their_aggregate() {
        let rows = [candidate(1, true, true), candidate(2, true, true), candidate(1, true, true)];
        assert_eq!(lanes(&rows), [vec![0, 2], vec![1]]);
    }

    #[test]
    fn nothing_passes_a_row_that_waits_or_has_failed() {
        let rows = [
            candidate(1, true, true),
            candidate(1, true, false),
            candidate(1, true, true),
            candidate(2, false, true),
            candidate(2, true, true),
            candidate(3, true, true),
        ];
        assert_eq!(lanes(&rows), [vec![0], vec![5]]);
    }
}
