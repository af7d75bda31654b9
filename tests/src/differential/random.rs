use super::case::Case;
/// x
pub fn random_cases(_: usize, _: u64) -> Vec<Case> { Vec::new() }
