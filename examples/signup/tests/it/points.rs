//! A kill at every point that the code has a name for.

use tokio::task::{JoinSet, LocalSet};
use walpost_testkit::covers_points;

use crate::{
    failpoint::Failpoint,
    world::{
        Part::{self, Api, Mailer, Sender},
        World,
    },
};

/// Whose points they are: a crate's, or the example's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Idempotency,
    Webhook,
    Example,
}

impl Of {
    fn name(self) -> &'static str {
        match self {
            Self::Idempotency => "idempotency",
            Self::Webhook => "webhook",
            Self::Example => "signup",
        }
    }
}

/// What is known, and how many mails there are, before anybody looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Delivered,
    /// The mailer can tell: it had not begun, or was done.
    MailerKnows {
        mails: usize,
    },
    /// The mail server alone can.
    NobodyKnows {
        mails: usize,
    },
}

use Of::{Example, Idempotency, Webhook};
use Then::{Delivered, MailerKnows, NobodyKnows};

/// Which process is killed where, and what that leaves.
const KILLS: &[(Part, Of, &str, Then)] = &[
    (Api, Idempotency, "after_claim:kill", Delivered),
    (Api, Idempotency, "before_commit:kill", Delivered),
    (Api, Idempotency, "after_commit:kill", Delivered),
    (Sender, Webhook, "after_claim:kill", MailerKnows { mails: 0 }),
    (Sender, Webhook, "before_bytes:kill", MailerKnows { mails: 0 }),
    (Sender, Webhook, "after_answer:kill", MailerKnows { mails: 1 }),
    (Sender, Webhook, "after_finish:kill", Delivered),
    (Mailer, Idempotency, "after_lease:kill", MailerKnows { mails: 0 }),
    (Mailer, Example, "before_smtp:kill", MailerKnows { mails: 0 }),
    // The intent is committed, and nothing handed over.
    (Mailer, Idempotency, "after_phase:kill", NobodyKnows { mails: 0 }),
    (Mailer, Example, "after_smtp:kill", NobodyKnows { mails: 1 }),
    // The mail server's word is committed.
    (Mailer, Idempotency, "after_phase@2:kill", MailerKnows { mails: 1 }),
    (Mailer, Idempotency, "before_finish:kill", MailerKnows { mails: 1 }),
    (Mailer, Idempotency, "after_finish:kill", MailerKnows { mails: 1 }),
];

/// Points of those who receive into an inbox, which nothing here does.
const ELSEWHERE: [&str; 2] = ["before_receipt", "after_receipt"];

fn name(point: &str) -> &str {
    point.split(['@', ':']).next().unwrap()
}

/// A point that is new, or gone, fails this until there is a line for it.
#[test]
fn every_point_of_the_code_has_a_line() {
    let lines = |whose: Of| {
        let lines = KILLS.iter().filter(move |(_, of, ..)| *of == whose);
        lines.map(|(.., point, _)| name(point))
    };
    covers_points(lines(Idempotency), walpost_idempotency::failpoints());
    covers_points(lines(Webhook).chain(ELSEWHERE), walpost_webhook::failpoints());
    covers_points(lines(Example), Failpoint::ALL.into_iter().map(Failpoint::name));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_passed_elsewhere_is_passed_by_no_signup() {
    for point in ELSEWHERE {
        let armed = format!("{}/{point}:kill", Webhook.name());
        for part in Part::ALL {
            let world = World::with(Some((part, &*armed))).await;
            assert_eq!(world.signed_up("k", "ada@example.org").await.status, 201, "{point}");
            world.settled(1).await;
            assert!(world.is_running(part), "{point} in {part:?}");
            world.is_well(1).await;
        }
    }
}

/// All of a part at once, each in a world of its own.
async fn kills(part: Part) {
    let (local, mut worlds) = (LocalSet::new(), JoinSet::new());
    for (_, of, point, then) in KILLS.iter().filter(|(one, ..)| *one == part) {
        worlds.spawn_local_on(killed(part, *of, point, *then), &local);
    }
    local.run_until(worlds.join_all()).await;
}

async fn killed(part: Part, of: Of, point: &'static str, then: Then) {
    let armed = format!("{}/{point}", of.name());
    let mut world = World::with(Some((part, &*armed))).await;
    let first = world.sign_up("k", "ada@example.org").await;
    world.killed(part).await;
    world.start(part, None).await;
    // The client, which may have its answer, comes again with a twin.
    let (one, other) = tokio::join!(
        world.signed_up("k", "ada@example.org"),
        world.signed_up("k", "ada@example.org")
    );
    assert_eq!((one.status, &one.body), (201, &other.body), "{point}");
    assert_eq!(first.is_none(), part == Api, "{point}: {first:?}");
    assert!(first.is_none_or(|first| first.body == one.body), "{point}");

    let states: Vec<String> = world.ended(1).await.into_values().collect();
    let mails = world.mails().len();
    let (state, expected) = match then {
        Delivered => ("delivered", 1),
        MailerKnows { mails } | NobodyKnows { mails } => ("unknown", mails),
    };
    if (&*states[0], mails) != (state, expected) {
        // Of a mail that took so long nobody need know anything.
        assert!(world.was_slow().await, "{point}: {states:?}, {mails} mails");
        world.settled(1).await;
        return world.is_well(1).await;
    }
    if then != Delivered {
        let said = world.operator(true).await;
        let settled = match then {
            NobodyKnows { mails: 0 } => "settled: 0 by the mailer, 0 found at the mail server, 1",
            NobodyKnows { .. } => "settled: 0 by the mailer, 1 found at the mail server, 0",
            _ => "settled: 1 by the mailer, 0 found at the mail server, 0",
        };
        assert!(said.contains(settled) || world.was_slow().await, "{point}: {said}");
    }
    world.is_well(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_anywhere_in_the_request_leaves_one_account_and_one_mail() {
    kills(Api).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_anywhere_in_the_sender_leaves_one_mail_or_a_question() {
    kills(Sender).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_anywhere_in_the_mailer_leaves_one_mail_or_a_question() {
    kills(Mailer).await;
}
