use std::{fmt, net::IpAddr};

use http::Uri;
use url::{Host, Url};

use crate::{AddressPolicy, Forbidden};

/// Longest URL, in bytes: what servers take in a request line.
const URL_BYTES_MAX: usize = 8_000;

/// A URL that something may be sent to, as far as it says by itself: `http` or
/// `https`, no user, no forbidden address. Where a name leads to is checked by the
/// same policy whenever it is dialled.
///
/// ```
/// use walpost_webhook::{AddressPolicy, Endpoint, EndpointError};
///
/// let policy = AddressPolicy::public();
/// let endpoint = Endpoint::parse("https://example.com/hooks/", policy)?;
/// let event = endpoint.at_path("/plan/7?dry=1")?;
/// assert_eq!(event.to_string(), "https://example.com/hooks/plan/7?dry=1");
///
/// // However it is written.
/// assert!(Endpoint::parse("http://0x7f.1/", policy).is_err());
/// # Ok::<(), EndpointError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    url: Url,
    uri: Uri,
    addresses: AddressPolicy,
}

/// A URL, or a path behind one, that nothing is sent to. What is wrong is said
/// without its text, which may have secrets in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// It is no URL.
    #[error("this is no URL with a scheme and a host")]
    Syntax,
    /// It is no web address.
    #[error("a URL that is sent to begins with https:// or http://")]
    Scheme,
    /// It carries a user or a password.
    #[error("a URL that is sent to has no user and no password; use a header")]
    User,
    /// It has a fragment, which is never sent.
    #[error("a URL that is sent to has no fragment (#…)")]
    Fragment,
    /// It is too long.
    #[error("a URL that is sent to has at most {max} bytes, this one has {bytes}")]
    Length {
        /// How many it has.
        bytes: usize,
        /// How many it may have.
        max: usize,
    },
    /// Its host is an address that nothing is sent to.
    #[error("{address} is {why}; nothing is sent there")]
    Address {
        /// The address.
        address: IpAddr,
        /// Why.
        why: Forbidden,
    },
    /// A path that is no path below the URL.
    #[error(
        "a path begins with a slash, has no fragment, no backslash, no control character, no %2F \
         and no %5C, and no segment that is . or .., alone or ahead of a semicolon"
    )]
    Path,
}

impl Endpoint {
    /// # Errors
    /// When nothing may be sent there.
    pub fn parse(text: &str, policy: AddressPolicy) -> Result<Self, EndpointError> {
        let url = Url::parse(text).map_err(|_| EndpointError::Syntax)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(EndpointError::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EndpointError::User);
        }
        if url.fragment().is_some() {
            return Err(EndpointError::Fragment);
        }
        let address = match url.host().ok_or(EndpointError::Syntax)? {
            Host::Ipv4(address) => Some(IpAddr::V4(address)),
            Host::Ipv6(address) => Some(IpAddr::V6(address)),
            Host::Domain(_) => None,
        };
        if let Some(address) = address {
            policy.check(address).map_err(|why| EndpointError::Address { address, why })?;
        }
        Self::of(url, policy)
    }

    fn of(url: Url, addresses: AddressPolicy) -> Result<Self, EndpointError> {
        let bytes = url.as_str().len();
        if bytes > URL_BYTES_MAX {
            return Err(EndpointError::Length { bytes, max: URL_BYTES_MAX });
        }
        let uri = url.as_str().parse().map_err(|_| EndpointError::Syntax)?;
        Ok(Self { url, uri, addresses })
    }

    /// The same host, with `path` and its query behind the URL's own path, which
    /// it cannot leave. The URL's own query is kept where `path` has none.
    ///
    /// # Errors
    /// For what [`EndpointError::Path`] describes, and where it gets too long.
    pub fn at_path(&self, path: &str) -> Result<Self, EndpointError> {
        let is_fit = |c: char| !c.is_control() && !matches!(c, '#' | '\\');
        let (path, query) =
            path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        // As a receiver may read it that decodes first, or drops parameters.
        let read = path.to_ascii_lowercase().replace("%2e", ".");
        let is_dots = |segment: &str| matches!(segment.split(';').next(), Some("." | ".."));
        let has_dots = read.split('/').any(is_dots);
        let has_slash = read.contains("%2f") || read.contains("%5c");
        let is_text = path.chars().chain(query.unwrap_or_default().chars()).all(is_fit);
        if !path.starts_with('/') || has_dots || has_slash || !is_text {
            return Err(EndpointError::Path);
        }
        let mut url = self.url.clone();
        url.set_path(&format!("{}{path}", self.url.path().trim_end_matches('/')));
        if query.is_some() {
            url.set_query(query);
        }
        Self::of(url, self.addresses)
    }

    /// Which addresses are dialled for it.
    pub fn addresses(&self) -> AddressPolicy {
        self.addresses
    }

    /// As HTTP has it.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Whether it begins with `https`.
    pub fn is_tls(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// The name or address to dial, without the brackets of IPv6.
    pub fn host(&self) -> &str {
        let host = self.url.host_str().expect("an endpoint has a host");
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// The port to dial: 80 and 443 unless given.
    pub fn port(&self) -> u16 {
        self.url.port_or_known_default().expect("http and https have a port")
    }

    /// The header `host`.
    pub fn authority(&self) -> &str {
        self.uri.authority().expect("an endpoint has a host").as_str()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A path and its query may be secret, as those of Slack's webhooks are.
        write!(f, "Endpoint({}://{}/***)", self.url.scheme(), self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Endpoint, EndpointError> {
        Endpoint::parse(text, AddressPolicy::public())
    }

    #[test]
    fn only_web_addresses_without_a_user_are_taken() {
        for text in [
            "https://example.com",
            "http://example.com:8080/a?b=c",
            "https://bücher.example/ä",
            "https://[2606:4700::1]:8443/",
            "https://93.184.215.14/",
        ] {
            parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        }
        let long = format!("https://example.com/{}", "a".repeat(8_000));
        for (text, expected) in [
            ("", EndpointError::Syntax),
            ("example.com/hook", EndpointError::Syntax),
            ("/hook", EndpointError::Syntax),
            ("https://", EndpointError::Syntax),
            ("https://exa mple.com/", EndpointError::Syntax),
            ("https://example.com:65536/", EndpointError::Syntax),
            ("ftp://example.com/", EndpointError::Scheme),
            ("file:///etc/passwd", EndpointError::Scheme),
            ("gopher://example.com/", EndpointError::Scheme),
            ("unix:/run/docker.sock", EndpointError::Scheme),
            ("https://user@example.com/", EndpointError::User),
            ("https://:secret@example.com/", EndpointError::User),
            ("https://example.com@127.0.0.1/", EndpointError::User),
            ("https://example.com/#a", EndpointError::Fragment),
            (&long, EndpointError::Length { bytes: 8_020, max: 8_000 }),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn an_address_is_found_however_it_is_written() {
        for (text, address) in [
            ("http://127.0.0.1/", "127.0.0.1"),
            ("http://127.1/", "127.0.0.1"),
            ("http://0x7f.1/", "127.0.0.1"),
            ("http://0177.0.0.1/", "127.0.0.1"),
            ("http://2130706433/", "127.0.0.1"),
            ("http://127.0.0.1./", "127.0.0.1"),
            ("http://１２７.0.0.1/", "127.0.0.1"),
            ("http://169.254.169.254/latest/", "169.254.169.254"),
            ("http://[::1]:80/", "::1"),
            ("http://[::ffff:10.0.0.1]/", "::ffff:10.0.0.1"),
            ("http://[fd00:ec2::254]/", "fd00:ec2::254"),
            ("http://0/", "0.0.0.0"),
        ] {
            match parse(text).unwrap_err() {
                EndpointError::Address { address: found, .. } => {
                    assert_eq!(found.to_string(), address, "{text}");
                }
                other => panic!("{text}: {other}"),
            }
        }
        Endpoint::parse("http://127.1/", AddressPolicy::with_private_networks()).unwrap();
    }

    #[test]
    fn a_path_stays_below_the_url() {
        let base = parse("https://example.com/api/?key=1").unwrap();
        for (path, expected) in [
            ("/plan/7", "https://example.com/api/plan/7?key=1"),
            ("/plan/7?a=b?c", "https://example.com/api/plan/7?a=b?c"),
            ("//evil.example/x", "https://example.com/api//evil.example/x?key=1"),
            ("/@evil.example", "https://example.com/api/@evil.example?key=1"),
            ("/ä b", "https://example.com/api/%C3%A4%20b?key=1"),
            ("/a..b/.c", "https://example.com/api/a..b/.c?key=1"),
            ("/a;..=1/b;c", "https://example.com/api/a;..=1/b;c?key=1"),
            ("/A%2B?b=%2F..;", "https://example.com/api/A%2B?b=%2F..;"),
        ] {
            assert_eq!(base.at_path(path).unwrap().to_string(), expected, "{path}");
        }
        for path in [
            "",
            "plan",
            "https://evil.example/",
            "@evil.example/",
            "/..",
            "/../admin",
            "/a/%2e%2E/b",
            "/a/.%2e",
            "/./a",
            "/..;/admin",
            "/a/.;b=1/c",
            "/%2E%2e;x",
            "/a%2f..",
            "/a%2Fb",
            "/..%5cadmin",
            "/a%5Cb",
            "/a#b",
            "/a?b#c",
            "/a\\..\\b",
            "/a\nb",
            "/a?b\r\n",
        ] {
            assert_eq!(base.at_path(path).unwrap_err(), EndpointError::Path, "{path:?}");
        }
    }

    #[test]
    fn what_is_dialled_and_what_is_said() {
        for (text, host, port, authority) in [
            ("http://example.com/a", "example.com", 80, "example.com"),
            ("https://example.com:443/", "example.com", 443, "example.com"),
            ("https://example.com:8443/", "example.com", 8443, "example.com:8443"),
            ("https://[2606:4700::1]:8443/", "2606:4700::1", 8443, "[2606:4700::1]:8443"),
            ("https://EXAMPLE.com./", "example.com.", 443, "example.com."),
        ] {
            let endpoint = parse(text).unwrap();
            let dialled = (endpoint.host(), endpoint.port(), endpoint.authority());
            assert_eq!(dialled, (host, port, authority), "{text}");
        }
    }
}
