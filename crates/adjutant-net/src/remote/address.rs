//! The address of the hub.

use crate::http_client::Endpoint;
use adjutant_core::address::is_loopback;
use http::Uri;
use std::str::FromStr;

/// The base address of a hub.
#[derive(Debug, Clone)]
pub struct HubAddress {
    url: String,
    pub(super) endpoint: Endpoint,
    pub(super) authority: String,
}

impl HubAddress {
    /// Returns whether the token and what runs work on would cross a network in plain text.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        self.is_plain() && !is_loopback(&self.endpoint.host)
    }

    /// Returns whether the connection is plain HTTP.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.endpoint.tls_name.is_none()
    }
}

impl std::fmt::Display for HubAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.url)
    }
}

/// A text that is not the address of a hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("use the address of the hub, such as https://adj.example.org:7317")]
pub struct NotHubAddress;

impl FromStr for HubAddress {
    type Err = NotHubAddress;

    fn from_str(text: &str) -> Result<Self, NotHubAddress> {
        let url: Uri = text.parse().map_err(|_| NotHubAddress)?;
        let authority = url
            .authority()
            .filter(|authority| !authority.as_str().contains('@'))
            .ok_or(NotHubAddress)?;
        if !matches!(url.scheme_str(), Some("https" | "http"))
            || url.path() != "/"
            || url.query().is_some()
            || authority.host().is_empty()
        {
            return Err(NotHubAddress);
        }
        Ok(Self {
            url: text.trim_end_matches('/').to_owned(),
            endpoint: Endpoint::of(&url).map_err(|_| NotHubAddress)?,
            authority: authority.as_str().to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_a_scheme_and_no_path() {
        for bad in [
            "127.0.0.1:7317",
            "ftp://x",
            "https://u@x",
            "https://x/y",
            "https://x/?q",
            "https://",
        ] {
            assert!(bad.parse::<HubAddress>().is_err(), "{bad}");
        }
        let plain: HubAddress = "http://[::1]:7317/".parse().expect("an address");
        assert_eq!(
            (
                plain.endpoint.host.as_str(),
                plain.endpoint.port,
                plain.to_string().as_str()
            ),
            ("::1", 7317, "http://[::1]:7317")
        );
        let tls: HubAddress = "https://adj.example.org".parse().expect("an address");
        assert!(!plain.is_exposed() && !tls.is_exposed() && plain.is_plain() && !tls.is_plain());
        for (address, is_exposed) in [
            ("http://localhost:1", false),
            ("http://127.0.0.2:1", false),
            ("http://10.0.0.1:1", true),
            ("http://hub:1", true),
        ] {
            assert_eq!(
                address
                    .parse::<HubAddress>()
                    .expect("an address")
                    .is_exposed(),
                is_exposed,
                "{address}"
            );
        }
        assert_eq!(
            (tls.endpoint.port, tls.authority.as_str()),
            (443, "adj.example.org")
        );
    }
}
