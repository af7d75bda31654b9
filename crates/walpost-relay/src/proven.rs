use serde_json::{Value, json};
use walpost_event::Lsn;

#[cfg(test)]
use crate::simulation;
use crate::{floors, sink::Place};

/// A snapshot, and what belongs to it: once everything up to `lsn` is done, so
/// is every outbox row that the snapshot sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    /// `pg_current_snapshot()` as text.
    pub(crate) snapshot: String,
    /// Where WAL was inserted after the snapshot was taken: whatever the
    /// snapshot sees was committed before.
    pub(crate) lsn: Lsn,
    /// By topic and partition the lowest offset that may hold an event that the
    /// snapshot does not see.
    pub(crate) floors: Value,
    /// When it was taken, by the server's clock, in seconds since 1970.
    pub(crate) taken_at: i64,
}

impl Pair {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "snapshot": self.snapshot,
            "lsn": self.lsn.to_string(),
            "floors": self.floors,
            "taken_at": self.taken_at,
        })
    }

    /// Reads what [`to_json`](Self::to_json) wrote. `None` of anything else.
    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let (snapshot, floors) = (value["snapshot"].as_str()?, &value["floors"]);
        Snapshot::parse(snapshot)?;
        floors::from_json(floors)?;
        Some(Self {
            snapshot: snapshot.to_owned(),
            lsn: value["lsn"].as_str()?.parse().ok()?,
            floors: floors.clone(),
            taken_at: value["taken_at"].as_i64()?,
        })
    }
}

#[cfg(test)]
impl Pair {
    /// Whether its snapshot sees what this transaction did.
    pub(crate) fn sees(&self, xid: u32) -> bool {
        sees(&self.snapshot, xid)
    }
}

/// Whether a snapshot sees what this transaction did.
#[cfg(test)]
pub(crate) fn sees(snapshot: &str, xid: u32) -> bool {
    Snapshot::parse(snapshot).is_some_and(|snapshot| snapshot.sees(xid))
}

/// A snapshot of now, and where WAL was inserted just after it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) snapshot: String,
    pub(crate) lsn: Lsn,
    pub(crate) at: i64,
}

/// What `pg_current_snapshot()` says: all below `xmin` are over, none from
/// `xmax` on has a fate that counts, and those between are over but for the
/// running ones.
#[derive(Debug, PartialEq, Eq)]
struct Snapshot {
    xmin: u64,
    xmax: u64,
    /// Rising.
    running: Vec<u64>,
}

impl Snapshot {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let (xmin, xmax) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let running = match parts.next()? {
            "" => Vec::new(),
            list => list.split(',').map(|xid| xid.parse().ok()).collect::<Option<_>>()?,
        };
        let is_sound = xmin <= xmax && running.is_sorted() && parts.next().is_none();
        is_sound.then_some(Self { xmin, xmax, running })
    }

    /// Whether it sees what this transaction did, if that has committed. The
    /// WAL has the lower half of its id, and ids that are compared are less than
    /// half of all lower halves apart.
    fn sees(&self, xid: u32) -> bool {
        let behind = (self.xmax as u32).wrapping_sub(xid) as i32;
        if behind <= 0 {
            return false;
        }
        let whole = self.xmax - u64::from(behind.unsigned_abs());
        self.running.binary_search(&whole).is_err()
    }

    /// Whether all before this one are over.
    fn is_past(&self, xid: u32) -> bool {
        (self.xmin as u32).wrapping_sub(xid) as i32 >= 0
    }
}

/// Transactions remembered one by one; of more it is remembered below which id
/// they all are.
const XIDS_MAX: usize = 1 << 18;

/// Transactions that have come from the stream, and may not be visible yet: a
/// commit is streamed before it is visible, with synchronous replication long
/// before.
#[derive(Debug, Default)]
struct Received {
    xids: Vec<u32>,
    /// And all below this id, whether they have come or not.
    below: Option<u32>,
}

impl Received {
    fn note(&mut self, xid: u32) {
        if self.xids.len() < XIDS_MAX {
            return self.xids.push(xid);
        }
        let mut highest = xid;
        for xid in self.xids.drain(..) {
            highest = later(highest, xid);
        }
        self.note_all_below(highest.wrapping_add(1));
    }

    fn note_all_below(&mut self, xid: u32) {
        self.below = Some(self.below.map_or(xid, |below| later(below, xid)));
    }

    /// Whether all of them are visible. Those that are once are for ever.
    fn are_seen_by(&mut self, snapshot: &Snapshot) -> bool {
        self.xids.retain(|xid| !snapshot.sees(*xid));
        self.below.take_if(|below| snapshot.is_past(*below));
        self.xids.is_empty() && self.below.is_none()
    }
}

fn later(one: u32, other: u32) -> u32 {
    if (other.wrapping_sub(one) as i32) > 0 { other } else { one }
}

/// Which pair is proven, and how the next one comes about.
///
/// Pure. The floors are remembered first, then the snapshot is taken, again and
/// again until it sees every transaction that had come when the floors were
/// remembered. So what it does not see came later, and stands above them. The
/// pair is pending until the position that is done has come to its own, and is
/// never replaced before: under lag none would ever get there.
#[derive(Debug, Default)]
pub(crate) struct Proofs {
    proven: Option<Pair>,
    pending: Option<Pair>,
    wanted: Option<Wanted>,
    received: Received,
    /// The transaction at hand, until one of its events has come.
    current: Option<u32>,
    /// Something has come since floors were last remembered.
    has_news: bool,
    /// What the committed row does not have yet.
    proven_changed: bool,
    pending_changed: bool,
}

/// Floors for which a snapshot is wanted.
#[derive(Debug)]
struct Wanted {
    floors: Value,
    received: Received,
}

/// What a checkpoint says of the pairs: only what has changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct PairChanges {
    pub(crate) proven: Option<Value>,
    /// Null for none.
    pub(crate) pending: Option<Value>,
}

impl Proofs {
    /// Those that the row has, of a run that streams. What runs before this one
    /// have received is of transactions below `taken_by`, which is younger.
    pub(crate) fn streaming(
        proven: Option<Pair>,
        pending: Option<Pair>,
        taken_by: Option<u32>,
    ) -> Self {
        let received = Received { xids: Vec::new(), below: taken_by };
        Self { proven, pending, received, has_news: true, ..Self::default() }
    }

    /// That of a run that publishes rows from before the stream: no other comes
    /// about.
    pub(crate) fn loading(proven: Option<Pair>) -> Self {
        Self { proven, ..Self::default() }
    }

    /// A transaction begins; 0 for one that has no id.
    pub(crate) fn begin(&mut self, xid: u32) {
        self.current = (xid != 0).then_some(xid);
    }

    /// An event of it has come.
    pub(crate) fn event(&mut self) {
        if let Some(xid) = self.current.take() {
            self.received.note(xid);
            self.has_news = true;
        }
    }

    /// A place is found, and nothing was sent there yet.
    pub(crate) fn open(&mut self, place: &Place) {
        if let Some(proven) = &mut self.proven {
            self.proven_changed |= floors::add(&mut proven.floors, place);
        }
        if let Some(pending) = &mut self.pending {
            self.pending_changed |= floors::add(&mut pending.floors, place);
        }
        if let Some(wanted) = &mut self.wanted {
            floors::add(&mut wanted.floors, place);
        }
    }

    /// Everything up to `done` is, and these are the floors of now: what a
    /// checkpoint of them says.
    pub(crate) fn advance(&mut self, done: Lsn, floors: &Value) -> PairChanges {
        if self.is_due(done) {
            self.proven = self.pending.take();
            (self.proven_changed, self.pending_changed) = (true, true);
        }
        if self.pending.is_none() && self.wanted.is_none() && self.has_news {
            let received = std::mem::take(&mut self.received);
            self.wanted = Some(Wanted { floors: floors.clone(), received });
            self.has_news = false;
        }
        let json = |pair: &Option<Pair>| pair.as_ref().map_or(Value::Null, Pair::to_json);
        let changes = PairChanges {
            proven: self.proven_changed.then(|| json(&self.proven)),
            pending: self.pending_changed.then(|| json(&self.pending)),
        };
        (self.proven_changed, self.pending_changed) = (false, false);
        changes
    }

    /// Whether a checkpoint at this position would prove a pair.
    pub(crate) fn is_due(&self, done: Lsn) -> bool {
        #[cfg(test)]
        if simulation::has(simulation::Bug::ProvenAtOnce) {
            return self.pending.is_some();
        }
        self.pending.as_ref().is_some_and(|pending| pending.lsn <= done)
    }

    /// Whether a snapshot is wanted.
    pub(crate) fn wants_snapshot(&self) -> bool {
        self.wanted.is_some() && self.pending.is_none()
    }

    /// A snapshot that was taken after the floors were remembered. One that
    /// cannot be read is none.
    pub(crate) fn saw(&mut self, seen: Seen) {
        let Some(snapshot) = Snapshot::parse(&seen.snapshot) else { return };
        let Some(wanted) = self.wanted.as_mut().filter(|_| self.pending.is_none()) else { return };
        let is_complete = wanted.received.are_seen_by(&snapshot);
        #[cfg(test)]
        let is_complete = is_complete || simulation::has(simulation::Bug::AnySnapshot);
        if !is_complete {
            return;
        }
        let Some(Wanted { floors, .. }) = self.wanted.take() else { return };
        let Seen { snapshot, lsn, at } = seen;
        self.pending = Some(Pair { snapshot, lsn, floors, taken_at: at });
        self.pending_changed = true;
    }
}

#[cfg(test)]
mod tests;
