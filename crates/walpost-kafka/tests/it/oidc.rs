//! Tokens of an OAuth server: `cargo test -p walpost-kafka --features oidc`.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::security::{Settings, arrives, refused, tls, with};

/// A token endpoint that knows one client, `walpost` with the secret `s3cret`.
async fn token_endpoint() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/token", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    url
}

async fn answer(mut stream: TcpStream) {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let known = String::from_utf8_lossy(&bytes).contains("Basic d2FscG9zdDpzM2NyZXQ=");
    let (status, body) = match known {
        true => {
            let body = format!(r#"{{"access_token":"{}","token_type":"Bearer"}}"#, token());
            ("200 OK", body)
        }
        false => ("401 Unauthorized", r#"{"error":"invalid_client"}"#.to_owned()),
    };
    let head = "Content-Type: application/json\r\nConnection: close";
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}");
    // librdkafka may have what it wants before it is all sent.
    let _ = stream.write_all(text.as_bytes()).await;
}

/// Nobody signs it, which the broker takes.
fn token() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let claims = format!(r#"{{"sub":"app","iat":{now},"exp":{}}}"#, now + 600);
    format!("{}.{}.", part(r#"{"alg":"none"}"#), part(&claims))
}

fn login(url: &str, secret: &str) -> Settings {
    let login = [
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "OAUTHBEARER"),
        ("sasl.oauthbearer.method", "oidc"),
        ("sasl.oauthbearer.token.endpoint.url", url),
        ("sasl.oauthbearer.client.id", "walpost"),
        ("sasl.oauthbearer.client.secret", secret),
    ];
    with(tls(), &login)
}

#[tokio::test]
async fn a_token_by_oidc_is_a_login() {
    let url = token_endpoint().await;
    arrives("SASLTLS", &login(&url, "s3cret")).await;
}

#[tokio::test]
async fn a_client_that_the_endpoint_does_not_know_is_told_so() {
    let url = token_endpoint().await;
    let wrong = login(&url, "s3cret-of-nobody");
    refused("SASLTLS", &wrong, &["mend what begins with sasl.oauthbearer."]).await;
}
