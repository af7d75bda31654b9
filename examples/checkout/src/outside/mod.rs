//! The payment provider and the warehouse: servers of others, each with a
//! database of its own. Nothing of this is to be copied.

mod payment;
mod warehouse;

pub(crate) use self::{payment::Payment, warehouse::Warehouse};
