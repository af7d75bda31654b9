use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;

use crate::{SigningKey, key::BASE64};

/// More would make a header that receivers refuse.
const KEYS_MAX: usize = 8;
pub(crate) const ID_BYTES_MAX: usize = 256;

/// Signs what is sent, as Standard Webhooks has it.
///
/// With several keys there are several signatures, of which a receiver accepts
/// any: sign with the old and the new one until all receivers know the new.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use walpost_webhook::Signer;
///
/// let signer = Signer::new(["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD".parse()?])?;
/// let at = UNIX_EPOCH + Duration::from_secs(1649367553);
/// let body = br#"{"email":"test@example.com","username":"test_user"}"#;
/// let signature = signer.sign("msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", at, body)?;
/// assert_eq!(
///     signature.headers(),
///     [
///         ("webhook-id", "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk".to_owned()),
///         ("webhook-timestamp", "1649367553".to_owned()),
///         ("webhook-signature", "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=".to_owned()),
///     ],
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Signer {
    keys: Vec<SigningKey>,
}

/// What signs one attempt: three headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// `webhook-id`: the same with each attempt.
    pub id: String,
    /// `webhook-timestamp`: of this attempt, in seconds since 1970.
    pub timestamp_seconds: u64,
    /// `webhook-signature`: one for each key, with a space between them.
    pub value: String,
}

/// There is nothing to sign, or nothing to sign it with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignError {
    /// No key, or too many.
    #[error("{keys} keys are to sign; give 1 to {max}")]
    Keys {
        /// How many were given.
        keys: usize,
        /// How many there are at most.
        max: usize,
    },
    /// The id is not made of what a signature can bind: 1 to 256 printable
    /// ASCII characters without a dot.
    #[error(
        "the id of {bytes} bytes cannot be signed; it has 1 to {max} printable ASCII characters, \
         and neither a dot nor a space"
    )]
    Id {
        /// How many it has.
        bytes: usize,
        /// How many it has at most.
        max: usize,
    },
}

impl Signer {
    /// # Errors
    /// Without a key, and with more than 8.
    pub fn new(keys: impl IntoIterator<Item = SigningKey>) -> Result<Self, SignError> {
        let keys: Vec<SigningKey> = keys.into_iter().collect();
        if keys.is_empty() || keys.len() > KEYS_MAX {
            return Err(SignError::Keys { keys: keys.len(), max: KEYS_MAX });
        }
        Ok(Self { keys })
    }

    /// Signs `body` as it is sent, byte for byte.
    ///
    /// # Errors
    /// For an id that [`SignError::Id`] describes.
    pub fn sign(&self, id: &str, at: SystemTime, body: &[u8]) -> Result<Signature, SignError> {
        if !is_id(id.as_bytes()) {
            return Err(SignError::Id { bytes: id.len(), max: ID_BYTES_MAX });
        }
        let timestamp_seconds = unix_seconds(at);
        let head = format!("{id}.{timestamp_seconds}.");
        let parts = [head.as_bytes(), body];
        let of_keys = self.keys.iter().map(|key| {
            let signature = BASE64.encode(key.sign(&parts));
            format!("{},{signature}", key.tag())
        });
        let value = of_keys.collect::<Vec<_>>().join(" ");
        Ok(Signature { id: id.to_owned(), timestamp_seconds, value })
    }
}

impl Signature {
    /// Names, in lower case, and values.
    pub fn headers(&self) -> [(&'static str, String); 3] {
        [
            ("webhook-id", self.id.clone()),
            ("webhook-timestamp", self.timestamp_seconds.to_string()),
            ("webhook-signature", self.value.clone()),
        ]
    }
}

/// With a dot in an id, two different messages could have the same signature.
pub(crate) fn is_id(id: &[u8]) -> bool {
    let is_fit = |byte: &u8| byte.is_ascii_graphic() && *byte != b'.';
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.iter().all(is_fit)
}

/// Before 1970 it is 0.
pub(crate) fn unix_seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn signed(key: &str, id: &str, seconds: u64, body: &[u8]) -> String {
        let signer = Signer::new([key.parse().unwrap()]).unwrap();
        signer.sign(id, UNIX_EPOCH + Duration::from_secs(seconds), body).unwrap().value
    }

    #[test]
    fn the_published_vector_of_v1() {
        assert_eq!(
            signed(
                "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
                "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
                1_649_367_553,
                br#"{"email":"test@example.com","username":"test_user"}"#,
            ),
            "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw="
        );
    }

    #[test]
    fn the_published_vector_of_v1a() {
        assert_eq!(
            signed(
                "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=",
                "msg_p5jXN8AQM9LWM0D4loKWxJek",
                1_614_265_330,
                br#"{"test": 2432232314}"#,
            ),
            "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeF\
             iL8Ag=="
        );
    }

    #[test]
    fn several_keys_make_several_signatures_in_their_order() {
        let secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
        let private = "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=";
        let signer = Signer::new([secret, private].map(|key| key.parse().unwrap())).unwrap();
        let both = signer.sign("a", UNIX_EPOCH, b"\xff\0").unwrap();
        let each = [secret, private].map(|key| signed(key, "a", 0, b"\xff\0"));
        assert_eq!(both.value, each.join(" "));
    }

    #[test]
    fn an_id_that_a_signature_does_not_bind_is_refused() {
        let signer = Signer::new(["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD".parse().unwrap()]);
        let signer = signer.unwrap();
        for id in ["", "a.b", "a b", "a\n", "ä", &"a".repeat(257)] {
            let refused = signer.sign(id, UNIX_EPOCH, b"").unwrap_err();
            assert_eq!(refused, SignError::Id { bytes: id.len(), max: 256 }, "{id}");
        }
        signer.sign(&"a".repeat(256), UNIX_EPOCH, b"").unwrap();
        signer.sign("invoice:42/paid", UNIX_EPOCH, b"").unwrap();
    }

    #[test]
    fn there_are_one_to_eight_keys() {
        let key: SigningKey = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD".parse().unwrap();
        for keys in [0, 9] {
            let refused = Signer::new(vec![key.clone(); keys]).unwrap_err();
            assert_eq!(refused, SignError::Keys { keys, max: 8 });
        }
        Signer::new(vec![key; 8]).unwrap();
    }
}
