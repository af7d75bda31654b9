//! Whether another pipeline publishes the rows of this one too: then each of them
//! would be published twice.

use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    retention::{Reader, ReaderFeed, readers},
    sql::Sql,
    wal::{quote_identifier, row_filter},
};

/// A pipeline that has published nothing yet, as one that reads its rows by `feed`,
/// shares no whole row filter with another one.
///
/// # Errors
/// [`RelayError::Prerequisite`] that names the other one, unless
/// [`RelayConfig::allow_overlap`] says otherwise.
pub(crate) async fn none<'a>(
    sql: &Sql,
    config: &RelayConfig,
    tables: impl IntoIterator<Item = &'a TableName>,
    feed: ReaderFeed,
) -> Result<(), RelayError> {
    if config.allow_overlap {
        return Ok(());
    }
    for table in tables {
        let set = readers(sql, config, table).await?;
        let own = own_reader(sql, config, table, feed).await?;
        if let Some(rival) = rival(&own, &set) {
            let (problem, remedy) = told(&own, rival, table, config);
            return Err(RelayError::prerequisite(problem, remedy));
        }
    }
    Ok(())
}

/// The pipeline as it reads a table before its first start.
pub(crate) async fn own_reader(
    sql: &Sql,
    config: &RelayConfig,
    table: &TableName,
    feed: ReaderFeed,
) -> Result<Reader, RelayError> {
    let rows = match feed {
        ReaderFeed::Wal => row_filter::condition_to_be(sql, config, table).await?,
        ReaderFeed::Table => "true".to_owned(),
    };
    Ok(Reader {
        pipeline: config.pipeline.clone(),
        proven: None,
        rows: (rows != "true").then_some(rows),
        is_here: true,
        messages: config.event_prefixes().to_vec(),
        feed: Some(feed),
        brought: None,
    })
}

/// The first other reader with which `own` shares all rows of one of the two. Of
/// filters that only overlap in part the rows tell, which `check` looks at.
pub(crate) fn rival<'a>(own: &Reader, set: &'a [Reader]) -> Option<&'a Reader> {
    let shares = |other: &Reader| match (own.feed, other.feed) {
        // Rows that one poller has published are not pending for the other.
        (None, _) | (_, None) | (Some(ReaderFeed::Table), Some(ReaderFeed::Table)) => false,
        _ => includes(own.rows.as_deref(), other.rows.as_deref()),
    };
    set.iter().find(|other| other.pipeline != own.pipeline && other.is_here && shares(other))
}

/// Whether every row of one of two filters is a row of the other for sure.
fn includes(one: Option<&str>, other: Option<&str>) -> bool {
    let bare = |filter: &str| filter.trim_matches(['(', ')', ' ']).to_lowercase();
    match (one.map(bare), other.map(bare)) {
        (None, None) => true,
        (None, Some(rows)) | (Some(rows), None) => rows != "false",
        (Some(one), Some(other)) => one == other && one != "false",
    }
}

/// What is wrong, and what to do.
pub(crate) fn told(
    own: &Reader,
    rival: &Reader,
    table: &TableName,
    config: &RelayConfig,
) -> (String, String) {
    let (own, rival) = (&own.pipeline, &rival.pipeline);
    let problem = format!(
        "pipelines {rival:?} and {own:?} both publish the rows of table {table}: each event would \
         be published twice"
    );
    let remedy = format!(
        "divide the rows by pipeline.row_filter; or set pipeline.allow_overlap = true if the two \
         publish to different places, such as Kafka and webhooks; or, if pipeline {rival:?} no \
         longer runs, drop its slot and delete its row in {}.checkpoint",
        quote_identifier(&config.schema)
    );
    (problem, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(pipeline: &str, rows: Option<&str>, feed: Option<ReaderFeed>) -> Reader {
        Reader {
            pipeline: pipeline.to_owned(),
            proven: None,
            rows: rows.map(str::to_owned),
            is_here: true,
            messages: Vec::new(),
            feed,
            brought: None,
        }
    }

    #[test]
    fn only_filters_that_share_all_rows_of_one_are_rivals() {
        let own = |rows| reader("a", rows, Some(ReaderFeed::Wal));
        let is_rival =
            |own: &Reader, rows| rival(own, &[reader("b", rows, Some(ReaderFeed::Wal))]).is_some();
        assert!(is_rival(&own(None), None));
        assert!(is_rival(&own(Some("(tenant = 'a'::text)")), None));
        assert!(is_rival(&own(None), Some("(tenant = 'a'::text)")));
        assert!(is_rival(&own(Some("(x)")), Some("(x)")));
        assert!(!is_rival(&own(Some("(x)")), Some("(y)")));
        for none in ["false", "(FALSE)"] {
            assert!(!is_rival(&own(Some(none)), None), "{none}");
            assert!(!is_rival(&own(None), Some(none)), "{none}");
            assert!(!is_rival(&own(Some(none)), Some(none)), "{none}");
        }
    }

    #[test]
    fn a_reader_that_publishes_nothing_or_shares_the_work_is_no_rival() {
        let own = |feed| reader("a", None, Some(feed));
        let (wal, table) = (ReaderFeed::Wal, ReaderFeed::Table);
        assert!(rival(&own(wal), &[reader("b", None, None)]).is_none());
        assert!(rival(&own(wal), &[reader("a", None, Some(wal))]).is_none(), "itself");
        assert!(rival(&own(table), &[reader("b", None, Some(table))]).is_none());
        assert!(rival(&own(table), &[reader("b", None, Some(wal))]).is_some());
        assert!(rival(&own(wal), &[reader("b", None, Some(table))]).is_some());
        let elsewhere = Reader { is_here: false, ..reader("b", None, Some(wal)) };
        assert!(rival(&own(wal), &[elsewhere]).is_none(), "of another cluster");
    }
}
