//! The address of the hub.

use adjutant_core::address::is_loopback;
use http::Uri;
use std::str::FromStr;
use tokio_rustls::rustls::pki_types::ServerName;

/// The base address of a hub.
#[derive(Debug, Clone)]
pub struct HubAddress {
    url: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// The name in the hub's certificate. `None`: plain HTTP.
    pub(super) tls_name: Option<ServerName<'static>>,
    pub(super) authority: String,
}

impl HubAddress {
    /// Returns whether the token and what runs work on would cross a network in plain text.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        self.is_plain() && !is_loopback(&self.host)
    }

    /// Returns whether the connection is plain HTTP.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.tls_name.is_none()
    }
}

impl std::fmt::Display for HubAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.url)
    }
}

impl FromStr for HubAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused =
            || "use the address of the hub, such as https://adj.example.org:7317".to_owned();
        let url: Uri = text.parse().map_err(|_| refused())?;
        let authority = url
            .authority()
            .filter(|authority| !authority.as_str().contains('@'))
            .ok_or_else(refused)?;
        let is_tls = match url.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(refused()),
        };
        if url.path() != "/" || url.query().is_some() || authority.host().is_empty() {
            return Err(refused());
        }
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let tls_name = is_tls
            .then(|| ServerName::try_from(host.clone()))
            .transpose()
            .map_err(|_| refused())?;
        let port = authority
            .port_u16()
            .unwrap_or(if is_tls { 443 } else { 80 });
        Ok(Self {
            url: text.trim_end_matches('/').to_owned(),
            host,
            port,
            tls_name,
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
                plain.host.as_str(),
                plain.port,
                plain.tls_name.is_none(),
                plain.to_string().as_str()
            ),
            ("::1", 7317, true, "http://[::1]:7317")
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
            (tls.port, tls.tls_name.is_some(), tls.authority.as_str()),
            (443, true, "adj.example.org")
        );
    }
}
