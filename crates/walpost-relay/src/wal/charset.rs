//! Texts of a database whose encoding is not UTF-8.
//!
//! PostgreSQL converts a text to the encoding of the session, and ends the statement or the stream
//! at the first value that it cannot convert. So such texts are read as the bytes that the database
//! holds and converted here, character by character, as the server says. A value with a byte that
//! has no UTF-8 form then concerns its own row alone.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use tokio_postgres::{Client, SimpleQueryRow, types::Type};
use walpost_event::{Relation, Row};
use walpost_postgres::Database;

use super::quote_literal;
use crate::{
    error::{RelayError, SourceError},
    sql::Sql,
};

/// Bound on each question for characters.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Characters that are remembered; the largest encoding of a server has about 50,000.
const KNOWN_MAX: usize = 100_000;

/// How the texts of a database are read.
pub(crate) struct Charset {
    /// The server's name of the encoding, unless it is UTF-8.
    raw: Option<String>,
    /// None also where the bytes are UTF-8 or nothing: in `SQL_ASCII` the server knows no
    /// characters.
    conversion: Option<Conversion>,
}

/// One text of a row.
type Bytes<'a> = Option<Cow<'a, [u8]>>;

impl Charset {
    /// That of a database with this `server_encoding`.
    pub(crate) fn new(encoding: &str, database: &Database) -> Self {
        let conversion = (!matches!(encoding, "UTF8" | "SQL_ASCII")).then(|| Conversion {
            encoding: encoding.to_owned(),
            database: database.clone(),
            session: None,
            known: HashMap::new(),
        });
        Self { raw: (encoding != "UTF8").then(|| encoding.to_owned()), conversion }
    }

    /// That of the database of this session.
    pub(crate) async fn find(sql: &Sql, database: &Database) -> Result<Self, RelayError> {
        let query = "select current_setting('server_encoding')";
        let row = sql.one("reading the encoding of the database", query, &[]).await?;
        Ok(Self::new(row.get(0), database))
    }

    /// Whether the texts are converted here and not by the server.
    pub(crate) fn is_converted(&self) -> bool {
        self.conversion.is_some()
    }

    /// What selects this column, quoted, so that no value of it fails the statement.
    pub(crate) fn selected(&self, column: &str) -> String {
        match &self.raw {
            None => column.to_owned(),
            // A composite value with a null in it is not null, and not `is not null`.
            Some(encoding) => format!(
                "convert_to(case when num_nulls({column}) = 0 then format('%s', {column}) end, {})",
                quote_literal(encoding)
            ),
        }
    }

    /// What selects this text as the bytes that the database holds.
    pub(crate) fn bytes_of(&self, text: &str) -> String {
        format!("convert_to({text}, {})", quote_literal(self.raw.as_deref().unwrap_or("UTF8")))
    }

    /// The same without what was learned.
    pub(crate) fn anew(&self) -> Self {
        let anew = |conversion: &Conversion| Conversion {
            encoding: conversion.encoding.clone(),
            database: conversion.database.clone(),
            session: None,
            known: HashMap::new(),
        };
        Self { raw: self.raw.clone(), conversion: self.conversion.as_ref().map(anew) }
    }

    /// The values of columns that were [`selected`](Self::selected), as the database holds them.
    pub(crate) fn values<'a>(&self, row: &'a SimpleQueryRow, columns: usize) -> Vec<Bytes<'a>> {
        let value = |index: usize| match (row.try_get(index), &self.raw) {
            (Ok(value), None) => value.map(|text| Cow::Borrowed(text.as_bytes())),
            (Ok(value), Some(_)) => value.map(|text| Cow::Owned(from_hex(text))),
            // The client shows no text that is not UTF-8; neither is this byte.
            (Err(_), _) => Some(Cow::Borrowed(&b"\xff"[..])),
        };
        (0..columns).map(value).collect()
    }

    /// Asks the server for the characters of these texts that are not known yet. Cancel safe.
    pub(crate) async fn learn(
        &mut self,
        texts: impl Iterator<Item = &[u8]>,
    ) -> Result<(), SourceError> {
        match &mut self.conversion {
            None => Ok(()),
            Some(conversion) => conversion.learn(texts).await,
        }
    }

    /// The text in UTF-8, once its characters are known; else where the first byte is that has no
    /// such form.
    pub(crate) fn decode<'a>(&self, bytes: &'a [u8]) -> Result<Cow<'a, str>, usize> {
        match &self.conversion {
            None => {
                std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|error| error.valid_up_to())
            }
            Some(conversion) => conversion.decode(bytes),
        }
    }

    /// The row with these values; those that `keeps` refuses are left out.
    pub(crate) async fn row(
        &mut self,
        relation: &Arc<Relation>,
        values: &[Bytes<'_>],
        keeps: impl Fn(&[u8]) -> bool,
    ) -> Result<Row, SourceError> {
        let kept = values.iter().flatten().map(|value| &**value).filter(|value| keeps(value));
        self.learn(kept).await?;
        let mut buffer = Vec::new();
        let mut cells = Vec::with_capacity(values.len());
        for value in values {
            let decoded =
                value.as_ref().filter(|value| keeps(value)).map(|value| self.decode(value));
            let start = buffer.len();
            match &decoded {
                Some(Ok(text)) => buffer.extend_from_slice(text.as_bytes()),
                Some(Err(_)) => buffer.extend_from_slice(value.as_deref().unwrap_or_default()),
                None => {}
            }
            cells.push((
                value.is_some(),
                decoded.map(|decoded| decoded.err()),
                start,
                buffer.len(),
            ));
        }
        let mut row = Row::builder(relation.clone(), buffer.into());
        for (is_there, decoded, start, end) in cells {
            match (is_there, decoded) {
                (false, _) => row.push_null(),
                (true, None) => row.push_unchanged(),
                (true, Some(None)) => row.push_text(start, end - start),
                (true, Some(Some(at))) => row.push_undecodable(start, end - start, at),
            }
        }
        Ok(row.finish())
    }
}

/// The characters of an encoding, as far as they are known.
struct Conversion {
    encoding: String,
    database: Database,
    session: Option<Client>,
    /// None for what is no character, and for one that UTF-8 does not have.
    known: HashMap<Box<[u8]>, Option<Box<str>>>,
}

impl Conversion {
    async fn learn(&mut self, texts: impl Iterator<Item = &[u8]>) -> Result<(), SourceError> {
        if self.known.len() > KNOWN_MAX {
            self.known.clear();
        }
        let texts = texts.filter(|text| !text.is_ascii());
        let characters = texts.flat_map(|text| characters(&self.encoding, text));
        let unknown = characters
            .map(|(_, character)| character)
            .filter(|character| !character.is_ascii() && !self.known.contains_key(*character));
        let unknown: BTreeSet<Box<[u8]>> = unknown.map(Into::into).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let asked: Vec<Box<[u8]>> = unknown.into_iter().collect();
        let answers = self.ask(&asked).await.inspect_err(|_| self.session = None)?;
        self.known.extend(asked.into_iter().zip(answers));
        Ok(())
    }

    /// The UTF-8 form of each.
    async fn ask(&mut self, asked: &[Box<[u8]>]) -> Result<Vec<Option<Box<str>>>, SourceError> {
        if self.session.as_ref().is_none_or(Client::is_closed) {
            // A future of some size, deep below callers that connect nowhere else.
            self.session = Some(Box::pin(self.database.connect()).await?);
        }
        let session = self.session.as_ref().expect("it is connected");
        let mut answers = Vec::with_capacity(asked.len());
        match convert(session, &self.encoding, asked).await? {
            Some(all) => answers.extend(all.into_iter().map(Some)),
            None => {
                for one in asked {
                    let one = convert(session, &self.encoding, std::slice::from_ref(one)).await?;
                    answers.push(one.and_then(|one| one.into_iter().next()));
                }
            }
        }
        Ok(answers)
    }

    fn decode<'a>(&self, bytes: &'a [u8]) -> Result<Cow<'a, str>, usize> {
        if bytes.is_ascii() {
            return Ok(String::from_utf8_lossy(bytes));
        }
        let mut text = String::with_capacity(2 * bytes.len());
        for (at, character) in characters(&self.encoding, bytes) {
            match character {
                [byte] if byte.is_ascii() => text.push(char::from(*byte)),
                _ => text.push_str(self.known.get(character).and_then(Option::as_deref).ok_or(at)?),
            }
        }
        Ok(text.into())
    }
}

/// The characters of a text with their offsets. The last one may be cut off.
fn characters<'a>(encoding: &str, text: &'a [u8]) -> impl Iterator<Item = (usize, &'a [u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let first = *text.get(at)?;
        let end = text.len().min(at + width(encoding, first));
        let character = (at, &text[at..end]);
        at = end;
        Some(character)
    })
}

/// Bytes of the character that begins with this one, in an encoding that a database may have.
fn width(encoding: &str, first: u8) -> usize {
    match (encoding, first) {
        (_, 0..=0x7f) => 1,
        ("EUC_TW", 0x8e) => 4,
        ("EUC_JP" | "EUC_JIS_2004" | "EUC_KR" | "EUC_TW", 0x8f) => 3,
        ("EUC_JP" | "EUC_JIS_2004" | "EUC_KR" | "EUC_CN" | "EUC_TW", _) => 2,
        ("MULE_INTERNAL", 0x81..=0x8d) => 2,
        ("MULE_INTERNAL", 0x90..=0x9b) => 3,
        ("MULE_INTERNAL", 0x9c | 0x9d) => 4,
        _ => 1,
    }
}

/// All of these in UTF-8; none where the server refuses one of them.
async fn convert(
    session: &Client,
    encoding: &str,
    characters: &[Box<[u8]>],
) -> Result<Option<Vec<Box<str>>>, SourceError> {
    let query = "select convert(c.bytes, $2::text::name, 'UTF8') \
                 from unnest($1::bytea[]) with ordinality as c (bytes, number) order by c.number";
    let bytes: Vec<&[u8]> = characters.iter().map(|character| &**character).collect();
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&bytes, Type::BYTEA_ARRAY), (&encoding, Type::TEXT)];
    let answer = tokio::time::timeout(ANSWER_MAX, session.query_typed(query, &parameters)).await;
    match answer.map_err(|_| SourceError::Silent(ANSWER_MAX))? {
        Ok(rows) => {
            let text = |row: &tokio_postgres::Row| String::from_utf8_lossy(row.get(0)).into();
            Ok(Some(rows.iter().map(text).collect()))
        }
        Err(error) if error.code().is_some_and(|code| code.code().starts_with("22")) => Ok(None),
        Err(error) => Err(statement_failed(error)),
    }
}

/// A statement that reads rows has failed.
pub(crate) fn statement_failed(error: tokio_postgres::Error) -> SourceError {
    match error.as_db_error() {
        Some(error) => SourceError::Server(error.into()),
        None => SourceError::Io(std::io::Error::other(error)),
    }
}

/// The bytes of a `bytea` as the session prints it.
fn from_hex(text: &str) -> Vec<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16).unwrap_or_default() as u8;
    let digits = text.strip_prefix("\\x").unwrap_or_default().as_bytes();
    digits.as_chunks::<2>().0.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(encoding: &str, text: &'static [u8]) -> Vec<(usize, &'static [u8])> {
        characters(encoding, text).collect()
    }

    #[test]
    fn a_text_is_cut_into_characters_by_its_encoding() {
        let expected: [(usize, &[u8]); 2] = [(0, b"a"), (1, b"\xe9")];
        assert_eq!(cut("LATIN1", b"a\xe9"), expected);
        let expected: [(usize, &[u8]); 4] =
            [(0, b"\xa4\xa2"), (2, b"\x8f\xa2\xb7"), (5, b"z"), (6, b"\x8e\xb1")];
        assert_eq!(cut("EUC_JP", b"\xa4\xa2\x8f\xa2\xb7z\x8e\xb1"), expected);
        assert_eq!(cut("EUC_TW", b"\x8e\xa2\xa1\xa1"), [(0, &b"\x8e\xa2\xa1\xa1"[..])]);
        assert_eq!(cut("EUC_JP", b"\xa4"), [(0, &b"\xa4"[..])], "it is cut off");
    }

    #[test]
    fn hexadecimal_digits_are_bytes() {
        assert_eq!(from_hex("\\x00fFe9"), b"\x00\xff\xe9");
        assert_eq!(from_hex("\\x"), b"");
    }
}
