//! What goes wrong in one part of a pass, while the others go on.

use walpost_event::error_chain;

use crate::error::RelayError;

/// Failures that are told one by one.
const TOLD_MAX: usize = 10;

/// Those of a pass, until its end.
#[derive(Debug, Default)]
pub(super) struct Failures {
    told: Vec<RelayError>,
    more: u64,
}

impl Failures {
    /// Keeps what went wrong in a part; none for a part that failed.
    ///
    /// # Errors
    /// An error behind which the session is of no use to other parts.
    pub(super) fn keep<T>(&mut self, part: Result<T, RelayError>) -> Result<Option<T>, RelayError> {
        match part {
            Ok(done) => Ok(Some(done)),
            Err(error) if ends_session(&error) => Err(error),
            Err(error) => {
                self.note(error);
                Ok(None)
            }
        }
    }

    fn note(&mut self, error: RelayError) {
        match self.told.len() < TOLD_MAX {
            true => self.told.push(error),
            false => self.more += 1,
        }
    }

    /// How the pass ended, with all that went wrong in it.
    pub(super) fn end<T>(mut self, done: Result<T, RelayError>) -> Result<T, RelayError> {
        let done = match done {
            Ok(done) if self.told.is_empty() => return Ok(done),
            done => done.err(),
        };
        self.told.extend(done);
        match (self.told.len(), self.more) {
            (1, 0) => Err(self.told.remove(0)),
            _ => Err(together(self.told, self.more)),
        }
    }
}

/// The connection is gone, or a statement of ours still runs in it.
fn ends_session(error: &RelayError) -> bool {
    match error {
        RelayError::SqlTimeout { .. } | RelayError::Connect(_) => true,
        RelayError::Sql { source, .. } => source
            .code()
            .is_none_or(|code| matches!(code.code().get(..3), Some("57P" | "080" | "25P"))),
        _ => false,
    }
}

fn together(errors: Vec<RelayError>, more: u64) -> RelayError {
    let (mut problems, mut remedies) = (Vec::new(), Vec::new());
    for error in errors {
        let (problem, remedy) = match error {
            RelayError::Prerequisite { problem, remedy } => (problem, remedy),
            error => (
                error_chain(&error),
                "run `walpost check`, which looks at rights and tables".to_owned(),
            ),
        };
        problems.push(problem);
        if !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }
    if more > 0 {
        problems.push(format!("{more} more parts failed"));
    }
    RelayError::prerequisite(problems.join("; also "), remedies.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_went_wrong_is_told_and_what_is_to_be_done_once() {
        let mut failures = Failures::default();
        for n in 0..12 {
            let error = RelayError::prerequisite(format!("part {n} failed"), "mend it");
            assert_eq!(failures.keep::<()>(Err(error)).unwrap(), None);
        }
        let RelayError::Prerequisite { problem, remedy } = failures.end(Ok(())).unwrap_err() else {
            panic!("it is one that tells what to do");
        };
        assert!(problem.starts_with("part 0 failed; also part 1 failed; also"), "{problem}");
        assert!(problem.ends_with("part 9 failed; also 2 more parts failed"), "{problem}");
        assert_eq!(remedy, "mend it");
    }

    #[test]
    fn without_a_failure_the_end_is_what_was_done() {
        let mut failures = Failures::default();
        assert_eq!(failures.keep(Ok(7)).unwrap(), Some(7));
        assert_eq!(failures.end(Ok(8)).unwrap(), 8);
    }

    #[test]
    fn what_ends_the_session_ends_the_pass_and_comes_last() {
        let gone = || RelayError::SqlTimeout { attempt: "pruning", limit: Default::default() };
        let mut failures = Failures::default();
        failures.keep::<()>(Err(RelayError::prerequisite("one part", "mend it"))).unwrap();
        let error = failures.keep::<()>(Err(gone())).unwrap_err();
        let told = failures.end::<()>(Err(error)).unwrap_err().to_string();
        assert!(told.starts_with("one part; also pruning did not end"), "{told}");
        assert!(Failures::default().end::<()>(Err(gone())).unwrap_err().is_transient());
    }
}
