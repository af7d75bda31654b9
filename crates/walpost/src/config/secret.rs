use walpost_postgres::{Database, SettingsError};

/// What is printed for a secret.
pub(super) const HIDDEN: &str = "***";

/// A value with its secrets hidden.
pub(super) fn hide(section: &str, key: &str, value: &str) -> String {
    match (section, key) {
        ("postgres" | "inbox" | "idempotency", "url") => hide_password(value),
        (section, "url") if section.starts_with("destination") => hide_path(value),
        (section, "headers") if section.starts_with("destination") => hide_value(value),
        ("kafka", key) if is_secret(key) && !value.is_empty() => HIDDEN.to_owned(),
        _ => value.to_owned(),
    }
}

/// Of a URL that a webhook goes to the path and the query may be its secret.
fn hide_path(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return if url.is_empty() { String::new() } else { HIDDEN.to_owned() };
    };
    let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or_default();
    let path = if path.len() > 1 { format!("/{HIDDEN}") } else { path.to_owned() };
    format!("{scheme}://{host}{path}")
}

/// Of a header the value.
fn hide_value(header: &str) -> String {
    match header.split_once(':') {
        Some((name, _)) => format!("{name}: {HIDDEN}"),
        None => HIDDEN.to_owned(),
    }
}

fn is_secret(key: &str) -> bool {
    let secret =
        ["password", "passphrase", "secret", "jaas", "key.pem", "token", "oauthbearer.config"];
    let key = key.to_ascii_lowercase();
    secret.iter().any(|part| key.contains(part))
}

/// A connection string of either form without its password. Of one that cannot
/// be read nobody knows where the password is: nothing of it shows.
fn hide_password(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    if let Err(SettingsError::Syntax(_) | SettingsError::NoKey) = Database::parse(text) {
        return HIDDEN.to_owned();
    }
    // The keyword first: what it says may hold an `@`.
    let hidden = hide_keyword(text);
    match hidden.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", hide_user_info(rest)),
        None => hidden,
    }
}

fn hide_user_info(rest: &str) -> String {
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    // A password may hold a raw slash, which would be wrong, yet must not show.
    let at = rest[..end].rfind('@').or_else(|| rest.rfind('@'));
    let Some((login, host)) = at.map(|at| rest.split_at(at)) else { return rest.to_owned() };
    match login.split_once(':') {
        Some((user, _)) => format!("{user}:{HIDDEN}{host}"),
        None => rest.to_owned(),
    }
}

/// `password=…`, in a query or between blanks, quoted or not.
fn hide_keyword(text: &str) -> String {
    let mut hidden = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("password") {
        let after = rest[at + "password".len()..].trim_start();
        let Some(value) = after.strip_prefix('=').map(str::trim_start) else {
            let (done, more) = rest.split_at(at + "password".len());
            hidden.push_str(done);
            rest = more;
            continue;
        };
        hidden.push_str(&rest[..at]);
        hidden.push_str("password=");
        hidden.push_str(HIDDEN);
        rest = &value[end_of_value(value)..];
    }
    hidden + rest
}

fn end_of_value(value: &str) -> usize {
    let quoted = value.starts_with('\'');
    let mut escaped = false;
    for (index, c) in value.char_indices().skip(usize::from(quoted)) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\'' if quoted => return index + 1,
            c if !quoted && (c.is_whitespace() || c == '&') => return index,
            _ => {}
        }
    }
    value.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_destination_the_host_shows_alone() {
        for (key, value, shown) in [
            ("url", "https://hooks.example/services/T0/s3cr3t", "https://hooks.example/***"),
            ("url", "https://u:s3cr3t@hooks.example:8443/", "https://hooks.example:8443/"),
            ("url", "s3cr3t", "***"),
            ("url", "", ""),
            ("headers", "x-token: s3cr3t", "x-token: ***"),
            ("headers", "s3cr3t", "***"),
        ] {
            assert_eq!(hide("destination.logistics", key, value), shown);
        }
    }

    #[test]
    fn passwords_of_connection_strings_do_not_show() {
        for (text, shown) in [
            (
                "postgres://app:s3@h:5432/db?connect_timeout=3",
                "postgres://app:***@h:5432/db?connect_timeout=3",
            ),
            ("postgres://app@h/db", "postgres://app@h/db"),
            ("postgres://app:a/b@h/db", "postgres://app:***@h/db"),
            (
                "postgres://h/db?user=a&password=s3&port=1",
                "postgres://h/db?user=a&password=***&port=1",
            ),
            ("postgres://app:a?b@h/db", "postgres://app:***@h/db"),
            ("host=h sslpassword=s3 user=a", "host=h sslpassword=*** user=a"),
            ("host=h password=s3 user=a", "host=h password=*** user=a"),
            (r"host=h password = 's \' 3' user=a", "host=h password=*** user=a"),
            (
                "postgres://h:5432/db?user=a&password=s3@x",
                "postgres://h:5432/db?user=a&password=***",
            ),
            ("host=h user=a password=http://a:b@c", "host=h user=a password=***"),
            ("", ""),
        ] {
            assert_eq!(hide("postgres", "url", text), shown);
        }
    }

    #[test]
    fn nothing_shows_of_a_connection_string_that_cannot_be_read() {
        for text in [
            "postgres//bob:hunter2@h:5432/db",
            "postgres//bob:hunter2@h/db?sslmode=require",
            "postgres:/bob:hunter2@h/db",
            "bob:hunter2@h/db",
            "psql://bob:hunter2@h/db",
            "host=h user=bob pasword=hunter2",
            "host=h user=bob password='hunter2",
            "postgres://bob:hunter2@h:port/db",
            "hunter2",
        ] {
            assert_eq!(hide("postgres", "url", text), HIDDEN, "{text}");
        }
    }

    #[test]
    fn secrets_of_kafka_do_not_show() {
        for key in [
            "sasl.password",
            "ssl.key.password",
            "ssl.keystore.password",
            "ssl.key.pem",
            "sasl.oauthbearer.client.secret",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.oauthbearer.assertion.private.key.pem",
            "SASL.PASSWORD",
        ] {
            assert_eq!(hide("kafka", key, "s3"), HIDDEN);
        }
        assert_eq!(hide("kafka", "sasl.username", "app"), "app");
    }
}
