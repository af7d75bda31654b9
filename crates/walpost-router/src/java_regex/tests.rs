use proptest::prelude::*;

use super::{JavaRegex, translate};

/// Whether all of a text matches, as Java says.
fn matches(pattern: &str, text: &str) -> bool {
    let regex = JavaRegex::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error:?}"));
    regex.first_of_whole(text).expect("few steps").is_some()
}

#[test]
fn common_patterns_need_no_backtracking() {
    let patterns = [
        r"(?<routedByValue>.*)",
        r"(.)(.*)",
        r"(?i)order.*?",
        r"^[a-z0-9_\-]+\.(v\d{1,3})?$",
        r"(?<a>x)|(y+)",
        r"[]a]+",
        r"[^]+*]+",
        r"\++\**",
        r"(?:ab)+(?-i:c)",
        r"a{2}?",
        r"\[+",
        r"^a$|^b$",
        r"(^a$|(?:b|c$))",
        r"\bword\b",
        r"\Qa.b\E+",
    ];
    for pattern in patterns {
        let translated = translate(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        assert!(!translated.backtracks, "{pattern}");
        JavaRegex::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error:?}"));
    }
}

#[test]
fn a_pattern_of_more_than_64_kib_is_refused_before_it_is_compiled() {
    let most = "x".repeat(64 << 10);
    assert!(translate(&most).is_ok());
    assert_eq!(translate(&format!("{most}x")).unwrap_err().offset(), most.len());
}

#[test]
fn what_is_no_pattern_or_not_known_is_refused_with_its_offset() {
    let cases = [
        (r"a**", 2),
        (r"a{2}{3}", 4),
        (r"*a", 0),
        (r"a{,2}", 1),
        (r"a{x}", 1),
        (r"(a", 0),
        (r"ab(c(d)e", 2),
        (r"(a(?:b", 2),
        (r"a(?i:b", 1),
        (r"a(?<n>b", 1),
        (r"a)", 1),
        (r"[a", 0),
        (r"[b-a]", 1),
        (r"[a&&]", 2),
        (r"\y", 0),
        (r"x\", 1),
        (r"\b{g}", 0),
        (r"(?x)y", 0),
        (r"x(?U)y", 1),
        (r"(?iu)y", 0),
        (r"(?d)y", 0),
        (r"(?R)", 0),
        (r"(?P<n>a)", 0),
        (r"(?<a_b>a)", 0),
        (r"(?<a>a)(?<a>b)", 7),
        (r"\p{Nope}", 0),
        (r"\1(a)", 0),
        (r"\k<n>", 0),
        (r"\uD83D", 0),
        (r"\x{110000}", 0),
    ];
    for (pattern, offset) in cases {
        let refused = translate(pattern).expect_err(pattern);
        assert_eq!(refused.offset(), offset, "{pattern}: {refused}");
    }
}

/// Each as `java.util.regex.Pattern` of Java 25 says.
#[test]
fn texts_match_as_in_java() {
    let cases: [(&str, &[&str], &[&str]); 31] = [
        (r"\d+", &["019"], &["٣", "a"]),
        (r"\w", &["a", "_", "7"], &["é", "-"]),
        (r"[\W]", &["é", "-"], &["a", "_"]),
        (r"\s", &[" ", "\t", "\u{b}"], &["\u{a0}"]),
        (r"\h", &["\u{a0}", " ", "\u{3000}"], &["\n"]),
        (r".", &["é", "🎉"], &["\n", "\r", "\u{85}", "\u{2028}"]),
        (r"(?s).", &["\n", "\u{85}"], &["ab"]),
        (r"\p{Lower}+", &["abc"], &["é", "A"]),
        (r"\p{L}+\P{L}", &["éA1"], &["1a"]),
        (r"\pL", &["é"], &["1"]),
        (r"\p{IsAlphabetic}\p{IsLatin}", &["éa"], &["1a", "aж"]),
        (r"(?i)größe", &["GRößE"], &["GRÖßE"]),
        (r"(?i)[a-c]\p{Upper}", &["Bx", "CX"], &["dx"]),
        (r"(?i:a)b", &["Ab"], &["AB"]),
        (r"[a-z&&[^bc]]", &["a", "d"], &["b", "-"]),
        (r"[a-c[x-z]]", &["a", "y"], &["d"]),
        (r"[a-c-]", &["-", "b"], &["d"]),
        (r"[\Qa-c\E]", &["a", "-"], &["b"]),
        (r"\Q.*\E", &[".*"], &["ab"]),
        (r"\Qab\E+", &["abb"], &["abab"]),
        (r"a$\n|b", &["a\n", "b"], &["a"]),
        (r"(?m)a$\s^b", &["a\nb", "a\rb"], &["ab"]),
        (r"(?<!x)a(?=b)b", &["ab"], &["a"]),
        (r"(?<n>a|b)-\k<n>", &["a-a", "b-b"], &["a-b"]),
        (r"a*+a", &[], &["a", "aa"]),
        (r"(?>a|ab)c", &["ac"], &["abc"]),
        (r"\0101\x41\u0041\x{1F389}\uD83C\uDF89\cA\e", &["AAA🎉🎉\u{1}\u{1b}"], &[]),
        (r"\R\n?", &["\r\n\n", "\u{85}"], &["\r\r"]),
        (r"\R{2}", &["\r\r\n"], &["\r\n"]),
        (r"a\Bb\b", &["ab"], &["a b"]),
        (r"(?=\ba)a\Bb", &["ab"], &["b"]),
    ];
    for (pattern, right, wrong) in cases {
        for text in right {
            assert!(matches(pattern, text), "{pattern} {text:?}");
        }
        for text in wrong {
            assert!(!matches(pattern, text), "{pattern} {text:?}");
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_a_pattern_or_refused(
        any in any::<String>(),
        likely in r"([a-zA-Z0-9éß🎉.$^|?*+(){}\[\]\\&:=!<>_,-]|\\[a-zA-Z0-9]|\(\?|\[\^|&&){0,24}",
    ) {
        for pattern in [any, likely] {
            if let Ok(regex) = JavaRegex::new(&pattern) {
                let groups = regex.groups().count();
                if let Ok(Some(found)) = regex.first_of_whole("aéb-1") {
                    prop_assert_eq!(found.len(), groups + 1);
                }
            }
        }
    }

    /// What a quotation has is literal, and what is literal matches itself alone.
    #[test]
    fn quoted_text_matches_itself(text in "[^\\\\]{0,12}", other in "[^\\\\]{0,12}") {
        let pattern = format!("\\Q{text}\\E");
        prop_assert!(matches(&pattern, &text));
        prop_assert_eq!(matches(&pattern, &other), text == other);
    }
}
