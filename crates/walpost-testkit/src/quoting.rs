/// The value that a test plants and that no text may show. It could be a name.
pub const MARKER: &str = "do_not_show_e1f0";

/// What [`Quoting::ALL`] need in a database.
pub const QUOTING_SCHEMA: &str = "
    create schema quoting;
    grant usage on schema quoting to public;
    create type quoting.mood as enum ('good');
    create table quoting.note (name text primary key check (name <> 'do_not_show_e1f0 bad'));
    grant all on quoting.note to public;
    create function quoting.raise(value text) returns void language plpgsql as $$ begin
        raise exception 'bad %', value;
    end $$;
    create function quoting.raise_in_full(value text) returns void language plpgsql as $$ begin
        raise exception 'bad %', value using errcode = '42501', detail = value, hint = value,
            column = value, constraint = value, datatype = value, table = value, schema = value;
    end $$;
    create function quoting.identifier(value text) returns void language plpgsql as $$ begin
        execute format('select * from %I', value);
    end $$;
    create function quoting.literal(value text) returns void language plpgsql as $$ begin
        execute format('select %L::int', value);
    end $$;";

/// A statement that fails with an error of the server that quotes its parameter.
#[derive(Clone, Copy, Debug)]
pub struct Quoting {
    /// Its name, which may be the id or type of an event.
    pub name: &'static str,
    /// With one parameter of type text.
    pub statement: &'static str,
    /// SQLSTATE of the error.
    pub state: &'static str,
}

const fn quoting(name: &'static str, state: &'static str, statement: &'static str) -> Quoting {
    Quoting { name, statement, state }
}

impl Quoting {
    /// Every way in which a server quotes a value.
    pub const ALL: [Self; 14] = [
        quoting("quoted_raise", "P0001", "select quoting.raise($1::text)"),
        quoting("quoted_raise_in_full", "42501", "select quoting.raise_in_full($1::text)"),
        quoting("quoted_table", "42P01", "select $1::text::regclass"),
        quoting("quoted_type", "42704", "select $1::text::regtype"),
        quoting("quoted_role", "22023", "select set_config('role', $1::text, true)"),
        quoting("quoted_schema", "3F000", "select has_schema_privilege($1::text, 'usage')"),
        quoting("quoted_identifier", "42P01", "select quoting.identifier($1::text)"),
        quoting("quoted_literal", "22P02", "select quoting.literal($1::text)"),
        quoting("quoted_cast", "22P02", "select $1::text::int"),
        quoting("quoted_json", "22P02", "select $1::text::json"),
        quoting("quoted_date", "22007", "select $1::text::date"),
        quoting("quoted_enumeration", "22P02", "select $1::text::quoting.mood"),
        quoting(
            "quoted_unique",
            "23505",
            "insert into quoting.note select $1::text from generate_series(1, 2)",
        ),
        quoting("quoted_check", "23514", "insert into quoting.note values ($1::text || ' bad')"),
    ];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|quoting| quoting.name == name)
    }

    /// A trigger that runs the statement with `value`, as in `before insert on t` and
    /// `new.payload`. It replaces the one before.
    pub fn trigger(&self, event: &str, value: &str) -> String {
        format!(
            "create or replace function quoting.quote() returns trigger language plpgsql as $t$ \
             begin execute $s${}$s$ using ({value})::text; return new; end $t$; \
             create or replace trigger quote {event} for each row execute function quoting.quote()",
            self.statement
        )
    }

    /// Panics if a text shows the value.
    #[track_caller]
    pub fn is_hidden_in(&self, texts: &[impl AsRef<str>]) {
        for text in texts.iter().map(AsRef::as_ref) {
            assert!(!text.contains(MARKER), "{}: {text}", self.name);
        }
    }
}
