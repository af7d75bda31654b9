use std::{fmt, str::FromStr};

use crate::{
    Key,
    digest::{digest, hex},
};

/// Whose keys are kept apart from whose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScopeBy {
    /// A key is one request of its principal, on whatever route. Used on another
    /// route it is a mismatch.
    Principal,
    /// The same key on two routes is two requests.
    #[default]
    PrincipalAndRoute,
}

/// What a key belongs to: nobody else's request is found under it.
///
/// ```
/// use walpost_idempotency::{Key, Lookup, Scope};
///
/// let key = Key::new("one")?;
/// let alice = Lookup::new(&Scope::principal("alice"), &key);
/// let bob = Lookup::new(&Scope::principal("bob"), &key);
/// assert_ne!(alice, bob);
/// # Ok::<(), walpost_idempotency::KeyError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Scope<'a> {
    principal: &'a str,
    route: Option<&'a str>,
}

impl<'a> Scope<'a> {
    /// All requests of whoever is authenticated: an account, say, or a tenant
    /// and its user. Not what a client may choose, as a header.
    pub fn principal(principal: &'a str) -> Self {
        Self { principal, route: None }
    }

    /// Its requests on one route.
    pub fn principal_and_route(principal: &'a str, route: &'a str) -> Self {
        Self { principal, route: Some(route) }
    }

    /// The one or the other.
    pub fn new(by: ScopeBy, principal: &'a str, route: &'a str) -> Self {
        match by {
            ScopeBy::Principal => Self::principal(principal),
            ScopeBy::PrincipalAndRoute => Self::principal_and_route(principal, route),
        }
    }
}

/// Does not show the principal.
impl fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({} bytes, route {:?})", self.principal.len(), self.route)
    }
}

/// Under what a request is found: SHA-256 of scope and key, of which neither can
/// be read back. As text, 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lookup([u8; 32]);

/// A text that is no [`Lookup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not 64 hexadecimal digits")]
pub struct ParseLookupError;

impl Lookup {
    /// Of a key in its scope.
    pub fn new(scope: &Scope<'_>, key: &Key) -> Self {
        let route = scope.route.map(str::as_bytes);
        let parts = [Some(scope.principal.as_bytes()), route, Some(key.as_str().as_bytes())];
        Self(digest("walpost idempotency lookup", &parts))
    }

    /// Its 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A key for a call that this request makes: the same for each attempt,
    /// another one for each `call`, and nothing that tells the client's key.
    ///
    /// ```
    /// # use walpost_idempotency::{Key, Lookup, Scope};
    /// # let lookup = Lookup::new(&Scope::principal("alice"), &Key::new("one")?);
    /// assert_eq!(lookup.derived("charge"), lookup.derived("charge"));
    /// assert_ne!(lookup.derived("charge"), lookup.derived("refund"));
    /// # Ok::<(), walpost_idempotency::KeyError>(())
    /// ```
    pub fn derived(&self, call: &str) -> String {
        hex(&digest("walpost idempotency derived", &[Some(&self.0), Some(call.as_bytes())]))
    }
}

impl fmt::Display for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lookup({self})")
    }
}

impl FromStr for Lookup {
    type Err = ParseLookupError;

    fn from_str(text: &str) -> Result<Self, ParseLookupError> {
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(ParseLookupError);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| ParseLookupError)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| ParseLookupError)?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(scope: Scope<'_>, key: &str) -> Lookup {
        Lookup::new(&scope, &Key::new(key).unwrap())
    }

    #[test]
    fn principal_route_and_key_are_all_in_it() {
        let all = [
            lookup(Scope::principal("ab"), "c"),
            lookup(Scope::principal("a"), "bc"),
            lookup(Scope::principal_and_route("a", "b"), "c"),
            lookup(Scope::principal_and_route("a", ""), "bc"),
            lookup(Scope::principal_and_route("ab", "b"), "c"),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one), "{index}");
        }
        let route = |by| lookup(Scope::new(by, "a", "r"), "k");
        assert_eq!(route(ScopeBy::Principal), lookup(Scope::principal("a"), "k"));
        assert_eq!(
            route(ScopeBy::PrincipalAndRoute),
            lookup(Scope::principal_and_route("a", "r"), "k")
        );
    }

    #[test]
    fn text_is_read_as_it_is_written() {
        let one = lookup(Scope::principal("a"), "k");
        assert_eq!(one.to_string().parse(), Ok(one));
        for text in ["", "00", &"g".repeat(64), &"+1".repeat(32), &"ä".repeat(32)] {
            assert_eq!(text.parse::<Lookup>(), Err(ParseLookupError), "{text}");
        }
    }

    #[test]
    fn debug_does_not_show_the_principal() {
        let text = format!("{:?}", Scope::principal_and_route("alice@example.com", "orders"));
        assert!(!text.contains("alice") && text.contains("orders"), "{text}");
    }
}
