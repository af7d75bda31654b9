//! The trace that an event was written under: W3C Trace Context, in headers.

use std::{borrow::Cow, fmt};

use crate::Event;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// Bytes of `00-<32 hex>-<16 hex>-<2 hex>`.
const TRACEPARENT_BYTES: usize = 55;
/// Members that a list of vendors may have.
const STATE_MAX_MEMBERS: usize = 32;
/// Bytes of such a list that are looked at; the standard asks for 512.
const STATE_MAX_BYTES: usize = 8_192;

/// The trace and the span that an event was written under, as its headers
/// `traceparent` and `tracestate` have them. Given by
/// [`Event::trace_context`].
#[derive(Clone, PartialEq, Eq)]
pub struct TraceContext<'event> {
    trace_id: &'event str,
    parent_id: &'event str,
    flags: u8,
    state: Option<Cow<'event, str>>,
}

impl<'event> TraceContext<'event> {
    /// Id of the trace: 32 lower-case hexadecimal digits, not all zero.
    pub fn trace_id(&self) -> &'event str {
        self.trace_id
    }

    /// Id of the span in which the event was written: 16 lower-case
    /// hexadecimal digits, not all zero.
    pub fn parent_id(&self) -> &'event str {
        self.parent_id
    }

    /// Flags; bit 0 says that the trace may be recorded.
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// Whether the writer may have recorded the trace.
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }

    /// What vendors of tracing hand on: the members of all headers
    /// `tracestate`, `None` for none, and where they break the standard.
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

/// Without the vendors' part, which is contents.
impl fmt::Debug for TraceContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace_id, parent_id, flags, .. } = self;
        write!(f, "TraceContext({trace_id}-{parent_id}-{flags:02x})")
    }
}

impl Event {
    /// The W3C trace context that the event was written under, `None` where
    /// there is none, and where its first header `traceparent` breaks the
    /// standard. Versions of later standards are read as that says. A
    /// `tracestate` that cannot be read is left out.
    ///
    /// The relay sends both headers where the outbox has the columns.
    ///
    /// ```
    /// use walpost_consumer::Event;
    ///
    /// let event = Event::builder("t")
    ///     .header("traceparent", Some(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
    ///     .build();
    /// let trace = event.trace_context().unwrap();
    /// assert_eq!(trace.trace_id(), "0af7651916cd43dd8448eb211c80319c");
    /// assert_eq!(trace.parent_id(), "b7ad6b7169203331");
    /// assert!(trace.is_sampled());
    /// assert_eq!(trace.tracestate(), None);
    /// ```
    pub fn trace_context(&self) -> Option<TraceContext<'_>> {
        let (trace_id, parent_id, flags) = parse(self.traceparent()?)?;
        Some(TraceContext { trace_id, parent_id, flags, state: state(self) })
    }

    /// The header [`trace_context`](Self::trace_context) is read from, if it is
    /// text.
    pub fn traceparent(&self) -> Option<&str> {
        std::str::from_utf8(self.header(TRACEPARENT)?).ok()
    }
}

fn parse(text: &str) -> Option<(&str, &str, u8)> {
    let text = text.trim_matches([' ', '\t']);
    let (first, rest) = text.split_at_checked(TRACEPARENT_BYTES)?;
    let mut parts = first.split('-');
    let mut part = |digits| parts.next().filter(|part| is_hex(part, digits));
    let (version, trace_id, parent_id, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    let flags = u8::from_str_radix(flags, 16).ok()?;
    let flags = match version {
        "ff" => return None,
        "00" if rest.is_empty() => flags,
        "00" => return None,
        // What a later version adds comes behind a hyphen, and of its flags only
        // this one is known to mean the same.
        _ if rest.is_empty() || rest.starts_with('-') => flags & 1,
        _ => return None,
    };
    let is_zero = |id: &str| id.bytes().all(|digit| digit == b'0');
    (!is_zero(trace_id) && !is_zero(parent_id)).then_some((trace_id, parent_id, flags))
}

fn is_hex(text: &str, digits: usize) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == digits && text.bytes().all(is_digit)
}

fn state(event: &Event) -> Option<Cow<'_, str>> {
    let headers = event.headers().filter(|(name, _)| *name == TRACESTATE);
    let mut lists = headers.filter_map(|(_, value)| std::str::from_utf8(value?).ok());
    let mut state = Cow::Borrowed(lists.next()?);
    for more in lists {
        state = Cow::Owned(format!("{state},{more}"));
        if state.len() > STATE_MAX_BYTES {
            return None;
        }
    }
    is_state(&state).then_some(state)
}

fn is_state(list: &str) -> bool {
    let members = || list.split(',').map(|one| one.trim_matches([' ', '\t']));
    let members = || members().filter(|one| !one.is_empty());
    let count = members().count();
    let is_member = |member: &str| {
        member.split_once('=').is_some_and(|(key, value)| is_key(key) && is_value(value))
    };
    list.len() <= STATE_MAX_BYTES
        && (1..=STATE_MAX_MEMBERS).contains(&count)
        && members().all(is_member)
}

fn is_key(key: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let may_follow = |byte: u8| is_plain(byte) || b"_-*/@".contains(&byte);
    (1..=256).contains(&key.len())
        && key.bytes().next().is_some_and(is_plain)
        && key.bytes().all(may_follow)
}

fn is_value(value: &str) -> bool {
    let may_be = |byte: u8| matches!(byte, b' '..=b'~') && byte != b',' && byte != b'=';
    (1..=256).contains(&value.len()) && value.bytes().all(may_be)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const PARENT: &str = "b7ad6b7169203331";

    fn with(traceparent: &str, tracestate: &[&[u8]]) -> Event {
        let event = Event::builder("t").header("traceparent", Some(traceparent.as_bytes()));
        let add = |event: crate::EventBuilder, list: &&[u8]| event.header("tracestate", Some(list));
        tracestate.iter().fold(event, add).build()
    }

    fn read(traceparent: &str) -> Option<(String, String, u8)> {
        let event = with(traceparent, &[]);
        let TraceContext { trace_id, parent_id, flags, .. } = event.trace_context()?;
        Some((trace_id.to_owned(), parent_id.to_owned(), flags))
    }

    #[test]
    fn a_context_of_this_version_and_of_later_ones_is_read() {
        let expected = |flags| Some((TRACE.to_owned(), PARENT.to_owned(), flags));
        for (text, flags) in [
            (format!("00-{TRACE}-{PARENT}-01"), 1),
            (format!("00-{TRACE}-{PARENT}-00"), 0),
            (format!("00-{TRACE}-{PARENT}-03"), 3),
            (format!(" \t00-{TRACE}-{PARENT}-01 "), 1),
            (format!("cc-{TRACE}-{PARENT}-03"), 1),
            (format!("cc-{TRACE}-{PARENT}-01-what-comes"), 1),
        ] {
            assert_eq!(read(&text), expected(flags), "{text}");
        }
    }

    #[test]
    fn what_breaks_the_standard_is_none() {
        let zeros = "0".repeat(32);
        for text in [
            String::new(),
            format!("ff-{TRACE}-{PARENT}-01"),
            format!("0-{TRACE}-{PARENT}-01"),
            format!("00-{TRACE}-{PARENT}-01-more"),
            format!("00-{TRACE}-{PARENT}-01."),
            format!("cc-{TRACE}-{PARENT}-01.more"),
            format!("00-{TRACE}-{PARENT}-0"),
            format!("00-{TRACE}-{PARENT}-xx"),
            format!("00-{zeros}-{PARENT}-01"),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-{PARENT}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}x{PARENT}-01"),
            format!("00_{TRACE}_{PARENT}_01"),
            format!("00-{}-{PARENT}-01", "ü".repeat(16)),
            "ü".repeat(40),
        ] {
            assert_eq!(read(&text), None, "{text}");
        }
        assert_eq!(Event::builder("t").build().trace_context(), None);
        let bytes = Event::builder("t").header("traceparent", Some(b"\xff")).build();
        assert_eq!(bytes.trace_context(), None);
    }

    #[test]
    fn lists_of_vendors_are_joined_and_a_bad_one_is_left_out() {
        let traceparent = format!("00-{TRACE}-{PARENT}-01");
        let state = |lists: &[&[u8]]| {
            let event = with(&traceparent, lists);
            event.trace_context().unwrap().tracestate().map(str::to_owned)
        };
        assert_eq!(state(&[]), None);
        assert_eq!(state(&[b"a=1, b@c=2"]).as_deref(), Some("a=1, b@c=2"));
        assert_eq!(state(&[b"a=1", b"b=2"]).as_deref(), Some("a=1,b=2"));
        let many = vec!["a=1"; 33].join(",");
        let bad: [&[u8]; 8] =
            [b"", b"a", b"=1", b"A=1", b"a=1=2", "a=ü".as_bytes(), b"\xff", many.as_bytes()];
        for list in bad {
            assert_eq!(state(&[list]), None, "{list:?}");
        }
    }

    #[test]
    fn debug_shows_no_vendor() {
        let event = with(&format!("00-{TRACE}-{PARENT}-01"), &[b"a=secret"]);
        let text = format!("{:?}", event.trace_context().unwrap());
        assert_eq!(text, format!("TraceContext({TRACE}-{PARENT}-01)"));
    }
}
