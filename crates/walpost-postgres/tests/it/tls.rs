use walpost_testkit::{Algorithm, Authority, Identity, KeyForm};

use crate::server::{Outcome, Server, Session};

/// The version that the machine's own servers mostly have.
const MAJOR: u32 = 15;
/// The oldest that takes TLS without asking for it.
const DIRECT_MAJOR: u32 = 17;

fn root(authority: &Authority) -> String {
    format!("sslrootcert={}", authority.certificate().display())
}

fn identity(identity: &Identity) -> String {
    key_of(identity, identity.key.display())
}

fn key_of(identity: &Identity, key: impl std::fmt::Display) -> String {
    format!("sslcert={} sslkey={key}", identity.certificate.display())
}

fn refused(outcome: Outcome, parts: &[&str]) {
    let told = outcome.expect_err("it should be refused").0;
    for part in parts {
        assert!(told.contains(part), "expected {part:?} in: {told}");
    }
}

#[tokio::test]
async fn each_sslmode_protects_as_much_as_it_says() {
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    let server = Server::start(&authority, &authority.server(&["localhost"]), MAJOR).await;
    let (ours, theirs) = (root(&authority), root(&stranger));
    for (user, rest, is_encrypted) in [
        ("app", "sslmode=disable".to_owned(), false),
        ("app", "sslmode=allow".to_owned(), false),
        ("crypt", "sslmode=allow".to_owned(), true),
        ("app", String::new(), true),
        ("app", "sslmode=prefer".to_owned(), true),
        ("app", "sslmode=require".to_owned(), true),
        ("app", format!("sslmode=require {ours}"), true),
        ("app", format!("sslmode=verify-ca {ours}"), true),
    ] {
        let session = server.connect("127.0.0.1", user, &rest).await.unwrap();
        assert_eq!(session, Session { is_encrypted, client: None }, "{rest}");
    }
    let full = format!("sslmode=verify-full {ours}");
    assert!(server.connect("localhost", "app", &full).await.unwrap().is_encrypted);
    for (host, user, rest, parts) in [
        ("127.0.0.1", "crypt", "sslmode=disable".to_owned(), ["no encryption", "pg_hba.conf"]),
        ("127.0.0.1", "app", full, ["not valid for name", "verify-ca"]),
        ("localhost", "app", format!("sslmode=verify-full {theirs}"), ["Unknown", "sslrootcert"]),
        ("localhost", "app", format!("sslmode=verify-ca {theirs}"), ["Unknown", "sslrootcert"]),
        ("localhost", "app", format!("sslmode=require {theirs}"), ["Unknown", "sslrootcert"]),
        ("localhost", "app", "sslrootcert=system".to_owned(), ["Unknown", "sslrootcert"]),
        (
            "localhost",
            "app",
            "sslmode=verify-ca sslrootcert=/nowhere.pem".to_owned(),
            ["/nowhere.pem", "the right file"],
        ),
    ] {
        refused(server.connect(host, user, &rest).await, &parts);
    }
}

#[tokio::test]
async fn a_server_without_tls_is_left_where_sslmode_asks_for_it() {
    let server = Server::without_tls().await;
    for rest in ["sslmode=prefer", "sslmode=allow", "sslmode=disable"] {
        assert!(!server.connect("127.0.0.1", "app", rest).await.unwrap().is_encrypted);
    }
    for rest in ["sslmode=require", "sslmode=verify-full"] {
        let parts = ["does not speak TLS", "turn ssl on"];
        refused(server.connect("127.0.0.1", "app", rest).await, &parts);
    }
}

#[tokio::test]
async fn a_client_shows_its_certificate_with_a_key_of_any_form() {
    let authority = Authority::new("authority");
    let server = Server::start(&authority, &authority.server(&["localhost"]), MAJOR).await;
    let base = format!("sslmode=verify-full {}", root(&authority));
    let known = |outcome: Outcome, what: &str| {
        let session = outcome.unwrap_or_else(|told| panic!("{what}: {}", told.0));
        assert_eq!(session.client.as_deref(), Some("/CN=certified"), "{what}");
    };
    for algorithm in [Algorithm::Rsa, Algorithm::Ec] {
        let client = authority.client("certified", algorithm);
        let as_it_is = format!("{base} {}", identity(&client));
        known(server.connect("localhost", "certified", &as_it_is).await, "PKCS #8");
        for form in [
            KeyForm::Pkcs8Der,
            KeyForm::TraditionalPem,
            KeyForm::TraditionalDer,
            KeyForm::EncryptedPem("s3cret"),
            KeyForm::EncryptedDer("s3cret"),
        ] {
            let key = key_of(&client, client.key_as(form).display());
            let rest = match form {
                KeyForm::EncryptedPem(password) | KeyForm::EncryptedDer(password) => {
                    format!("{base} {key} sslpassword={password}")
                }
                _ => format!("{base} {key}"),
            };
            let what = format!("{algorithm:?}, {form:?}");
            known(server.connect("localhost", "certified", &rest).await, &what);
        }
    }
    let careful = authority.client("careful", Algorithm::Ec);
    let rest = format!("{base} {} password=s3cret", identity(&careful));
    let session = server.connect("localhost", "careful", &rest).await.unwrap();
    assert_eq!(session.client.as_deref(), Some("/CN=careful"));
}

#[tokio::test]
async fn what_is_wrong_about_a_clients_certificate_or_key_is_told_with_what_to_do() {
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    let server = Server::start(&authority, &authority.server(&["localhost"]), MAJOR).await;
    let base = format!("sslmode=verify-full {}", root(&authority));
    let client = authority.client("certified", Algorithm::Rsa);
    let other = authority.client("somebody", Algorithm::Ec);
    let keyed = |form| key_of(&client, client.key_as(form).display());
    let stored = key_of(&client, client.pkcs12("s3cret").display());
    for (rest, parts) in [
        (String::new(), ["valid client certificate", "sslcert"]),
        (identity(&other), ["certificate authentication failed", "that role's name"]),
        (identity(&stranger.client("certified", Algorithm::Ec)), ["UnknownCA", "ssl_ca_file"]),
        (key_of(&client, other.key.display()), ["sslkey", "belong together"]),
        (keyed(KeyForm::EncryptedPem("s3cret")), ["is encrypted", "sslpassword"]),
        (keyed(KeyForm::EncryptedDer("s3cret")), ["is encrypted", "sslpassword"]),
        (
            format!("{} sslpassword=s3cret2", keyed(KeyForm::EncryptedPem("s3cret"))),
            ["does not open", "mend sslpassword"],
        ),
        (
            format!("{} sslpassword=s3cret", keyed(KeyForm::OldCipher("s3cret"))),
            ["not read here", "openssl pkcs8 -topk8 -v2"],
        ),
        (
            format!("{} sslpassword=s3cret", keyed(KeyForm::OwnWay("s3cret"))),
            ["not read here", "openssl pkcs8 -topk8 -v2"],
        ),
        (stored, ["holds no private key", "no PKCS #12"]),
    ] {
        let rest = format!("{base} {rest}");
        refused(server.connect("localhost", "certified", &rest).await, &parts);
    }
}

#[tokio::test]
async fn a_server_that_signed_its_own_certificate_is_known_by_it() {
    let authority = Authority::new("authority");
    let own = authority.self_signed("localhost");
    let server = Server::start(&authority, &own, MAJOR).await;
    let trust = format!("sslrootcert={}", own.certificate.display());
    for mode in ["require", "verify-ca", "verify-full"] {
        let rest = format!("sslmode={mode} {trust}");
        let session = server.connect("localhost", "app", &rest).await;
        assert!(session.unwrap_or_else(|told| panic!("{rest}: {}", told.0)).is_encrypted);
    }
    let full = format!("sslmode=verify-full {trust}");
    let parts = ["not valid for name", "verify-ca"];
    refused(server.connect("127.0.0.1", "app", &full).await, &parts);
    let another = authority.self_signed("localhost");
    let rest = format!("sslmode=verify-ca sslrootcert={}", another.certificate.display());
    refused(server.connect("localhost", "app", &rest).await, &["sslrootcert"]);
}

#[tokio::test]
async fn a_certificate_out_of_date_is_told_as_that() {
    let authority = Authority::new("authority");
    let expired = authority.expired_server(&["localhost"]);
    let server = Server::start(&authority, &expired, MAJOR).await;
    for trust in [root(&authority), format!("sslrootcert={}", expired.certificate.display())] {
        let rest = format!("sslmode=verify-full {trust}");
        refused(server.connect("localhost", "app", &rest).await, &["expired", "renew"]);
    }
    assert!(server.connect("localhost", "app", "sslmode=require").await.unwrap().is_encrypted);
}

#[tokio::test]
async fn tls_begins_at_once_where_it_is_asked_for_and_a_subject_alone_may_name_the_host() {
    let authority = Authority::new("authority");
    let by_subject = authority.server_by_subject("localhost");
    let server = Server::start(&authority, &by_subject, DIRECT_MAJOR).await;
    for negotiation in ["direct", "postgres"] {
        let rest = format!("sslmode=verify-full {} sslnegotiation={negotiation}", root(&authority));
        assert!(server.connect("localhost", "app", &rest).await.unwrap().is_encrypted);
        refused(server.connect("127.0.0.1", "app", &rest).await, &["not valid for name"]);
    }
}
