/// The point `name` of the example `whose` is reached, which has these `points`, and
/// at which a test can end or stop it; nothing without the feature `failpoints`.
///
/// `WALPOST_FAILPOINT=whose/name[@count]:kill|stop` arms it: see `walpost_failpoint`.
#[inline]
pub fn reached(whose: &str, points: &[&str], name: &str) {
    #[cfg(feature = "failpoints")]
    walpost_failpoint::reached(whose, points, name);
    #[cfg(not(feature = "failpoints"))]
    let _ = (whose, points, name);
}
