use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
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
}

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
        match (&self.client_cert, &self.client_key) {
            (Some(cert), Some(key)) => {
                Ok(builder
                    .with_client_auth_cert(certificates("sslcert", cert)?, private_key(key)?)?)
            }
            _ => Ok(builder.with_no_client_auth()),
        }
    }

    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
        let checks = match self.mode {
            SslMode::VerifyFull => Checks::ChainAndName,
            SslMode::VerifyCa => Checks::Chain,
            SslMode::Require if self.root_cert_given => Checks::Chain,
            SslMode::Disable | SslMode::Allow | SslMode::Prefer | SslMode::Require => Checks::None,
        };
        if checks == Checks::None {
            return Ok(Arc::new(AnyCertificate { provider: provider.clone() }));
        }
        let roots = Arc::new(self.roots()?);
        let inner = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(|_| TlsError::NoRoots)?;
        if checks == Checks::ChainAndName {
            return Ok(inner);
        }
        Ok(Arc::new(AnyName { inner }))
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        match &self.root_cert {
            Some(path) => {
                for certificate in certificates("sslrootcert", path)? {
                    roots.add(certificate)?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() { Err(TlsError::NoRoots) } else { Ok(roots) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Checks {
    None,
    Chain,
    ChainAndName,
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

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let bytes = read("sslkey", path)?;
    let key = if is_pem(&bytes) {
        PrivateKeyDer::from_pem_slice(&bytes).ok()
    } else {
        PrivateKeyDer::try_from(bytes).ok()
    };
    key.ok_or_else(|| TlsError::Content {
        key: "sslkey",
        path: path.into(),
        expected: "unencrypted private key",
    })
}

fn is_pem(bytes: &[u8]) -> bool {
    bytes.windows(5).any(|window| window == b"-----")
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read { key, path: path.into(), source })
}

/// `verify-ca`: the chain must hold, the name may be any.
#[derive(Debug)]
struct AnyName {
    inner: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let result = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match result {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// `require` and below: encryption against listeners only, as libpq has it.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
