//! A payload against its contract.

use crate::{
    Contract, Contracts, PayloadError,
    schema::{Schema, Unfit},
};

impl Contracts {
    /// Whether the payload is one that the contract of its event's type allows.
    ///
    /// JSON is text in UTF-8; Avro a datum in binary, with or without the five
    /// bytes before it that name a schema of a registry.
    ///
    /// # Errors
    /// [`PayloadError`], also where the type has no contract.
    pub fn check_payload(&self, event_type: &str, payload: &[u8]) -> Result<(), PayloadError> {
        let contract = self
            .get(event_type)
            .ok_or_else(|| PayloadError::NoContract { event_type: event_type.to_owned() })?;
        contract.check_payload(payload)
    }
}

impl Contract {
    /// As [`Contracts::check_payload`], of this event.
    ///
    /// # Errors
    /// [`PayloadError::Unreadable`] and [`PayloadError::Refused`].
    pub fn check_payload(&self, payload: &[u8]) -> Result<(), PayloadError> {
        let event_type = || self.event_type.clone();
        let fits = match &self.schema {
            Schema::Json(schema) => schema.check(payload),
            Schema::Avro(schema) => schema.check(payload),
        };
        fits.map_err(|unfit| match unfit {
            Unfit::Unreadable(expected) => {
                PayloadError::Unreadable { event_type: event_type(), expected }
            }
            Unfit::Refused { path, problem } => {
                PayloadError::Refused { event_type: event_type(), path, problem }
            }
        })
    }
}
