use std::error::Error;

const ANNOUNCEMENT: &str = "db error";

/// An error and its causes in one line, for a log, a status or a table.
///
/// A cause that the text ends with already is not repeated, as many errors
/// print theirs, and the `db error` by which `tokio_postgres` announces what the
/// server said is left out. Line breaks become `; `.
///
/// Contents are not looked for: what a server says about data may quote it, and
/// is for the caller to leave out.
///
/// ```
/// use walpost_event::error_chain;
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("reading row 7 failed")]
/// struct Failed(#[source] std::num::ParseIntError);
///
/// let cause = "x".parse::<u32>().unwrap_err();
/// assert_eq!(error_chain(&Failed(cause)), "reading row 7 failed: invalid digit found in string");
/// ```
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let part = error.to_string();
        let part = part.trim_end();
        next = error.source();
        let is_announcement = part == ANNOUNCEMENT && next.is_some();
        if !is_announcement && !text.ends_with(part) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(part);
        }
    }
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        source: Option<Box<Self>>,
    }

    fn chain(texts: &[&'static str]) -> String {
        let link =
            |source: Option<Box<Link>>, text: &&'static str| Some(Box::new(Link { text, source }));
        error_chain(&texts.iter().rev().fold(None, link).unwrap())
    }

    #[test]
    fn causes_follow_in_their_order() {
        assert_eq!(chain(&["a"]), "a");
        assert_eq!(chain(&["a", "b", "c"]), "a: b: c");
    }

    #[test]
    fn a_cause_that_is_printed_already_is_not_repeated() {
        assert_eq!(chain(&["a: b: c", "b: c", "c"]), "a: b: c");
        assert_eq!(chain(&["a: b", "b", "c"]), "a: b: c");
        assert_eq!(chain(&["the log is full", "log"]), "the log is full: log");
    }

    #[test]
    fn the_announcement_of_the_servers_words_is_left_out() {
        assert_eq!(chain(&["a", "db error", "ERROR: b"]), "a: ERROR: b");
        assert_eq!(chain(&["db error", "ERROR: b"]), "ERROR: b");
        assert_eq!(chain(&["a", "db error"]), "a: db error");
    }

    #[test]
    fn it_is_one_line() {
        assert_eq!(chain(&["a\n", "ERROR: b\n  DETAIL: c\n\n"]), "a: ERROR: b; DETAIL: c");
    }
}
