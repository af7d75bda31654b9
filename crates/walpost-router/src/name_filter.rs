use crate::pattern::Pattern;

/// Which names of one kind are meant: those of tables, columns or prefixes.
///
/// ```
/// use walpost_router::{NameFilter, Pattern};
///
/// let outboxes = NameFilter::Include(vec![Pattern::new(r"shop\.outbox(_\d+)?")?]);
/// assert!(outboxes.passes("shop.outbox_3") && !outboxes.passes("shop.order"));
/// assert!(NameFilter::All.passes("shop.order"));
/// # Ok::<(), walpost_router::PatternError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NameFilter {
    /// Whatever there is.
    #[default]
    All,
    /// What one of these matches as a whole.
    Include(Vec<Pattern>),
    /// What none of these matches.
    Exclude(Vec<Pattern>),
}

impl NameFilter {
    /// Whether a name is meant.
    pub fn passes(&self, name: &str) -> bool {
        let found = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(name));
        match self {
            Self::All => true,
            Self::Include(patterns) => found(patterns),
            Self::Exclude(patterns) => !found(patterns),
        }
    }
}
