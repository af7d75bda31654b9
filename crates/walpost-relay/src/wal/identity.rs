use super::{
    client::{ReplicationClient, TextRow},
    timeline::{Switch, parse_history},
};
use crate::error::{ServerError, SourceError};

/// Which server a replication connection leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerIdentity {
    /// `system_identifier` of the cluster; a copy of it has the same.
    pub(crate) system_id: String,
    /// What the cluster's WAL is called since the last promotion or restore.
    pub(crate) timeline: u32,
    /// The database.
    pub(crate) dbname: String,
}

impl std::fmt::Display for ServerIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "database {:?} of cluster {} on timeline {}",
            self.dbname, self.system_id, self.timeline
        )
    }
}

impl ServerIdentity {
    /// Positions and slots of one server mean nothing on another.
    pub(crate) fn expect(&self, found: &Self) -> Result<(), SourceError> {
        if self == found {
            return Ok(());
        }
        Err(SourceError::OtherServer { expected: self.to_string(), found: found.to_string() })
    }
}

impl ReplicationClient {
    /// Asks which server this is.
    pub(crate) async fn identify(&mut self) -> Result<ServerIdentity, SourceError> {
        let rows = self.query("IDENTIFY_SYSTEM").await?;
        let column = |index: usize| rows.first()?.get(index)?.clone();
        match (column(0), column(1).and_then(|timeline| timeline.parse().ok()), column(3)) {
            (Some(system_id), Some(timeline), Some(dbname)) => {
                Ok(ServerIdentity { system_id, timeline, dbname })
            }
            _ => Err(SourceError::Protocol("IDENTIFY_SYSTEM without an identity".into())),
        }
    }

    /// The process that serves this connection, as `pg_replication_slots`
    /// names it.
    pub(crate) async fn backend_pid(&mut self) -> Result<i32, SourceError> {
        let rows = self.query("select pg_backend_pid()").await?;
        let pid = rows.first().and_then(|row: &TextRow| row.first()?.as_deref()?.parse().ok());
        pid.ok_or_else(|| SourceError::Protocol("no process id".into()))
    }

    /// The timelines that came before `timeline`, oldest first; `None` if the
    /// server no longer knows.
    pub(crate) async fn history(
        &mut self,
        timeline: u32,
    ) -> Result<Option<Vec<Switch>>, SourceError> {
        // The first timeline has none before it, and no file that says so.
        if timeline <= 1 {
            return Ok(Some(Vec::new()));
        }
        let rows = match self.query(&format!("TIMELINE_HISTORY {timeline}")).await {
            Err(SourceError::Server(ServerError { code, .. })) if code == UNDEFINED_FILE => {
                return Ok(None);
            }
            rows => rows?,
        };
        let text = rows.first().and_then(|row| row.get(1)?.as_deref()).unwrap_or_default();
        parse_history(text).map(Some).map_err(|line| {
            SourceError::Protocol(format!(
                "line {line} of the history of timeline {timeline} is none"
            ))
        })
    }
}

/// SQLSTATE of a file that is not there.
const UNDEFINED_FILE: &str = "58P01";
