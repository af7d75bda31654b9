use crate::properties::{MAX_BYTES, Properties, Property};

/// What a placeholder such as `${file:/etc/pg.properties:password}` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference<'a> {
    /// Name of the provider, before the first colon.
    pub provider: &'a str,
    /// What stands between the first two colons; empty where there is but one.
    pub path: &'a str,
    /// The rest.
    pub key: &'a str,
}

/// Placeholders of one configuration.
pub const MAX_PLACEHOLDERS: usize = 100;

/// A placeholder cannot be replaced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError<E: std::error::Error + 'static> {
    /// Nothing stands behind it.
    #[error("replacing a placeholder of {property} failed")]
    Lookup {
        /// The property.
        property: String,
        /// Why, and what to do.
        #[source]
        source: E,
    },
    /// There are more than [`MAX_PLACEHOLDERS`].
    #[error(
        "{property} has a placeholder beyond the first {MAX_PLACEHOLDERS}; write the values themselves"
    )]
    TooMany {
        /// The property of the first one beyond.
        property: String,
    },
    /// What stands behind them is more than [`MAX_BYTES`] together.
    #[error(
        "what the placeholders up to {property} stand for has more than {MAX_BYTES} bytes; make it smaller"
    )]
    TooLarge {
        /// The property that goes beyond.
        property: String,
    },
}

impl<E: std::error::Error + 'static> ResolveError<E> {
    /// The property.
    pub fn property(&self) -> &str {
        match self {
            Self::Lookup { property, .. }
            | Self::TooMany { property }
            | Self::TooLarge { property } => property,
        }
    }
}

impl Properties {
    /// Replaces each `${provider:path:key}` and `${provider:key}` by what
    /// `lookup` says, as Kafka Connect's `ConfigTransformer` does: once, so that
    /// a value that looks like a placeholder stays as it is. A `${name}` without
    /// a colon, as in `route.topic.replacement`, is no placeholder.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use walpost_connector::Properties;
    ///
    /// let given = Properties::from_pairs([("a", "x-${env:N}"), ("b", "outbox.${b}")]);
    /// let resolved = given.resolve(|asked| Ok::<_, Infallible>(asked.key.to_lowercase()))?;
    /// assert_eq!(resolved.get("a"), Some("x-n"));
    /// assert_eq!(resolved.get("b"), Some("outbox.${b}"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ResolveError`] with the property: what `lookup` fails with, more than
    /// [`MAX_PLACEHOLDERS`], and more than [`MAX_BYTES`] behind all of them.
    pub fn resolve<E: std::error::Error + 'static>(
        mut self,
        mut lookup: impl FnMut(Reference<'_>) -> Result<String, E>,
    ) -> Result<Self, ResolveError<E>> {
        let mut bounds = Bounds { placeholders: MAX_PLACEHOLDERS, bytes: MAX_BYTES };
        for property in &mut self.list {
            let name = || property.name.clone();
            property.value =
                replaced(&property.written, &mut lookup, &mut bounds).map_err(|failure| {
                    match failure {
                        Failure::Lookup(source) => {
                            ResolveError::Lookup { property: name(), source }
                        }
                        Failure::TooMany => ResolveError::TooMany { property: name() },
                        Failure::TooLarge => ResolveError::TooLarge { property: name() },
                    }
                })?;
        }
        Ok(self)
    }
}

impl Property {
    /// Whether the file has nothing but one placeholder for the value, which may
    /// then be shown, whatever it stands for.
    pub(crate) fn is_placeholder(&self) -> bool {
        find(&self.written).is_some_and(|(start, _, end)| (start, end) == (0, self.written.len()))
    }
}

/// What may still be replaced.
struct Bounds {
    placeholders: usize,
    bytes: usize,
}

enum Failure<E> {
    Lookup(E),
    TooMany,
    TooLarge,
}

fn replaced<E>(
    text: &str,
    lookup: &mut impl FnMut(Reference<'_>) -> Result<String, E>,
    bounds: &mut Bounds,
) -> Result<String, Failure<E>> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((start, reference, end)) = find(rest) {
        out.push_str(&rest[..start]);
        bounds.placeholders = bounds.placeholders.checked_sub(1).ok_or(Failure::TooMany)?;
        let found = lookup(reference).map_err(Failure::Lookup)?;
        bounds.bytes = bounds.bytes.checked_sub(found.len()).ok_or(Failure::TooLarge)?;
        out.push_str(&found);
        rest = &rest[end..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The first placeholder, between two offsets.
fn find(text: &str) -> Option<(usize, Reference<'_>, usize)> {
    let mut from = 0;
    while let Some(start) = text[from..].find("${").map(|at| from + at) {
        let inner = &text[start + 2..];
        let end = inner.find('}')?;
        if let Some((provider, rest)) = inner[..end].split_once(':') {
            let (path, key) = rest.split_once(':').unwrap_or(("", rest));
            return Some((start, Reference { provider, path, key }, start + 2 + end + 1));
        }
        // Without a colon up to the brace, none that begins before it has one.
        from = start + 2 + end + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_those_of_kafka_connect() {
        let of = |provider, path, key| Some(Reference { provider, path, key });
        for (text, expected) in [
            ("${file:/a/b.properties:pw}", of("file", "/a/b.properties", "pw")),
            ("x${env:PW}y", of("env", "", "PW")),
            ("${dir:/run:a:b}", of("dir", "/run", "a:b")),
            ("${a}${env:PW}", of("env", "", "PW")),
            ("${${a}${env:PW}", of("env", "", "PW")),
            ("$${${env:PW}}", of("${env", "", "PW")),
            ("${a ${env:PW}", of("a ${env", "", "PW")),
            ("${:}", of("", "", "")),
            ("outbox.event.${routedByValue}", None),
            ("${env:PW", None),
            ("$env:PW}", None),
            ("", None),
        ] {
            assert_eq!(find(text).map(|(_, reference, _)| reference), expected, "{text}");
        }
    }

    #[test]
    fn a_value_is_not_looked_at_again() {
        let given = Properties::from_pairs([("a", "${p:x}-${p:y}-${z}")]);
        let lookup = |asked: Reference<'_>| {
            Ok::<_, std::convert::Infallible>(match asked.key {
                "x" => "${p:y}".to_owned(),
                other => other.to_owned(),
            })
        };
        let resolved = given.resolve(lookup).unwrap();
        assert_eq!(resolved.get("a"), Some("${p:y}-y-${z}"));
        assert!(resolved.iter().all(Property::is_resolved));
    }
}
