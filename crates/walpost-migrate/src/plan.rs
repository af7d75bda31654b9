use crate::{Form, Migration, Set, error::PlanError};

/// A row of the table `migration`: what a database says was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number in its set.
    pub number: u32,
    /// Its name at that time.
    pub name: String,
    /// [`checksum`](crate::checksum) of its text at that time.
    pub checksum: String,
}

/// What is left to apply of `embedded`, in order. Pure.
///
/// `applied` in any order; `embedded` in ascending order.
///
/// # Errors
/// When `applied` is not the beginning of `embedded`: a migration that this
/// version does not know, one whose text has changed, or a gap.
///
/// ```
/// use walpost_migrate::{Set, plan};
///
/// let steps = plan(Set::Relay, &[], Set::Relay.migrations())?;
/// assert_eq!(steps[0].name, "outbox");
/// # Ok::<(), walpost_migrate::PlanError>(())
/// ```
pub fn plan<'a>(
    set: Set,
    applied: &[Entry],
    embedded: &'a [Migration],
) -> Result<Vec<&'a Migration>, PlanError> {
    if let Some(newer) = applied
        .iter()
        .filter(|entry| embedded.iter().all(|known| known.number != entry.number))
        .min_by_key(|entry| entry.number)
    {
        return Err(PlanError::Unknown { set, number: newer.number, name: newer.name.clone() });
    }
    let mut steps: Vec<&Migration> = Vec::new();
    for migration in embedded {
        match applied.iter().find(|entry| entry.number == migration.number) {
            None => steps.push(migration),
            Some(entry) => {
                if let Some(missing) = steps.first() {
                    return Err(PlanError::Gap {
                        set,
                        number: missing.number,
                        name: missing.name,
                        later: entry.number,
                    });
                }
                if migration.form_of(&entry.checksum).is_none() {
                    return Err(PlanError::Changed {
                        set,
                        number: migration.number,
                        name: migration.name,
                    });
                }
            }
        }
    }
    Ok(steps)
}

/// The form that was applied, which its checksum tells; none before that.
pub(crate) fn form(applied: &[Entry], embedded: &[Migration]) -> Option<Form> {
    let migration = embedded.iter().find(|migration| migration.partitioned.is_some())?;
    let entry = applied.iter().find(|entry| entry.number == migration.number)?;
    migration.form_of(&entry.checksum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;

    const fn migration(number: u32, name: &'static str, template: &'static str) -> Migration {
        Migration { number, name, template, partitioned: None }
    }

    const EMBEDDED: &[Migration] = &[
        Migration { partitioned: Some("select 10"), ..migration(1, "one", "select 1") },
        migration(2, "two", "select 2"),
        migration(3, "three", "select 3"),
    ];

    fn entries(numbers: &[u32]) -> Vec<Entry> {
        let entry = |number: &u32| Entry {
            number: *number,
            name: "any".to_owned(),
            checksum: checksum(&format!("select {number}")),
        };
        numbers.iter().map(entry).collect()
    }

    fn numbers(applied: &[u32]) -> Result<Vec<u32>, PlanError> {
        let steps = plan(Set::Relay, &entries(applied), EMBEDDED)?;
        Ok(steps.iter().map(|step| step.number).collect())
    }

    #[test]
    fn what_is_not_applied_is_left_in_order() {
        assert_eq!(numbers(&[]), Ok(vec![1, 2, 3]));
        assert_eq!(numbers(&[2, 1]), Ok(vec![3]));
        assert_eq!(numbers(&[1, 2, 3]), Ok(vec![]));
    }

    #[test]
    fn a_migration_of_a_newer_version_is_refused() {
        let error = numbers(&[1, 2, 3, 5, 4]).unwrap_err();
        assert!(matches!(error, PlanError::Unknown { number: 4, .. }), "{error:?}");
        assert!(error.to_string().contains("relay/0004_any"), "{error}");
    }

    #[test]
    fn a_gap_is_refused() {
        let error = numbers(&[1, 3]).unwrap_err();
        assert!(matches!(error, PlanError::Gap { number: 2, later: 3, .. }), "{error:?}");
        assert!(error.to_string().contains("relay/0002_two"), "{error}");
    }

    #[test]
    fn the_form_is_the_one_whose_text_was_applied() {
        assert_eq!(form(&[], EMBEDDED), None);
        let mut applied = entries(&[1, 2]);
        assert_eq!(form(&applied, EMBEDDED), Some(Form::Table));
        applied[0].checksum = checksum("select 10");
        assert_eq!(form(&applied, EMBEDDED), Some(Form::Partitioned));
        assert_eq!(plan(Set::Relay, &applied, EMBEDDED).unwrap().len(), 1, "it goes on");
        applied[0].checksum = checksum("select 11");
        assert_eq!(form(&applied, EMBEDDED), None);
    }

    #[test]
    fn a_changed_text_is_refused() {
        let mut applied = entries(&[1, 2]);
        applied[1].checksum = checksum("select 2;");
        let error = plan(Set::Relay, &applied, EMBEDDED).unwrap_err();
        assert!(matches!(error, PlanError::Changed { number: 2, .. }), "{error:?}");
    }
}
