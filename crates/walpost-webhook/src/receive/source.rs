use std::time::{Duration, SystemTime};

use http::HeaderMap;
use walpost_inbox::NewEvent;

use super::{
    Place,
    place::{Fields, Unreadable},
    problem::Problem,
};
use crate::{Verifier, VerifyingKey};

/// Between the parts of an id that has several.
const SEPARATOR: &str = "/";

/// Somebody who sends: a name, how signatures are checked, and where in a
/// request the event's id and type stand.
///
/// ```
/// use walpost_webhook::{Verifier, receive::{Place, Source}};
///
/// let github = Source::github("github", ["It's a Secret to Everybody"]);
/// // One type on its path, under the key that its sender gives each delivery.
/// let finance = Source::new(
///     "finance",
///     Verifier::standard(["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD".parse()?]),
///     Place::Header("x-idempotency-key".parse()?),
///     Place::fixed("invoice.paid"),
/// )
/// .related_reference(Place::pointer("/invoice"));
/// # let _ = (github, finance);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Source {
    pub(super) name: String,
    verifier: Verifier,
    /// All of them, in this order.
    pub(super) event_id: Vec<Place>,
    /// The first that is there.
    pub(super) event_type: Vec<Place>,
    related_reference: Option<Place>,
    pub(super) on_changed: OnChanged,
    has_challenge: bool,
}

/// What becomes of a copy whose type or contents are not those that its id first
/// came with. Either way nothing of it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnChanged {
    /// It is refused with 409: its sender has used an id twice.
    Refuse,
    /// It is a duplicate: its sender writes something into its copies that
    /// changes, such as how many are still on their way.
    Accept,
}

/// What a request is.
#[derive(Debug)]
pub(super) enum Read {
    Event(NewEvent),
    /// Slack asks for this text once, when the URL is entered.
    Challenge(String),
}

impl Source {
    /// Any sender. Events of different sources are different, also where their
    /// ids are the same; the name, 1 to 128 bytes, is shown in metrics, logs and
    /// the column `source`.
    pub fn new(
        name: impl Into<String>,
        verifier: Verifier,
        event_id: Place,
        event_type: Place,
    ) -> Self {
        Self {
            name: name.into(),
            verifier,
            event_id: vec![event_id],
            event_type: vec![event_type],
            related_reference: None,
            on_changed: OnChanged::Refuse,
            has_challenge: false,
        }
    }

    /// Standard Webhooks: the id is the header `webhook-id`, which is signed, the
    /// type `/type` of the body.
    pub fn standard(name: impl Into<String>, keys: impl IntoIterator<Item = VerifyingKey>) -> Self {
        let verifier = Verifier::standard(keys);
        Self::new(name, verifier, Place::header("webhook-id"), Place::pointer("/type"))
    }

    /// Stripe: `/id` and `/type`. Its copies may differ in `pending_webhooks`, so
    /// [`OnChanged::Accept`].
    pub fn stripe(name: impl Into<String>, secrets: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        let verifier = Verifier::stripe(secrets);
        Self::new(name, verifier, Place::pointer("/id"), Place::pointer("/type"))
            .on_changed(OnChanged::Accept)
    }

    /// GitHub: the headers `x-github-delivery` and `x-github-event`. Neither is
    /// signed.
    pub fn github(name: impl Into<String>, secrets: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        let (id, kind) = (Place::header("x-github-delivery"), Place::header("x-github-event"));
        Self::new(name, Verifier::github(secrets), id, kind)
    }

    /// Slack's Events API: `/event_id`, and `/event/type` or else `/type`. The
    /// question `url_verification`, which has no id, is answered with its
    /// challenge.
    pub fn slack(name: impl Into<String>, secrets: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        let (id, kind) = (Place::pointer("/event_id"), Place::pointer("/event/type"));
        let slack = Self::new(name, Verifier::slack(secrets), id, kind);
        Self { has_challenge: true, ..slack.or_event_type(Place::pointer("/type")) }
    }

    /// Shopify: the headers `x-shopify-topic` and `x-shopify-event-id` together,
    /// as one event may have webhooks of several topics; the type is the topic.
    /// Neither is signed. Two subscriptions to a topic may send different fields
    /// of the same event, so [`OnChanged::Accept`].
    pub fn shopify(name: impl Into<String>, secrets: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        let topic = Place::header("x-shopify-topic");
        Self::new(name, Verifier::shopify(secrets), topic.clone(), topic.clone())
            .event_id([topic, Place::header("x-shopify-event-id")])
            .on_changed(OnChanged::Accept)
    }

    /// Where the event's id stands, instead. Of several places each has to have
    /// its part, and a slash stands between them.
    pub fn event_id(mut self, parts: impl IntoIterator<Item = Place>) -> Self {
        self.event_id = parts.into_iter().collect();
        self
    }

    /// Where the event's type stands, instead.
    pub fn event_type(mut self, place: Place) -> Self {
        self.event_type = vec![place];
        self
    }

    /// Where the event's type stands if it is not where it was looked for before.
    pub fn or_event_type(mut self, place: Place) -> Self {
        self.event_type.push(place);
        self
    }

    /// Where it stands what the event is about, for support; nowhere unless set.
    /// It is shown, so no secret. Where nothing stands there, there is none.
    pub fn related_reference(mut self, place: Place) -> Self {
        self.related_reference = Some(place);
        self
    }

    /// What becomes of copies with other contents; they are refused unless set,
    /// and accepted of [Stripe](Self::stripe) and [Shopify](Self::shopify).
    pub fn on_changed(mut self, on_changed: OnChanged) -> Self {
        self.on_changed = on_changed;
        self
    }

    /// How far the sender's clock may be from ours: see [`Verifier::tolerance`].
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.verifier = self.verifier.tolerance(tolerance);
        self
    }

    /// Without one every signature would be refused.
    pub(super) fn has_keys(&self) -> bool {
        self.verifier.has_keys()
    }

    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.event_id.iter().chain(&self.event_type).chain(&self.related_reference)
    }

    /// Checks the signature over the bytes as they came, before anything looks
    /// into them, and reads what stands where it is said to.
    pub(super) fn read(
        &self,
        headers: &HeaderMap,
        body: Vec<u8>,
        now: SystemTime,
    ) -> Result<Read, Problem> {
        self.verifier
            .verify(headers, &body, now)
            .map_err(|rejection| Problem::SignatureRefused { problem: rejection.problem() })?;
        let mut fields = Fields::new(headers, &body);
        if self.has_challenge
            && let Some(challenge) = challenge(&mut fields)
        {
            return Ok(Read::Challenge(challenge));
        }
        let mut id = Vec::new();
        for place in &self.event_id {
            let missing = || Problem::IdMissing { place: place.describe() };
            id.push(fields.text(place)?.ok_or_else(missing)?);
        }
        let kind = self.event_type_in(&mut fields)?;
        let reference = match &self.related_reference {
            Some(place) => fields.text(place)?,
            None => None,
        };
        let event = NewEvent::new(id.join(SEPARATOR), kind, body).source(&self.name);
        Ok(Read::Event(match reference {
            Some(reference) => event.related_reference(reference),
            None => event,
        }))
    }

    fn event_type_in(&self, fields: &mut Fields<'_>) -> Result<String, Problem> {
        for place in &self.event_type {
            if let Some(text) = fields.text(place)? {
                return Ok(text);
            }
        }
        let places: Vec<String> = self.event_type.iter().map(Place::describe).collect();
        Err(Problem::TypeMissing { place: places.join(" or ") })
    }
}

fn challenge(fields: &mut Fields<'_>) -> Option<String> {
    let kind = fields.text(&Place::pointer("/type")).ok()??;
    (kind == "url_verification").then_some(())?;
    fields.text(&Place::pointer("/challenge")).ok()?
}

impl From<Unreadable> for Problem {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable {
            Unreadable::NoJson => Self::NoJson,
            Unreadable::Malformed(place) => Self::Malformed { place },
        }
    }
}
