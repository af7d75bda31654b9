use std::{error::Error as StdError, io};

use rustls::{AlertDescription as Alert, CertificateError, Error};

use crate::{ConnectError, TlsError};

const SETTINGS: &str = "mend sslmode, sslrootcert, sslcert and sslkey of the url";
const CLIENT: &str = "set sslcert and sslkey to a certificate of an authority that the server's \
                      ssl_ca_file has, and its key";

impl ConnectError {
    /// What to do about it, where TLS or the login stands in the way.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::NoTls { .. } => {
                Some("turn ssl on at the server, or write sslmode=prefer for connections without")
            }
            // It says so itself.
            Self::Tls(TlsError::Read { .. } | TlsError::Content { .. }) => Some(
                "name the right file in the url, one that this process may read; sslrootcert, \
                 sslcert and sslkey are PEM or DER, and no PKCS #12 stores",
            ),
            Self::Tls(error) => error.advice(),
            Self::Handshake { source, .. } => Some(tls_error(source).map_or(SETTINGS, of_tls)),
            Self::Refused { source, .. } => of_login(source.code()?.code()),
            Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::InitialStatement { .. }
            | Self::ReadOnly { .. } => None,
        }
    }
}

impl TlsError {
    fn advice(&self) -> Option<&'static str> {
        match self {
            // Their texts are the advice.
            Self::KeyEncrypted { .. }
            | Self::KeyPassword { .. }
            | Self::KeyCipher { .. }
            | Self::Pair { .. }
            | Self::NoRoots => None,
            Self::Read { .. } | Self::Content { .. } | Self::Rustls(_) => Some(SETTINGS),
        }
    }
}

fn of_login(code: &str) -> Option<&'static str> {
    (code == "28000").then_some(
        "name a role that exists and that pg_hba.conf lets in from here; where it asks for a \
         client certificate, set sslcert and sslkey to one in that role's name",
    )
}

fn of_tls(error: &Error) -> &'static str {
    match error {
        Error::InvalidCertificate(wrong) => of_certificate(wrong),
        Error::AlertReceived(
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateRequired
            | Alert::CertificateUnknown
            | Alert::UnsupportedCertificate
            | Alert::DecryptError,
        ) => CLIENT,
        Error::AlertReceived(Alert::CertificateExpired | Alert::CertificateRevoked) => {
            "the server takes this client certificate no more: renew it, and name it in sslcert"
        }
        Error::AlertReceived(Alert::NoApplicationProtocol) => {
            "remove sslnegotiation=direct, which this server does not take"
        }
        _ => SETTINGS,
    }
}

fn of_certificate(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "set sslrootcert to the PEM file of the authority that signed the server's certificate"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "renew the server's certificate, which has expired, or mend the clock of this machine"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is of a later date: mend the clock of this machine"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "write a host that the server's certificate names, have it name this one, or check \
             the authority alone with sslmode=verify-ca"
        }
        _ => "renew the server's certificate, or name its authority in sslrootcert",
    }
}

/// What rustls said, wherever in the chain of causes it is.
pub(crate) fn tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<Error>() {
            return Some(found);
        }
        // An io::Error leaves its own content out of the chain.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}
