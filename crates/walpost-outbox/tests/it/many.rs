use walpost_outbox::{NewEvent, OutboxTable, Uuid, write_all};

use crate::{Slot, outbox};

#[tokio::test]
async fn ten_thousand_events_are_written_and_decoded_in_their_order() {
    let (_database, mut client) = outbox().await;
    let events: Vec<NewEvent> = (0..10_000)
        .map(|number| {
            let event = NewEvent::new("order", (number % 7).to_string(), "counted");
            let event = event.json(&number).unwrap();
            // So that not all rows name the same columns.
            if number % 3 == 0 { event.header("n", number.to_string()) } else { event }
        })
        .collect();
    let tx = client.transaction().await.unwrap();
    let ids = write_all(&tx, &OutboxTable::default(), &events).await.unwrap();
    assert_eq!(write_all(&tx, &OutboxTable::default(), &[]).await.unwrap(), []);
    tx.commit().await.unwrap();

    let rows = client
        .query("select id, payload::text, headers->>'n' from walpost.outbox order by seq", &[])
        .await
        .unwrap();
    assert_eq!(rows.len(), 10_000);
    for (number, (row, id)) in rows.iter().zip(&ids).enumerate() {
        assert_eq!(row.get::<_, Uuid>(0).to_string(), id.to_string(), "{number}");
        assert_eq!(row.get::<_, &str>(1), number.to_string());
        let header = (number % 3 == 0).then(|| number.to_string());
        assert_eq!(row.get::<_, Option<String>>(2), header);
    }
}

#[tokio::test]
async fn the_wal_has_them_in_the_same_order() {
    let (database, client) = outbox().await;
    let slot = Slot::create(&client).await;
    let events: Vec<NewEvent> =
        (0..2_500).map(|number| NewEvent::new("order", number.to_string(), "counted")).collect();
    let mut writer = database.connect().await;
    let tx = writer.transaction().await.unwrap();
    write_all(&tx, &OutboxTable::default(), &events).await.unwrap();
    tx.commit().await.unwrap();
    let changes = slot.changes().await;
    assert_eq!(changes.len(), 2_500);
    for (number, change) in changes.iter().enumerate() {
        assert!(change.contains(&format!("aggregateid[text]:'{number}'")), "{change}");
    }
    slot.drop().await;
}
