//! Points of this example at which a test ends it: see `stand::reached`.

/// Where the upload or its job can be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failpoint {
    /// The body is a temporary file, on the disk, and nothing else.
    Received,
    /// It has the name of its contents; no row says so.
    Placed,
    /// A job is claimed, and nothing done.
    Claimed,
    /// A thumbnail is a temporary file.
    Drawn,
    /// It has its name; no row says so.
    Named,
    /// The row is written, and not committed.
    Noted,
}

impl Failpoint {
    pub(crate) const ALL: [Self; 6] =
        [Self::Received, Self::Placed, Self::Claimed, Self::Drawn, Self::Named, Self::Noted];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Received => "after_body",
            Self::Placed => "after_place",
            Self::Claimed => "before_thumbnail",
            Self::Drawn => "after_thumbnail_bytes",
            Self::Named => "after_thumbnail_name",
            Self::Noted => "after_thumbnail_row",
        }
    }

    #[allow(dead_code, reason = "not by the tests, which include this file")]
    pub(crate) fn reached(self) {
        stand::reached("upload", &Self::ALL.map(Self::name), self.name());
    }
}
