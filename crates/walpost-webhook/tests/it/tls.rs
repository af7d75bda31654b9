//! Who is spoken to is who was meant.

use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsAcceptor;
use walpost_webhook::{Attempt, Client, ClientSettings, Failure, Tls};

use crate::{
    client::{answered, settings, unanswered},
    receiver::{Receiver, answer, request},
};

/// A receiver with a certificate for `localhost`, and that certificate as text.
pub(crate) async fn receiver() -> (Receiver, String) {
    let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let CertifiedKey { cert, signing_key } = made;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let receiver = Receiver::scripted(move |stream, notes| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = acceptor.accept(stream).await?;
            while notes.read(&mut stream).await? {
                stream.write_all(answer("200 OK", "", "").as_bytes()).await?;
            }
            Ok(())
        }
    })
    .await;
    (receiver, cert.pem())
}

async fn send(receiver: &Receiver, host: &str, tls: Tls) -> Attempt {
    let url = receiver.url(host).replace("http://", "https://");
    Client::new(ClientSettings { tls, ..settings() }).send(&request(&url)).await
}

#[tokio::test]
async fn a_certificate_that_is_trusted_and_names_the_host_is_taken() {
    let (receiver, certificate) = receiver().await;
    let tls = Tls::with_roots(certificate.as_bytes()).unwrap();
    let url = receiver.url("localhost").replace("http://", "https://");
    let client = Client::new(ClientSettings { tls, ..settings() });
    for number in 0..3 {
        let attempt = client.send(&request(&url)).await;
        assert_eq!((attempt.outcome, attempt.reused), (answered(200), number > 0), "{attempt:?}");
    }
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn any_other_certificate_is_refused_before_anything_is_sent() {
    let (receiver, certificate) = receiver().await;
    let refused = unanswered(Failure::Tls, false);
    let known = Tls::with_roots(certificate.as_bytes()).unwrap();
    assert_eq!(send(&receiver, "127.0.0.1", known.clone()).await.outcome, refused);
    let (_, other) = self::receiver().await;
    let unknown = Tls::with_roots(other.as_bytes()).unwrap();
    assert_eq!(send(&receiver, "localhost", unknown).await.outcome, refused);
    assert_eq!(send(&receiver, "localhost", Tls::system()).await.outcome, refused);
    assert!(receiver.requests().is_empty());
    let plain = Receiver::scripted(|mut stream, _| async move {
        stream.write_all(answer("400 Bad Request", "", "").as_bytes()).await
    })
    .await;
    assert_eq!(send(&plain, "localhost", known).await.outcome, refused);
}

#[test]
fn text_without_certificates_is_refused() {
    for text in ["", "hello", "-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n"] {
        assert!(Tls::with_roots(text.as_bytes()).is_err(), "{text}");
    }
}
