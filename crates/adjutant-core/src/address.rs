//! Addresses of other programs.

use core::net::IpAddr;

/// Returns whether a host, without brackets, is this machine, so that what is sent to it crosses no
/// network.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_this_machine() {
        for (host, expected) in [
            ("localhost", true),
            ("127.0.0.1", true),
            ("127.8.9.1", true),
            ("::1", true),
            ("0.0.0.0", false),
            ("10.0.0.1", false),
            ("localhost.example.org", false),
            ("127.0.0.1.example.org", false),
            ("", false),
        ] {
            assert_eq!(is_loopback(host), expected, "{host}");
        }
    }
}
