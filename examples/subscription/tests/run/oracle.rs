//! Compares the provider's table with ours, whatever the programs say.

use std::collections::BTreeMap;

use tokio_postgres::{Client, Row};
use walpost_testkit::until;

use crate::world::{LIMIT, World};

pub(crate) struct Oracle {
    app: Client,
    billing: Client,
}

impl Oracle {
    pub(crate) async fn new(world: &World) -> Self {
        Self { app: world.database("app").await, billing: world.database("billing").await }
    }

    pub(crate) fn of(app: Client, billing: Client) -> Self {
        Self { app, billing }
    }

    /// The state of each subscription in our table, by its user, with those that
    /// the provider has for it. One that is there twice, or that nobody here knows,
    /// ends the test.
    pub(crate) async fn compare(&self) -> Vec<(String, String, Option<String>)> {
        // Ours before theirs, since what ours name is there before, and ours last, since
        // none of theirs is older than our row of it.
        let before = self.ours().await;
        let theirs = "select reference, id::text, state from subscription";
        let theirs = self.billing.query(theirs, &[]).await.unwrap();
        let ours = self.ours().await;
        let mut there = BTreeMap::new();
        for row in &theirs {
            let (reference, id, state): (String, String, String) =
                (row.get(0), row.get(1), row.get(2));
            assert!(ours.iter().any(|row| row.get::<_, &str>(0) == reference), "unknown: {id}");
            let second = there.insert(reference, (id.clone(), state));
            assert_eq!(second, None, "doubled: {id}");
        }
        for row in &before {
            let (id, known): (&str, Option<&str>) = (row.get(0), row.get(3));
            assert!(known.is_none() || there.contains_key(id), "{id}: {known:?} is not there");
        }
        let pairs = ours.iter().map(|row| {
            let (id, user, state): (String, String, String) = (row.get(0), row.get(1), row.get(2));
            let (known, there) = (row.get::<_, Option<String>>(3), there.remove(&id));
            if let (Some(known), Some((id, _))) = (&known, &there) {
                assert_eq!(known, id, "{user}: another one than the provider's");
            }
            (user, state, there.map(|(_, state)| state))
        });
        pairs.collect()
    }

    async fn ours(&self) -> Vec<Row> {
        let select = "select id, user_id, state, external_id from subscription order by id";
        self.app.query(select, &[]).await.unwrap()
    }

    /// Waits until both tables have this user's subscription so.
    pub(crate) async fn until(&self, user: &str, expected: &str) {
        until(LIMIT, &format!("{user} is {expected}"), async || {
            let all = self.compare().await;
            let mut of_user = all.iter().filter(|(name, ..)| name == user);
            let is_there = of_user.next().is_some_and(|(_, ours, theirs)| {
                ours == expected && theirs.as_deref() == Some(expected)
            });
            assert!(of_user.next().is_none(), "{user} has two");
            is_there
        })
        .await;
    }

    /// The states that others were told of, in order.
    pub(crate) async fn told_of(&self, user: &str) -> Vec<String> {
        let select = "select payload ->> 'state' from walpost.outbox \
                      where type = 'SubscriptionChanged' and payload ->> 'user_id' = $1 \
                      order by seq";
        let rows = self.app.query(select, &[&user]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    pub(crate) async fn has(&self, user: &str) -> bool {
        self.compare().await.iter().any(|(name, ..)| name == user)
    }
}
