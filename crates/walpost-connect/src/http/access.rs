use std::{fmt, net::IpAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};

use crate::error::ApiError;

/// Who may ask: whoever names one of these tokens or passwords.
///
/// Where there is none, whoever reaches the port may ask; such a port belongs on
/// the loopback interface. A browser on the same machine reaches it too: requests
/// whose `Host` is neither an address nor `localhost`, and those that another
/// site sends, are then refused.
///
/// ```
/// use walpost_connect::Access;
///
/// let access = Access::open().bearer("t0ken").basic("admin", "s3cr3t");
/// assert!(!access.is_open());
/// assert_eq!(format!("{access:?}"), "Access { logins: 2 }");
/// ```
#[derive(Clone, Default)]
pub struct Access {
    /// SHA-256 of what a header says, so that comparing takes equally long.
    logins: Vec<[u8; 32]>,
}

impl Access {
    /// Whoever reaches the port.
    pub fn open() -> Self {
        Self::default()
    }

    /// Also whoever sends `Authorization: Bearer <token>`.
    #[must_use]
    pub fn bearer(mut self, token: &str) -> Self {
        self.logins.push(digest("bearer", token.as_bytes()));
        self
    }

    /// Also whoever sends this user and password as `Authorization: Basic`, as
    /// Kafka Connect's `BasicAuthSecurityRestExtension` takes them.
    #[must_use]
    pub fn basic(mut self, user: &str, password: &str) -> Self {
        self.logins.push(digest("basic", format!("{user}:{password}").as_bytes()));
        self
    }

    /// Whether nobody has to say who they are.
    pub fn is_open(&self) -> bool {
        self.logins.is_empty()
    }

    fn lets_in(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION).and_then(|given| given.to_str().ok());
        let Some((scheme, rest)) = given.and_then(|given| given.split_once(' ')) else {
            return false;
        };
        let login = match scheme.to_ascii_lowercase().as_str() {
            "bearer" => digest("bearer", rest.trim().as_bytes()),
            "basic" => match BASE64_STANDARD.decode(rest.trim()) {
                Ok(login) => digest("basic", &login),
                Err(_) => return false,
            },
            _ => return false,
        };
        self.logins.contains(&login)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("logins", &self.logins.len()).finish()
    }
}

fn digest(scheme: &str, login: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(scheme).chain_update([0]).chain_update(login).finalize().into()
}

/// Lets a request pass, or answers it.
pub(super) async fn guard(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    if access.is_open() {
        if !is_of_this_machine(headers) {
            let message = "without a login, requests are answered that name this machine by an \
                           address or as localhost, and that no other site sends";
            return ApiError { code: 403, message: message.to_owned() }.into_response();
        }
    } else if !access.lets_in(headers) {
        let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"walpost\", Bearer")];
        let text = "User cannot access the resource.";
        return (StatusCode::UNAUTHORIZED, ask, text).into_response();
    }
    next.run(request).await
}

/// Whether a request comes from no page of another site, under whatever name
/// that has this machine's address now.
fn is_of_this_machine(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let is_local = |host: &str| {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        };
        name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
    };
    let origin = text(header::ORIGIN);
    let is_ours = origin.is_none_or(|origin| {
        let host = text(header::HOST).unwrap_or_default();
        origin.split_once("://").is_some_and(|(_, origin)| origin == host)
    });
    text(header::HOST).is_none_or(is_local) && is_ours
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_login_is_a_token_or_user_and_password() {
        let access = Access::open().bearer("t0ken").basic("admin", "s3:cr3t");
        for (value, is_let_in) in [
            ("Bearer t0ken", true),
            ("bearer t0ken", true),
            ("Bearer t0ke", false),
            ("Bearer ", false),
            ("t0ken", false),
            ("Basic YWRtaW46czM6Y3IzdA==", true),
            ("Basic YWRtaW46czM=", false),
            ("Basic t0ken", false),
            ("Basic !", false),
            // A token is no password, and the other way round.
            ("Bearer admin:s3:cr3t", false),
            ("Digest t0ken", false),
        ] {
            let headers = headers(&[(header::AUTHORIZATION, value)]);
            assert_eq!(access.lets_in(&headers), is_let_in, "{value}");
        }
        assert!(!access.lets_in(&HeaderMap::new()));
    }

    #[test]
    fn pages_of_other_sites_do_not_reach_an_open_port() {
        for (pairs, is_answered) in [
            (&[(header::HOST, "127.0.0.1:8083")][..], true),
            (&[(header::HOST, "[::1]:8083")], true),
            (&[(header::HOST, "localhost:8083")], true),
            (&[], true),
            (&[(header::HOST, "rebound.example:8083")], false),
            (&[(header::HOST, "localhost:8083"), (header::ORIGIN, "http://localhost:8083")], true),
            (&[(header::HOST, "localhost:8083"), (header::ORIGIN, "http://evil.example")], false),
            (&[(header::HOST, "localhost:8083"), (header::ORIGIN, "null")], false),
        ] {
            assert_eq!(is_of_this_machine(&headers(pairs)), is_answered, "{pairs:?}");
        }
    }
}
