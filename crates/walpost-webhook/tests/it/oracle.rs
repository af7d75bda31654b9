//! The published verifiers accept what we sign and refuse what we refuse, and we
//! accept what they sign.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::HeaderMap;
use serde_json::{Value, json};
use walpost_testkit::{npm_packages, python_packages};
use walpost_webhook::{Signer, SigningKey, Verifier};

const SECRETS: [&str; 3] = [
    "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
    "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwGhbwRVTlrpY=",
    "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw==",
];
const PRIVATE: &str = "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=";
/// They parse what they accept.
const BODIES: [&str; 5] = [
    "{\"test\": 2432232314}",
    "{}\n",
    " [ \"ü\u{1f600}\\u0000\", 1.0e3 ] ",
    "\"1649367553.a.b\"",
    "null",
];
const ORACLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle");

/// A request, and whether it is to be accepted.
#[derive(Clone)]
struct Case {
    secret: String,
    id: String,
    timestamp: u64,
    signature: String,
    body: String,
    good: bool,
}

impl Case {
    fn json(&self) -> Value {
        json!({
            "secret": self.secret,
            "id": self.id,
            "timestamp": self.timestamp.to_string(),
            "signature": self.signature,
            "body": self.body,
        })
    }

    fn we_accept(&self, signature: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", self.id.parse().unwrap());
        headers.insert("webhook-timestamp", self.timestamp.into());
        headers.insert("webhook-signature", signature.parse().unwrap());
        let verifier = Verifier::standard([key(&self.secret).verifying_key()]);
        verifier.verify(&headers, self.body.as_bytes(), SystemTime::now()).is_ok()
    }
}

fn key(text: &str) -> SigningKey {
    text.parse().unwrap()
}

/// What we sign, also while a key is replaced, and what is made of it on its way.
fn cases() -> Vec<Case> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut cases = Vec::new();
    for (number, secret) in SECRETS.iter().enumerate() {
        for body in BODIES {
            let keys = [PRIVATE, SECRETS[(number + 1) % SECRETS.len()], secret].map(key);
            let id = format!("msg_{number}");
            let at = UNIX_EPOCH + Duration::from_secs(now);
            let signature = Signer::new(keys).unwrap().sign(&id, at, body.as_bytes()).unwrap();
            let good = Case {
                secret: (*secret).to_owned(),
                id,
                timestamp: signature.timestamp_seconds,
                signature: signature.value,
                body: body.to_owned(),
                good: true,
            };
            let bad = Case { good: false, ..good.clone() };
            let others = good.signature.rsplit_once(' ').unwrap().0.to_owned();
            cases.extend([
                Case { body: format!("{body} "), ..bad.clone() },
                Case { id: "msg_9".to_owned(), ..bad.clone() },
                Case { timestamp: now - 1, ..bad.clone() },
                Case { signature: others, ..bad.clone() },
                signed_at(&good, now - 600),
                signed_at(&good, now + 600),
            ]);
            cases.push(good);
        }
    }
    cases
}

/// The same, signed at a time that nobody tolerates.
fn signed_at(case: &Case, timestamp: u64) -> Case {
    let signer = Signer::new([key(&case.secret)]).unwrap();
    let at = UNIX_EPOCH + Duration::from_secs(timestamp);
    let signature = signer.sign(&case.id, at, case.body.as_bytes()).unwrap();
    Case { timestamp, signature: signature.value, good: false, ..case.clone() }
}

/// What a program answers to `cases`.
fn ask(program: &mut Command, cases: &[Case]) -> Value {
    let asked = Value::from(cases.iter().map(Case::json).collect::<Vec<_>>()).to_string();
    let mut child = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(asked.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn agree(program: &mut Command, verifiers: &[&str]) {
    let cases = cases();
    let answers = ask(program, &cases);
    for name in verifiers {
        let answers = answers[name].as_array().unwrap();
        assert_eq!(answers.len(), cases.len(), "{name}");
        for (case, answer) in cases.iter().zip(answers) {
            let what = format!("{name}: {}", case.json());
            assert_eq!(answer["accepted"], case.good, "{what}");
            assert_eq!(case.we_accept(&case.signature), case.good, "{what}");
            if case.good {
                let theirs = answer["signature"].as_str().unwrap();
                assert!(case.we_accept(theirs), "{what} {theirs}");
                assert!(case.signature.split(' ').any(|ours| ours == theirs), "{what} {theirs}");
            }
        }
    }
}

#[test]
#[ignore = "deep: needs packages of npm and pip"]
fn the_published_verifiers_of_npm_agree_with_us() {
    let manifest = std::fs::read_to_string(Path::new(ORACLE).join("package.json")).unwrap();
    let lock = std::fs::read_to_string(Path::new(ORACLE).join("package-lock.json")).unwrap();
    let folder = npm_packages(Path::new(env!("CARGO_TARGET_TMPDIR")), &manifest, &lock);
    let script = Path::new(ORACLE).join("verify.mjs");
    let mut node = Command::new("node");
    agree(node.arg(script).current_dir(folder), &["standardwebhooks", "svix"]);
}

#[test]
#[ignore = "deep: needs packages of npm and pip"]
fn the_published_verifier_of_python_agrees_with_us() {
    let requirements = std::fs::read_to_string(Path::new(ORACLE).join("requirements.txt")).unwrap();
    let folder = python_packages(Path::new(env!("CARGO_TARGET_TMPDIR")), &requirements);
    let script = Path::new(ORACLE).join("verify.py");
    let mut python = Command::new("/usr/bin/python3");
    python.arg(script).env("PYTHONPATH", folder).env("PYTHONDONTWRITEBYTECODE", "1");
    agree(&mut python, &["standardwebhooks"]);
}
