/// Which ports may be dialled.
///
/// ```
/// use walpost_webhook::Ports;
///
/// assert!(Ports::web().allows(443) && !Ports::web().allows(22));
/// assert!(Ports::only([8443]).allows(8443) && !Ports::only([8443]).allows(443));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports(Allowed);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowed {
    Web,
    These(Vec<u16>),
    Any,
}

impl Ports {
    /// 80 and 443; any where [private networks](crate::AddressPolicy::with_private_networks)
    /// may be dialled, since then nobody but the operator names destinations.
    pub fn web() -> Self {
        Self(Allowed::Web)
    }

    /// These and no others, whatever else is allowed.
    pub fn only(ports: impl IntoIterator<Item = u16>) -> Self {
        Self(Allowed::These(ports.into_iter().collect()))
    }

    /// Any: for URLs that nobody but the operator names.
    pub fn any() -> Self {
        Self(Allowed::Any)
    }

    /// Whether this one may be dialled, at a public address.
    pub fn allows(&self, port: u16) -> bool {
        match &self.0 {
            Allowed::Web => matches!(port, 80 | 443),
            Allowed::These(ports) => ports.contains(&port),
            Allowed::Any => true,
        }
    }

    /// The same where private networks may be dialled as well.
    pub(super) fn allows_beside(&self, private_networks: bool, port: u16) -> bool {
        self.allows(port) || (private_networks && self.0 == Allowed::Web)
    }
}
