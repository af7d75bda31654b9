//! Ways to log in, over both kinds of connection.

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
