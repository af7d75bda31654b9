//! The schemas of envelopes.

use std::sync::Arc;

use super::{
    origin::Origin,
    schema::{Kind, Schema, SchemaField},
};
use crate::memory::Memory;

/// Envelopes remembered, as many as Debezium remembers.
const MAX_ENVELOPES: usize = 10_000;
const MAX_ENVELOPES_BYTES: usize = 16 << 20;

/// Which routed value names the schema of an envelope,
/// `<prefix>.<schema>.<table>.<routed value>.Value`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnvelopeNames {
    /// That of the first record with a payload of its schema since the start,
    /// as in Debezium: with several aggregate types the name depends on which
    /// came first, and may change with a restart.
    FirstRouted,
    /// That of the record itself.
    #[default]
    OwnRoute,
}

/// Members with their schemas.
pub(crate) type Members = Vec<SchemaField>;

/// The schemas of envelopes so far.
#[derive(Clone, Debug)]
pub(crate) struct Envelopes {
    names: EnvelopeNames,
    /// By the addresses of all that they are made of, which they keep.
    known: Memory<Box<[usize]>, Arc<Schema>>,
    /// The first names, by all that has one.
    first: Memory<(Members, Option<i32>), Arc<str>>,
    own: Memory<Box<str>, Arc<str>>,
    key: Vec<usize>,
    name: String,
}

impl Envelopes {
    pub(crate) fn new(names: EnvelopeNames) -> Self {
        Self {
            names,
            known: Memory::new(MAX_ENVELOPES, MAX_ENVELOPES_BYTES),
            first: Memory::new(MAX_ENVELOPES, MAX_ENVELOPES_BYTES),
            own: Memory::new(MAX_ENVELOPES, MAX_ENVELOPES_BYTES),
            key: Vec::new(),
            name: String::new(),
        }
    }

    /// The schema of an envelope of these members, whose row is routed by
    /// `route`.
    pub(crate) fn schema(
        &mut self,
        members: Members,
        version: Option<i32>,
        origin: &Origin<'_>,
        route: &str,
    ) -> Arc<Schema> {
        let own = match self.names {
            EnvelopeNames::OwnRoute => Some(self.own_name(origin, route)),
            EnvelopeNames::FirstRouted => None,
        };
        let address = |name: &Arc<str>| Arc::as_ptr(name).cast::<u8>().addr();
        self.key.clear();
        self.key.extend([
            own.as_ref().map_or(0, address),
            usize::from(version.is_some()),
            version.unwrap_or_default() as usize,
        ]);
        for SchemaField { name, schema } in &members {
            self.key.extend([address(name), Arc::as_ptr(schema).addr()]);
        }
        if let Some(schema) = self.known.get(self.key.as_slice()) {
            return Arc::clone(schema);
        }
        let name = own.unwrap_or_else(|| self.first_name(&members, version, origin, route));
        let kind = Kind::Struct(members);
        let schema = Arc::new(Schema { name: Some(name), version, ..Schema::new(kind) });
        let bytes = schema.size_bytes() + size_of_val(self.key.as_slice());
        self.known.insert(self.key.as_slice().into(), Arc::clone(&schema), bytes);
        schema
    }

    fn first_name(
        &mut self,
        members: &Members,
        version: Option<i32>,
        origin: &Origin<'_>,
        route: &str,
    ) -> Arc<str> {
        let key = (members.clone(), version);
        if let Some(name) = self.first.get(&key) {
            return Arc::clone(name);
        }
        origin.envelope_name(route, &mut self.name);
        let name: Arc<str> = self.name.as_str().into();
        let field = |field: &SchemaField| field.name.len() + field.schema.size_bytes();
        let bytes = name.len() + members.iter().map(field).sum::<usize>();
        self.first.insert(key, Arc::clone(&name), bytes);
        name
    }

    fn own_name(&mut self, origin: &Origin<'_>, route: &str) -> Arc<str> {
        origin.envelope_name(route, &mut self.name);
        if let Some(name) = self.own.get(self.name.as_str()) {
            return Arc::clone(name);
        }
        let name: Arc<str> = self.name.as_str().into();
        self.own.insert(self.name.as_str().into(), Arc::clone(&name), 2 * name.len());
        name
    }
}
