//! What logistics answers, and what is left behind.

use walpost_testkit::until_some;
use walpost_webhook::{
    AddressPolicy, Client, ClientSettings, Destination, Endpoint, Message, Outcome, Secret,
};

use crate::stage::{LIMIT, Side, Stage, WAL_INLINE};

const KEY: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const OTHER_KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwGhbwRVTlrpY=";
const PAID: &str =
    r#"{"type":"invoice.paid","invoice_id":1,"payment_id":7,"amount_cents":1999,"city":"Oslo"}"#;
const REFUNDED: &str = r#"{"type":"invoice.refunded","invoice_id":1,"payment_id":7}"#;
const OVERDUE: &str = r#"{"type":"invoice.overdue","invoice_id":1}"#;

/// Sends one request as finance would; status and body of the answer.
async fn send(stage: &Stage, secret: &str, key: &str, body: &'static str) -> (u16, String) {
    let policy = AddressPolicy::with_private_networks();
    let url = format!("http://127.0.0.1:{}/webhooks/finance", stage.port());
    let mut to = Destination::new(Endpoint::parse(&url, policy).unwrap());
    to.key_headers = vec!["x-idempotency-key".parse().unwrap()];
    to.signing_keys = vec![Secret::Text(secret.to_owned())];
    let client = Client::new(ClientSettings::default());
    let message = Message::new(key, body);
    until_some(LIMIT, "an answer", async || {
        let request = to.request(&message, std::time::SystemTime::now()).await.unwrap();
        let attempt = client.send(&request).await;
        let Outcome::Answered { status, .. } = attempt.outcome else { return None };
        Some((status.as_u16(), String::from_utf8(attempt.body.to_vec()).unwrap()))
    })
    .await
}

const ALREADY: &str = r#"{"status":"ok","already_processed":true}"#;
const OK: &str = r#"{"status":"ok"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_ships_nothing_nor_does_a_body_under_another_key_and_a_refund_waits_for_its_shipment()
 {
    let mut stage = Stage::open(WAL_INLINE).await;
    stage.start(Side::Logistics, 0, None);
    let answer = async |key, body| send(&stage, KEY, key, body).await;
    let ok = |body: &str| (200, body.to_owned());
    // Earlier than what it is about: finance tries it again.
    assert_eq!(answer("invoice.refunded:1:7", REFUNDED).await.0, 503);
    assert_eq!(answer("invoice.paid:1:7", PAID).await, ok(OK));
    assert_eq!(answer("invoice.paid:1:7", PAID).await, ok(ALREADY));
    assert_eq!(answer("invoice.refunded:1:7", REFUNDED).await, ok(OK));
    assert_eq!(answer("invoice.refunded:1:7", REFUNDED).await, ok(ALREADY));
    // What was recorded, under a key of somebody's own.
    let kept = ok(r#"{"status":"ok","processing_state":"failed"}"#);
    assert_eq!(answer("invoice.paid:1:8", PAID).await, kept);
    // Not refused, and to be seen.
    assert_eq!(answer("invoice.overdue:1", OVERDUE).await, ok(OK));
    assert_eq!(send(&stage, OTHER_KEY, "invoice.paid:1:9", PAID).await.0, 401);
    let inbox = "select concat_ws(' ', event_id, related_reference, processing_state, reason) \
                 from walpost.inbox where processing_state <> 'pending' order by event_id";
    let expected = [
        "invoice.overdue:1 1 review",
        "invoice.paid:1:7 1 succeeded",
        "invoice.paid:1:8 1 failed its key is not that of its body",
        "invoice.refunded:1:7 1 succeeded",
    ];
    let seen = until_some(LIMIT, "what is in the inbox", async || {
        let rows = stage.look(Side::Logistics, inbox).await?;
        let rows: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        (rows.len() == expected.len()).then_some(rows)
    })
    .await;
    for (seen, expected) in seen.iter().zip(expected) {
        assert!(seen.starts_with(expected), "{seen}");
    }
    let shipments = stage.look(Side::Logistics, "select state from shipment").await.unwrap();
    assert_eq!(shipments.iter().map(|row| row.get(0)).collect::<Vec<&str>>(), ["cancelled"]);
    stage.end().await;
}
