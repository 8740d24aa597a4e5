//! Webhooks: which addresses are allowed, and when a failed delivery is retried.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
/// The pause after each failed attempt. After the last one, the delivery is parked.
const RETRY_AFTER_MS: [i64; 9] = [
    1_000,
    10_000,
    MINUTE_MS,
    5 * MINUTE_MS,
    30 * MINUTE_MS,
    HOUR_MS,
    2 * HOUR_MS,
    4 * HOUR_MS,
    8 * HOUR_MS,
];

/// What happens to a failed delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    Retry {
        after_ms: i64,
    },
    /// It is kept and shown, and not retried.
    Parked,
}

/// Returns what happens to a delivery after this many failed attempts.
#[must_use]
pub fn after_failure(attempts: u32) -> AfterFailure {
    let before = usize::try_from(attempts.saturating_sub(1)).unwrap_or(usize::MAX);
    RETRY_AFTER_MS
        .get(before)
        .map_or(AfterFailure::Parked, |after_ms| AfterFailure::Retry {
            after_ms: *after_ms,
        })
}

/// Returns whether an address is on the public internet: not this machine, not a private or shared
/// network, and not in IANA's special-purpose registries.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = matches!(
        (a, b, c),
        // This network, private, shared (carrier-grade NAT), loopback, link-local.
        (0 | 10 | 127, ..) | (100, 64..=127, _) | (169, 254, _) | (172, 16..=31, _) | (192, 168, _)
        // Protocol assignments, 6to4 relays, AS112, documentation, benchmarks.
        | (192, 0, 0 | 2) | (192, 88, 99) | (192, 31, 196) | (192, 52, 193) | (192, 175, 48) | (198, 18..=19, _) | (198, 51, 100) | (203, 0, 113)
        // Multicast, reserved, broadcast.
        | (224..=255, ..)
    );
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, ..] = address.segments();
    // Forms with an embedded IPv4 address are judged by that: mapped, NAT64, 6to4.
    let embedded = match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some([12, 13, 14, 15]),
        [0x2002, ..] => Some([2, 3, 4, 5]),
        _ => None,
    };
    if let Some(at) = embedded {
        let octets = address.octets();
        return is_public_v4(Ipv4Addr::from(at.map(|i| octets[i])));
    }
    // Otherwise only global unicast, except protocol assignments (such as Teredo) and
    // documentation.
    let global = (0x2000..=0x3fff).contains(&a);
    let assignments = a == 0x2001 && b < 0x0200;
    let documentation = (a == 0x2001 && b == 0x0db8)
        || (a == 0x3fff && b < 0x1000)
        || (a == 0x2620 && b == 0x4f && c == 0x8000);
    global && !assignments && !documentation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_public_internet_are_public() {
        let public = [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ];
        let refused = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "192.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a00:1::",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd12:3456::1",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "3fff::1",
            "100::1",
            "5f00::1",
        ];
        for address in public {
            assert!(is_public(address.parse().expect("an address")), "{address}");
        }
        for address in refused {
            assert!(
                !is_public(address.parse().expect("an address")),
                "{address}"
            );
        }
    }

    #[test]
    fn failed_delivery_backs_off_and_is_parked() {
        let mut last = 0;
        for attempts in 1..=9 {
            match after_failure(attempts) {
                AfterFailure::Retry { after_ms } => {
                    assert!(after_ms > last);
                    last = after_ms;
                }
                AfterFailure::Parked => panic!("abandoned after {attempts}"),
            }
        }
        assert_eq!(
            (after_failure(10), after_failure(u32::MAX)),
            (AfterFailure::Parked, AfterFailure::Parked)
        );
    }
}
