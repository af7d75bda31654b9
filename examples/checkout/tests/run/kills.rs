//! A process is killed at each failpoint that a checkout passes, and somebody
//! else ends the checkout: the customer's retry, or the sweeper where nobody comes
//! back.

use futures_util::{StreamExt, stream};
use walpost_testkit::{Process, covers_points};

use crate::{
    oracle::{Oracle, Trace, refunded, shipped, trace},
    world::{LIMIT, Setting, World},
};

/// Points of the layer, as the run of a request passes them.
const OF_THE_LAYER: [Point; 7] = [
    // Of the transactional mode.
    Point::new("after_claim", 0),
    Point::new("before_commit", 0),
    Point::new("after_commit", 0),
    Point::new("after_lease", 1).begins(),
    Point::new("after_phase", 3).steps().announces(2),
    Point::new("before_finish", 1),
    Point::new("after_finish", 1),
];
/// The example's own, as the run of a request passes them.
const OF_A_RUN: [Point; 4] = [
    Point::new("before_call", 2).announces(1),
    Point::new("after_call", 2),
    Point::new("before_step_commit", 3).steps().begins(),
    Point::new("after_step_commit", 3).steps().announces(2),
];
/// Points of the sender, as it passes them for a refund; where it is behind the
/// call, the refund is made.
const OF_A_DELIVERY: [Point; 6] = [
    Point::new("after_claim", 1),
    Point::new("before_bytes", 1),
    Point::new("after_answer", 1).is_behind_the_call(),
    Point::new("after_finish", 1).is_behind_the_call(),
    // Of what is received.
    Point::new("before_receipt", 0),
    Point::new("after_receipt", 0),
];

#[derive(Clone, Copy, Debug)]
struct Point {
    name: &'static str,
    /// How often it is passed.
    times: usize,
    /// Once with each step, so once more where a charge is announced.
    is_of_steps: bool,
    /// The first time, nothing is there.
    is_before_the_row: bool,
    /// The time at which a charge has been announced, and not asked for.
    announced: Option<usize>,
    is_behind_the_call: bool,
}

impl Point {
    const fn new(name: &'static str, times: usize) -> Self {
        Self {
            name,
            times,
            is_of_steps: false,
            is_before_the_row: false,
            announced: None,
            is_behind_the_call: false,
        }
    }

    const fn steps(self) -> Self {
        Self { is_of_steps: true, ..self }
    }

    const fn begins(self) -> Self {
        Self { is_before_the_row: true, ..self }
    }

    const fn announces(self, time: usize) -> Self {
        Self { announced: Some(time), ..self }
    }

    const fn is_behind_the_call(self) -> Self {
        Self { is_behind_the_call: true, ..self }
    }
}

const FAILPOINT: &str = "WALPOST_FAILPOINT";
/// Processes at a time.
const AT_A_TIME: usize = 4;
/// Longer than anything takes here, so that no call is given up.
const CALLS_LAST: Setting = ("CALL_TIMEOUT_MS", "10000");
/// Is waited for after a kill, and outlasts a stall.
const LEASE: Setting = ("LEASE_MS", "10000");
/// Where no service is killed.
const LONG_LEASE: Setting = ("LEASE_MS", "30000");
const KEYED: [Setting; 2] = [CALLS_LAST, LEASE];
const KEYLESS: [Setting; 4] =
    [CALLS_LAST, LEASE, ("KEYS_LAST_MS", "0"), ("SETTLED_AFTER_MS", "10000")];

#[derive(Clone, Copy, Debug)]
struct Kill {
    whose: &'static str,
    point: Point,
    count: usize,
    /// Whether the point is reached so often.
    is_passed: bool,
    comes_back: bool,
    sku: &'static str,
}

impl Kill {
    fn customer(&self) -> String {
        let Self { whose, point, count, comes_back, sku, .. } = self;
        format!("{whose}-{}-{count}-{comes_back}-{sku}", point.name)
    }

    /// As the variable has it.
    fn armed(&self) -> String {
        format!("{}/{}@{}:kill", self.whose, self.point.name, self.count)
    }
}

/// Each failpoint has to be here, with how often it is passed.
fn every(code: impl Iterator<Item = &'static str>, table: &[Point]) {
    covers_points(table.iter().map(|point| point.name), code);
}

/// Of each point every time that it is passed, and once more, which none dies of.
fn kills(announcements: usize, sku: &'static str) -> Vec<Kill> {
    every(walpost_idempotency::failpoints(), &OF_THE_LAYER);
    every(checkout::failpoints(), &OF_A_RUN);
    let layer = OF_THE_LAYER.map(|point| ("idempotency", point));
    let own = OF_A_RUN.map(|point| ("checkout", point));
    let mut kills = Vec::new();
    for (whose, point) in layer.into_iter().chain(own) {
        let times = point.times + if point.is_of_steps { announcements } else { 0 };
        for count in 1..=times + 1 {
            let is_passed = count <= times;
            for comes_back in [true, false] {
                if comes_back || is_passed {
                    kills.push(Kill { whose, point, count, is_passed, comes_back, sku });
                }
            }
        }
    }
    kills
}

/// Kills at each point, and ends what was begun: the customers do, and then the
/// `enders`, which before would take steps from a process that is slow.
async fn killed(world: &World, kills: &[Kill], enders: &[&str], expected: impl Fn(&Kill) -> Trace) {
    let heir = world.service().await;
    let one = async |kill: &Kill| {
        let customer = kill.customer();
        let armed = world.server("service", &[(FAILPOINT, &kill.armed())]).await;
        let told = armed.check_out(&customer, kill.sku).await;
        assert_eq!(told.is_none(), kill.is_passed, "{kill:?}: {told:?} {}", armed.process.log());
        if !kill.is_passed {
            assert!(armed.process.is_running(), "{kill:?}");
            return;
        }
        armed.process.killed(LIMIT);
        if kill.comes_back {
            let told = heir.until_told(&customer, kill.sku).await;
            assert_eq!(told.state(), expected(kill).state, "{kill:?}: {told:?}");
            assert_eq!(heir.check_out(&customer, kill.sku).await, Some(told), "the same again");
        }
    };
    stream::iter(kills).for_each_concurrent(AT_A_TIME, one).await;
    let _enders: Vec<Process> = enders.iter().map(|part| world.part(part, &[])).collect();
    let oracle = Oracle::new(world).await;
    for kill in kills {
        // Killed before we knew of it, and never asked for again: it is not there.
        let is_unknown = !kill.comes_back && kill.point.is_before_the_row && kill.count == 1;
        if is_unknown {
            assert_eq!(oracle.trace(&kill.customer()).await, Trace::default(), "{kill:?}");
        } else {
            oracle.until(&kill.customer(), &expected(kill)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_each_step_what_can_be_shipped_is_charged_and_shipped_once() {
    let world = World::new(&KEYED).await;
    killed(&world, &kills(0, "lamp"), &["sweeper"], |_| shipped()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_each_step_what_is_out_of_stock_is_charged_and_refunded_once() {
    let world = World::new(&KEYED).await;
    let kills = kills(0, "chandelier");
    killed(&world, &kills, &["sweeper", "sender"], |_| refunded()).await;
    let oracle = Oracle::new(&world).await;
    assert_eq!(oracle.refund_events().await as usize, oracle.traces().await.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_each_step_a_provider_without_keys_is_asked_for_one_charge() {
    let world = World::new(&KEYLESS).await;
    killed(&world, &kills(1, "lamp"), &["sweeper"], |kill| {
        // Announced, and never asked for: nobody can know that, so nobody asks.
        let is_held = kill.is_passed && kill.point.announced == Some(kill.count);
        if is_held { trace("not_charged", 0, 0, 0) } else { shipped() }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweeper_that_is_killed_at_each_step_is_gone_on_with_by_the_next() {
    every(checkout::failpoints(), &OF_A_RUN);
    let mut world = World::closed(&[CALLS_LAST, LONG_LEASE]).await;
    let service = world.service().await;
    // Accepted, and nobody is there to charge.
    let customers: Vec<(String, &str)> =
        (0..16).map(|n| (format!("c{n}"), ["lamp", "chandelier"][n % 2])).collect();
    for (customer, sku) in &customers {
        let told = service.check_out(customer, sku).await.unwrap();
        assert_eq!(told.what(), (503, "accepted"));
    }
    world.open_payment().await;
    world.open_warehouse().await;
    for point in OF_A_RUN {
        // What a request writes first is there already.
        let times = if point.is_of_steps { point.times - 1 } else { point.times };
        for count in 1..=times {
            let armed = format!("checkout/{}@{count}:kill", point.name);
            let sweeper = world.part("sweeper", &[(FAILPOINT, &armed)]);
            sweeper.killed(LIMIT);
        }
    }
    let (_sweeper, _sender) = (world.part("sweeper", &[]), world.part("sender", &[]));
    let oracle = Oracle::new(&world).await;
    for (customer, sku) in &customers {
        let expected = if *sku == "lamp" { shipped() } else { refunded() };
        oracle.until(customer, &expected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_that_is_killed_at_each_step_refunds_once() {
    every(walpost_webhook::failpoints(), &OF_A_DELIVERY);
    // Longer than this takes is the lease that goes by it: each sender is to claim
    // its own refund, and none that another was killed with.
    let world = World::new(&[("CALL_TIMEOUT_MS", "120000"), LONG_LEASE]).await;
    let service = world.service().await;
    let oracle = Oracle::new(&world).await;
    let is_refunded = async |customer: &str| oracle.trace(customer).await == refunded();
    for point in OF_A_DELIVERY {
        assert_eq!(service.until_told(point.name, "chandelier").await.state(), "refund_due");
        let armed = format!("webhook/{}@1:kill", point.name);
        let sender = world.part("sender", &[(FAILPOINT, &armed)]);
        if point.times == 0 {
            oracle.until(point.name, &refunded()).await;
            assert!(sender.is_running(), "{point:?}: {}", sender.log());
            continue;
        }
        sender.killed(LIMIT);
        assert_eq!(is_refunded(point.name).await, point.is_behind_the_call, "{point:?}");
    }
    let shop = world.database("shop").await;
    let end_leases = "begin; set local session_replication_role = replica; \
                      update walpost.webhook_delivery set lease_until = now() \
                      where state = 'sending'; commit";
    shop.batch_execute(end_leases).await.unwrap();
    let _sender = world.part("sender", &[]);
    for point in OF_A_DELIVERY {
        oracle.until(point.name, &refunded()).await;
    }
    // All deliveries have ended: nothing more is on its way.
    walpost_testkit::until(LIMIT, "the end of all deliveries", async || {
        let open = "select count(*) from walpost.webhook_delivery where state <> 'delivered'";
        shop.query_one(open, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    assert!(oracle.traces().await.values().all(|trace| *trace == refunded()));
}
