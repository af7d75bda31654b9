//! Whatever another list of special addresses has, ours has.

use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::{Command, Stdio},
    time::Duration,
};

use walpost_testkit::{Seeded, property};
use walpost_webhook::AddressPolicy;

/// Prints of each address that it reads whether Python calls it global. It calls
/// multicast addresses so.
const SCRIPT: &str = "
import ipaddress, sys
for line in sys.stdin:
    address = ipaddress.ip_address(line.strip())
    print(int(address.is_global and not address.is_multicast))
";

/// Addresses near all edges that a prefix can have, and anywhere.
fn addresses(random: &mut Seeded) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    let firsts = (0..=255).map(|first| Ipv4Addr::new(first, 0, 0, 0).to_bits());
    let known = ["100.64.0.0", "169.254.0.0", "172.16.0.0", "192.0.0.0", "192.0.2.0"];
    let more = ["192.168.0.0", "198.18.0.0", "198.51.100.0", "203.0.113.0", "255.255.255.255"];
    let known = known.into_iter().chain(more);
    let known = known.map(|text| text.parse::<Ipv4Addr>().unwrap().to_bits());
    for first in firsts.chain(known) {
        for bits in 4..=32 {
            let size = u32::MAX.checked_shr(bits).unwrap_or(0);
            for edge in [first.wrapping_sub(1), first, first | size, (first | size).wrapping_add(1)]
            {
                addresses.push(IpAddr::V4(edge.into()));
            }
        }
    }
    for first in 0..=u16::MAX {
        addresses.push(IpAddr::V6(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 1)));
        addresses.push(IpAddr::V6(Ipv6Addr::new(0x2001, first, 0, 0, 0, 0, 0, 1)));
        addresses.push(IpAddr::V6(Ipv6Addr::new(0x3fff, first, 0, 0, 0, 0, 0, 1)));
    }
    for _ in 0..20_000 {
        let high = u128::from(random.number()) << 64;
        addresses.push(IpAddr::V4((random.number() as u32).into()));
        addresses.push(IpAddr::V6((high | u128::from(random.number())).into()));
    }
    addresses
}

#[test]
#[ignore = "deep: needs Python"]
fn what_python_calls_special_is_forbidden() {
    property("special addresses", Duration::ZERO, |random| {
        let addresses = addresses(random);
        let asked: String = addresses.iter().map(|address| format!("{address}\n")).collect();
        let mut python = Command::new("/usr/bin/python3")
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = python.stdin.take().unwrap();
        let writing = std::thread::spawn(move || stdin.write_all(asked.as_bytes()).unwrap());
        let output = python.wait_with_output().unwrap();
        writing.join().unwrap();
        assert!(output.status.success());
        let answers = String::from_utf8(output.stdout).unwrap();
        assert_eq!(answers.lines().count(), addresses.len());
        let mut special = 0;
        for (address, answer) in addresses.iter().zip(answers.lines()) {
            let ours = AddressPolicy::public().check(*address);
            special += usize::from(answer == "0");
            assert!(answer == "1" || ours.is_err(), "{address}");
        }
        assert!(special > 5_000, "{special}");
    });
}
