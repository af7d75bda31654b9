use std::slice;

/// What lies at `first`, nothing for a null or a count below one.
///
/// # Safety
/// `count` values lie at `first` unless it is null, and stay there unchanged
/// as long as the caller uses the slice.
pub(crate) unsafe fn array<'a, T>(first: *const T, count: impl TryInto<usize>) -> &'a [T] {
    let count = count.try_into().unwrap_or_default();
    if first.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: by the contract of this function.
    unsafe { slice::from_raw_parts(first, count) }
}
