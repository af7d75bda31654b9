/// Which ports may be dialled.
///
/// ```
/// use walpost_webhook::Ports;
///
/// assert!(Ports::web().allows(443) && !Ports::web().allows(22));
/// assert!(Ports::only([8443]).allows(8443) && !Ports::only([8443]).allows(443));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports(Option<Vec<u16>>);

impl Ports {
    /// 80 and 443.
    pub fn web() -> Self {
        Self::only([80, 443])
    }

    /// These and no others.
    pub fn only(ports: impl IntoIterator<Item = u16>) -> Self {
        Self(Some(ports.into_iter().collect()))
    }

    /// Any: for URLs that nobody but the operator names.
    pub fn any() -> Self {
        Self(None)
    }

    /// Whether this one may be dialled.
    pub fn allows(&self, port: u16) -> bool {
        self.0.as_ref().is_none_or(|ports| ports.contains(&port))
    }
}
