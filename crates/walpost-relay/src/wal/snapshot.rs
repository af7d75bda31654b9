use std::{collections::VecDeque, sync::Arc};

use tokio::task::JoinHandle;
use tokio_postgres::{Client, SimpleQueryMessage, types::Type};
use walpost_event::{Column, Lsn, Relation, ReplicaIdentity, Row, RowChange};
use walpost_postgres::Database;

use super::{quote_identifier, quote_literal};
use crate::{
    config::{RelayConfig, TableName},
    error::{RelayError, SourceError},
    source::{Source, SourceItem},
};

/// Rows of one fetch.
const FETCH_ROWS: usize = 1_000;
/// The same text as the replication session gives.
const SESSION_SETTINGS: &str = "set datestyle = 'ISO'; set intervalstyle = 'postgres'; \
     set timezone = 'UTC'; set extra_float_digits = 3; set bytea_output = 'hex'; \
     set statement_timeout = 0; set idle_in_transaction_session_timeout = 0";

/// The rows that were in the outbox tables before the slot, as one transaction
/// that ends where the slot begins.
///
/// After its commit it yields nothing more.
pub(crate) struct SnapshotSource {
    client: Arc<Client>,
    loads: VecDeque<Load>,
    position: Lsn,
    begun: bool,
    committed: bool,
    fetching: Option<JoinHandle<Result<Vec<Row>, tokio_postgres::Error>>>,
}

/// One table, read through a cursor of its own.
struct Load {
    relation: Arc<Relation>,
    cursor: String,
}

/// What rows belong to the load.
pub(crate) enum Boundary<'a> {
    /// A snapshot that its session still exports: whatever it sees.
    Exported(&'a str),
    /// The same snapshot as text, after a restart: rows whose transaction it
    /// sees.
    Stored(&'a str),
}

impl SnapshotSource {
    /// Opens a session on the boundary's rows; they end at `position`.
    pub(crate) async fn open(
        database: &Database,
        config: &RelayConfig,
        boundary: Boundary<'_>,
        position: Lsn,
    ) -> Result<Self, RelayError> {
        let client = database.connect().await?;
        let attempt = "opening the initial load";
        client.batch_execute(SESSION_SETTINGS).await.map_err(RelayError::sql(attempt))?;
        let begin = match boundary {
            Boundary::Exported(name) => format!(
                "begin isolation level repeatable read read only; set transaction snapshot {}",
                quote_literal(name)
            ),
            Boundary::Stored(_) => "begin isolation level repeatable read read only".to_owned(),
        };
        client.batch_execute(&begin).await.map_err(RelayError::sql(attempt))?;
        let mut loads = VecDeque::new();
        for (index, table) in config.tables.iter().enumerate() {
            let relation = describe(&client, table).await?;
            let condition = match boundary {
                Boundary::Exported(_) => String::new(),
                Boundary::Stored(snapshot) => {
                    check_xids(&client, table, &relation).await?;
                    format!(
                        "where pg_visible_in_snapshot(xid, {}::pg_snapshot)",
                        quote_literal(snapshot)
                    )
                }
            };
            let cursor = format!("walpost_load_{index}");
            let declare = declaration(&cursor, table, &relation, &condition);
            client.batch_execute(&declare).await.map_err(RelayError::sql(attempt))?;
            loads.push_back(Load { relation: Arc::new(relation), cursor });
        }
        Ok(Self {
            client: Arc::new(client),
            loads,
            position,
            begun: false,
            committed: false,
            fetching: None,
        })
    }

    fn fetch(&mut self) -> Option<&mut JoinHandle<Result<Vec<Row>, tokio_postgres::Error>>> {
        if self.fetching.is_none() {
            let load = self.loads.front()?;
            let (client, relation) = (self.client.clone(), load.relation.clone());
            let sql = format!("fetch {FETCH_ROWS} from {}", load.cursor);
            // A task of its own, so that nothing is lost when the wait for it
            // is cancelled.
            self.fetching = Some(tokio::spawn(async move {
                let messages = client.simple_query(&sql).await?;
                Ok(messages.iter().filter_map(|message| row(&relation, message)).collect())
            }));
        }
        self.fetching.as_mut()
    }
}

impl Source for SnapshotSource {
    async fn next(&mut self, items: &mut Vec<SourceItem>) -> Result<(), SourceError> {
        if !self.begun {
            self.begun = true;
            // A byte before where the slot begins: no commit record is there.
            let commit_lsn = Lsn::from(u64::from(self.position).saturating_sub(1));
            items.push(SourceItem::Begin { commit_lsn, committed_at_us: 0, xid: 0 });
            return Ok(());
        }
        while let Some(fetching) = self.fetch() {
            let rows = fetching.await.map_err(|_| SourceError::Ended)?;
            self.fetching = None;
            let rows = rows.map_err(|error| SourceError::Io(std::io::Error::other(error)))?;
            if rows.is_empty() {
                self.loads.pop_front();
                continue;
            }
            items.extend(rows.into_iter().map(|row| SourceItem::Change(RowChange::insert(row))));
            return Ok(());
        }
        if !self.committed {
            self.committed = true;
            items.push(SourceItem::Commit { end_lsn: self.position });
            return Ok(());
        }
        std::future::pending().await
    }

    async fn confirm(&mut self, _lsn: Lsn) -> Result<(), SourceError> {
        Ok(())
    }

    async fn keep_alive(&mut self) -> Result<(), SourceError> {
        Ok(())
    }
}

async fn describe(client: &Client, table: &TableName) -> Result<Relation, RelayError> {
    let rows = client
        .query_typed(
            "select attname::text, atttypid, atttypmod, attrelid from pg_attribute \
             where attrelid = to_regclass($1) and attnum > 0 and not attisdropped order by attnum",
            &[(&table.quoted(), Type::TEXT)],
        )
        .await
        .map_err(RelayError::sql("reading the outbox table's columns"))?;
    Ok(Relation {
        oid: rows.first().map_or(0, |row| row.get(3)),
        schema: table.schema.clone(),
        name: table.name.clone(),
        replica_identity: ReplicaIdentity::Default,
        columns: rows
            .iter()
            .map(|row| Column {
                name: row.get::<_, &str>(0).into(),
                type_oid: row.get(1),
                type_modifier: row.get(2),
                is_key: false,
            })
            .collect(),
    })
}

/// A load that was interrupted goes on by transaction ids, which mean nothing
/// in rows that were restored from another cluster.
async fn check_xids(
    client: &Client,
    table: &TableName,
    relation: &Relation,
) -> Result<(), RelayError> {
    let refused = |problem: String| {
        RelayError::prerequisite(
            problem,
            "drop the slot, delete the pipeline's checkpoint row and start again; events of the \
             interrupted load come a second time",
        )
    };
    if relation.column_index("xid").is_none() {
        return Err(refused(format!(
            "the initial load was interrupted, and table {table} has no column xid that would \
             tell which rows belong to it"
        )));
    }
    let sql = format!(
        "select exists (select from {} where xid >= pg_snapshot_xmax(pg_current_snapshot()))",
        table.quoted()
    );
    let row = client
        .query_typed_one(&sql, &[])
        .await
        .map_err(RelayError::sql("checking the transaction ids of the outbox table"))?;
    if row.get(0) {
        return Err(refused(format!(
            "the initial load was interrupted, and table {table} holds transaction ids of \
             another cluster"
        )));
    }
    Ok(())
}

fn declaration(cursor: &str, table: &TableName, relation: &Relation, condition: &str) -> String {
    let columns: Vec<String> =
        relation.columns.iter().map(|column| quote_identifier(&column.name)).collect();
    let has = |name: &str| relation.column_index(name).is_some();
    // Neither time nor id is commit order; the sequence at least is insert
    // order under an aggregate's lock.
    let order = if has("seq") {
        "seq"
    } else if has("created_at") {
        "created_at, ctid"
    } else {
        "ctid"
    };
    format!(
        "declare {cursor} no scroll cursor for select {} from {} {condition} order by {order}",
        columns.join(", "),
        table.quoted(),
    )
}

fn row(relation: &Arc<Relation>, message: &SimpleQueryMessage) -> Option<Row> {
    let SimpleQueryMessage::Row(row) = message else { return None };
    let values = (0..relation.columns.len()).map(|index| row.get(index));
    Some(Row::from_text(relation.clone(), values))
}
