use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject},
};

/// Which certificates are trusted: TLS 1.2 and 1.3, always with the host's name.
#[derive(Clone)]
pub struct Tls {
    roots: Roots,
    config: Arc<OnceLock<Arc<ClientConfig>>>,
}

#[derive(Clone)]
enum Roots {
    System,
    Given(Vec<CertificateDer<'static>>),
}

/// A file of certificates cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no text with certificates (-----BEGIN CERTIFICATE-----)")]
pub struct CertificateError;

impl Tls {
    /// What this machine trusts, read with the first connection.
    pub fn system() -> Self {
        Self { roots: Roots::System, config: Arc::default() }
    }

    /// The certificates in `pem` alone.
    ///
    /// # Errors
    /// When there are none, or one cannot be read.
    pub fn with_roots(pem: &[u8]) -> Result<Self, CertificateError> {
        let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        let roots = found.map_err(|_| CertificateError)?;
        if roots.is_empty() {
            return Err(CertificateError);
        }
        Ok(Self { roots: Roots::Given(roots), config: Arc::default() })
    }

    pub(super) fn config(&self) -> Result<Arc<ClientConfig>, String> {
        if let Some(config) = self.config.get() {
            return Ok(Arc::clone(config));
        }
        // What is missing may come: an error is not kept.
        let config = Arc::new(self.build()?);
        Ok(Arc::clone(self.config.get_or_init(|| config)))
    }

    fn build(&self) -> Result<ClientConfig, String> {
        let mut roots = RootCertStore::empty();
        let certificates = match &self.roots {
            Roots::System => rustls_native_certs::load_native_certs().certs,
            Roots::Given(certificates) => certificates.clone(),
        };
        roots.add_parsable_certificates(certificates);
        if roots.is_empty() {
            return Err("no certificate authorities are known to this machine".to_owned());
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.roots {
            Roots::System => f.write_str("Tls(system)"),
            Roots::Given(certificates) => write!(f, "Tls({} certificates)", certificates.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_that_come_later_are_found_and_kept() {
        let mut tls = Tls { roots: Roots::Given(Vec::new()), config: Arc::default() };
        let other = tls.clone();
        assert!(tls.config().is_err());
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        tls.roots = Roots::Given(vec![made.cert.der().clone()]);
        assert!(Arc::ptr_eq(&tls.config().unwrap(), &other.config().unwrap()));
    }
}
