use crate::Error;

/// What PostgreSQL keeps of a name; it would cut the rest off without an error.
const MAX_BYTES: usize = 63;

pub(crate) fn check(what: &'static str, name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > MAX_BYTES || name.contains('\0') {
        return Err(Error::Name { what, name: name.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_postgresql_would_cut_or_refuse_is_refused() {
        for bad in ["", "a\0b", &"é".repeat(32)] {
            assert!(matches!(check("table", bad), Err(Error::Name { .. })), "{bad:?}");
        }
        assert!(check("table", &"é".repeat(31)).is_ok());
    }
}
