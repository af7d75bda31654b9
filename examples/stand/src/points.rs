/// The point `name` of the example `whose` is reached, at which a test can end or
/// stop it; nothing without the feature `failpoints`.
///
/// `WALPOST_FAILPOINT=whose/name[@count]:kill|stop` arms it: see `walpost_failpoint`.
///
/// # Panics
/// When the variable is set, and to nothing of this form.
pub fn reached(whose: &str, name: &str) {
    #[cfg(feature = "failpoints")]
    walpost_failpoint::reached(whose, name);
    #[cfg(not(feature = "failpoints"))]
    let _ = (whose, name);
}
