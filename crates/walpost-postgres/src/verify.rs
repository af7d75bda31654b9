use std::{sync::Arc, time::Duration};

use rustls::{
    CertificateError, DigitallySignedStruct, Error, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use x509_cert::{Certificate, der::Decode, ext::pkix::SubjectAltName};

/// `verify-ca` and `verify-full`: the chain must hold, and the name as well
/// where it is asked for.
///
/// Two habits of PostgreSQL's users go beyond WebPKI, and are libpq's: a server
/// that signed its own certificate, which is then `sslrootcert` itself, and a
/// certificate that names the host in its subject alone.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) inner: Arc<WebPkiServerVerifier>,
    /// What `sslrootcert` holds.
    pub(crate) given: Vec<CertificateDer<'static>>,
    /// `verify-full`.
    pub(crate) names_host: bool,
}

impl Chain {
    /// The very certificate that is trusted needs no chain.
    fn check_pinned(
        &self,
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        check_validity(certificate, now)?;
        if !self.names_host {
            return Ok(());
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
    }
}

impl ServerCertVerifier for Chain {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = if self.given.contains(end_entity) {
            self.check_pinned(end_entity, server_name, now)
        } else {
            let verified = self.inner.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            );
            verified.map(drop)
        };
        match found {
            Err(error) if is_about_name(&error) => {
                // The name comes last: everything else is as it should be.
                if self.names_host && !subject_names(end_entity, server_name) {
                    return Err(error);
                }
            }
            found => found?,
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

fn is_about_name(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
        )
    )
}

fn check_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let read = Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let validity = read.tbs_certificate().validity();
    let now = Duration::from_secs(now.as_secs());
    if now < validity.not_before.to_unix_duration() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.to_unix_duration() {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

/// Whether the subject's common name is the host, in a certificate that has no
/// list of names (RFC 6125, 6.4.4). A `*` stands for the first label.
fn subject_names(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    let ServerName::DnsName(host) = name else { return false };
    let Ok(read) = Certificate::from_der(certificate) else { return false };
    let subject = read.tbs_certificate();
    if !matches!(subject.get_extension::<SubjectAltName>(), Ok(None)) {
        return false;
    }
    let Ok(Some(common)) = subject.subject().common_name() else { return false };
    let (common, host) = (common.value(), host.as_ref());
    match (common.strip_prefix("*."), host.split_once('.')) {
        (Some(domain), Some((_, rest))) => rest.eq_ignore_ascii_case(domain),
        _ => common.eq_ignore_ascii_case(host),
    }
}

/// `require` and below: encryption against listeners only, as libpq has it.
#[derive(Debug)]
pub(crate) struct AnyCertificate {
    pub(crate) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
