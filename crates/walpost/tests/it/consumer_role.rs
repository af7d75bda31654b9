//! The grants of the manual are enough for an operator, and show no contents.

use std::path::Path;

use walpost_testkit as testkit;

use crate::{
    cli::{stderr, walpost},
    consumer::Rig,
};

/// The block of SQL in docs/consumer.md.
fn grants() -> String {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/consumer.md");
    let text = std::fs::read_to_string(manual).unwrap();
    let block = text.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next());
    block.expect("the manual has a block of SQL").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_with_the_grants_of_the_manual_can_do_everything_but_read_contents() {
    let mut rig = Rig::new().await;
    rig.publish(20);
    rig.drain().await;
    let role = testkit::unique_name("operator");
    rig.client.batch_execute(&format!("create role {role} login")).await.unwrap();
    let url = format!("{}?options=-c%20role%3D{role}", rig.database.url());
    let run = |args: &[&str]| {
        let place = ["--postgres", &url, "--kafka", testkit::kafka().bootstrap()];
        tokio::task::block_in_place(|| walpost(&[&["consumer"], args, &place].concat(), &[]))
    };
    let name = rig.name.clone();
    let commands: [&[&str]; 6] = [
        &["list"],
        &["show", &name],
        &["reset", &name, "--shift-by", "-5", "--yes"],
        &["reset", &name, "--to-earliest", "--event-type", "odd", "--yes"],
        &["sync-offsets", &name, "--yes"],
        &["prune", &name, "--older-than", "30"],
    ];
    for command in commands {
        let output = run(command);
        assert_eq!(output.status.code(), Some(3), "{command:?}: {}", stderr(&output));
    }
    rig.client.batch_execute(&grants().replace("operator", &role)).await.unwrap();
    for command in commands {
        let output = run(command);
        assert!(output.status.success(), "{command:?}: {}", stderr(&output));
    }
    let prune = ["prune", &name, "--older-than", "30", "--yes"];
    assert_eq!(run(&prune).status.code(), Some(3));
    let delete = format!("grant delete on walpost.done to {role}");
    rig.client.batch_execute(&delete).await.unwrap();
    let output = run(&prune);
    assert!(output.status.success(), "{}", stderr(&output));
    let reads = "select has_column_privilege($1, 'walpost.consumer_parked', 'value', 'select')";
    assert!(!rig.client.query_one(reads, &[&role]).await.unwrap().get::<_, bool>(0));
    // Five effects of the one reset, and those of odd number below it.
    assert_eq!(rig.drain().await, 20 + 5 + 7);
    let drop = format!("drop owned by {role}; drop role {role}");
    rig.client.batch_execute(&drop).await.unwrap();
}
