//! The names under which the hub is called over HTTP. A request for another name, or from a page of another origin, is
//! refused: it may come from a web page whose own name resolves to this machine.

use axum::http::header::{HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Uri, Version};
use std::net::SocketAddr;

/// The port that `http` addresses leave out.
const DEFAULT_PORT: u16 = 80;

/// The allowed values of `Host` and of `Origin`.
#[derive(Debug, Clone)]
pub(super) struct OwnNames {
    hosts: Vec<String>,
    origins: Vec<String>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Foreign {
    Host,
    Origin,
}

impl OwnNames {
    /// Returns the names for an open port and the configured address of a proxy before it.
    pub(super) fn new(address: SocketAddr, public_url: Option<&Uri>) -> Self {
        let port = address.port();
        let mut hosts: Vec<String> = ["127.0.0.1", "localhost", "[::1]"].iter().map(|name| format!("{name}:{port}")).collect();
        hosts.push(address.to_string());
        if port == DEFAULT_PORT {
            let bare: Vec<String> = hosts.iter().filter_map(|host| host.rsplit_once(':')).map(|(name, _)| name.to_owned()).collect();
            hosts.extend(bare);
        }
        let mut origins: Vec<String> = hosts.iter().map(|host| format!("http://{host}")).collect();
        if let Some((scheme, authority)) = public_url.and_then(|url| url.scheme_str().zip(url.authority())) {
            let authority = authority.as_str().to_ascii_lowercase();
            origins.push(format!("{scheme}://{authority}"));
            hosts.push(authority);
        }
        Self { hosts, origins }
    }

    /// Checks the names in the head of a request.
    pub(super) fn check(&self, head: &Parts) -> Result<(), Foreign> {
        let is_own = |host: &str| self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host));
        let is_named = head.version == Version::HTTP_11 && only(&head.headers, &HOST).is_some_and(is_own);
        if !is_named || head.uri.authority().is_some_and(|authority| !is_own(authority.as_str())) {
            return Err(Foreign::Host);
        }
        let is_own = |origin: &str| self.origins.iter().any(|own| own.eq_ignore_ascii_case(origin));
        if head.headers.contains_key(ORIGIN) && !only(&head.headers, &ORIGIN).is_some_and(is_own) {
            return Err(Foreign::Origin);
        }
        Ok(())
    }
}

/// Returns the value of a header that is there exactly once.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() { None } else { value.to_str().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn checked(names: &OwnNames, uri: &str, headers: &[(&str, &str)]) -> Result<(), Foreign> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        names.check(&request.body(()).expect("a request").into_parts().0)
    }

    #[test]
    fn only_exact_names_are_accepted() {
        let url = "https://adj.example.org".parse().expect("an address");
        let names = OwnNames::new("127.0.0.1:7317".parse().expect("an address"), Some(&url));
        for host in ["127.0.0.1:7317", "localhost:7317", "LOCALHOST:7317", "[::1]:7317", "adj.example.org"] {
            assert_eq!(checked(&names, "/", &[("host", host)]), Ok(()), "{host}");
        }
        for host in
            ["", "127.0.0.1", "localhost:7318", "localhost:7317.evil.example", "evil.example:7317", "x@localhost:7317", "adj.example.org:7317"]
        {
            assert_eq!(checked(&names, "/", &[("host", host)]), Err(Foreign::Host), "{host}");
        }
        assert_eq!(checked(&names, "/", &[]), Err(Foreign::Host));
        assert_eq!(checked(&names, "/", &[("host", "localhost:7317"), ("host", "evil.example")]), Err(Foreign::Host));
        assert_eq!(checked(&names, "http://evil.example/", &[("host", "localhost:7317")]), Err(Foreign::Host));
        for origin in ["http://localhost:7317", "http://127.0.0.1:7317", "https://adj.example.org"] {
            assert_eq!(checked(&names, "/", &[("host", "localhost:7317"), ("origin", origin)]), Ok(()), "{origin}");
        }
        for origin in ["null", "", "https://localhost:7317", "http://localhost", "http://adj.example.org", "https://evil.example"] {
            assert_eq!(checked(&names, "/", &[("host", "localhost:7317"), ("origin", origin)]), Err(Foreign::Origin), "{origin}");
        }
        let twice = [("host", "localhost:7317"), ("origin", "http://localhost:7317"), ("origin", "http://localhost:7317")];
        assert_eq!(checked(&names, "/", &twice), Err(Foreign::Origin));
    }

    #[test]
    fn default_port_may_be_left_out() {
        let names = OwnNames::new("127.0.0.1:80".parse().expect("an address"), None);
        assert_eq!(checked(&names, "/", &[("host", "localhost"), ("origin", "http://localhost")]), Ok(()));
    }
}
