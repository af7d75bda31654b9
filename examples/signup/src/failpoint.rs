//! Points of the mailer at which a test ends it: see `stand::reached`.

/// Where the mailer can be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failpoint {
    /// The request is claimed, and the mail server not yet called.
    BeforeSmtp,
    /// The mail server has accepted the mail, and nothing says so.
    AfterSmtp,
}

impl Failpoint {
    pub(crate) const ALL: [Self; 2] = [Self::BeforeSmtp, Self::AfterSmtp];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BeforeSmtp => "before_smtp",
            Self::AfterSmtp => "after_smtp",
        }
    }

    #[allow(dead_code, reason = "not by the tests, which include this file")]
    pub(crate) fn reached(self) {
        stand::reached("signup", &Self::ALL.map(Self::name), self.name());
    }
}
