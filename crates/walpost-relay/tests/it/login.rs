//! Ways to log in, over both kinds of connection.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use walpost_testkit::local::{Auth, Postgres};

use crate::rig::{Rig, stop};

async fn works(server: Postgres) {
    let rig = Rig::on_local(Box::leak(Box::new(server))).await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    stop(relay).await;
}

fn server(auth: Auth) -> Postgres {
    Postgres::builder().throwaway().setting("wal_level", "logical").auth(auth).start().unwrap()
}

#[tokio::test]
async fn scram() {
    works(server(Auth::ScramSha256("it's a secret".into()))).await;
}

#[tokio::test]
async fn md5() {
    works(server(Auth::Md5("it's a secret".into()))).await;
}

#[tokio::test]
async fn a_wrong_password_ends_at_once_without_showing_it() {
    let server = server(Auth::ScramSha256("right".into()));
    let wrong = server.url("postgres").replace("right", "hunter2");
    let rig = Rig::on_local(Box::leak(Box::new(server))).await.connecting_to(&wrong);
    let refusal = rig.refusal().await;
    assert!(refusal.contains("password authentication failed"), "{refusal}");
    assert!(!refusal.contains("hunter2"), "{refusal}");
}

#[tokio::test]
async fn a_unix_socket() {
    let server = Postgres::builder().throwaway().setting("wal_level", "logical").start().unwrap();
    let socket = format!(
        "host={} port={} user=postgres dbname=postgres",
        server.socket_dir().display(),
        server.port()
    );
    let rig = Rig::on_local(Box::leak(Box::new(server))).await.connecting_to(&socket);
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    stop(relay).await;
}

/// An authority, and a certificate of it for `localhost`.
struct Certificates {
    folder: tempfile::TempDir,
}

impl Certificates {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.distinguished_name.push(DnType::CommonName, name);
            let certificate = params.self_signed(&key).unwrap();
            std::fs::write(folder.path().join(name), certificate.pem()).unwrap();
            Issuer::new(params, key)
        };
        authority("stranger.pem");
        let issuer = authority("authority.pem");
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        std::fs::write(folder.path().join("server.pem"), certificate.pem()).unwrap();
        std::fs::write(folder.path().join("server.key"), key.serialize_pem()).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

#[tokio::test]
async fn every_sslmode_does_what_libpq_says() {
    let certificates = Certificates::new();
    let server = Postgres::builder()
        .throwaway()
        .setting("wal_level", "logical")
        .tls(certificates.path("server.pem"), certificates.path("server.key"))
        .hba("hostssl all all 127.0.0.1/32 trust\nhostssl all all ::1/128 trust\n")
        .start()
        .unwrap();
    let port = server.port();
    let url = |host: &str, rest: &str| {
        format!("host={host} port={port} user=postgres dbname=postgres {rest}")
    };
    let authority = format!("sslrootcert={}", certificates.path("authority.pem"));
    let stranger = format!("sslrootcert={}", certificates.path("stranger.pem"));
    let setup = url("127.0.0.1", "sslmode=require");
    let mut rig = Rig::at(&setup).await;
    for rest in [
        "sslmode=allow".to_owned(),
        "sslmode=prefer".to_owned(),
        "sslmode=require".to_owned(),
        format!("sslmode=verify-ca {authority}"),
        format!("sslmode=require {authority}"),
    ] {
        rig = rig.connecting_to(&url("127.0.0.1", &rest));
        stop(rig.streaming().await).await;
        rig.released().await;
    }
    rig = rig.connecting_to(&url("localhost", &format!("sslmode=verify-full {authority}")));
    stop(rig.streaming().await).await;
    for (host, rest, part) in [
        ("127.0.0.1", "sslmode=disable".to_owned(), "no encryption"),
        ("127.0.0.1", format!("sslmode=verify-full {authority}"), "not valid for name"),
        ("localhost", format!("sslmode=verify-full {stranger}"), "UnknownIssuer"),
        ("127.0.0.1", format!("sslmode=verify-ca {stranger}"), "UnknownIssuer"),
        ("127.0.0.1", format!("sslmode=require {stranger}"), "UnknownIssuer"),
    ] {
        rig = rig.connecting_to(&url(host, &rest));
        let refusal = rig.refusal().await;
        assert!(refusal.contains(part), "{rest}: expected {part:?} in {refusal}");
    }
}
