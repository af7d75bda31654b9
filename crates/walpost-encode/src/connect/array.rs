//! Arrays: their text to their elements.

/// An element of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// NULL.
    Null,
    /// Text of an element.
    Text(String),
    /// An array within the array.
    Array,
}

/// The elements of the outermost array; `None` for what is no array.
pub(crate) fn elements(text: &str, delimiter: char) -> Option<Vec<Element>> {
    let body = match text.strip_prefix('[') {
        Some(_) => &text[text.find('=')? + 1..],
        None => text,
    };
    let mut rest = body.strip_prefix('{')?;
    let mut elements = Vec::new();
    if rest == "}" {
        return Some(elements);
    }
    loop {
        let (element, behind) = element(rest, delimiter)?;
        elements.push(element);
        rest = match behind.strip_prefix(delimiter) {
            Some(more) => more,
            None => return (behind == "}").then_some(elements),
        };
    }
}

fn element(text: &str, delimiter: char) -> Option<(Element, &str)> {
    match text.chars().next()? {
        '"' => quoted(&text[1..]).map(|(text, behind)| (Element::Text(text), behind)),
        '{' => skip_array(text).map(|behind| (Element::Array, behind)),
        _ => unquoted(text, delimiter),
    }
}

/// What follows a quote, up to the next, and what is behind that.
pub(crate) fn quoted(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((out, &text[at + 1..])),
            '\\' => out.push(chars.next()?.1),
            c => out.push(c),
        }
    }
    None
}

fn unquoted(text: &str, delimiter: char) -> Option<(Element, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    let end = loop {
        match chars.next()? {
            (at, c) if c == delimiter || c == '}' => break at,
            (_, '\\') => out.push(chars.next()?.1),
            (_, c) => out.push(c),
        }
    };
    let element = if out.eq_ignore_ascii_case("null") { Element::Null } else { Element::Text(out) };
    Some((element, &text[end..]))
}

/// What is behind an array.
fn skip_array(text: &str) -> Option<&str> {
    let mut depth = 0_usize;
    let mut is_quoted = false;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()?),
            '"' => is_quoted = !is_quoted,
            '{' if !is_quoted => depth += 1,
            '}' if !is_quoted => {
                depth -= 1;
                if depth == 0 {
                    return Some(&text[at + 1..]);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Element {
        Element::Text(text.to_owned())
    }

    #[test]
    fn elements_are_read_with_quotes_and_escapes() {
        assert_eq!(elements("{}", ','), Some(vec![]));
        assert_eq!(
            elements(r#"{a,"b,\"c\\",NULL,"NULL"}"#, ','),
            Some(vec![text("a"), text("b,\"c\\"), Element::Null, text("NULL")])
        );
        assert_eq!(
            elements("{(1,1),(0,0);(2,2),(1,1)}", ';'),
            Some(vec![text("(1,1),(0,0)"), text("(2,2),(1,1)")])
        );
        assert_eq!(elements("[0:1]={1,2}", ','), Some(vec![text("1"), text("2")]));
    }

    #[test]
    fn arrays_of_arrays_are_told() {
        assert_eq!(elements(r#"{{1,"}"},{2,3}}"#, ','), Some(vec![Element::Array, Element::Array]));
    }

    #[test]
    fn what_is_no_array_is_told() {
        for text in ["", "a", "{", "{a", "{\"a}", "{a}b", "[0:1]", "{{a}"] {
            assert_eq!(elements(text, ','), None, "{text}");
        }
    }
}
