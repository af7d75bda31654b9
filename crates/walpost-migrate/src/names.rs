use postgres_protocol::escape::escape_identifier;

use crate::error::NameError;

/// What PostgreSQL keeps of a name; it would cut the rest off without an error.
const MAX_BYTES: usize = 63;

/// Names that migrations are rendered with, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    schema: String,
    publication: String,
}

impl Names {
    pub(crate) fn new(schema: &str, publication: &str) -> Result<Self, NameError> {
        check("schema", schema)?;
        check("publication", publication)?;
        if schema.starts_with("pg_") {
            return Err(NameError::Reserved { what: "schema", name: schema.to_owned() });
        }
        Ok(Self { schema: schema.to_owned(), publication: publication.to_owned() })
    }

    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// Fills the names in, in one pass: a name that looks like a placeholder
    /// stays what it is.
    pub(crate) fn fill(&self, template: &str) -> String {
        let mut sql = String::with_capacity(template.len() + 256);
        let mut rest = template;
        while let Some(at) = rest.find('{') {
            let (before, from) = rest.split_at(at);
            sql.push_str(before);
            let (name, after) = if let Some(after) = from.strip_prefix("{schema}") {
                (Some(&self.schema), after)
            } else if let Some(after) = from.strip_prefix("{publication}") {
                (Some(&self.publication), after)
            } else {
                (None, &from[1..])
            };
            match name {
                Some(name) => sql.push_str(&escape_identifier(name)),
                None => sql.push('{'),
            }
            rest = after;
        }
        sql.push_str(rest);
        sql
    }
}

fn check(what: &'static str, name: &str) -> Result<(), NameError> {
    if name.is_empty() || name.len() > MAX_BYTES {
        return Err(NameError::Length { what, name: name.to_owned() });
    }
    // Names also stand inside function bodies, which a dollar could end, and
    // in comments of the printed SQL, which a line break would.
    match name.chars().find(|c| *c == '$' || c.is_control()) {
        Some(character) => Err(NameError::Character { what, name: name.to_owned(), character }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_where_they_are_filled_in() {
        let names = Names::new("wal\"post", "{schema}").unwrap();
        assert_eq!(
            names.fill("create publication {publication} for table {schema}.outbox; select '{}'"),
            r#"create publication "{schema}" for table "wal""post".outbox; select '{}'"#
        );
    }

    #[test]
    fn what_cannot_be_a_name_is_refused() {
        for bad in ["", &"ä".repeat(32), "a\0b", "a$$b", "a\nb"] {
            assert!(Names::new(bad, "walpost").is_err(), "{bad:?}");
            assert!(Names::new("walpost", bad).is_err(), "{bad:?}");
        }
        assert!(Names::new("pg_walpost", "walpost").is_err());
        assert!(Names::new(&"ä".repeat(31), "Wal.Post \"x\"; --").is_ok());
    }
}
