//! `sasl.jaas.config`: a class, a flag, options and a semicolon.

use std::{iter::Peekable, str::Chars};

/// Whom a login module logs in.
pub(super) struct Login {
    /// The class without its package.
    pub(super) module: String,
    pub(super) user: String,
    pub(super) password: String,
}

/// The login of one module with the options `username` and `password`.
pub(super) fn login(text: &str) -> Option<Login> {
    let mut chars = text.chars().peekable();
    let class = word(&mut chars)?;
    let module = class.rsplit('.').next().unwrap_or_default().to_owned();
    let _flag = word(&mut chars)?;
    let (mut user, mut password) = (None, None);
    loop {
        blanks(&mut chars);
        if chars.next_if_eq(&';').is_some() {
            break;
        }
        let name = word(&mut chars)?;
        blanks(&mut chars);
        chars.next_if_eq(&'=')?;
        blanks(&mut chars);
        let value = word(&mut chars)?;
        match name.as_str() {
            "username" => user = Some(value),
            "password" => password = Some(value),
            _ => {}
        }
    }
    Some(Login { module, user: user?, password: password? })
}

fn blanks(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|c| c.is_whitespace()).is_some() {}
}

/// A word, or what stands between quotes, where a backslash takes their meaning.
fn word(chars: &mut Peekable<Chars<'_>>) -> Option<String> {
    blanks(chars);
    let mut word = String::new();
    if let Some(quote) = chars.next_if(|c| matches!(c, '"' | '\'')) {
        loop {
            match chars.next()? {
                '\\' => word.push(chars.next()?),
                c if c == quote => return Some(word),
                c => word.push(c),
            }
        }
    }
    while let Some(c) = chars.next_if(|c| !c.is_whitespace() && !matches!(c, '=' | ';' | '"')) {
        word.push(c);
    }
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_are_found() {
        for (text, module, user, password) in [
            (
                "org.apache.kafka.common.security.plain.PlainLoginModule required \
                 username=\"u\" password=\"p;=\\\" q\";",
                "PlainLoginModule",
                "u",
                "p;=\" q",
            ),
            (
                "a.ScramLoginModule required\n password='p' x=y username = u ;",
                "ScramLoginModule",
                "u",
                "p",
            ),
        ] {
            let found = login(text).unwrap();
            assert_eq!((&*found.module, &*found.user, &*found.password), (module, user, password));
        }
        for text in [
            "",
            "A",
            "A required",
            "A required username=\"u\";",
            "A required username=\"u",
            "A required x y;",
        ] {
            assert!(login(text).is_none(), "{text}");
        }
    }
}
