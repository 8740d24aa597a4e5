//! The addresses of resources.

use crate::hub_client::decode_name;

/// The templates of all addresses: the template, its name, and what it is.
pub const TEMPLATES: [(&str, &str, &str); 3] = [
    (
        "run://{run}",
        "run",
        "A run: its state, result and open questions. `run` is its name or id.",
    ),
    (
        "log://{run}{?after}",
        "log",
        "A run's log: the last part, or what follows the position `after`.",
    ),
    (
        "chat://{chat}{?after}",
        "chat",
        "A chat: its newest messages, or those after the message `after`. `chat` is its number.",
    ),
];

/// What an address names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Run(String),
    Log { run: String, after: Option<u64> },
    Chat { chat: i64, after: Option<i64> },
}

impl Target {
    /// Parses an address.
    pub(super) fn parse(uri: &str) -> Option<Self> {
        let (scheme, rest) = uri.split_once("://")?;
        let (name, query) = rest
            .split_once('?')
            .map_or((rest, None), |(name, query)| (name, Some(query)));
        let name = decode_name(name).filter(|name| !name.is_empty() && !name.contains('/'))?;
        let after = query
            .map(|query| query.strip_prefix("after="))
            .map_or(Some(None), |after| after.map(Some))?;
        match scheme {
            "run" if after.is_none() => Some(Self::Run(name)),
            "log" => Some(Self::Log {
                run: name,
                after: parsed(after)?,
            }),
            "chat" => Some(Self::Chat {
                chat: name.parse().ok()?,
                after: parsed(after)?,
            }),
            _ => None,
        }
    }
}

/// Parses an optional position. `None`: it is malformed.
fn parsed<T: std::str::FromStr>(text: Option<&str>) -> Option<Option<T>> {
    match text {
        None | Some("") => Some(None),
        Some(text) => text.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_names_one_object() {
        assert_eq!(
            Target::parse("run://calm-otter"),
            Some(Target::Run("calm-otter".into()))
        );
        assert_eq!(
            Target::parse("log://calm-otter?after=7"),
            Some(Target::Log {
                run: "calm-otter".into(),
                after: Some(7)
            })
        );
        assert_eq!(
            Target::parse("log://a%2Db?after="),
            Some(Target::Log {
                run: "a-b".into(),
                after: None
            })
        );
        assert_eq!(
            Target::parse("chat://3?after=17"),
            Some(Target::Chat {
                chat: 3,
                after: Some(17)
            })
        );
        for bad in [
            "",
            "run://",
            "run:x",
            "run://x?after=1",
            "run://x/y",
            "run://x%2Fy",
            "log://x?after=-1",
            "log://x?grep=y",
            "chat://x",
            "file:///etc/passwd",
        ] {
            assert_eq!(Target::parse(bad), None, "{bad}");
        }
    }
}
