use std::{
    collections::BTreeSet,
    hash::{BuildHasher, RandomState},
    net::TcpListener,
    sync::{Mutex, PoisonError},
};

use crate::LocalError;

/// Below 32768, where Linux starts to hand out ports to outgoing connections:
/// a service that is stopped and started again finds its port still free, and
/// nobody who polls it connects to himself.
const FIRST: u16 = 20_000;
const LAST: u16 = 31_999;

/// What this process was given, bound or not.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A TCP port on 127.0.0.1 that nobody listens on right now, and that this
/// process was not given before.
///
/// Another process may take it before its user does; who binds it must be
/// ready to ask again.
///
/// # Errors
///
/// When 1,000 attempts find none: others have them, or this process was given
/// most of the 12,000 already.
pub fn free_port() -> Result<u16, LocalError> {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = (0..1_000)
        .map(|_| FIRST + random_below(LAST - FIRST + 1))
        .find(|port| !given.contains(port) && is_free(port))
        .ok_or(LocalError::NoPort { first: FIRST, last: LAST })?;
    given.insert(port);
    Ok(port)
}

fn random_below(limit: u16) -> u16 {
    let random = RandomState::new().hash_one(std::process::id());
    u16::try_from(random % u64::from(limit)).expect("a remainder of a u16 fits in a u16")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nobody_is_given_the_port_of_another() {
        let given: BTreeSet<u16> = (0..200).map(|_| free_port().unwrap()).collect();
        assert_eq!(given.len(), 200);
    }
}
