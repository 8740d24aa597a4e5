//! The host names and origins that the hub accepts over HTTP. A request for another name, or from a
//! page of another origin, is refused, because it may come from a web page whose name resolves to
//! this machine (DNS rebinding).

use crate::tls::TlsServer;
use axum::http::header::{HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, Version};
use std::net::{IpAddr, SocketAddr};

/// The allowed values of `Host` and of `Origin`.
#[derive(Debug, Clone)]
pub(super) struct OwnNames {
    /// `http` or `https`, as the hub serves.
    scheme: &'static str,
    hosts: Vec<String>,
    origins: Vec<String>,
    has_public_url: bool,
}

/// The reason for refusing a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Foreign {
    Host,
    Origin,
}

impl OwnNames {
    /// Returns the names for the listeners' addresses and the configured address of a proxy.
    /// `has_localhost`: no other program can have this port of `localhost`.
    pub(super) fn new(
        scheme: &'static str,
        addresses: &[SocketAddr],
        has_localhost: bool,
        public_url: Option<&Uri>,
    ) -> Self {
        let mut names = Self {
            scheme,
            hosts: Vec::new(),
            origins: Vec::new(),
            has_public_url: public_url.is_some(),
        };
        // No caller can mean all addresses.
        for address in addresses
            .iter()
            .filter(|address| !address.ip().is_unspecified())
        {
            names.add(scheme, &address.to_string());
            if has_localhost {
                names.add(scheme, &format!("localhost:{}", address.port()));
            }
        }
        if let Some((scheme, authority)) =
            public_url.and_then(|url| url.scheme_str().zip(url.authority()))
        {
            names.add(scheme, authority.as_str());
        }
        names
    }

    /// Adds a host, with its port, and without it if it is the default port of the scheme.
    fn add(&mut self, scheme: &str, host: &str) {
        let default = if scheme == "https" { ":443" } else { ":80" };
        // The last group of an IPv6 address is not a port.
        let has_port = host
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.ends_with(']'));
        let other = match host.strip_suffix(default) {
            Some(bare) => Some(bare.to_owned()),
            None if has_port => None,
            None => Some(format!("{host}{default}")),
        };
        for host in [Some(host.to_owned()), other].into_iter().flatten() {
            self.origins.push(format!("{scheme}://{host}"));
            self.hosts.push(host);
        }
    }

    /// Returns whether a proxy is configured.
    pub(super) fn has_public_url(&self) -> bool {
        self.has_public_url
    }

    /// Checks the names in the head of a request that has arrived at the address `own`.
    pub(super) fn check(
        &self,
        head: &Parts,
        own: SocketAddr,
        tls: Option<&TlsServer>,
    ) -> Result<(), Foreign> {
        let is_own = |host: &str| {
            self.hosts
                .iter()
                .any(|known| known.eq_ignore_ascii_case(host))
                || self.is_at(host, own, tls)
        };
        let is_named = matches!(head.version, Version::HTTP_11 | Version::HTTP_2)
            && only(&head.headers, &HOST).is_some_and(is_own);
        if !is_named
            || head
                .uri
                .authority()
                .is_some_and(|authority| !is_own(authority.as_str()))
        {
            return Err(Foreign::Host);
        }
        let is_own = |origin: &str| {
            let is_at = |(scheme, host): (&str, &str)| {
                scheme.eq_ignore_ascii_case(self.scheme) && self.is_at(host, own, tls)
            };
            self.origins
                .iter()
                .any(|known| known.eq_ignore_ascii_case(origin))
                || origin.split_once("://").is_some_and(is_at)
        };
        if head.headers.contains_key(ORIGIN) && !only(&head.headers, &ORIGIN).is_some_and(is_own) {
            return Err(Foreign::Origin);
        }
        Ok(())
    }

    /// Returns whether a host is the address `own` itself, which no name can stand for, or a name
    /// in the certificate with its port.
    fn is_at(&self, host: &str, own: SocketAddr, tls: Option<&TlsServer>) -> bool {
        // The last group of an IPv6 address is not a port.
        let (name, port) = match host
            .rsplit_once(':')
            .filter(|(_, port)| !port.ends_with(']'))
        {
            Some((name, port)) => (name, port.parse().ok()),
            None => (host, Some(if self.scheme == "https" { 443 } else { 80 })),
        };
        let bare = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .unwrap_or(name);
        port == Some(own.port())
            && (bare.parse() == Ok::<IpAddr, _>(own.ip())
                || tls.is_some_and(|tls| tls.is_for(name)))
    }
}

/// Returns the value of a header that occurs exactly once.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        None
    } else {
        value.to_str().ok()
    }
}

/// Returns whether a content type is that of JSON.
pub(super) fn is_json(value: &HeaderValue) -> bool {
    value
        .as_bytes()
        .to_ascii_lowercase()
        .starts_with(b"application/json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn check(names: &OwnNames, uri: &str, headers: &[(&str, &str)]) -> Result<(), Foreign> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        names.check(
            &request.body(()).expect("a request").into_parts().0,
            "10.0.0.9:9".parse().expect("an address"),
            None,
        )
    }

    fn names(addresses: &[&str], has_localhost: bool, url: Option<&str>) -> OwnNames {
        let addresses: Vec<SocketAddr> = addresses
            .iter()
            .map(|address| address.parse().expect("an address"))
            .collect();
        let url: Option<Uri> = url.map(|url| url.parse().expect("an address"));
        OwnNames::new("http", &addresses, has_localhost, url.as_ref())
    }

    #[test]
    fn only_exact_names_are_accepted() {
        let names = names(
            &["127.0.0.1:7317", "[::1]:7317"],
            true,
            Some("https://adj.example.org"),
        );
        for host in [
            "127.0.0.1:7317",
            "localhost:7317",
            "LOCALHOST:7317",
            "[::1]:7317",
            "adj.example.org",
            "adj.example.org:443",
        ] {
            assert_eq!(check(&names, "/", &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "",
            "127.0.0.1",
            "localhost:7318",
            "localhost:7317.evil.example",
            "evil.example:7317",
            "x@localhost:7317",
            "adj.example.org:7317",
        ] {
            assert_eq!(
                check(&names, "/", &[("host", host)]),
                Err(Foreign::Host),
                "{host}"
            );
        }
        assert_eq!(check(&names, "/", &[]), Err(Foreign::Host));
        assert_eq!(
            check(
                &names,
                "/",
                &[("host", "localhost:7317"), ("host", "evil.example")]
            ),
            Err(Foreign::Host)
        );
        assert_eq!(
            check(
                &names,
                "http://evil.example/",
                &[("host", "localhost:7317")]
            ),
            Err(Foreign::Host)
        );
        for origin in [
            "http://localhost:7317",
            "http://127.0.0.1:7317",
            "https://adj.example.org",
        ] {
            assert_eq!(
                check(
                    &names,
                    "/",
                    &[("host", "localhost:7317"), ("origin", origin)]
                ),
                Ok(()),
                "{origin}"
            );
        }
        for origin in [
            "null",
            "",
            "https://localhost:7317",
            "http://localhost",
            "http://adj.example.org",
            "https://evil.example",
        ] {
            assert_eq!(
                check(
                    &names,
                    "/",
                    &[("host", "localhost:7317"), ("origin", origin)]
                ),
                Err(Foreign::Origin),
                "{origin}"
            );
        }
        let twice = [
            ("host", "localhost:7317"),
            ("origin", "http://localhost:7317"),
            ("origin", "http://localhost:7317"),
        ];
        assert_eq!(check(&names, "/", &twice), Err(Foreign::Origin));
    }

    #[test]
    fn name_that_can_be_another_program_is_refused() {
        for (open, host, expected) in [
            ("127.0.0.1:7317", "127.0.0.1:7317", Ok(())),
            ("127.0.0.1:7317", "[::1]:7317", Err(Foreign::Host)),
            ("127.0.0.1:7317", "localhost:7317", Err(Foreign::Host)),
            ("[::1]:7317", "[::1]:7317", Ok(())),
            ("[::1]:7317", "127.0.0.1:7317", Err(Foreign::Host)),
            ("127.8.8.8:7317", "127.0.0.1:7317", Err(Foreign::Host)),
        ] {
            assert_eq!(
                check(&names(&[open], false, None), "/", &[("host", host)]),
                expected,
                "{host} at {open}"
            );
        }
    }

    #[test]
    fn address_at_which_a_request_arrived_is_accepted() {
        let wildcard = names(&["0.0.0.0:9"], false, None);
        for (host, origin, expected) in [
            ("10.0.0.9:9", "http://10.0.0.9:9", Ok(())),
            ("10.0.0.9:9", "https://10.0.0.9:9", Err(Foreign::Origin)),
            ("10.0.0.9:9", "http://10.0.0.9", Err(Foreign::Origin)),
            ("10.0.0.9", "http://10.0.0.9:9", Err(Foreign::Host)),
            ("10.0.0.8:9", "http://10.0.0.9:9", Err(Foreign::Host)),
            ("localhost:9", "http://10.0.0.9:9", Err(Foreign::Host)),
            ("0.0.0.0:9", "http://10.0.0.9:9", Err(Foreign::Host)),
            (
                "10.0.0.9.evil.example:9",
                "http://10.0.0.9:9",
                Err(Foreign::Host),
            ),
        ] {
            assert_eq!(
                check(&wildcard, "/", &[("host", host), ("origin", origin)]),
                expected,
                "{host} {origin}"
            );
        }
    }

    #[test]
    fn default_port_may_be_left_out() {
        let local = names(&["127.0.0.1:80", "[::1]:80"], true, None);
        for host in ["localhost", "127.0.0.1", "[::1]", "localhost:80"] {
            assert_eq!(
                check(
                    &local,
                    "/",
                    &[("host", host), ("origin", "http://localhost")]
                ),
                Ok(()),
                "{host}"
            );
        }
        for (url, host, origin) in [
            (
                "https://adj.example.org:443",
                "adj.example.org",
                "https://adj.example.org",
            ),
            (
                "https://Adj.example.org",
                "adj.example.org:443",
                "https://adj.example.org",
            ),
            (
                "http://adj.example.org:80",
                "adj.example.org",
                "http://adj.example.org",
            ),
            (
                "https://[2001:db8::1]",
                "[2001:db8::1]",
                "https://[2001:db8::1]",
            ),
            (
                "https://[2001:db8::1]:443",
                "[2001:db8::1]",
                "https://[2001:db8::1]",
            ),
        ] {
            assert_eq!(
                check(
                    &names(&["127.0.0.1:7317"], false, Some(url)),
                    "/",
                    &[("host", host), ("origin", origin)]
                ),
                Ok(()),
                "{url}"
            );
        }
        let names = names(
            &["127.0.0.1:7317"],
            false,
            Some("https://adj.example.org:8443"),
        );
        for host in [
            "adj.example.org",
            "adj.example.org:443",
            "adj.example.org:80",
        ] {
            assert_eq!(
                check(&names, "/", &[("host", host)]),
                Err(Foreign::Host),
                "{host}"
            );
        }
    }
}
