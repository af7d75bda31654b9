use std::time::UNIX_EPOCH;

use base64::Engine;

use super::*;
use crate::{Signer, SigningKey, key::BASE64};

const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const PRIVATE: &str = "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=";
const NOW: u64 = 1_700_000_000;
/// What JSON would change and text could not hold.
const BODY: &[u8] = b"{ \"a\":\"\xc3\xbc\" }\xff\0\n";

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn headers<'a>(pairs: impl IntoIterator<Item = (&'static str, &'a str)>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(name, value.parse().unwrap());
    }
    headers
}

fn key(text: &str) -> SigningKey {
    text.parse().unwrap()
}

/// Signed at [`NOW`] with these keys.
fn signed(keys: &[&str]) -> HeaderMap {
    let signer = Signer::new(keys.iter().map(|text| key(text))).unwrap();
    let signature = signer.sign("msg_1", at(NOW), BODY).unwrap();
    let pairs = signature.headers();
    headers(pairs.iter().map(|(name, value)| (*name, &**value)))
}

fn standard(keys: &[&str]) -> Verifier {
    Verifier::standard(keys.iter().map(|text| key(text).verifying_key()))
}

fn problem(verifier: &Verifier, headers: &HeaderMap, body: &[u8]) -> &'static str {
    match verifier.verify(headers, body, at(NOW)) {
        Ok(_) => "accepted",
        Err(rejection) => rejection.problem(),
    }
}

/// The same headers with one of them changed; an empty value removes it.
fn with(headers: &HeaderMap, name: &'static str, values: &[&str]) -> HeaderMap {
    let mut changed = headers.clone();
    changed.remove(name);
    for value in values {
        changed.append(name, value.parse().unwrap());
    }
    changed
}

#[test]
fn what_was_signed_is_accepted_with_its_id_and_time() {
    for text in [SECRET, PRIVATE] {
        let verified = standard(&[text]).verify(&signed(&[text]), BODY, at(NOW)).unwrap();
        let expected = Verified { id: Some("msg_1".to_owned()), timestamp_seconds: Some(NOW) };
        assert_eq!(verified, expected);
    }
}

#[test]
fn any_key_of_either_side_may_fit() {
    let other = format!("whsec_{}", BASE64.encode([9; 32]));
    assert_eq!(problem(&standard(&[SECRET, &other]), &signed(&[&other]), BODY), "accepted");
    assert_eq!(problem(&standard(&[SECRET]), &signed(&[&other, SECRET]), BODY), "accepted");
    assert_eq!(problem(&standard(&[PRIVATE]), &signed(&[SECRET, PRIVATE]), BODY), "accepted");
    assert_eq!(problem(&standard(&[SECRET]), &signed(&[&other]), BODY), "signature_mismatch");
    assert_eq!(problem(&standard(&[SECRET]), &signed(&[PRIVATE]), BODY), "no_known_signature");
    assert_eq!(problem(&standard(&[]), &signed(&[SECRET]), BODY), "no_known_signature");
}

#[test]
fn whatever_is_changed_is_refused() {
    let (good, verifier) = (signed(&[SECRET]), standard(&[SECRET]));
    assert_eq!(problem(&verifier, &good, BODY), "accepted");
    for body in [&BODY[1..], &BODY[..BODY.len() - 1], b""] {
        assert_eq!(problem(&verifier, &good, body), "signature_mismatch");
    }
    for (name, value) in [("webhook-id", "msg_2"), ("webhook-timestamp", "1700000001")] {
        let changed = with(&good, name, &[value]);
        assert_eq!(problem(&verifier, &changed, BODY), "signature_mismatch", "{name}");
    }
    let parts = ["msg_1", "1700000000"].map(|text| text.as_bytes());
    let signature = key(SECRET).sign(&[parts[0], b".", parts[1], b".", BODY]);
    for byte in 0..signature.len() {
        let mut wrong = signature.clone();
        wrong[byte] ^= 1;
        let value = format!("v1,{}", BASE64.encode(&wrong));
        let changed = with(&good, "webhook-signature", &[&value]);
        assert_eq!(problem(&verifier, &changed, BODY), "signature_mismatch", "{byte}");
    }
    let short = format!("v1,{}", BASE64.encode(&signature[..16]));
    let changed = with(&good, "webhook-signature", &[&short]);
    assert_eq!(problem(&verifier, &changed, BODY), "signature_mismatch");
}

#[test]
fn a_body_that_begins_like_a_time_is_not_taken_for_another_message() {
    let signer = Signer::new([key(SECRET)]).unwrap();
    let signature = signer.sign("a", at(NOW), b"1700000000.rest").unwrap();
    // The same bytes are signed as for the id "a.1700000000" and the body "rest".
    let moved = headers([
        ("webhook-id", "a.1700000000"),
        ("webhook-timestamp", "1700000000"),
        ("webhook-signature", &*signature.value),
    ]);
    assert_eq!(problem(&standard(&[SECRET]), &moved, b"rest"), "malformed_header");
}

#[test]
fn each_header_is_there_once_and_well_formed() {
    let (good, verifier) = (signed(&[SECRET]), standard(&[SECRET]));
    let value = good["webhook-signature"].to_str().unwrap();
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        let same = good[name].to_str().unwrap();
        assert_eq!(problem(&verifier, &with(&good, name, &[]), BODY), "missing_header");
        let twice = with(&good, name, &[same, same]);
        assert_eq!(problem(&verifier, &twice, BODY), "duplicate_header", "{name}");
        assert_eq!(problem(&verifier, &with(&good, name, &[""]), BODY), "malformed_header");
    }
    let times = ["-1", "+1700000000", " 1700000000", "1.7e9", "1700000000.0", "170000000000", "x"];
    for time in times {
        let changed = with(&good, "webhook-timestamp", &[time]);
        assert_eq!(problem(&verifier, &changed, BODY), "malformed_header", "{time}");
    }
    let many = [value; 33].join(" ");
    let double = format!("{value}  {value}");
    for signatures in ["v1", "v1,", "v1,*", "v1a,=", "v1;abcd", &many, &double] {
        let changed = with(&good, "webhook-signature", &[signatures]);
        assert_eq!(problem(&verifier, &changed, BODY), "malformed_header", "{signatures}");
    }
    let mut bytes = good.clone();
    let not_ascii = http::HeaderValue::from_bytes(b"v1,\xff").unwrap();
    bytes.insert("webhook-signature", not_ascii);
    assert_eq!(problem(&verifier, &bytes, BODY), "malformed_header");
    for (signatures, expected) in [
        (format!("v2,*.* {value} v9,"), "accepted"),
        ([value; 32].join(" "), "accepted"),
        ("v2,abcd".to_owned(), "no_known_signature"),
    ] {
        let changed = with(&good, "webhook-signature", &[&signatures]);
        assert_eq!(problem(&verifier, &changed, BODY), expected, "{signatures}");
    }
}

#[test]
fn times_are_tolerated_to_the_second_in_both_directions() {
    let good = signed(&[SECRET]);
    let verifier = standard(&[SECRET]);
    let of = |verifier: &Verifier, now: u64| {
        verifier.verify(&good, BODY, at(now)).map(drop).map_err(|rejection| rejection.problem())
    };
    assert_eq!(of(&verifier, NOW + 300), Ok(()));
    assert_eq!(of(&verifier, NOW - 300), Ok(()));
    assert_eq!(of(&verifier, NOW + 301), Err("timestamp_too_old"));
    assert_eq!(of(&verifier, NOW - 301), Err("timestamp_too_new"));
    let strict = verifier.tolerance(Duration::from_millis(1_999));
    assert_eq!(of(&strict, NOW + 1), Ok(()));
    assert_eq!(of(&strict, NOW + 2), Err("timestamp_too_old"));
    let before_1970 = UNIX_EPOCH - Duration::from_secs(1);
    let refused = strict.verify(&good, BODY, before_1970).unwrap_err();
    assert_eq!(refused, Rejection::TooNew { seconds: NOW, max_seconds: 1 });
}

#[test]
fn stripe_has_a_time_and_several_signatures_in_one_header() {
    // Made with another implementation of HMAC.
    let body = "{\"a\":\"ü\"}".as_bytes();
    let good = "39c77d4f99a807ca4ab32e3c1fc455424bc1cda39e5c93618d15f5f6b7abdf94";
    let wrong = "0".repeat(64);
    let verifier = Verifier::stripe(["old", "whsec_test"]);
    let check = |value: &str, body: &[u8]| {
        problem(&verifier, &headers([("stripe-signature", value)]), body)
    };
    assert_eq!(check(&format!("t={NOW},v1={good},v0=6ffbb59b"), body), "accepted");
    assert_eq!(check(&format!("t={NOW},v1={wrong},v1={good}"), body), "accepted");
    assert_eq!(check(&format!("v1={good},t={NOW}"), body), "accepted");
    assert_eq!(check(&format!("t={NOW},v1={wrong}"), body), "signature_mismatch");
    assert_eq!(check(&format!("t={NOW},v1={good}"), b"{}"), "signature_mismatch");
    assert_eq!(check(&format!("t={},v1={good}", NOW - 1), body), "signature_mismatch");
    assert_eq!(check(&format!("t={},v1={good}", NOW - 301), body), "timestamp_too_old");
    assert_eq!(check(&format!("t={},v1={good}", NOW + 301), body), "timestamp_too_new");
    assert_eq!(check(&format!("t={NOW},v0={good}"), body), "no_known_signature");
    let two_times = format!("t={NOW},t={NOW},v1={good}");
    let no_time = format!("v1={good}");
    let many = format!("t={NOW}{}", format!(",v1={good}").repeat(32));
    for value in ["", "t=", "t", "t=x,v1=00", &two_times, &no_time, &many] {
        assert_eq!(check(value, body), "malformed_header", "{value}");
    }
    for hex in ["0", "0g", "", "+1"] {
        assert_eq!(check(&format!("t={NOW},v1={hex}"), body), "malformed_header", "{hex}");
    }
    let value = format!("t={NOW},v1={good}");
    let twice = headers([("stripe-signature", &*value), ("stripe-signature", &*value)]);
    assert_eq!(problem(&verifier, &twice, body), "duplicate_header");
    let verified = verifier.verify(&headers([("stripe-signature", &*value)]), body, at(NOW));
    let expected = Verified { id: None, timestamp_seconds: Some(NOW) };
    assert_eq!(verified, Ok(expected));
}

#[test]
fn the_published_vector_of_slack() {
    let body = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow\
                &channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner\
                &command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com\
                %2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN\
                &trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
        .as_bytes();
    let signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
    let sent = 1_531_420_618;
    let verifier = Verifier::slack(["8f742231b10e8888abcd99yyyzzz85a5"]);
    let good =
        headers([("x-slack-signature", signature), ("x-slack-request-timestamp", "1531420618")]);
    let of = |headers: &HeaderMap, body: &[u8], now: u64| {
        verifier.verify(headers, body, at(now)).map_err(|rejection| rejection.problem())
    };
    let expected = Verified { id: None, timestamp_seconds: Some(sent) };
    assert_eq!(of(&good, body, sent), Ok(expected));
    assert_eq!(of(&good, &body[1..], sent), Err("signature_mismatch"));
    assert_eq!(of(&good, body, sent + 301), Err("timestamp_too_old"));
    assert_eq!(of(&good, body, sent - 301), Err("timestamp_too_new"));
    let later = with(&good, "x-slack-request-timestamp", &["1531420619"]);
    assert_eq!(of(&later, body, sent), Err("signature_mismatch"));
    let other = with(&good, "x-slack-signature", &[&signature.replace("v0=", "v1=")]);
    assert_eq!(of(&other, body, sent), Err("malformed_header"));
    let none = with(&good, "x-slack-request-timestamp", &[]);
    assert_eq!(of(&none, body, sent), Err("missing_header"));
}

#[test]
fn the_published_vector_of_github() {
    let verifier = Verifier::github(["It's a Secret to Everybody"]);
    let check = |value: &str, body: &[u8]| {
        problem(&verifier, &headers([("x-hub-signature-256", value)]), body)
    };
    let hex = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    assert_eq!(check(&format!("sha256={hex}"), b"Hello, World!"), "accepted");
    assert_eq!(check(&format!("sha256={hex}"), b"Hello, World"), "signature_mismatch");
    assert_eq!(check(&format!("sha256={}", &hex[2..]), b"Hello, World!"), "signature_mismatch");
    assert_eq!(check(hex, b"Hello, World!"), "malformed_header");
    assert_eq!(check(&format!("sha1={hex}"), b"Hello, World!"), "malformed_header");
}

#[test]
fn shopify_and_any_other_header() {
    // Made with another implementation of HMAC.
    let body = "{\"a\":\"ü\"}".as_bytes();
    let of_shopify =
        headers([("x-shopify-hmac-sha256", "wH7AhBy/Njz1qD9RqraTWLh57i5p2nDPlMP45yYKNwc=")]);
    assert_eq!(problem(&Verifier::shopify(["hush"]), &of_shopify, body), "accepted");
    assert_eq!(problem(&Verifier::shopify(["hushed"]), &of_shopify, body), "signature_mismatch");
    let hex = "fc7f99fe9c2fb4653b2aeba14940b7a4c24d6874b66276c5ec66d27c3eea3febd512c3e4fc88215803cb\
               97c30ba81f9810f5e3dcbafd2f3b044a18db59c3c0ce";
    let scheme = HmacScheme {
        header: HeaderName::from_static("x-signature"),
        prefix: "hmac ".to_owned(),
        sha: Sha::Sha512,
        encoding: Encoding::Hex,
    };
    for (value, expected) in [
        (format!("hmac {hex}"), "accepted"),
        (format!("hmac {}", hex.to_uppercase()), "accepted"),
        (format!("hmac {}", &hex[..64]), "signature_mismatch"),
        (format!("Hmac {hex}"), "malformed_header"),
        (format!("hmac  {hex}"), "malformed_header"),
    ] {
        let verifier = Verifier::hmac(scheme.clone(), ["hush"]);
        let headers = headers([("x-signature", &*value)]);
        assert_eq!(problem(&verifier, &headers, body), expected, "{value}");
    }
}

#[test]
fn without_a_secret_nothing_is_accepted() {
    // What an empty secret would have signed.
    let empty = hmac::Key::new(HMAC_SHA256, b"");
    let signature = BASE64.encode(hmac::sign(&empty, b"body"));
    let headers = headers([("x-shopify-hmac-sha256", &*signature)]);
    assert_eq!(problem(&Verifier::shopify([""]), &headers, b"body"), "signature_mismatch");
    let none: [&str; 0] = [];
    assert_eq!(problem(&Verifier::shopify(none), &headers, b"body"), "signature_mismatch");
}

#[test]
fn no_secret_is_printed() {
    let verifier = Verifier::stripe(["hush-hush"]);
    assert_eq!(format!("{verifier:?}"), "Verifier(Stripe, 1 keys, 300s)");
    let refused = verifier.verify(&signed(&[SECRET]), BODY, at(NOW)).unwrap_err();
    assert_eq!(refused.to_string(), "header stripe-signature is missing");
}
