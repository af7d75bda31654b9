//! Addresses that nothing may be sent to, unless somebody says so.
//!
//! Whoever can name a URL for webhooks could otherwise have the sender reach what
//! only it can: its own machine, its network, its cloud's metadata. The ranges
//! are those of the IANA registries of special-purpose addresses (RFC 6890), and
//! of addresses that clouds give their metadata.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Which addresses may be dialled.
///
/// ```
/// use walpost_webhook::{AddressPolicy, Forbidden};
///
/// let policy = AddressPolicy::public();
/// assert_eq!(policy.check("93.184.215.14".parse()?), Ok(()));
/// assert_eq!(policy.check("::ffff:127.0.0.1".parse()?), Err(Forbidden::Loopback));
/// assert_eq!(policy.check("169.254.169.254".parse()?), Err(Forbidden::LinkLocal));
/// // With the switch the application's own network can be reached, and its
/// // cloud's metadata still cannot.
/// let policy = AddressPolicy::with_private_networks();
/// assert_eq!(policy.check("127.0.0.1".parse()?), Ok(()));
/// assert_eq!(policy.check("169.254.169.254".parse()?), Err(Forbidden::LinkLocal));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressPolicy {
    private_networks: bool,
}

/// Why an address is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Forbidden {
    /// This machine: `127.0.0.0/8`, `::1`. Allowed by the switch.
    Loopback,
    /// A network of one's own (RFC 1918, RFC 4193). Allowed by the switch.
    Private,
    /// Shared between a provider and its customers (RFC 6598). Allowed by the
    /// switch.
    Shared,
    /// Where a cloud gives out credentials.
    Metadata,
    /// The own link alone, where most clouds have their metadata.
    LinkLocal,
    /// No address, or the own network's: `0.0.0.0/8`, `::`.
    Unspecified,
    /// Many receivers.
    Multicast,
    /// For examples in documents.
    Documentation,
    /// For measurements.
    Benchmarking,
    /// An IPv4 address inside an IPv6 one, by a way that ends who knows where:
    /// compatible, 6to4, Teredo, NAT64.
    Embedded,
    /// Kept by IANA or IETF for another use, or for none yet.
    Reserved,
}

use Forbidden::{
    Benchmarking, Documentation, Embedded, LinkLocal, Loopback, Metadata, Multicast, Private,
    Reserved, Shared, Unspecified,
};

/// Of a range the first that fits counts.
const V4: [(Ipv4Addr, u32, Forbidden); 19] = [
    (Ipv4Addr::new(100, 100, 100, 200), 32, Metadata),
    (Ipv4Addr::new(168, 63, 129, 16), 32, Metadata),
    (Ipv4Addr::new(192, 0, 0, 192), 32, Metadata),
    (Ipv4Addr::new(0, 0, 0, 0), 8, Unspecified),
    (Ipv4Addr::new(10, 0, 0, 0), 8, Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, Shared),
    (Ipv4Addr::new(127, 0, 0, 0), 8, Loopback),
    (Ipv4Addr::new(169, 254, 0, 0), 16, LinkLocal),
    (Ipv4Addr::new(172, 16, 0, 0), 12, Private),
    (Ipv4Addr::new(192, 0, 0, 0), 24, Reserved),
    (Ipv4Addr::new(192, 0, 2, 0), 24, Documentation),
    // Relays of 6to4 (RFC 7526).
    (Ipv4Addr::new(192, 88, 99, 0), 24, Embedded),
    (Ipv4Addr::new(192, 168, 0, 0), 16, Private),
    (Ipv4Addr::new(198, 18, 0, 0), 15, Benchmarking),
    (Ipv4Addr::new(198, 51, 100, 0), 24, Documentation),
    (Ipv4Addr::new(203, 0, 113, 0), 24, Documentation),
    (Ipv4Addr::new(224, 0, 0, 0), 4, Multicast),
    (Ipv4Addr::new(255, 255, 255, 255), 32, Multicast),
    (Ipv4Addr::new(240, 0, 0, 0), 4, Reserved),
];

const V6: [(Ipv6Addr, u32, Forbidden); 18] = [
    // Names, time and credentials of pods are in it as well.
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0), 32, Metadata),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128, Metadata),
    (Ipv6Addr::UNSPECIFIED, 128, Unspecified),
    (Ipv6Addr::LOCALHOST, 128, Loopback),
    // IPv4-compatible (RFC 4291, 2.5.5.1).
    (Ipv6Addr::UNSPECIFIED, 96, Embedded),
    // NAT64 (RFC 6052, RFC 8215).
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, Embedded),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, Embedded),
    // Discarded on the way (RFC 6666).
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, Reserved),
    // Teredo (RFC 4380), measurements (RFC 5180), the rest of what IETF keeps.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, Embedded),
    (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48, Benchmarking),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, Reserved),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, Documentation),
    // 6to4 (RFC 3056).
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, Embedded),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, Documentation),
    // Of segment routing (RFC 9602).
    (Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16, Reserved),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, Private),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, LinkLocal),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, Multicast),
];

/// All that IANA has given out for one receiver each (RFC 4291, 2.4).
const GLOBAL: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

impl AddressPolicy {
    /// The internet alone.
    pub fn public() -> Self {
        Self::default()
    }

    /// The internet, networks of one's own and this machine: for senders whose
    /// destinations are named by nobody but their operator.
    pub fn with_private_networks() -> Self {
        Self { private_networks: true }
    }

    #[cfg(feature = "delivery")]
    pub(crate) fn private_networks(self) -> bool {
        self.private_networks
    }

    /// Whether this address may be dialled. An IPv4 address that is mapped into
    /// IPv6 is judged as what it is.
    ///
    /// # Errors
    /// Why it may not.
    pub fn check(self, address: IpAddr) -> Result<(), Forbidden> {
        let found = match address.to_canonical() {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        };
        match found {
            Some(why) if why.is_private() && self.private_networks => Ok(()),
            Some(forbidden) => Err(forbidden),
            None => Ok(()),
        }
    }

    /// Whether a name with these addresses may be dialled: not if any of them is
    /// forbidden, since an answer with both is an attack or a mistake.
    ///
    /// # Errors
    /// The first that may not, and why.
    pub fn check_all(
        self,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> Result<(), (IpAddr, Forbidden)> {
        addresses
            .into_iter()
            .try_for_each(|address| self.check(address).map_err(|why| (address, why)))
    }
}

fn of_v4(address: Ipv4Addr) -> Option<Forbidden> {
    let fits = |(from, bits, _): &&(Ipv4Addr, u32, Forbidden)| {
        (address.to_bits() ^ from.to_bits()).leading_zeros() >= *bits
    };
    V4.iter().find(fits).map(|(_, _, why)| *why)
}

fn of_v6(address: Ipv6Addr) -> Option<Forbidden> {
    let within =
        |from: Ipv6Addr, bits| (address.to_bits() ^ from.to_bits()).leading_zeros() >= bits;
    let known = V6.iter().find(|(from, bits, _)| within(*from, *bits)).map(|(_, _, why)| *why);
    known.or_else(|| (!within(GLOBAL.0, GLOBAL.1)).then_some(Reserved))
}

impl Forbidden {
    /// Whether [`AddressPolicy::with_private_networks`] would permit it.
    pub fn is_private(self) -> bool {
        matches!(self, Loopback | Private | Shared)
    }
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loopback => "an address of this machine",
            Private => "an address of a private network",
            Shared => "an address of a provider's shared network",
            Metadata => "where a cloud keeps its metadata",
            LinkLocal => "a link-local address",
            Unspecified => "no address of one receiver",
            Multicast => "a multicast address",
            Documentation => "an address for documents",
            Benchmarking => "an address for measurements",
            Embedded => "an IPv4 address in another form",
            Reserved => "a reserved address",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Last address before a range, first and last of it, first behind it.
    const EDGES: [(&str, &str, &str, &str, Forbidden); 31] = [
        ("-", "0.0.0.0", "0.255.255.255", "1.0.0.0", Unspecified),
        ("9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0", Private),
        ("100.63.255.255", "100.64.0.0", "100.127.255.255", "100.128.0.0", Shared),
        ("126.255.255.255", "127.0.0.0", "127.255.255.255", "128.0.0.0", Loopback),
        ("169.253.255.255", "169.254.0.0", "169.254.255.255", "169.255.0.0", LinkLocal),
        ("172.15.255.255", "172.16.0.0", "172.31.255.255", "172.32.0.0", Private),
        ("191.255.255.255", "192.0.0.0", "192.0.0.255", "192.0.1.0", Reserved),
        ("192.0.1.255", "192.0.2.0", "192.0.2.255", "192.0.3.0", Documentation),
        ("192.88.98.255", "192.88.99.0", "192.88.99.255", "192.88.100.0", Embedded),
        ("192.167.255.255", "192.168.0.0", "192.168.255.255", "192.169.0.0", Private),
        ("198.17.255.255", "198.18.0.0", "198.19.255.255", "198.20.0.0", Benchmarking),
        ("198.51.99.255", "198.51.100.0", "198.51.100.255", "198.51.101.0", Documentation),
        ("203.0.112.255", "203.0.113.0", "203.0.113.255", "203.0.114.0", Documentation),
        ("223.255.255.255", "224.0.0.0", "239.255.255.255", "-", Multicast),
        ("-", "240.0.0.0", "255.255.255.254", "-", Reserved),
        ("-", "255.255.255.255", "255.255.255.255", "-", Multicast),
        ("168.63.129.15", "168.63.129.16", "168.63.129.16", "168.63.129.17", Metadata),
        ("-", "::", "::", "-", Unspecified),
        ("-", "::1", "::1", "-", Loopback),
        ("-", "::2", "::255.255.255.255", "-", Embedded),
        ("-", "64:ff9b::", "64:ff9b::ffff:ffff", "-", Embedded),
        ("-", "64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "-", Embedded),
        ("-", "100::", "100::ffff:ffff:ffff:ffff", "-", Reserved),
        ("-", "2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", "-", Embedded),
        ("-", "2001:1::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:200::", Reserved),
        ("-", "2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff", "-", Benchmarking),
        (
            "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff",
            "2001:db8::",
            "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
            "2001:db9::",
            Documentation,
        ),
        (
            "2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "2002::",
            "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "2003::",
            Embedded,
        ),
        (
            "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "3fff::",
            "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff",
            "3fff:1000::",
            Documentation,
        ),
        ("-", "fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "-", Private),
        ("-", "fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "-", LinkLocal),
    ];

    fn check(policy: AddressPolicy, text: &str) -> Result<(), Forbidden> {
        policy.check(text.parse().unwrap())
    }

    #[test]
    fn each_range_is_forbidden_to_its_edges_and_no_further() {
        let public = AddressPolicy::public();
        for (before, first, last, behind, why) in EDGES {
            for text in [first, last] {
                assert_eq!(check(public, text), Err(why), "{text}");
            }
            for text in [before, behind].into_iter().filter(|text| *text != "-") {
                assert_eq!(check(public, text), Ok(()), "{text}");
            }
        }
    }

    #[test]
    fn what_iana_has_not_given_out_is_forbidden() {
        for text in [
            "::1:0:0:0",
            "64:ff9b:2::",
            "200::",
            "400::1",
            "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "4000::",
            "5f00::1",
            "8000::",
            "fbff::",
            "fe00::",
            "fec0::1",
        ] {
            assert_eq!(check(AddressPolicy::public(), text), Err(Reserved), "{text}");
        }
        assert_eq!(check(AddressPolicy::public(), "ff02::1"), Err(Multicast));
        for text in ["2000::", "2606:4700::6810:85e5", "2a00:1450:4001:82f::200e", "3000::1"] {
            assert_eq!(check(AddressPolicy::public(), text), Ok(()), "{text}");
        }
    }

    #[test]
    fn every_address_of_ipv4_is_judged_alike_when_it_is_mapped() {
        let policies = [AddressPolicy::public(), AddressPolicy::with_private_networks()];
        for (before, first, last, behind, _) in EDGES {
            for text in [before, first, last, behind] {
                let Ok(address) = text.parse::<Ipv4Addr>() else { continue };
                let mapped = IpAddr::V6(address.to_ipv6_mapped());
                for policy in policies {
                    assert_eq!(policy.check(mapped), policy.check(address.into()), "{text}");
                }
            }
        }
    }

    #[test]
    fn other_forms_of_an_ipv4_address_are_forbidden_whatever_is_in_them() {
        for (form, text) in [
            ("compatible", "::127.0.0.1"),
            ("compatible", "::93.184.215.14"),
            ("6to4", "2002:7f00:1::"),
            ("6to4", "2002:5db8:d70e::1"),
            ("Teredo", "2001:0:4136:e378:8000:63bf:80ff:fffe"),
            ("NAT64", "64:ff9b::7f00:1"),
            ("NAT64", "64:ff9b::5db8:d70e"),
            ("NAT64", "64:ff9b:1::a00:1"),
        ] {
            for policy in [AddressPolicy::public(), AddressPolicy::with_private_networks()] {
                assert_eq!(check(policy, text), Err(Embedded), "{form} {text}");
            }
        }
    }

    #[test]
    fn the_switch_opens_networks_of_ones_own_and_nothing_else() {
        let private = AddressPolicy::with_private_networks();
        for (_, first, last, _, why) in EDGES {
            for text in [first, last] {
                let expected = match why {
                    Loopback | Private | Shared => Ok(()),
                    other => Err(other),
                };
                assert_eq!(check(private, text), expected, "{text}");
            }
        }
        for text in [
            "100.100.100.200",
            "192.0.0.192",
            "fd00:ec2::23",
            "fd00:ec2::253",
            "fd00:ec2::254",
            "fd00:ec2:ffff:ffff:ffff:ffff:ffff:ffff",
            "fd20:ce::254",
        ] {
            assert_eq!(check(private, text), Err(Metadata), "{text}");
            assert_eq!(check(AddressPolicy::public(), text), Err(Metadata), "{text}");
        }
        for text in ["fd00:ec1:ffff:ffff:ffff:ffff:ffff:ffff", "fd00:ec3::"] {
            assert_eq!(check(private, text), Ok(()), "{text}");
        }
    }

    #[test]
    fn one_forbidden_address_forbids_the_name() {
        let addresses = ["93.184.215.14", "10.0.0.1", "2606:4700::1"]
            .map(|text| text.parse::<IpAddr>().unwrap());
        let public = AddressPolicy::public();
        assert_eq!(public.check_all(addresses), Err((addresses[1], Private)));
        assert_eq!(public.check_all([addresses[0], addresses[2]]), Ok(()));
        assert_eq!(AddressPolicy::with_private_networks().check_all(addresses), Ok(()));
    }
}
