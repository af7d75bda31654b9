//! Where in a request its event's id and type stand.

use http::{HeaderMap, HeaderName};
use serde_json::Value;

/// Where something stands in a request.
///
/// ```
/// use walpost_webhook::receive::Place;
///
/// let id = Place::Header("X-Idempotency-Key".parse()?);
/// let kind = Place::pointer("/event/type");
/// let always = Place::fixed("invoice.paid");
/// # let _ = (id, kind, always);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// A header, which is there once.
    Header(HeaderName),
    /// A JSON pointer (RFC 6901) into the body, to a text or a whole number.
    Pointer(String),
    /// Nowhere: it is always this.
    Fixed(String),
}

/// What stands at a place is of no use. No text of this has any of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// The body is no JSON, and there is a pointer into it.
    NoJson,
    /// It is there more than once, or is no text.
    Malformed(String),
}

impl Place {
    /// [`Place::Pointer`].
    pub fn pointer(pointer: impl Into<String>) -> Self {
        Self::Pointer(pointer.into())
    }

    /// [`Place::Fixed`].
    pub fn fixed(text: impl Into<String>) -> Self {
        Self::Fixed(text.into())
    }

    pub(super) fn header(name: &'static str) -> Self {
        Self::Header(HeaderName::from_static(name))
    }

    /// How people call it.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Header(name) => format!("header {name}"),
            Self::Pointer(pointer) => format!("JSON pointer {pointer:?}"),
            Self::Fixed(_) => "a fixed text".to_owned(),
        }
    }

    /// Why it cannot be one.
    pub(super) fn problem(&self) -> Option<&'static str> {
        match self {
            Self::Pointer(pointer) if !pointer.starts_with('/') => {
                Some("a JSON pointer begins with a slash, such as /id")
            }
            Self::Fixed(text) if text.is_empty() => Some("a fixed text is not empty"),
            Self::Header(_) | Self::Pointer(_) | Self::Fixed(_) => None,
        }
    }
}

/// A request, of which the body is read as JSON once, and only where somebody
/// points into it.
pub(super) struct Fields<'a> {
    headers: &'a HeaderMap,
    body: &'a [u8],
    json: Option<Value>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(headers: &'a HeaderMap, body: &'a [u8]) -> Self {
        Self { headers, body, json: None }
    }

    /// The text there; none where there is nothing, or an empty text.
    pub(super) fn text(&mut self, place: &Place) -> Result<Option<String>, Unreadable> {
        let malformed = || Unreadable::Malformed(place.describe());
        let text = match place {
            Place::Fixed(text) => Some(text.clone()),
            Place::Header(name) => {
                let mut values = self.headers.get_all(name).iter();
                let first = values.next().map(|value| value.to_str().map(str::to_owned));
                if values.next().is_some() {
                    return Err(malformed());
                }
                first.transpose().map_err(|_| malformed())?
            }
            Place::Pointer(pointer) => match self.json()?.pointer(pointer) {
                None | Some(Value::Null) => None,
                Some(Value::String(text)) => Some(text.clone()),
                Some(Value::Number(number)) if number.is_i64() || number.is_u64() => {
                    Some(number.to_string())
                }
                Some(_) => return Err(malformed()),
            },
        };
        Ok(text.filter(|text| !text.is_empty()))
    }

    fn json(&mut self) -> Result<&Value, Unreadable> {
        if self.json.is_none() {
            let read = serde_json::from_slice(self.body).map_err(|_| Unreadable::NoJson)?;
            self.json = Some(read);
        }
        self.json.as_ref().ok_or(Unreadable::NoJson)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = br#"{"id":"a","n":7,"f":1.5,"o":{"t":"x"},"none":null,"empty":""}"#;

    fn at(place: &Place) -> Result<Option<String>, Unreadable> {
        let mut headers = HeaderMap::new();
        headers.insert("once", "1".parse().unwrap());
        headers.append("twice", "1".parse().unwrap());
        headers.append("twice", "1".parse().unwrap());
        headers.insert("bytes", http::HeaderValue::from_bytes(b"\xff").unwrap());
        Fields::new(&headers, BODY).text(place)
    }

    #[test]
    fn texts_and_whole_numbers_are_found() {
        for (place, expected) in [
            (Place::pointer("/id"), Some("a")),
            (Place::pointer("/n"), Some("7")),
            (Place::pointer("/o/t"), Some("x")),
            (Place::pointer("/none"), None),
            (Place::pointer("/empty"), None),
            (Place::pointer("/nowhere"), None),
            (Place::header("once"), Some("1")),
            (Place::header("never"), None),
            (Place::fixed("t"), Some("t")),
        ] {
            assert_eq!(at(&place), Ok(expected.map(str::to_owned)), "{place:?}");
        }
    }

    #[test]
    fn what_is_twice_or_no_text_is_no_id() {
        for place in [
            Place::pointer("/f"),
            Place::pointer("/o"),
            Place::header("twice"),
            Place::header("bytes"),
        ] {
            assert_eq!(at(&place), Err(Unreadable::Malformed(place.describe())));
        }
    }

    #[test]
    fn a_body_that_is_no_json_matters_to_pointers_alone() {
        let headers = HeaderMap::new();
        for body in [&b"\xff"[..], b"", b"{", b"{} {}"] {
            let mut fields = Fields::new(&headers, body);
            assert_eq!(fields.text(&Place::pointer("/id")), Err(Unreadable::NoJson));
            assert_eq!(fields.text(&Place::fixed("t")), Ok(Some("t".to_owned())));
        }
    }
}
