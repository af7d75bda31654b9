use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// SHA-256 of a migration's text as 64 hexadecimal digits.
///
/// Taken before names are filled in, and with every line ending as `\n`, so it
/// depends neither on the schema nor on how the sources were checked out.
///
/// ```
/// use walpost_migrate::checksum;
///
/// assert_eq!(checksum("a\r\nb\n"), checksum("a\nb\n"));
/// assert_ne!(checksum("a\nb\n"), checksum("a b\n"));
/// ```
pub fn checksum(template: &str) -> String {
    let digest = Sha256::digest(template.replace("\r\n", "\n").as_bytes());
    digest.iter().fold(String::with_capacity(64), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_sha_256() {
        assert_eq!(
            checksum("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
