//! Events against the contracts of their types.

use walpost_contracts::Contracts;

use crate::{Error, NewEvent, PayloadColumn, param::Cell};

impl NewEvent {
    /// Whether the payload is what the contract of the event's type allows. Text
    /// counts as a JSON string, no payload as the JSON value null.
    ///
    /// # Errors
    /// [`Error::Contract`].
    pub fn check_contract(&self, contracts: &Contracts) -> Result<(), Error> {
        let payload = &self.payload;
        let json = payload.for_column(PayloadColumn::Jsonb);
        let cell = json.or_else(|| payload.for_column(PayloadColumn::Bytea));
        check(contracts, self, &cell.unwrap_or(Cell::Null))
    }
}

/// The same of what the table's column would hold.
pub(crate) fn check(
    contracts: &Contracts,
    event: &NewEvent,
    payload: &Cell<'_>,
) -> Result<(), Error> {
    let payload = match payload {
        Cell::Null => b"null",
        Cell::Text(text) => text.as_bytes(),
        Cell::Bytes(bytes) => bytes,
    };
    contracts.check_payload(&event.event_type, payload).map_err(|source| Error::Contract { source })
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, sync::Arc};

    use super::*;
    use crate::{OutboxTable, insert::InsertRow};

    #[test]
    fn an_event_that_breaks_its_contract_is_not_written() {
        let example = (PathBuf::from("a.md"), walpost_contracts::EXAMPLE.to_owned());
        let contracts = Arc::new(Contracts::parse([example]).unwrap());
        let table = OutboxTable::default().with_contracts(contracts.clone());
        let event = |name, json: &str| NewEvent::new("order", "1", name).raw_json(json).unwrap();
        let good = event("OrderPlaced", r#"{"order_id": 42}"#);
        InsertRow::new(&table, &good).unwrap();
        good.check_contract(&contracts).unwrap();
        for (bad, expected) in [
            (event("OrderPlaced", r#"{"order_id": "s3cret"}"#), "/order_id"),
            (event("OrderPlaced", "{}"), "required"),
            (NewEvent::new("order", "1", "OrderPlaced"), "object"),
            (NewEvent::new("order", "1", "OrderPlaced").text("{}"), "object"),
            (event("OrderPlacd", r#"{"order_id": 42}"#), "no contract"),
        ] {
            let refused = InsertRow::new(&table, &bad).unwrap_err();
            let text = walpost_event_text(&refused);
            assert!(text.contains(expected) && !text.contains("s3cret"), "{text}");
            assert_eq!(walpost_event_text(&bad.check_contract(&contracts).unwrap_err()), text);
            InsertRow::new(&OutboxTable::default(), &bad).unwrap();
        }
    }

    fn walpost_event_text(error: &dyn std::error::Error) -> String {
        let cause = error.source().map(ToString::to_string).unwrap_or_default();
        format!("{error}: {cause}")
    }
}
