use std::path::Path;

use pkcs8::{EncryptedPrivateKeyInfoRef, SecretDocument, der::Decode};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject};

use crate::tls::{Password, TlsError, is_pem, read};

const KEY: &str = "sslkey";
const LABEL: &str = "ENCRYPTED PRIVATE KEY";
/// OpenSSL's own way of before PKCS #8, which other programs hardly read.
const OWN_WAY: &str = "Proc-Type: 4,ENCRYPTED";

/// The client's key, from a file of any of the forms that people have: PEM or
/// DER; PKCS #1, PKCS #8 or SEC1; PKCS #8 also encrypted (PBES2, RFC 8018).
pub(crate) fn private_key(
    path: &Path,
    password: Option<&Password>,
) -> Result<PrivateKeyDer<'static>, TlsError> {
    let bytes = read(KEY, path)?;
    if !is_pem(&bytes) {
        return match EncryptedPrivateKeyInfoRef::from_der(&bytes) {
            Ok(info) => decrypted(path, &info, password),
            Err(_) => PrivateKeyDer::try_from(bytes).map_err(|_| no_key(path)),
        };
    }
    let text = String::from_utf8_lossy(&bytes);
    if text.contains(OWN_WAY) {
        return Err(TlsError::KeyCipher { path: path.into() });
    }
    let Some(section) = section(&text) else {
        return PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| no_key(path));
    };
    let (_, document) = SecretDocument::from_pem(section).map_err(|_| no_key(path))?;
    let info = EncryptedPrivateKeyInfoRef::from_der(document.as_bytes());
    // It is one by its label: what cannot be read of it is its cipher.
    let info = info.map_err(|_| TlsError::KeyCipher { path: path.into() })?;
    decrypted(path, &info, password)
}

/// The encrypted key among what else a PEM file holds.
fn section(text: &str) -> Option<&str> {
    let end = format!("-----END {LABEL}-----");
    let from = text.find(&format!("-----BEGIN {LABEL}-----"))?;
    let to = from + text[from..].find(&end)? + end.len();
    Some(&text[from..to])
}

fn decrypted(
    path: &Path,
    info: &EncryptedPrivateKeyInfoRef<'_>,
    password: Option<&Password>,
) -> Result<PrivateKeyDer<'static>, TlsError> {
    if info.encryption_algorithm.pbes2().is_none() {
        return Err(TlsError::KeyCipher { path: path.into() });
    }
    let password = password.ok_or_else(|| TlsError::KeyEncrypted { path: path.into() })?;
    let wrong = |_| TlsError::KeyPassword { path: path.into() };
    let key = info.decrypt(password.bytes()).map_err(wrong)?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

pub(crate) fn no_key(path: &Path) -> TlsError {
    TlsError::Content { key: KEY, path: path.into(), expected: "private key" }
}
