use std::sync::Arc;

use smallvec::SmallVec;
use walpost_event::{Bytes, Field, NamedField, Row, type_oid};

use crate::{
    config::NullHeader,
    error::{RouteError, RouteErrorKind},
    message::{Object, read_string},
    plan::Plan,
    route::named,
};

/// The headers of a row's record: its id, the placed columns, then the members
/// of its own headers.
pub(crate) fn of(
    plan: &Plan,
    row: &Row,
    id_header: &Arc<str>,
    null: NullHeader,
) -> Result<SmallVec<[NamedField; 4]>, RouteError> {
    let mut headers = SmallVec::new();
    headers.push(NamedField { name: Arc::clone(id_header), field: plan.field(row, plan.id)? });
    for placed in &plan.headers {
        let header = named(plan, row, placed)?;
        if header.field.bytes.is_some() || null == NullHeader::Send {
            headers.push(header);
        }
    }
    if let Some(index) = plan.more_headers
        && let Some(object) = plan.field(row, index)?.bytes
    {
        members(&object, &mut headers).map_err(|kind| plan.error(kind, index))?;
    }
    Ok(headers)
}

fn members(object: &Bytes, headers: &mut SmallVec<[NamedField; 4]>) -> Result<(), RouteErrorKind> {
    let malformed = RouteErrorKind::MalformedHeaders { len: object.len() };
    let object: Option<Object<'_>> = serde_json::from_slice(object).map_err(|_| malformed)?;
    // JSON's null, which some mappers write for a missing value.
    let members = object.map_or_else(Vec::new, |object| object.0);
    for (name, json) in members {
        let text = match json.get() {
            "null" => continue,
            text if text.starts_with('"') => read_string(text)?,
            text => text.to_owned(),
        };
        let field = Field {
            column: None,
            type_oid: type_oid::TEXT,
            type_modifier: -1,
            bytes: Some(text.into()),
        };
        headers.push(NamedField { name: name.into(), field });
    }
    Ok(())
}
