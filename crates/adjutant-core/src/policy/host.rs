//! Patterns for network hosts.

use std::fmt;

/// A pattern for hosts: a name, `*.name` for its subdomains, or `*`; with a port, with `:*` for any
/// port, or for the default one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    /// Without `*.`, in lower case. Empty: any host.
    name: String,
    covers_subdomains: bool,
    port: Port,
}

/// A port of a pattern or an address. `Any` in an address: it is not known which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Port {
    /// The default of the scheme.
    Default,
    Any,
    Number(u16),
}

/// The host and port of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Host {
    name: String,
    port: Port,
}

fn is_name(text: &str) -> bool {
    let is_v6 = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    match is_v6 {
        Some(v6) => {
            !v6.is_empty()
                && v6
                    .chars()
                    .all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.')
        }
        None => {
            text.split('.').all(|label| !label.is_empty())
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
        }
    }
}

fn split_port(text: &str) -> Option<(&str, Port)> {
    let after_name = text.rfind(']').unwrap_or(0);
    let Some(at) = text[after_name..].rfind(':') else {
        return Some((text, Port::Default));
    };
    let port = match &text[after_name + at + 1..] {
        "*" => Port::Any,
        number => Port::Number(number.parse().ok()?),
    };
    Some((&text[..after_name + at], port))
}

/// Returns the host of an address about which there can be no doubt: no user name, no escapes.
fn certain_host(url: &str) -> Option<Host> {
    if !url.is_ascii()
        || url
            .chars()
            .any(|c| c.is_ascii_control() || c == ' ' || c == '\\')
    {
        return None;
    }
    let (scheme, rest) = url.split_once("://")?;
    let default = match scheme.to_ascii_lowercase().as_str() {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (name, port) = split_port(authority)?;
    let name = name.strip_suffix('.').unwrap_or(name);
    is_name(name).then(|| Host {
        name: name.to_ascii_lowercase(),
        port: if port == Port::Number(default) {
            Port::Default
        } else {
            port
        },
    })
}

/// Returns the host that an address may name, after a user name if there is one.
fn possible_name(text: &str) -> String {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = rest
        .trim_start_matches('/')
        .split(['/', '?', '#', '\\'])
        .next()
        .unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let end = if host.starts_with('[') {
        host.find(']').map_or(host.len(), |at| at + 1)
    } else {
        host.find(':').unwrap_or(host.len())
    };
    host[..end].trim_end_matches('.').to_ascii_lowercase()
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            covers_subdomains,
            port,
        } = self;
        f.write_str(match (name.is_empty(), covers_subdomains) {
            (true, _) => "*",
            (false, true) => "*.",
            (false, false) => "",
        })?;
        f.write_str(name)?;
        match port {
            Port::Default => Ok(()),
            Port::Any => f.write_str(":*"),
            Port::Number(port) => write!(f, ":{port}"),
        }
    }
}

/// A text is not a pattern for hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a host: use a name such as example.org, *.example.org, example.org:8080 or example.org:*"
)]
pub struct HostPatternError(String);

impl HostPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// The text is not a usable pattern.
    pub fn parse(text: &str) -> Result<Self, HostPatternError> {
        let unusable = || HostPatternError(text.to_owned());
        if text == "*" {
            return Ok(Self {
                name: String::new(),
                covers_subdomains: true,
                port: Port::Any,
            });
        }
        let (name, port) = split_port(text).ok_or_else(unusable)?;
        let (name, covers_subdomains) = name
            .strip_prefix("*.")
            .map_or((name, false), |name| (name, true));
        if !is_name(name) {
            return Err(unusable());
        }
        Ok(Self {
            name: name.to_ascii_lowercase(),
            covers_subdomains,
            port,
        })
    }

    fn is_any(&self) -> bool {
        self.name.is_empty()
    }

    /// Returns whether an address certainly matches: the same port, and a subdomain only for `*.`.
    #[must_use]
    pub fn matches(&self, url: &str) -> bool {
        let Some(Host { name, port }) = certain_host(url) else {
            return false;
        };
        if self.is_any() {
            return true;
        }
        let is_same = if self.covers_subdomains {
            self.covers(&name) && name != self.name
        } else {
            name == self.name
        };
        let is_default = |given: u16| {
            (given == 80 && url.to_ascii_lowercase().starts_with("http:"))
                || (given == 443 && url.to_ascii_lowercase().starts_with("https:"))
        };
        let fits = match (self.port, port) {
            (Port::Any, _) => true,
            // An address whose port is not known can be at any.
            (_, Port::Any) => false,
            (Port::Number(number), Port::Default) => is_default(number),
            (pattern, port) => pattern == port,
        };
        is_same && fits
    }

    /// Returns whether an address or a word may name the host or a subdomain, at any port.
    #[must_use]
    pub(crate) fn may_match(&self, text: &str) -> bool {
        self.is_any() || self.covers(&possible_name(text))
    }

    fn covers(&self, name: &str) -> bool {
        name == self.name
            || name
                .strip_suffix(&self.name)
                .is_some_and(|rest| rest.ends_with('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, url: &str) -> bool {
        HostPattern::parse(pattern).expect("a pattern").matches(url)
    }

    #[test]
    fn host_matches_exactly() {
        for (pattern, url) in [
            ("example.org", "https://example.org/x?y"),
            ("example.org", "http://EXAMPLE.org:80"),
            ("example.org", "https://example.org./"),
            ("example.org:8080", "http://example.org:8080/"),
            ("example.org:443", "https://example.org/"),
            ("*.example.org", "https://a.b.example.org/"),
            ("*", "https://anything.net:99/"),
            ("*", "https://anything.net:*/"),
            ("example.org:*", "https://example.org:99/"),
            ("example.org:*", "https://example.org/"),
            ("*.example.org:*", "https://a.example.org:*/"),
            ("[::1]", "http://[::1]/"),
            ("127.0.0.1", "http://127.0.0.1/"),
        ] {
            assert!(matches(pattern, url), "{pattern} {url}");
        }
        for (pattern, url) in [
            ("example.org", "https://evil.org/example.org"),
            ("example.org", "https://example.org.evil.org/"),
            ("example.org", "https://example.org@evil.org/"),
            ("example.org", "https://evil.org@example.org/"),
            ("example.org", "https://evil.org#@example.org/"),
            ("example.org", "https://evil.org\\@example.org/"),
            ("example.org", "https://a.example.org/"),
            ("example.org", "https://notexample.org/"),
            ("example.org", "https://example.org:8443/"),
            ("example.org", "ftp://example.org/"),
            ("example.org", "example.org"),
            ("example.org", "https://ex\u{e4}mple.org/"),
            ("example.org", "https://example%2eorg/"),
            ("example.org", "https://example.org:99999/"),
            ("*.example.org", "https://example.org/"),
            ("*.example.org", "https://xexample.org/"),
            ("*", "https://u@evil.org/"),
            ("example.org:443", "http://example.org/"),
            ("example.org", "https://example.org:*/"),
            ("example.org:443", "https://example.org:*/"),
            ("example.org:*", "https://a.example.org:99/"),
        ] {
            assert!(!matches(pattern, url), "{pattern} {url}");
        }
    }

    #[test]
    fn refused_host_is_found_at_any_port() {
        let pattern = HostPattern::parse("example.org").expect("a pattern");
        for text in [
            "https://example.org:99/",
            "example.org",
            "u:p@example.org:1",
            "https://A.Example.org./x",
            "//example.org/x",
            "ftp://example.org",
        ] {
            assert!(pattern.may_match(text), "{text}");
        }
        assert!(
            !pattern.may_match("https://notexample.org/")
                && !pattern.may_match("https://x.net/example.org")
        );
    }

    #[test]
    fn unusable_hosts_are_refused() {
        for bad in [
            "",
            "https://example.org",
            "a b",
            "u@example.org",
            "*.",
            "a.*.b",
            "example.org:x",
            "example.org:**",
            "example..org",
            "exa/mple",
        ] {
            assert!(HostPattern::parse(bad).is_err(), "{bad}");
        }
    }
}
