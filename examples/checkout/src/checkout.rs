//! A checkout, and what is to be done about it next: pure.

use std::time::Duration;

use crate::Settings;

/// How far a checkout is. The names are those of the recovery points, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// We know of it; nobody has been asked for anything, or for a charge that can
    /// be asked for again under its key.
    Accepted,
    /// The one request for a charge may have gone out, to a provider that would
    /// charge twice for two.
    Charging,
    /// The card is charged.
    Charged,
    /// It is shipped: the good end.
    Shipped,
    /// It is charged, will never be shipped, and the refund is in the outbox.
    RefundDue,
    /// The card was refused.
    Declined,
    /// The provider was asked, and has no charge.
    NotCharged,
}

/// A row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Checkout {
    /// Also the reference under which others have it.
    pub(crate) id: String,
    pub(crate) order: Order,
    pub(crate) state: State,
    /// Keys of the two calls, the same in every run.
    pub(crate) charge_key: String,
    pub(crate) shipment_key: String,
    pub(crate) charge: Option<String>,
    pub(crate) shipment: Option<String>,
    /// Since it was accepted, by the database's clock.
    pub(crate) age: Duration,
    /// Since it was written down that the charge is about to be asked for.
    pub(crate) announced: Option<Duration>,
}

/// What the customer asks for.
#[derive(Clone, Debug, serde::Deserialize, serde::Serialize)]
pub(crate) struct Order {
    pub(crate) sku: String,
    pub(crate) city: String,
    pub(crate) amount_cents: i64,
    /// What stands for the card at the provider, never its number.
    pub(crate) card: String,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Write down that the one charge is about to be asked for, then ask for it.
    Announce,
    /// Ask for the charge, under its key.
    Charge,
    /// Ask whether there is a charge.
    LookUp,
    /// Ask for the shipment, under its key.
    Ship,
    /// Nothing.
    Nothing,
}

/// A step from a checkout's state to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Announced,
    /// The announced request has not gone out.
    Withdrawn,
    Charged(String),
    Declined,
    NotCharged,
    Shipped(String),
    OutOfStock,
    /// A charge for a checkout that had ended without one.
    ChargedLate(String),
}

impl Checkout {
    /// An outcome that is not known is asked for again where the provider knows
    /// the key, and else looked up.
    pub(crate) fn next(&self, settings: &Settings) -> Next {
        match self.state {
            State::Accepted if settings.keys_last.is_zero() => Next::Announce,
            State::Accepted if self.age < settings.keys_last => Next::Charge,
            State::Accepted | State::Charging => Next::LookUp,
            State::Charged => Next::Ship,
            State::Shipped | State::RefundDue | State::Declined | State::NotCharged => {
                Next::Nothing
            }
        }
    }

    /// Whether a charge that the provider does not have will not come any more.
    pub(crate) fn is_settled(&self, settings: &Settings) -> bool {
        self.announced.unwrap_or(self.age) >= settings.settled_after
    }
}

impl State {
    const ALL: [Self; 7] = [
        Self::Accepted,
        Self::Charging,
        Self::Charged,
        Self::Shipped,
        Self::RefundDue,
        Self::Declined,
        Self::NotCharged,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Charging => "charging",
            Self::Charged => "charged",
            Self::Shipped => "shipped",
            Self::RefundDue => "refund_due",
            Self::Declined => "declined",
            Self::NotCharged => "not_charged",
        }
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether somebody has to look at it again: what is open, to end it, and what
    /// ended without a charge, for one that comes after all.
    pub(crate) fn is_watched(self) -> bool {
        match self {
            Self::Accepted | Self::Charging | Self::Charged | Self::NotCharged => true,
            Self::Shipped | Self::RefundDue | Self::Declined => false,
        }
    }
}

impl Change {
    /// Where it leads.
    pub(crate) fn to(&self) -> State {
        match self {
            Self::Announced => State::Charging,
            Self::Withdrawn => State::Accepted,
            Self::Charged(_) => State::Charged,
            Self::Declined => State::Declined,
            Self::NotCharged => State::NotCharged,
            Self::Shipped(_) => State::Shipped,
            Self::OutOfStock | Self::ChargedLate(_) => State::RefundDue,
        }
    }

    pub(crate) fn charge(&self) -> Option<&str> {
        match self {
            Self::Charged(charge) | Self::ChargedLate(charge) => Some(charge),
            _ => None,
        }
    }

    pub(crate) fn shipment(&self) -> Option<&str> {
        match self {
            Self::Shipped(shipment) => Some(shipment),
            _ => None,
        }
    }

    /// Why the money goes back, where it does.
    pub(crate) fn refund_reason(&self) -> Option<&'static str> {
        match self {
            Self::OutOfStock => Some("out_of_stock"),
            Self::ChargedLate(_) => Some("charged_late"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn settings(keys_last: Duration) -> Settings {
        let second = Duration::from_secs(1);
        Settings {
            lease: second,
            abandoned_after: second,
            call_timeout: second,
            keys_last,
            settled_after: 10 * second,
        }
    }

    fn checkout(state: State, age: Duration) -> Checkout {
        let order =
            Order { sku: "lamp".into(), city: "Oslo".into(), amount_cents: 1, card: "c".into() };
        Checkout {
            id: "1".to_owned(),
            order,
            state,
            charge_key: "a".to_owned(),
            shipment_key: "b".to_owned(),
            charge: None,
            shipment: None,
            age,
            announced: None,
        }
    }

    #[test]
    fn a_charge_is_asked_for_again_only_where_its_key_is_known() {
        let next = |state, age, keys| checkout(state, age).next(&settings(keys));
        assert_eq!(next(State::Accepted, HOUR / 2, HOUR), Next::Charge);
        assert_eq!(next(State::Accepted, HOUR, HOUR), Next::LookUp);
        assert_eq!(next(State::Accepted, HOUR, Duration::ZERO), Next::Announce);
        assert_eq!(next(State::Charging, HOUR, Duration::ZERO), Next::LookUp);
    }

    #[test]
    fn behind_a_charge_nothing_is_charged_and_behind_an_end_nothing_is_asked() {
        for keys in [HOUR, Duration::ZERO] {
            let next = |state| checkout(state, HOUR).next(&settings(keys));
            assert_eq!(next(State::Charged), Next::Ship);
            for state in [State::Shipped, State::RefundDue, State::Declined, State::NotCharged] {
                assert_eq!(next(state), Next::Nothing);
            }
        }
    }

    #[test]
    fn what_the_provider_has_not_is_waited_for_from_the_last_request_on() {
        let settings = settings(Duration::ZERO);
        let mut late = checkout(State::Charging, HOUR);
        assert!(late.is_settled(&settings));
        late.announced = Some(Duration::from_secs(9));
        assert!(!late.is_settled(&settings));
    }

    #[test]
    fn each_state_has_a_name_of_its_own() {
        for state in State::ALL {
            assert_eq!(State::of(state.name()), Some(state));
        }
        assert_eq!(State::of("paid"), None);
    }
}
