//! What an operator is told of an outbox in partitions.

use walpost_local::Postgres;

use crate::{
    cli::{stderr, stdout, walpost},
    rows::PIPELINE,
};

#[test]
fn an_outbox_in_partitions_is_created_goes_on_and_has_its_days_leave() {
    let postgres = Postgres::builder().throwaway().start().unwrap();
    let url = postgres.url("postgres");
    let walpost = |args: &[&str]| walpost(&[args, &["--postgres", &url]].concat(), &[]);
    let sql = |sql: &str| postgres.psql("postgres", sql).unwrap().trim().to_owned();
    let output = walpost(&["migrate", "--partitioned", "--set", "consumer"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let printed = stdout(&walpost(&["migrate", "--partitioned", "--print", "--set", "relay"]));
    assert!(printed.contains("partition by range (created_at)"), "{printed}");
    // At midnight one more day is missing.
    let today = || sql("select (now() at time zone 'UTC')::date");
    let (again, day, made) = loop {
        let began = today();
        let output = walpost(&["migrate", "--partitioned"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let again = stdout(&walpost(&["migrate"]));
        let day = sql("select (now() at time zone 'UTC')::date + 3");
        sql(&format!("drop table walpost.outbox_{}", day.replace('-', "")));
        let made = stdout(&walpost(&["migrate"]));
        if today() == began {
            break (again, day, made);
        }
    };
    assert_eq!(again, "nothing to apply: schema walpost is up to date\n");
    assert_eq!(made, format!("made partitions for {day}\n"), "a day that is missing comes back");
    let status = stdout(&walpost(&["migrate", "--status"]));
    assert_eq!(status.matches("in partitions").count(), 1, "{status}");

    let event = "begin; select walpost.make_day((now() at time zone 'UTC')::date - 30); \
                 insert into walpost.outbox (aggregatetype, aggregateid, type, created_at) \
                 values ('order', 'a', 'Placed', now() - interval '720 hours'); commit";
    sql(event);
    sql(PIPELINE);
    let text = stdout(&walpost(&["prune"]));
    assert!(text.contains("walpost.outbox: partitions that would leave: 1\n"), "{text}");
    sql("begin; update walpost.checkpoint set proven = null; commit");
    let output = walpost(&["prune", "--yes"]);
    assert_eq!(output.status.code(), Some(3), "{}", stdout(&output));
    sql("delete from walpost.checkpoint");
    sql(PIPELINE);
    let text = stdout(&walpost(&["prune", "--yes"]));
    assert!(text.contains("walpost.outbox: partitions that left: 1\n"), "{text}");
    assert_eq!(sql("select count(*) from walpost.outbox"), "0");

    let output = walpost(&["migrate", "--schema", "plain", "--set", "pipeline.publication=plain"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let output = walpost(&["migrate", "--partitioned", "--schema", "plain"]);
    assert_eq!(output.status.code(), Some(3), "{}", stdout(&output));
    assert!(stderr(&output).contains("--partitioned --schema NEW"), "{}", stderr(&output));
}
