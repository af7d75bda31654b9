use walpost_event::Lsn;

/// Where the WAL of a timeline goes over into the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Switch {
    /// The timeline that ends here.
    pub(crate) timeline: u32,
    /// Everything below is also the next timeline's past.
    pub(crate) at: Lsn,
}

/// Reads a timeline history file: one line for each timeline that came before,
/// oldest first, with its number, the position at which it was left, and a
/// reason in words.
///
/// # Errors
/// The number of the first line, from 1, that is none of that.
pub(super) fn parse_history(text: &str) -> Result<Vec<Switch>, usize> {
    let mut switches: Vec<Switch> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let switch = switch(line).ok_or(index + 1)?;
        if switches.last().is_some_and(|last| last.timeline >= switch.timeline) {
            return Err(index + 1);
        }
        switches.push(switch);
    }
    Ok(switches)
}

fn switch(line: &str) -> Option<Switch> {
    let mut words = line.split_whitespace();
    let timeline = words.next()?.parse().ok()?;
    let at = words.next()?.parse().ok()?;
    Some(Switch { timeline, at })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_history_lists_the_timelines_before() {
        let text = "1\t0/3000158\tno recovery target specified\n\n# by hand\n\
                    2\t16/B374D848\tbefore 2000-01-01 00:00:00+00\n";
        let switch = |timeline, at: &str| Switch { timeline, at: at.parse().unwrap() };
        assert_eq!(parse_history(text), Ok(vec![switch(1, "0/3000158"), switch(2, "16/B374D848")]));
        assert_eq!(parse_history(""), Ok(Vec::new()));
        assert_eq!(parse_history("7 0/10"), Ok(vec![switch(7, "0/10")]));
    }

    #[test]
    fn a_line_of_another_form_is_named() {
        for (text, line) in [
            ("x\t0/1\treason\n", 1),
            ("1\n", 1),
            ("-1\t0/1\t\n", 1),
            ("1\t0-1\t\n", 1),
            ("1\t0/1\tfirst\n4294967296\t0/2\t\n", 2),
            ("2\t0/1\t\n\n2\t0/2\t\n", 3),
            ("2\t0/1\t\n1\t0/2\t\n", 2),
        ] {
            assert_eq!(parse_history(text), Err(line), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(([0-9]{1,4}|.)[\t ]([0-9A-F/]{0,9}|.)[\t ]?.{0,4}\n?){0,4}") {
            let _ = parse_history(&text);
        }
    }
}
