//! Ways to be a member of the group: eager, static, and by the group protocol of
//! KIP-848. What is cooperative is everywhere else.

use std::collections::BTreeSet;

use walpost_consumer::{Error, OnReset, Status};
use walpost_testkit::{self as testkit, local};

use crate::{
    fault::{killed_as, paused_as},
    member::{self, Harm},
    support::{BRIEF_SESSION_MS, Effects, LIMIT, SESSION_MS, World, each, ids, run},
};

const EAGER: &[(&str, &str)] = &[("partition.assignment.strategy", "range")];
const STATIC: &[(&str, &str)] = &[("group.instance.id", "pod-0")];
const NEW: &[(&str, &str)] = &[("group.protocol", "consumer")];
const NEW_STATIC: &[(&str, &str)] =
    &[("group.protocol", "consumer"), ("group.instance.id", "pod-0")];

#[tokio::test(flavor = "multi_thread")]
async fn an_eager_member_paused_in_its_handler_is_overtaken() {
    paused_as(Harm::PausesInHandlerOf("a120"), EAGER).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_by_the_new_protocol_paused_in_its_handler_is_overtaken() {
    paused_as(Harm::PausesInHandlerOf("a120"), NEW).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn kills_of_eager_members_cost_no_effect_and_repeat_none() {
    killed_as(2, EAGER).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_of_a_static_member_cost_no_effect_and_repeat_none() {
    killed_as(3, STATIC).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn kills_of_members_by_the_new_protocol_cost_no_effect_and_repeat_none() {
    killed_as(2, NEW).await;
}

/// The group does not hear of it: what was to be given back has to have an owner
/// all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_static_member_killed_amid_a_rebalance_leaves_no_partition_to_nobody() {
    let world = World::new(4).await;
    let events = ids("a", 400);
    let harm = Harm::Failpoint("before_release:kill");
    let killed = member::start_as(&world, harm, STATIC, OnReset::Rerun);
    let publish = async |from: usize| {
        for partition in 0..4 {
            let first = partition * 100 + from;
            world.publish(partition as i32, &events[first..first + 50]).await;
        }
    };
    publish(0).await;
    world.until_number("select count(*) from effect", 200).await;
    let other = world.consumer_as(&[("group.instance.id", "pod-1")]);
    let other = run(other.handler(Effects).unwrap());
    member::until_dead(&killed).await;
    let back = member::start_as(&world, Harm::Nothing, STATIC, OnReset::Rerun);
    publish(50).await;
    world.until_number("select count(*) from effect", 400).await;
    other.stop().await.unwrap();
    assert!(back.terminate(LIMIT).success(), "{}", back.log());
    assert_eq!(world.effects().await, each(&events, 1));
}

/// The coordinator would give it what it had, and the new topic to nobody.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn a_static_member_that_comes_back_with_another_topic_gets_that_too() {
    let world = World::new(1).await;
    let events = ids("a", 40);
    let refunds = testkit::unique_name("refunds");
    testkit::create_topic(testkit::kafka().bootstrap(), &refunds, 1, &[]).await;
    let member = |topics: &[&String]| {
        let consumer = world.consumer_as(STATIC).topics(topics.iter().copied().cloned());
        // Each waits until that of the one before is over.
        run(consumer.session_timeout_ms(BRIEF_SESSION_MS).handler(Effects).unwrap())
    };
    let mut before = member(&[&world.topic]);
    world.publish(0, &events[..10]).await;
    before.until_applied(10).await;
    before.stop().await.unwrap();
    let mut more = member(&[&world.topic, &refunds]);
    world.publish_to(&refunds, &events[10..20]).await;
    world.publish(0, &events[20..30]).await;
    more.until_applied(20).await;
    more.stop().await.unwrap();
    let mut fewer = member(&[&refunds]);
    world.publish_to(&refunds, &events[30..]).await;
    fewer.until_applied(10).await;
    let work = work(&fewer.status.borrow().clone()).0;
    fewer.stop().await.unwrap();
    assert_eq!((world.effects().await, work.len()), (each(&events, 1), 1));
}

/// It waits for a place that another one has, and can be stopped there.
#[tokio::test(flavor = "multi_thread")]
async fn a_static_member_that_waits_for_its_place_stops() {
    let world = World::new(1).await;
    let refunds = testkit::unique_name("refunds");
    testkit::create_topic(testkit::kafka().bootstrap(), &refunds, 1, &[]).await;
    let consumer = world.consumer_as(STATIC).topics([world.topic.clone(), refunds.clone()]);
    let mut there = run(consumer.handler(Effects).unwrap());
    there.until_running(2).await;
    let waits = member::start_as(&world, Harm::Nothing, STATIC, OnReset::Rerun);
    testkit::until(LIMIT, "a word on the other topics", async || {
        assert!(waits.is_running(), "{}", waits.log());
        let log = waits.log();
        log.lines()
            .any(|line| line.contains("it joins when the session") && line.contains(&refunds))
    })
    .await;
    world.publish(0, ids("a", 10)).await;
    there.until_applied(10).await;
    assert!(waits.terminate(LIMIT).success(), "{}", waits.log());
    there.stop().await.unwrap();
}

/// Nobody is told that partitions are its that are another's, and it is not lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_group_assigns_otherwise_says_so_and_joins_when_that_has_gone() {
    let world = World::new(2).await;
    let events = ids("a", 200);
    let mut before = run(world.consumer().handler(Effects).unwrap());
    before.until_running(2).await;
    let waits = member::start_as(&world, Harm::Nothing, STATIC, OnReset::Rerun);
    testkit::until(LIMIT, "a word on its strategy", async || {
        assert!(waits.is_running(), "{}", waits.log());
        waits.log().contains("Stop all and start them alike")
    })
    .await;
    world.publish(0, &events[..100]).await;
    world.until_number("select count(*) from effect", 100).await;
    assert_eq!(work(&before.status.borrow().clone()).0, BTreeSet::from([0, 1]));
    before.stop().await.unwrap();
    world.publish(1, &events[100..]).await;
    world.until_number("select count(*) from effect", 200).await;
    assert!(waits.terminate(LIMIT).success(), "{}", waits.log());
    assert_eq!(world.effects().await, each(&events, 1));
}

/// What it works on, and how often it has claimed anything.
fn work(status: &Status) -> (BTreeSet<i32>, u64) {
    (status.partitions.keys().map(|of| of.partition).collect(), status.counts.claims)
}

/// A static member that leaves in order and comes back within its session moves
/// no partition of the others.
async fn comes_back(broker: &str, protocol: &[(&str, &str)]) {
    let world = World::on(broker, 4).await;
    let member = |instance: &str| {
        let consumer = world.consumer_as(protocol).kafka("group.instance.id", instance);
        run(consumer.session_timeout_ms(SESSION_MS).handler(Effects).unwrap())
    };
    let mut stays = member("pod-0");
    stays.until_running(4).await;
    let mut goes = member("pod-1");
    goes.until_running(2).await;
    let before = work(&stays.until_running(2).await);
    let had = work(&goes.status.borrow().clone()).0;
    goes.stop().await.unwrap();
    let mut back = member("pod-1");
    let status = back.until_running(2).await;
    assert_eq!(work(&status).0, had, "the partitions that it had");
    let events = ids("a", 400);
    for partition in 0..4 {
        world.publish(partition, &events[partition as usize * 100..][..100]).await;
    }
    world.until_number("select count(*) from effect", 400).await;
    assert_eq!(work(&stays.status.borrow().clone()), before, "the other one went on as it was");
    stays.stop().await.unwrap();
    back.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_static_member_that_comes_back_moves_no_partition_of_the_others() {
    comes_back(testkit::kafka().bootstrap(), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: a broker of its own"]
async fn a_static_member_by_the_new_protocol_that_comes_back_moves_no_partition_of_the_others() {
    // By this protocol the session is the broker's.
    let broker = local::Kafka::builder()
        .property("group.consumer.session.timeout.ms", "30000")
        .property("broker.session.timeout.ms", "30000")
        .start()
        .unwrap();
    comes_back(&broker.bootstrap(), NEW).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_static_member_that_is_replaced_ends_and_says_why() {
    let world = World::new(1).await;
    let events = ids("a", 2000);
    world.publish(0, &events[..1000]).await;
    let member = || run(world.consumer_as(STATIC).max_batch_events(10).handler(Effects).unwrap());
    let mut first = member();
    first.until_applied(100).await;
    let second = member();
    let error = first.end().await.unwrap_err();
    assert!(matches!(error, Error::Kafka { .. }), "{error:?}");
    assert!(error.to_string().contains("group.instance.id"), "{error}");
    world.publish(0, &events[1000..]).await;
    world.until_number("select count(*) from effect", 2000).await;
    second.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_is_there_refuses_a_second_one_by_the_new_protocol() {
    let world = World::new(1).await;
    let member = || run(world.consumer_as(NEW_STATIC).handler(Effects).unwrap());
    let mut first = member();
    first.until_running(1).await;
    let error = member().end().await.unwrap_err();
    assert!(error.to_string().contains("group.instance.id is there"), "{error}");
    world.publish(0, ids("a", 10)).await;
    first.until_applied(10).await;
    first.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_assignor_that_the_brokers_do_not_have_is_named() {
    let world = World::new(1).await;
    let consumer = world.consumer_as(NEW).kafka("group.remote.assignor", "no-such-one");
    let error = run(consumer.handler(Effects).unwrap()).end().await.unwrap_err();
    assert!(error.to_string().contains("such as uniform or range"), "{error}");
}

/// The broker is away for longer than the session: the partitions are lost, and
/// what is at hand is given up; then they are claimed anew.
async fn loses_its_partitions(kafka: &[(&str, &str)]) {
    let broker = local::Kafka::builder().start().unwrap();
    let world = World::on(&broker.bootstrap(), 2).await;
    let events = ids("a", 2000);
    world.publish(0, &events[..500]).await;
    world.publish(1, &events[500..1000]).await;
    let consumer = world.consumer_as(kafka).session_timeout_ms(3_000).max_batch_events(10);
    let mut running = run(consumer.handler(Effects).unwrap());
    let claims = running.until_applied(100).await.counts.claims;
    broker.pause().unwrap();
    running.until("lost partitions", |status| status.partitions.is_empty()).await;
    broker.resume().unwrap();
    running.until("new claims", |status| status.counts.claims >= claims + 2).await;
    world.publish(0, &events[1000..1500]).await;
    world.publish(1, &events[1500..]).await;
    world.until_number("select count(*) from effect", 2000).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: a broker of its own"]
async fn partitions_that_are_lost_are_claimed_anew() {
    loses_its_partitions(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: a broker of its own"]
async fn partitions_that_an_eager_member_loses_are_claimed_anew() {
    loses_its_partitions(EAGER).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: a broker of its own"]
async fn brokers_without_the_new_protocol_are_named() {
    let broker = local::Kafka::builder()
        .property("group.coordinator.rebalance.protocols", "classic")
        .start()
        .unwrap();
    let world = World::on(&broker.bootstrap(), 1).await;
    let error = run(world.consumer_as(NEW).handler(Effects).unwrap()).end().await.unwrap_err();
    assert!(error.to_string().contains("Kafka 4.0 or later"), "{error}");
}
