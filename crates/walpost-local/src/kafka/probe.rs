//! Whether a broker serves clients yet: it accepts connections before it does.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

const LIMIT: Duration = Duration::from_secs(2);
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// A Metadata request, version 1, correlation id 1, no client id, no topics.
const REQUEST: [u8; 18] = [
    0, 0, 0, 14, // bytes that follow
    0, 3, // Metadata
    0, 1, // version
    0, 0, 0, 1, // correlation id
    0xff, 0xff, // client id: null
    0, 0, 0, 0, // topics: none
];

/// Whether the server at `address` answers, and knows a broker.
pub(super) fn knows_a_broker(address: SocketAddr) -> bool {
    ask(address).is_ok_and(|answer| brokers(&answer).is_some_and(|brokers| brokers > 0))
}

fn ask(address: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.write_all(&REQUEST)?;
    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    let size = usize::try_from(u32::from_be_bytes(size)).unwrap_or(usize::MAX);
    if size > MAX_ANSWER_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not Kafka"));
    }
    let mut answer = vec![0; size];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// The number of brokers: after the correlation id, as 32 bits.
fn brokers(answer: &[u8]) -> Option<i32> {
    answer.get(4..8).map(|bytes| i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_says_its_own_size() {
        assert_eq!(usize::from(REQUEST[3]), REQUEST.len() - 4);
    }

    #[test]
    fn brokers_are_counted_after_the_correlation_id() {
        assert_eq!(brokers(&[0, 0, 0, 1, 0, 0, 0, 2, 9]), Some(2));
        assert_eq!(brokers(&[0, 0, 0, 1, 0]), None);
    }
}
