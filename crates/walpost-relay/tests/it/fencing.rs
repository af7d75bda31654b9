//! A sink that can be fenced off is, by its successor, before that reads back.

use crate::rig::{Rig, status, stop};

async fn noted(rig: &Rig) -> Option<String> {
    let sql = "select fence from walpost.checkpoint";
    rig.client.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn each_run_fences_off_the_one_before_whatever_its_own_name_is() {
    let rig = Rig::new().await;
    let names = [Some("one"), Some("two"), None, None, Some("three")];
    for (number, name) in names.into_iter().enumerate() {
        rig.world.fence_as(name);
        let relay = rig.streaming().await;
        assert_eq!(noted(&rig).await.as_deref(), name, "before anything is sent");
        rig.insert("a", &[&number.to_string()]).await;
        rig.landed(number + 1).await;
        stop(relay).await;
    }
    assert_eq!(rig.world.fenced(), ["one", "two"], "none where none had a name");
}

#[tokio::test]
async fn nothing_is_sent_while_the_one_before_may_still_write() {
    let mut rig = Rig::new().await;
    rig.config.start_timeout_ms = None;
    rig.world.fence_as(Some("before"));
    stop(rig.streaming().await).await;
    rig.insert("a", &["1"]).await;
    rig.world.fence_as(None);
    rig.world.refuse_to_fence(true);
    let relay = rig.start();
    status(&relay, "two failed sessions", |status| status.failed_sessions >= 2).await;
    assert_eq!((rig.world.landed().len(), rig.world.settled().len()), (0, 1), "nor read back");
    assert_eq!(noted(&rig).await.as_deref(), Some("before"), "the next one has to know");
    rig.world.refuse_to_fence(false);
    assert_eq!(rig.landed(1).await, ["1"]);
    assert_eq!(noted(&rig).await, None);
    stop(relay).await;
}
