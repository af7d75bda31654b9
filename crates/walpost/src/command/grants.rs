//! What a role has to be granted to look at something, and no more: no column that
//! has contents of events is among it.

use tokio_postgres::Client;
use walpost_postgres::Database;
use walpost_relay::TableName;

use super::sql::quoted;

/// Columns that `walpost status` reads of the pipelines.
const CHECKPOINT: &str = "pipeline, slot, confirmed_lsn, updated_at, proven, recovery, \
                          recovery_requested, switch, source, relations";
/// Columns that it reads of what is parked.
const PARKED: &str = "id, pipeline, state, reason, event_id, id_space, source";

/// Statements that grant a role what it lacks.
#[derive(Clone, Debug)]
pub(crate) struct Grants {
    /// Quoted.
    role: String,
    statements: Vec<String>,
}

impl Grants {
    /// On tables in this schema, none yet.
    pub(crate) async fn new(client: &Client, schema: &str) -> Result<Self, tokio_postgres::Error> {
        let row = client.query_one("select current_user::text", &[]).await?;
        let mut grants = Self { role: quoted(row.get(0)), statements: Vec::new() };
        grants.usage(schema);
        Ok(grants)
    }

    /// What `walpost status` reads.
    pub(crate) fn status(mut self, schema: &str) -> Self {
        let schema = quoted(schema);
        self.select(CHECKPOINT, &format!("{schema}.checkpoint"));
        self.select(PARKED, &format!("{schema}.parked"));
        self
    }

    /// Also columns of a table.
    pub(crate) fn select(&mut self, columns: &str, table: &str) {
        self.statements.push(format!("grant select ({columns}) on {table} to {}", self.role));
    }

    /// Also a whole table.
    pub(crate) fn select_all(&mut self, table: &str) {
        self.statements.push(format!("grant select on {table} to {}", self.role));
    }

    /// Also those of these columns that a table of the outbox has; nothing where it
    /// is not there.
    pub(crate) async fn outbox(
        &mut self,
        client: &Client,
        table: &TableName,
        is_read: impl Fn(&str) -> bool,
    ) -> Result<(), tokio_postgres::Error> {
        let query = "select a.attname::text from pg_attribute a join pg_class c \
                     on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace \
                     where n.nspname = $1 and c.relname = $2 and not a.attisdropped \
                     and (a.attnum > 0 or a.attname = 'tableoid') order by a.attnum";
        let rows = client.query(query, &[&table.schema, &table.name]).await?;
        let names = rows.iter().map(|row| row.get::<_, &str>(0));
        let read: Vec<String> = names.filter(|name| is_read(name)).map(quoted).collect();
        if !read.is_empty() {
            self.usage(&table.schema);
            self.select(&read.join(", "), &table.quoted());
        }
        Ok(())
    }

    fn usage(&mut self, schema: &str) {
        let statement = format!("grant usage on schema {} to {}", quoted(schema), self.role);
        if !self.statements.contains(&statement) {
            self.statements.push(statement);
        }
    }

    /// What to do.
    pub(crate) fn next_step(&self) -> String {
        format!("let an owner run `{}`", self.statements.join("; "))
    }
}

/// A text with the role of the login where a library, which knows of none, has
/// `<role>`.
pub(crate) fn with_role(text: &str, database: &Database) -> String {
    match database.config().get_user() {
        Some(user) => text.replace("'<role>'", &format!("'{}'", user.replace('\'', "''"))),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_role_of_a_grant_is_that_of_the_login() {
        let text = "run select walpost.webhook_grant('writer', '<role>')";
        let database = Database::parse("postgres://relay@h/shop").unwrap();
        let told = with_role(text, &database);
        assert_eq!(told, "run select walpost.webhook_grant('writer', 'relay')");
        let odd = Database::parse("host=h user='o''''x' dbname=shop");
        assert!(odd.is_err() || with_role(text, &odd.unwrap()).contains("''"));
    }
}
