//! How far a subscription is, and what news of it change: pure.

/// Of our row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The provider is asked, or will be.
    Pending,
    /// It is there, and is paid for.
    Active,
    /// The provider would not have it: an end.
    Failed,
    /// It was there: an end.
    Cancelled,
}

impl State {
    pub(crate) const ALL: [Self; 4] = [Self::Pending, Self::Active, Self::Failed, Self::Cancelled];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Where news of that state lead; none where they are old, as webhooks come in
    /// any order.
    pub(crate) fn told(self, news: Self) -> Option<Self> {
        match (self, news) {
            (Self::Pending, Self::Active | Self::Failed | Self::Cancelled)
            | (Self::Active, Self::Cancelled) => Some(news),
            (_, Self::Pending)
            | (Self::Active, Self::Active | Self::Failed)
            | (Self::Failed | Self::Cancelled, _) => None,
        }
    }

    /// Whether news say that there is what we were told that there is not: nothing that
    /// comes late explains it.
    pub(crate) fn is_denied_by(self, news: Self) -> bool {
        matches!((self, news), (Self::Failed, Self::Active))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_stays_whatever_comes_behind_it() {
        for end in [State::Failed, State::Cancelled] {
            for news in State::ALL {
                assert_eq!(end.told(news), None, "{end:?} {news:?}");
            }
        }
    }

    #[test]
    fn in_any_order_the_same_news_lead_to_the_same_end() {
        let end = |news: &[State]| {
            news.iter().fold(State::Pending, |state, news| state.told(*news).unwrap_or(state))
        };
        use State::{Active, Cancelled, Failed};
        assert_eq!(end(&[Active, Active]), Active);
        assert_eq!(end(&[Active, Cancelled]), Cancelled);
        assert_eq!(end(&[Cancelled, Active, Cancelled]), Cancelled);
        assert_eq!(end(&[Failed, Failed]), Failed);
    }

    #[test]
    fn that_it_is_there_denies_that_it_could_not_be() {
        for state in State::ALL {
            for news in State::ALL {
                let denies = (state, news) == (State::Failed, State::Active);
                assert_eq!(state.is_denied_by(news), denies, "{state:?} {news:?}");
            }
        }
    }

    #[test]
    fn each_state_has_a_name_of_its_own() {
        for state in State::ALL {
            assert_eq!(State::of(state.name()), Some(state));
        }
        assert_eq!(State::of("paid"), None);
    }
}
