/// What the server knows of a pipeline's slot.
pub(super) struct Slot {
    /// The session that may hold it, by number.
    pub(super) holder: u32,
    /// Until when sessions do not notice that the server has given them up.
    pub(super) unnoticed: Vec<(u32, u64)>,
    pub(super) is_lost: bool,
    /// How often it was.
    pub(super) losses: u32,
    /// What it was told, and still knows.
    confirmations: Vec<u64>,
}

impl Slot {
    pub(super) fn new(position: u64) -> Self {
        let (unnoticed, confirmations) = (Vec::new(), vec![position]);
        Self { holder: 0, unnoticed, is_lost: false, losses: 0, confirmations }
    }

    pub(super) fn position(&self) -> u64 {
        self.confirmations.last().copied().unwrap_or_default()
    }

    pub(super) fn confirm(&mut self, position: u64) {
        self.confirmations.push(position);
    }

    /// The server dies, and forgets the last few confirmations.
    pub(super) fn go_back(&mut self, confirmations: usize) {
        let kept = self.confirmations.len().saturating_sub(confirmations).max(1);
        self.confirmations.truncate(kept);
    }

    pub(super) fn lose(&mut self) {
        self.is_lost = true;
        self.losses += 1;
    }

    /// Another one under its name.
    pub(super) fn replace(&mut self, begin: u64) {
        self.is_lost = false;
        self.confirmations = vec![begin];
    }
}
