use crate::{
    choices::{AutoCreate, LsnFlushMode, OffsetMismatch},
    judge::Scope,
};

/// What of the replication slot no key of Walpost's own says: `slot.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// `slot.drop.on.stop`, default false: an orderly stop drops the slot, and of
    /// what is written until the next start only rows that stay are not lost.
    pub drop_on_stop: bool,
    /// `origin` of `slot.stream.params`.
    pub origin: Option<String>,
}

/// What of the publication no key of Walpost's own says: `publication.*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// `publication.autocreate.mode`, default `all_tables`.
    pub autocreate: AutoCreate,
    /// `publish.via.partition.root`, where it is given; of a publication that is
    /// made.
    pub via_partition_root: Option<bool>,
}

/// How the slot is told of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// `lsn.flush.mode`, default `connector`.
    pub flush: LsnFlushMode,
    /// `offset.mismatch.strategy`, default `no_validation`.
    pub mismatch: OffsetMismatch,
}

pub(crate) fn slot(scope: &mut Scope<'_>) -> Slot {
    let slot = Slot { drop_on_stop: scope.boolean("slot.drop.on.stop"), origin: origin(scope) };
    if slot.drop_on_stop {
        scope.tell(
            "slot.drop.on.stop",
            "and what is written between a stop and the next start is published only if its row \
             is still in the table then",
        );
    }
    slot
}

/// `key=value;key=value`.
fn origin(scope: &mut Scope<'_>) -> Option<String> {
    const NAME: &str = "slot.stream.params";
    let params = scope.given(NAME)?;
    let mut origin = None;
    let mut others = Vec::new();
    for param in params.split(';').map(str::trim).filter(|param| !param.is_empty()) {
        match param.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
            Some(("origin", value @ ("none" | "any"))) => origin = Some(value.to_owned()),
            Some(("origin", _)) => {
                scope.refuse(NAME, "origin is neither none nor any; write one of them");
            }
            Some((key, _)) => others.push(key.to_owned()),
            None => scope.refuse(NAME, "a part has no =; write key=value;key=value"),
        }
    }
    if !others.is_empty() {
        let others = others.join(", ");
        scope.tell(NAME, format!("but for {others}: origin alone is passed on"));
    }
    origin
}

pub(crate) fn publication(scope: &mut Scope<'_>) -> Publication {
    const MODE: &str = "publication.autocreate.mode";
    let publication = Publication {
        autocreate: scope.choice(MODE),
        via_partition_root: scope
            .given("publish.via.partition.root")
            .map(|text| text.eq_ignore_ascii_case("true")),
    };
    scope.lay(MODE, publication.autocreate != AutoCreate::Disabled);
    if publication.autocreate == AutoCreate::NoTables {
        scope.lay_at(MODE, ("pipeline", "tables"), Vec::new());
    }
    if publication.autocreate == AutoCreate::AllTables {
        let note = "a missing publication is made of the outbox alone and only inserts, where \
                    Debezium makes one FOR ALL TABLES, which takes a superuser";
        match scope.has(MODE) {
            true => scope.map(MODE, note),
            false => scope.tell(MODE, note),
        }
    }
    publication
}

pub(crate) fn progress(scope: &mut Scope<'_>) -> Progress {
    let flush = flush(scope);
    if flush == LsnFlushMode::Manual {
        let name = match scope.has("lsn.flush.mode") {
            true => "lsn.flush.mode",
            false => "flush.lsn.source",
        };
        scope.tell(name, "and PostgreSQL keeps all WAL until somebody else moves the slot");
    }
    Progress { flush, mismatch: mismatch(scope) }
}

fn flush(scope: &mut Scope<'_>) -> LsnFlushMode {
    let named = scope.given_choice("lsn.flush.mode");
    let former =
        scope.given("flush.lsn.source").map(|text| match text.eq_ignore_ascii_case("true") {
            true => LsnFlushMode::Connector,
            false => LsnFlushMode::Manual,
        });
    if named.is_some() && former.is_some() && named != former {
        scope.refuse("flush.lsn.source", "lsn.flush.mode says otherwise; remove one of them");
    }
    named.or(former).unwrap_or(LsnFlushMode::Connector)
}

fn mismatch(scope: &mut Scope<'_>) -> OffsetMismatch {
    let named = scope.given_choice("offset.mismatch.strategy");
    let mut strategy = named;
    for name in
        ["slot.seek.to.known.offset.on.start", "internal.slot.seek.to.known.offset.on.start"]
    {
        let Some(text) = scope.given(name) else { continue };
        let former = match text.eq_ignore_ascii_case("true") {
            true => OffsetMismatch::TrustOffset,
            false => OffsetMismatch::NoValidation,
        };
        if strategy.is_some_and(|strategy| strategy != former) {
            scope.refuse(name, "offset.mismatch.strategy says otherwise; remove one of them");
        }
        strategy = strategy.or(Some(former));
    }
    strategy.unwrap_or(OffsetMismatch::NoValidation)
}
