use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, pem::PemObject},
};

use crate::{
    key::{no_key, private_key},
    verify::{AnyCertificate, Chain},
};

/// How a connection is protected, as libpq's `sslmode` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SslMode {
    /// Never TLS.
    Disable,
    /// Plain, and TLS where the server refuses plain.
    Allow,
    /// TLS, and plain where the server has none.
    #[default]
    Prefer,
    /// TLS; the certificate is checked only when `sslrootcert` is given.
    Require,
    /// TLS with a certificate of a known authority.
    VerifyCa,
    /// The same, and the certificate names the host.
    VerifyFull,
}

/// TLS settings of a connection string.
#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    /// `sslmode`.
    pub mode: SslMode,
    /// `sslrootcert` as a file; `None` for the system's authorities.
    pub root_cert: Option<PathBuf>,
    /// Whether `sslrootcert` was given, also as `system`: then `require`
    /// verifies, as in libpq.
    pub root_cert_given: bool,
    /// `sslcert`.
    pub client_cert: Option<PathBuf>,
    /// `sslkey`.
    pub client_key: Option<PathBuf>,
    /// `sslpassword`: of the key.
    pub key_password: Option<Password>,
    /// `sslnegotiation=direct`: TLS from the first byte on.
    pub direct: bool,
}

/// A password, which `Debug` does not show.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// What a connection begins with where TLS does (RFC 7301, the protocol's name).
const PROTOCOL: &[u8] = b"postgresql";

/// A certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {key} {path}")]
    Read {
        /// Key of the connection string.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file holds nothing of the kind.
    #[error("{key} {path} holds no {expected}")]
    Content {
        /// Key of the connection string.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What was looked for.
        expected: &'static str,
    },
    /// The key is encrypted, and nothing says by which password.
    #[error(
        "sslkey {path} is encrypted; set sslpassword, or decrypt it with openssl pkey -in … -out …"
    )]
    KeyEncrypted {
        /// The file.
        path: PathBuf,
    },
    /// The password is another key's.
    #[error("sslpassword does not open sslkey {path}; mend sslpassword")]
    KeyPassword {
        /// The file.
        path: PathBuf,
    },
    /// The key is encrypted in an old way.
    #[error(
        "sslkey {path} is encrypted in a way that is not read here; write it anew with \
         openssl pkcs8 -topk8 -v2 aes256 -in … -out …"
    )]
    KeyCipher {
        /// The file.
        path: PathBuf,
    },
    /// Each can be used, and not together.
    #[error("sslkey {key} is not the key of sslcert {cert}; name the two that belong together")]
    Pair {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// No certificate authority is known to this machine.
    #[error(
        "no certificate authorities found on this machine; \
         set sslrootcert to a PEM file of the server's authority"
    )]
    NoRoots,
    /// rustls refuses the certificate or key.
    #[error("the TLS settings cannot be used")]
    Rustls(#[from] rustls::Error),
}

impl TlsSettings {
    /// The rustls configuration of these settings, reading the files they
    /// name.
    pub(crate) fn client_config(&self) -> Result<ClientConfig, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(self.verifier(&provider)?);
        let mut config = match (&self.client_cert, &self.client_key) {
            (Some(cert), Some(key)) => {
                let chain = certificates("sslcert", cert)?;
                let opened = private_key(key, self.key_password.as_ref())?;
                builder.with_client_auth_cert(chain, opened).map_err(|error| match error {
                    rustls::Error::InconsistentKeys(_) => {
                        TlsError::Pair { cert: cert.clone(), key: key.clone() }
                    }
                    // What looked like one is none.
                    rustls::Error::General(_) => no_key(key),
                    error => error.into(),
                })?
            }
            _ => builder.with_no_client_auth(),
        };
        if self.direct {
            config.alpn_protocols.push(PROTOCOL.to_vec());
        }
        Ok(config)
    }

    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
        let names_host = self.mode == SslMode::VerifyFull;
        let checks = match self.mode {
            SslMode::VerifyFull | SslMode::VerifyCa => true,
            SslMode::Require => self.root_cert_given,
            SslMode::Disable | SslMode::Allow | SslMode::Prefer => false,
        };
        if !checks {
            return Ok(Arc::new(AnyCertificate { provider: provider.clone() }));
        }
        let (roots, given) = self.roots()?;
        let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(|_| TlsError::NoRoots)?;
        Ok(Arc::new(Chain { inner, given, names_host }))
    }

    /// The authorities, and of those that are given the certificates.
    fn roots(&self) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), TlsError> {
        let mut roots = RootCertStore::empty();
        let mut given = Vec::new();
        match &self.root_cert {
            Some(path) => {
                given = certificates("sslrootcert", path)?;
                for certificate in &given {
                    roots.add(certificate.clone())?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() { Err(TlsError::NoRoots) } else { Ok((roots, given)) }
    }
}

fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(key, path)?;
    if !is_pem(&bytes) {
        return Ok(vec![CertificateDer::from(bytes)]);
    }
    let found: Vec<_> = CertificateDer::pem_slice_iter(&bytes).filter_map(Result::ok).collect();
    if found.is_empty() {
        return Err(TlsError::Content { key, path: path.into(), expected: "certificate" });
    }
    Ok(found)
}

pub(crate) fn is_pem(bytes: &[u8]) -> bool {
    bytes.windows(5).any(|window| window == b"-----")
}

pub(crate) fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read { key, path: path.into(), source })
}
