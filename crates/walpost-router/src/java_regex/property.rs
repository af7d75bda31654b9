//! `\p{…}`, as Java has it without `(?U)`.

/// Categories of Unicode that the engines know by the same name.
const CATEGORIES: &[&str] = &[
    "L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Me", "Mc", "N", "Nd", "Nl", "No", "Z", "Zs",
    "Zl", "Zp", "C", "Cc", "Cf", "Co", "Cn", "P", "Pd", "Ps", "Pe", "Pc", "Po", "Pi", "Pf", "S",
    "Sm", "Sc", "Sk", "So",
];

/// Java's names of properties, and the engines' items for them.
const PROPERTIES: &[(&str, &str)] = &[
    ("IsAlphabetic", r"\p{Alphabetic}"),
    ("IsLowercase", r"\p{Lowercase}"),
    ("IsUppercase", r"\p{Uppercase}"),
    ("IsWhite_Space", r"\p{White_Space}"),
    ("IsIdeographic", r"\p{Ideographic}"),
    ("IsLetter", r"\p{L}"),
    ("IsDigit", r"\p{Nd}"),
    ("IsPunctuation", r"\p{P}"),
    ("IsControl", r"\p{Cc}"),
    ("javaAlphabetic", r"\p{Alphabetic}"),
    ("javaLowerCase", r"\p{Lowercase}"),
    ("javaUpperCase", r"\p{Uppercase}"),
    ("javaLetter", r"\p{L}"),
    ("javaDigit", r"\p{Nd}"),
    ("javaLetterOrDigit", r"\p{L}\p{Nd}"),
];

/// Scripts, as `IsLatin` and `script=Latin`.
const SCRIPTS: &[&str] = &[
    "Arabic",
    "Armenian",
    "Cyrillic",
    "Devanagari",
    "Georgian",
    "Greek",
    "Han",
    "Hangul",
    "Hebrew",
    "Hiragana",
    "Katakana",
    "Latin",
    "Thai",
];

/// The items of a class that stand for the property of this name; `None` for one
/// that Walpost does not know.
pub(super) fn items(name: &str, ignores_case: bool) -> Option<String> {
    if let Some(items) = posix(name, ignores_case) {
        return Some(items.to_owned());
    }
    if let Some((_, items)) = PROPERTIES.iter().find(|(known, _)| *known == name) {
        // Either case is as good as the other.
        let is_case = items.contains("case}");
        return Some(if is_case && ignores_case {
            r"\p{Lowercase}\p{Uppercase}\p{Lt}".to_owned()
        } else {
            (*items).to_owned()
        });
    }
    let key = |keys: &[&str]| {
        let (key, value) = name.split_once('=')?;
        keys.contains(&key).then_some(value)
    };
    let category = key(&["general_category", "gc"]).or(name.strip_prefix("Is")).unwrap_or(name);
    if CATEGORIES.contains(&category) {
        let is_case = matches!(category, "Lu" | "Ll" | "Lt");
        return Some(match is_case && ignores_case {
            true => r"\p{Lu}\p{Ll}\p{Lt}".to_owned(),
            false => format!(r"\p{{{category}}}"),
        });
    }
    let script = key(&["script", "sc"]).or(name.strip_prefix("Is"))?;
    SCRIPTS.contains(&script).then(|| format!(r"\p{{Script={script}}}"))
}

/// Of ASCII alone.
fn posix(name: &str, ignores_case: bool) -> Option<&'static str> {
    Some(match name {
        "Lower" | "Upper" if ignores_case => "A-Za-z",
        "Lower" => "a-z",
        "Upper" => "A-Z",
        "ASCII" => r"\x{0}-\x{7f}",
        "Alpha" => "A-Za-z",
        "Digit" => "0-9",
        "Alnum" => "0-9A-Za-z",
        "Punct" => r"\!-\/\:-\@\[-\`\{-\~",
        "Graph" => r"\!-\~",
        "Print" => r"\x{20}-\~",
        "Blank" => r"\x{20}\t",
        "Cntrl" => r"\x{0}-\x{1f}\x{7f}",
        "XDigit" => "0-9A-Fa-f",
        "Space" => r"\x{20}\t\n\x{b}\f\r",
        _ => return None,
    })
}
