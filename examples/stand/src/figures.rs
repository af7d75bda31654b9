use crate::Failed;

/// How an example stands, by what its tables say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All that was asked for is there, and once.
    Done,
    /// Something is on its way, and nothing is wrong.
    GoesOn,
    /// What must never be is there. It does not go away again.
    Broken,
}

/// What the tables say at one moment.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The line of every second.
    pub now: String,
    /// The line at the end, were it now.
    pub last: String,
    /// How it stands.
    pub end: End,
}

impl End {
    /// What is wrong counts before whatever is complete.
    #[must_use]
    pub fn of(is_wrong: bool, is_complete: bool) -> Self {
        match (is_wrong, is_complete) {
            (true, _) => Self::Broken,
            (false, true) => Self::Done,
            (false, false) => Self::GoesOn,
        }
    }
}

impl Figures {
    /// Prints the line of this second; whether it is done.
    ///
    /// # Errors
    /// The last line, where something is broken.
    pub fn tell(&self) -> Result<bool, Failed> {
        println!("{}", self.now);
        match self.end {
            End::Done => Ok(true),
            End::GoesOn => Ok(false),
            End::Broken => Err(self.last.clone().into()),
        }
    }

    /// Prints the last line.
    ///
    /// # Errors
    /// The same line, where something is broken.
    pub fn tell_the_end(&self) -> Result<(), Failed> {
        if self.end == End::Broken {
            return Err(self.last.clone().into());
        }
        println!("{}", self.last);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_broken_is_an_error_also_where_all_is_there() {
        assert_eq!(End::of(false, true), End::Done);
        assert_eq!(End::of(false, false), End::GoesOn);
        assert_eq!([End::of(true, true), End::of(true, false)], [End::Broken; 2]);
        let of = |end| Figures { now: "now".into(), last: "last".into(), end };
        assert!(of(End::Done).tell().unwrap());
        assert!(!of(End::GoesOn).tell().unwrap());
        assert_eq!(of(End::Broken).tell().unwrap_err().to_string(), "last");
        assert!(of(End::Done).tell_the_end().is_ok() && of(End::GoesOn).tell_the_end().is_ok());
        assert_eq!(of(End::Broken).tell_the_end().unwrap_err().to_string(), "last");
    }
}
