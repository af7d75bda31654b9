/// The hash of Kafka's Java client (`org.apache.kafka.common.utils.Utils`), a
/// 32 bit MurmurHash2 with the seed `0x9747b28c`.
///
/// ```
/// // Vectors of Kafka's own unit test.
/// assert_eq!(walpost_kafka::murmur2(b"21"), -973_932_308);
/// assert_eq!(walpost_kafka::murmur2(b"foobar"), -790_332_482);
/// ```
pub fn murmur2(data: &[u8]) -> i32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    // Java arrays are no longer than an i32, and neither is a record key.
    let mut hash = SEED ^ data.len() as u32;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        k ^= k >> R;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let tail = words.remainder();
    if !tail.is_empty() {
        for (index, byte) in tail.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * index);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    (hash ^ (hash >> 15)) as i32
}

/// The partition that Kafka's Java client chooses for a key that is not null.
///
/// # Panics
/// If `partitions` is not positive.
pub fn partition_for_key(key: &[u8], partitions: i32) -> i32 {
    assert!(partitions > 0, "a topic has partitions");
    (murmur2(key) & 0x7fff_ffff) % partitions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of Kafka's UtilsTest.
    #[test]
    fn hashes_like_java() {
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
        }
    }

    #[test]
    fn every_partition_is_within_the_topic() {
        for length in 0..64 {
            let key = vec![0xff; length];
            assert!((0..7).contains(&partition_for_key(&key, 7)));
        }
    }
}
