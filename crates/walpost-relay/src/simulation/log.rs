use walpost_event::Headers;

/// One partition.
#[derive(Default)]
pub(super) struct Log {
    records: Vec<Record>,
}

pub(super) struct Record {
    pub(super) headers: Headers,
    /// Of ours: whose, and its number.
    pub(super) event: Option<(usize, usize)>,
    /// The transaction that it is in.
    pub(super) transaction: Option<usize>,
    /// The end of a transaction, which no reader is given.
    is_marker: bool,
}

impl Log {
    pub(super) fn end(&self) -> i64 {
        self.records.len() as i64
    }

    /// From an offset on, with their offsets.
    pub(super) fn from(&self, first: i64) -> impl Iterator<Item = (i64, &Record)> {
        let records = self.records.iter().enumerate().skip(first as usize);
        let records = records.map(|(offset, record)| (offset as i64, record));
        records.filter(|(_, record)| !record.is_marker)
    }

    /// Appends a record, and says where it stands.
    pub(super) fn append(
        &mut self,
        headers: Headers,
        event: Option<(usize, usize)>,
        transaction: Option<usize>,
    ) -> i64 {
        self.records.push(Record { headers, event, transaction, is_marker: false });
        self.end() - 1
    }

    pub(super) fn mark(&mut self, transaction: usize) {
        let (headers, transaction) = (Headers::new(), Some(transaction));
        self.records.push(Record { headers, event: None, transaction, is_marker: true });
    }
}
