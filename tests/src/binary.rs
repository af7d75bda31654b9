//! The programs that these tests run. The build of the tests makes them; no test
//! calls cargo.

use std::path::PathBuf;

use walpost_testkit::{built_program, release_program};

/// The program `walpost` as this package builds it.
///
/// # Panics
/// When it is not built.
#[must_use]
pub fn walpost_binary() -> PathBuf {
    built_program("walpost-under-test")
}

/// The optimised program `walpost`.
///
/// # Panics
/// When it is not built.
#[must_use]
pub fn release_binary() -> PathBuf {
    release_program("walpost")
}

/// The program `walpost-test-consumer`, for another program of this package.
///
/// # Panics
/// When it is not built.
#[must_use]
pub fn test_consumer_binary() -> PathBuf {
    built_program("walpost-test-consumer")
}

/// The program `walpost-test-receiver`, for another program of this package.
///
/// # Panics
/// When it is not built.
#[must_use]
pub fn test_receiver_binary() -> PathBuf {
    built_program("walpost-test-receiver")
}
