//! What would leave, counted.

use super::{
    super::{
        Pruned,
        leaves::Reach,
        partitions::{self, Partition, Way},
        whole::{Counts, Look},
    },
    Archive, Removal, Rows,
};
use crate::{error::RelayError, sql::Sql};

impl Removal {
    /// What would leave.
    pub(in crate::retention) async fn count(&self, sql: &Sql) -> Result<Pruned, RelayError> {
        let mut found = Pruned::of(&self.table);
        let keep = self.retention.keep_days;
        let target = self.target(sql).await?;
        match partitions::read(sql, &self.table, keep).await? {
            None => {
                let quoted = self.table.quoted();
                let reach = Reach::find(sql, &quoted, &quoted).await?;
                self.count_old(sql, &reach, &mut found).await?;
            }
            Some(root) => {
                found.is_not_owner = !root.owns;
                for partition in &root.all {
                    self.count_of(sql, partition, target.is_some(), &mut found).await?;
                }
            }
        }
        if let Some(archive) = &self.archive {
            self.count_archive(sql, archive, &mut found).await?;
        }
        Ok(found)
    }

    async fn count_of(
        &self,
        sql: &Sql,
        partition: &Partition,
        can_archive: bool,
        found: &mut Pruned,
    ) -> Result<(), RelayError> {
        match partition.way() {
            Way::Later => return Ok(()),
            Way::Rows => {
                let reach = Reach::find(sql, &partition.name, &self.table.quoted()).await?;
                return self.count_old(sql, &reach, found).await;
            }
            Way::Whole => {}
        }
        let counts = self.look(sql, partition, Look::All).await?.unwrap_or_default();
        let Counts { all, leave, not_proven, parked } = counts;
        found.not_proven += not_proven;
        found.parked += parked;
        let row_by_row = counts.has_others() || (self.has_archive() && !can_archive && all > 0);
        if row_by_row {
            found.rows += leave;
        } else if counts.may_leave() {
            found.partitions += 1;
            found.rows += all;
        } else {
            found.held_partitions += 1;
        }
        Ok(())
    }

    /// Rows that leave one by one.
    async fn count_old(
        &self,
        sql: &Sql,
        Reach { from, only }: &Reach,
        found: &mut Pruned,
    ) -> Result<(), RelayError> {
        let Rows { proven, own } = self.rows(sql).await?;
        let Self { old, parked, .. } = self;
        let query = format!(
            "select count(*) filter (where {proven} and not {parked}), \
             count(*) filter (where not ({proven})), \
             count(*) filter (where {proven} and {parked}) from {from} o where {old}{own}{only}"
        );
        let row = sql.one("counting the rows that may leave", &query, &[]).await?;
        let count = |index| u64::try_from(row.get::<_, i64>(index)).unwrap_or(0);
        found.rows += count(0);
        found.not_proven += count(1);
        found.parked += count(2);
        Ok(())
    }

    async fn count_archive(
        &self,
        sql: &Sql,
        archive: &Archive,
        found: &mut Pruned,
    ) -> Result<(), RelayError> {
        let (past, days) = (self.past(), self.retention.archive_days);
        let partitions = partitions::read(sql, &archive.table, days).await?;
        let all = partitions.map(|partitions| partitions.all).unwrap_or_default();
        let named = |partition: &Partition| (partition.name.clone(), partition.way());
        let mut places: Vec<(String, Way)> = all.iter().map(named).collect();
        if places.is_empty() {
            places.push((archive.table.quoted(), Way::Rows));
        }
        for (name, way) in places {
            let Reach { from, only } = Reach::find(sql, &name, &archive.table.quoted()).await?;
            let query = format!(
                "select count(*), count(*) filter (where {past}) from {from} o where true{only}"
            );
            let row = sql.one("counting the rows of the archive", &query, &[]).await?;
            let (all, old): (i64, i64) = (row.get(0), row.get(1));
            let old = u64::try_from(old).unwrap_or(0);
            match way {
                Way::Rows => found.archived_rows += old,
                Way::Whole if row.get::<_, i64>(1) == all => {
                    found.archived_rows += old;
                    found.archived_partitions += 1;
                }
                Way::Whole | Way::Later => {}
            }
        }
        Ok(())
    }
}
