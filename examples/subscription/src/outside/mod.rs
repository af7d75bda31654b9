//! The billing provider: a server of others, with a database of its own. Nothing
//! of this is to be copied.

mod billing;
mod telling;

pub(crate) use self::{billing::Billing, telling::tell};
