use std::sync::Arc;

use walpost_event::{Field, Relation, Row};

use crate::{
    config::{MissingColumn, RouterConfig, key},
    error::{RouteError, RouteErrorKind},
    placement::{Placement, Target},
    timestamp::{self, Zone},
    value,
};

/// Plans remembered, one per shape of a table. Beyond it the oldest is
/// forgotten and worked out again.
const MAX_CACHED_PLANS: usize = 64;

/// Which columns of one relation become which parts of a record.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    relation: Arc<Relation>,
    pub(crate) id: usize,
    pub(crate) key: usize,
    pub(crate) payload: usize,
    pub(crate) route: usize,
    pub(crate) timestamp: Option<(usize, Zone)>,
    pub(crate) headers: Vec<Placed>,
    pub(crate) more_headers: Option<usize>,
    pub(crate) envelope: Vec<Placed>,
    pub(crate) partitions: Vec<usize>,
    /// An `envelope` placement is configured, whether its column exists or not.
    pub(crate) has_envelope: bool,
}

/// A column that becomes a header or a member of the envelope.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) index: usize,
    pub(crate) name: Arc<str>,
}

impl Plan {
    fn new(
        config: &RouterConfig,
        placements: &[Placement],
        relation: &Arc<Relation>,
    ) -> Result<Self, RouteError> {
        let found = |index: Option<usize>, name: &str, key| {
            index.ok_or_else(|| {
                RouteError::new(RouteErrorKind::MissingColumn { key }, relation, Some(name.into()))
            })
        };
        let column = |name: &str, key| found(relation.column_index(name), name, key);
        let timestamp = match &config.event_timestamp {
            Some(name) => Some(timestamp_column(relation, column(name, key::EVENT_TIMESTAMP)?)?),
            None => None,
        };
        let mut plan = Self {
            relation: Arc::clone(relation),
            id: column(&config.event_id, key::EVENT_ID)?,
            key: column(&config.event_key, key::EVENT_KEY)?,
            payload: column(&config.event_payload, key::EVENT_PAYLOAD)?,
            route: column(&config.route_by_field, key::ROUTE_BY)?,
            timestamp,
            headers: Vec::new(),
            more_headers: config.headers_column.as_ref().and_then(|n| relation.column_index(n)),
            envelope: Vec::new(),
            partitions: Vec::new(),
            has_envelope: placements.iter().any(|entry| entry.target == Target::Envelope),
        };
        for placement in placements {
            let index = config.placed_column(relation, &placement.column);
            match found(index, &placement.column, key::PLACEMENT) {
                Ok(index) => plan.place(placement, index)?,
                Err(_) if config.additional_missing == MissingColumn::Ignore => {}
                Err(error) => return Err(error),
            }
        }
        Ok(plan)
    }

    fn place(&mut self, placement: &Placement, index: usize) -> Result<(), RouteError> {
        let placed = Placed { index, name: Arc::clone(&placement.name) };
        match placement.target {
            Target::Header => self.headers.push(placed),
            Target::Envelope => self.envelope.push(placed),
            Target::Partition => {
                let type_oid = self.relation.columns[index].type_oid;
                if !placement.target.takes(type_oid) {
                    return Err(self.error(RouteErrorKind::PartitionType { type_oid }, index));
                }
                self.partitions.push(index);
            }
        }
        Ok(())
    }

    /// Column `index` of `row`, which is of this plan's relation.
    pub(crate) fn field(&self, row: &Row, index: usize) -> Result<Field, RouteError> {
        value::field(row, index).map_err(|kind| self.error(kind, index))
    }

    /// An error at column `index`.
    pub(crate) fn error(&self, kind: RouteErrorKind, index: usize) -> RouteError {
        column_error(kind, &self.relation, index)
    }
}

fn timestamp_column(relation: &Relation, index: usize) -> Result<(usize, Zone), RouteError> {
    let zone = timestamp::zone(relation, relation.columns[index].type_oid);
    zone.map(|zone| (index, zone)).map_err(|kind| column_error(kind, relation, index))
}

fn column_error(kind: RouteErrorKind, relation: &Relation, index: usize) -> RouteError {
    RouteError::new(kind, relation, Some(Arc::clone(&relation.columns[index].name)))
}

/// The plans of the relations seen lately.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plans(Vec<Plan>);

impl Plans {
    /// The plan for `relation`, worked out once for each allocation of it: a
    /// source that sees a table change makes a new one.
    pub(crate) fn get(
        &mut self,
        config: &RouterConfig,
        placements: &[Placement],
        relation: &Arc<Relation>,
    ) -> Result<&Plan, RouteError> {
        let known = self.0.iter().position(|plan| Arc::ptr_eq(&plan.relation, relation));
        let index = match known {
            Some(index) => index,
            None => {
                let plan = Plan::new(config, placements, relation)?;
                self.0.retain(|old| old.relation.oid == 0 || old.relation.oid != relation.oid);
                if self.0.len() >= MAX_CACHED_PLANS {
                    self.0.remove(0);
                }
                self.0.push(plan);
                self.0.len() - 1
            }
        };
        Ok(&self.0[index])
    }
}

#[cfg(test)]
mod tests {
    use walpost_event::{Column, ReplicaIdentity, type_oid};

    use super::*;

    fn relation(oid: u32) -> Arc<Relation> {
        let columns = ["id", "aggregatetype", "aggregateid", "payload"].map(|name| Column {
            name: name.into(),
            type_oid: type_oid::TEXT,
            type_modifier: -1,
            is_key: false,
        });
        Arc::new(Relation {
            oid,
            schema: "s".into(),
            name: "t".into(),
            replica_identity: ReplicaIdentity::Default,
            columns: columns.into(),
        })
    }

    #[test]
    fn a_new_shape_of_a_table_replaces_the_old_and_the_cache_is_bounded() {
        let config = RouterConfig::default();
        let mut plans = Plans::default();
        for _ in 0..3 {
            plans.get(&config, &[], &relation(7)).unwrap();
        }
        assert_eq!(plans.0.len(), 1);
        let kept = relation(0);
        for _ in 0..3 {
            plans.get(&config, &[], &kept).unwrap();
        }
        assert_eq!(plans.0.len(), 2);
        for oid in 0..3 * MAX_CACHED_PLANS as u32 {
            plans.get(&config, &[], &relation(oid)).unwrap();
            assert!(plans.0.len() <= MAX_CACHED_PLANS);
        }
    }
}
