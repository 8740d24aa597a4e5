//! The address for callers over HTTP.

use super::values::UnusableValues;
use ::http::Uri;
use std::net::SocketAddr;

/// Where the hub listens for callers over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    pub listen: SocketAddr,
    /// The address at which a proxy on this machine passes requests on.
    pub public_url: Option<Uri>,
}

/// Parses an address to listen on: one of this machine only, because the connection is not encrypted.
///
/// # Errors
/// It is no address, or other machines could connect to it.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "use an address and a port, such as 127.0.0.1:7317".to_owned())?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err("use 127.0.0.1 or [::1]: tokens would cross the network in plain text; from elsewhere, use an SSH tunnel, or a proxy with TLS on this machine and public_url"
        .to_owned())
}

/// Reads this part of the file. Invalid values are reported.
pub(super) fn read(listen: Option<&str>, public_url: Option<&str>, unusable: &mut UnusableValues) -> (Option<SocketAddr>, Option<Uri>) {
    let listen = listen.and_then(|text| unusable.check("listen", listen_address(text)));
    let public_url = public_url.and_then(|text| unusable.check("public_url", public_address(text)));
    (listen, public_url)
}

fn public_address(text: &str) -> Result<Uri, String> {
    let refused = || "use an address without a path, such as https://adj.example.org".to_owned();
    let url: Uri = text.parse().map_err(|_| refused())?;
    let has_name = url.authority().is_some_and(|authority| !authority.host().is_empty() && !authority.as_str().contains('@'));
    let is_web = matches!(url.scheme_str(), Some("https" | "http"));
    if has_name && is_web && url.path() == "/" && url.query().is_none() { Ok(url) } else { Err(refused()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_are_accepted() {
        for good in ["127.0.0.1:7317", "[::1]:7317", "127.0.0.1:0", "127.8.8.8:80"] {
            assert!(listen_address(good).is_ok(), "{good}");
        }
        for bad in ["0.0.0.0:7317", "[::]:7317", "192.168.1.5:7317", "localhost:7317", "7317", "127.0.0.1", "[::ffff:192.168.1.5]:80"] {
            assert!(listen_address(bad).is_err(), "{bad}");
        }
        for bad in ["adj.example.org", "https://adj.example.org/x", "ftp://adj.example.org", "https://u@adj.example.org", "https://"] {
            assert!(public_address(bad).is_err(), "{bad}");
        }
        assert!(public_address("https://adj.example.org").is_ok() && public_address("https://adj.example.org/").is_ok());
    }
}
