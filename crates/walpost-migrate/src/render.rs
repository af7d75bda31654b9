use postgres_protocol::escape::escape_identifier;

use crate::{Form, Migration, Set, checksum, names::Names};

/// One migration as plain SQL, to be run by another tool as one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Its set.
    pub set: Set,
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: &'static str,
    /// The statements: Walpost's schema and its table `migration` where they
    /// are missing, the migration, and its entry in that table.
    pub sql: String,
}

/// The migration with the bookkeeping that [`crate::Migrator::migrate`] would
/// do for it.
pub(crate) fn script(names: &Names, set: Set, migration: &Migration, form: Form) -> Script {
    let Migration { number, name, .. } = migration;
    let sql = format!(
        "-- walpost {set}/{number:04}_{name}\n{schema};\n{table}\n{body}\n{entry}",
        schema = create_schema(names),
        table = create_table(names),
        body = names.fill(migration.text(form)),
        entry = insert_entry(names, set, migration, form),
    );
    Script { set, number: *number, name, sql }
}

pub(crate) fn create_schema(names: &Names) -> String {
    format!("create schema if not exists {}", escape_identifier(names.schema()))
}

/// The table of what is applied. Not a migration itself: it has to be there
/// before the first.
pub(crate) fn create_table(names: &Names) -> String {
    names.fill(
        "create table if not exists {schema}.migration (
    set_name text not null,
    number int not null,
    name text not null,
    checksum text not null,
    applied_at timestamptz not null default clock_timestamp(),
    applied_by text not null default current_user,
    primary key (set_name, number)
);
comment on table {schema}.migration is 'Migrations of Walpost that were applied';
",
    )
}

pub(crate) fn insert_entry(names: &Names, set: Set, migration: &Migration, form: Form) -> String {
    format!(
        "insert into {}.migration (set_name, number, name, checksum)\n    \
         values ('{set}', {}, '{}', '{}');\n",
        escape_identifier(names.schema()),
        migration.number,
        migration.name,
        checksum(migration.text(form))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_placeholder_is_left() {
        let names = Names::new("walpost", "walpost").unwrap();
        for set in Set::ALL {
            for migration in set.migrations() {
                for form in [Form::Table, Form::Partitioned] {
                    let sql = script(&names, *set, migration, form).sql.replace("'{}'", "");
                    // A number in braces is a quantifier of a regular expression.
                    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
                    let inner = sql.split('{').skip(1).map(|rest| rest.split('}').next());
                    let left: Vec<&str> = inner.flatten().filter(|text| !is_number(text)).collect();
                    assert!(left.is_empty(), "{set}/{}: {left:?}", migration.name);
                }
            }
        }
    }

    #[test]
    fn names_need_no_escape_in_a_literal() {
        let names = Set::ALL.iter().flat_map(|set| set.migrations()).map(|one| one.name);
        for name in names {
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
        }
    }
}
