//! What stands in brackets, and escapes, which mean the same outside of them.

use super::{JavaOnly, Translation, property, push_escaped, refused};

/// Classes within classes.
const MAX_DEPTH: usize = 20;

/// What an escape is.
pub(super) enum Item {
    Char(char),
    /// Items of a class.
    Set(String),
}

/// The class behind a `[`, for the engines.
pub(super) fn translate(
    from: &mut Translation<'_>,
    offset: usize,
    depth: usize,
) -> Result<String, JavaOnly> {
    if depth >= MAX_DEPTH {
        return Err(refused("a class within too many", offset));
    }
    let mut out = String::from(if from.next_if('^') { "[^" } else { "[" });
    // Whether there is an item since the beginning, or the last `&&`.
    let mut has_item = false;
    loop {
        let (at, c) = from.next().ok_or(refused("a [ without its ]", offset))?;
        let quoted = from.quotes;
        let item = match c {
            ']' if has_item && !quoted => break,
            '[' if !quoted => Item::Set(translate(from, at, depth + 1)?),
            '&' if !quoted && from.rest().starts_with('&') => {
                from.next_if('&');
                if !has_item || from.rest().starts_with(['&', ']']) {
                    return Err(refused("an intersection with nothing", at));
                }
                out.push_str("&&");
                has_item = false;
                continue;
            }
            '\\' if !quoted => {
                let (_, c) = from.chars.next().ok_or(refused("a backslash at the end", at))?;
                escape(from, c, at)?
            }
            c => Item::Char(c),
        };
        has_item = true;
        match item {
            Item::Set(set) => out.push_str(&set),
            Item::Char(first) => {
                let last = if quoted { None } else { range_end(from)? };
                push_range(first, last.unwrap_or(first), from.flags.ignores_case, &mut out)
                    .ok_or(refused("a range that ends before it begins", at))?;
            }
        }
    }
    out.push(']');
    Ok(out)
}

/// The other end of a range, behind a hyphen that does not stand for itself.
fn range_end(from: &mut Translation<'_>) -> Result<Option<char>, JavaOnly> {
    let Some(behind) = from.rest().strip_prefix('-') else {
        return Ok(None);
    };
    if behind.is_empty() || behind.starts_with(['[', ']']) {
        return Ok(None);
    }
    from.next_if('-');
    let Some((at, c)) = from.next() else {
        return Ok(None);
    };
    if c != '\\' || from.quotes {
        return Ok(Some(c));
    }
    let (_, c) = from.chars.next().ok_or(refused("a backslash at the end", at))?;
    match escape(from, c, at)? {
        Item::Char(c) => Ok(Some(c)),
        Item::Set(_) => Err(refused("a range that ends in a class", at)),
    }
}

/// With the other case of what is in ASCII; `None` where there is nothing between.
fn push_range(first: char, last: char, ignores_case: bool, out: &mut String) -> Option<()> {
    if first > last {
        return None;
    }
    let mut push = |first: char, last: char| {
        push_escaped(first, out);
        if first < last {
            out.push('-');
            push_escaped(last, out);
        }
    };
    push(first, last);
    if ignores_case {
        let within = |low: char, high: char| {
            let (first, last) = (first.max(low), last.min(high));
            (first <= last).then_some((first, last))
        };
        if let Some((first, last)) = within('a', 'z') {
            push(first.to_ascii_uppercase(), last.to_ascii_uppercase());
        }
        if let Some((first, last)) = within('A', 'Z') {
            push(first.to_ascii_lowercase(), last.to_ascii_lowercase());
        }
    }
    Some(())
}

/// What a backslash and `c` are.
pub(super) fn escape(from: &mut Translation<'_>, c: char, at: usize) -> Result<Item, JavaOnly> {
    const HORIZONTAL: &str =
        r"\x{20}\t\x{a0}\x{1680}\x{180e}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}";
    const VERTICAL: &str = r"\n\x{b}\f\r\x{85}\x{2028}\x{2029}";
    let set = |items: &str| Ok(Item::Set(format!("[{items}]")));
    let no_set = |items: &str| Ok(Item::Set(format!("[^{items}]")));
    match c {
        'd' => set("0-9"),
        'D' => no_set("0-9"),
        'w' => set("0-9A-Za-z_"),
        'W' => no_set("0-9A-Za-z_"),
        's' => set(r"\x{20}\t\n\x{b}\f\r"),
        'S' => no_set(r"\x{20}\t\n\x{b}\f\r"),
        'h' => set(HORIZONTAL),
        'H' => no_set(HORIZONTAL),
        'v' => set(VERTICAL),
        'V' => no_set(VERTICAL),
        'p' | 'P' => {
            let items = property(from, at)?;
            if c == 'p' { set(&items) } else { no_set(&items) }
        }
        'Q' | 'E' => Err(refused("a quotation's end without its beginning", at)),
        c if c.is_ascii_alphanumeric() => character(from, c, at).map(Item::Char),
        c => Ok(Item::Char(c)),
    }
}

fn property(from: &mut Translation<'_>, at: usize) -> Result<String, JavaOnly> {
    let rest = from.rest();
    let name = match rest.strip_prefix('{') {
        Some(braced) => {
            let name = braced.split_once('}').map_or("", |(name, _)| name);
            from.skip(name.len() + 2);
            name
        }
        None => {
            let name = rest.chars().next().map_or("", |c| &rest[..c.len_utf8()]);
            from.skip(name.len());
            name
        }
    };
    property::items(name, from.flags.ignores_case)
        .ok_or(refused("a property that Walpost does not know", at))
}

fn character(from: &mut Translation<'_>, c: char, at: usize) -> Result<char, JavaOnly> {
    let of = |code: Option<u32>| {
        code.and_then(char::from_u32).ok_or(refused("an escape that is no character", at))
    };
    match c {
        't' => Ok('\t'),
        'n' => Ok('\n'),
        'r' => Ok('\r'),
        'f' => Ok('\u{c}'),
        'a' => Ok('\u{7}'),
        'e' => Ok('\u{1b}'),
        '0' => of(octal(from)),
        'x' => of(hexadecimal(from)),
        'u' => of(unit(from).and_then(|first| with_second(from, first))),
        'c' => {
            let control = from.chars.next().map(|(_, c)| u32::from(c) ^ 64);
            of(control.filter(|code| *code < 128))
        }
        _ => Err(refused("an escape that Walpost does not know", at)),
    }
}

/// One to three digits, up to 377.
fn octal(from: &mut Translation<'_>) -> Option<u32> {
    let mut code = None;
    for _ in 0..3 {
        let digit = from.rest().chars().next().and_then(|c| c.to_digit(8));
        let Some(longer) = digit.map(|digit| code.unwrap_or(0) * 8 + digit) else { break };
        if longer > 0o377 {
            break;
        }
        from.chars.next();
        code = Some(longer);
    }
    code
}

/// Two digits, or more in braces.
fn hexadecimal(from: &mut Translation<'_>) -> Option<u32> {
    let rest = from.rest();
    let digits = match rest.strip_prefix('{') {
        Some(braced) => braced.split_once('}')?.0,
        None => rest.get(..2)?,
    };
    from.skip(digits.len() + if rest.starts_with('{') { 2 } else { 0 });
    digits_of(digits)
}

/// Four digits.
fn unit(from: &mut Translation<'_>) -> Option<u32> {
    let digits = from.rest().get(..4)?;
    from.skip(4);
    digits_of(digits)
}

/// Two halves of a pair are one character.
fn with_second(from: &mut Translation<'_>, first: u32) -> Option<u32> {
    if !(0xd800..0xdc00).contains(&first) {
        return Some(first);
    }
    let digits = from.rest().strip_prefix("\\u")?.get(..4)?;
    let second = digits_of(digits).filter(|second| (0xdc00..0xe000).contains(second))?;
    from.skip(6);
    Some(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))
}

fn digits_of(digits: &str) -> Option<u32> {
    let are_right = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| are_right)
}
