use std::{collections::HashMap, sync::Arc};

use walpost_event::{Column, Relation, ReplicaIdentity, type_oid};

use crate::{
    error::{DecodeError, DecodeErrorKind},
    reader::Reader,
    wal_message::TypeName,
};

/// Relations kept for one session. PostgreSQL describes a relation once and
/// never says that it is gone, so the oldest cannot be forgotten.
const MAX_RELATIONS: usize = 100_000;

/// Flags, empty name, type OID and modifier: the least that a column takes.
const MIN_COLUMN_BYTES: u64 = 1 + 1 + 4 + 4;

/// The relations that a session has described.
#[derive(Debug, Default)]
pub(crate) struct Relations(HashMap<u32, Arc<Relation>>);

impl Relations {
    /// Reads a relation's OID and finds it.
    pub(crate) fn read_known(&self, reader: &mut Reader<'_>) -> Result<Arc<Relation>, DecodeError> {
        let at = reader.offset();
        let oid = reader.u32("a relation oid")?;
        let known = self.0.get(&oid).map(Arc::clone);
        known.ok_or_else(|| DecodeError::new(DecodeErrorKind::UnknownRelation { oid }, at))
    }

    /// Keeps `relation`. A description equal to the one known gives the same
    /// [`Arc`] again, so that what others derived from it stays valid.
    pub(crate) fn keep(
        &mut self,
        relation: Relation,
        reader: &Reader<'_>,
    ) -> Result<Arc<Relation>, DecodeError> {
        let known = self.0.get(&relation.oid);
        if let Some(same) = known.filter(|known| ***known == relation) {
            return Ok(Arc::clone(same));
        }
        if known.is_none() && self.0.len() >= MAX_RELATIONS {
            let kind = DecodeErrorKind::TooManyRelations { max_relations: MAX_RELATIONS };
            return Err(reader.error(kind));
        }
        let relation = Arc::new(relation);
        self.0.insert(relation.oid, Arc::clone(&relation));
        Ok(relation)
    }
}

/// The built-in types under the domains that a session has described, by the OIDs of
/// the domains.
#[derive(Debug, Default)]
pub(crate) struct Domains(HashMap<u32, u32>);

impl Domains {
    /// Of a domain the server says its own OID and the name of the type below all
    /// domains; of any other type its own name.
    pub(crate) fn learn(&mut self, described: &TypeName) {
        let TypeName { oid, schema, name } = described;
        let base = (schema == "pg_catalog").then(|| type_oid::of_name(name)).flatten();
        match base {
            Some(base) if self.0.len() < MAX_RELATIONS => drop(self.0.insert(*oid, base)),
            _ => drop(self.0.remove(oid)),
        }
    }

    pub(crate) fn replace(&self, relation: &mut Relation) {
        for column in &mut relation.columns {
            column.type_oid = *self.0.get(&column.type_oid).unwrap_or(&column.type_oid);
        }
    }
}

/// The body of a Relation message.
pub(crate) fn read_relation(reader: &mut Reader<'_>) -> Result<Relation, DecodeError> {
    let oid = reader.u32("a relation oid")?;
    let schema = read_schema(reader)?;
    let name = reader.text("a table name")?.into_owned();
    let replica_identity = read_replica_identity(reader)?;
    let count = reader.count16("a column count")?;
    reader.require(count as u64 * MIN_COLUMN_BYTES, "columns")?;
    let columns = (0..count).map(|_| read_column(reader)).collect::<Result<_, _>>()?;
    Ok(Relation { oid, schema, name, replica_identity, columns })
}

/// A schema name, which PostgreSQL leaves empty for `pg_catalog`.
pub(crate) fn read_schema(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    Ok(match reader.text("a schema name")?.into_owned() {
        schema if schema.is_empty() => "pg_catalog".to_owned(),
        schema => schema,
    })
}

fn read_replica_identity(reader: &mut Reader<'_>) -> Result<ReplicaIdentity, DecodeError> {
    let at = reader.offset();
    let expected = "a replica identity (d, n, f or i)";
    match reader.u8(expected)? {
        b'd' => Ok(ReplicaIdentity::Default),
        b'n' => Ok(ReplicaIdentity::Nothing),
        b'f' => Ok(ReplicaIdentity::Full),
        b'i' => Ok(ReplicaIdentity::Index),
        found => Err(DecodeError::new(DecodeErrorKind::UnknownTag { expected, found }, at)),
    }
}

fn read_column(reader: &mut Reader<'_>) -> Result<Column, DecodeError> {
    let at = reader.offset();
    let expected = "column flags (0 or 1)";
    let is_key = match reader.u8(expected)? {
        0 => false,
        1 => true,
        found => {
            return Err(DecodeError::new(DecodeErrorKind::UnknownTag { expected, found }, at));
        }
    };
    Ok(Column {
        name: reader.text("a column name")?.into(),
        type_oid: reader.u32("a type oid")?,
        type_modifier: reader.i32("a type modifier")?,
        is_key,
    })
}
