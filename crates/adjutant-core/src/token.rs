//! Access tokens for callers over HTTP: what their roles permit.

use crate::{ClientName, Denied, Principal, Time, words};

/// How the names of the tokens of browsers begin. No other token has such a name.
pub const BROWSER_PREFIX: &str = "ui-";
/// How the names of the tokens of peers begin. No other token has such a name.
pub const PEER_PREFIX: &str = "peer-";
/// How the names of the tokens of launched runners begin. No other token has such a name.
pub const LAUNCHED_PREFIX: &str = "launched-";
/// How long the token of a browser is valid.
const BROWSER_MS: i64 = 12 * 60 * 60 * 1000;

/// How long the token of a page stays valid after the page was left: for its last calls, and for a
/// reload.
const LEFT_MS: i64 = 60 * 1000;

/// Returns when a token expires, if its page was left at `left_at`. `None`: it is valid until it is
/// revoked.
#[must_use]
pub fn expires_at(name: &str, created_at: Time, left_at: Option<Time>) -> Option<Time> {
    let latest = Time(created_at.0.saturating_add(BROWSER_MS));
    let end = left_at.map_or(latest, |left| {
        latest.min(Time(left.0.saturating_add(LEFT_MS)))
    });
    name.starts_with(BROWSER_PREFIX).then_some(end)
}

/// The role of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenRole {
    /// Acts as the person.
    Person,
    /// Acts as one client.
    Client,
    /// Reads what its client may see, or without one what the person may see.
    ReadOnly,
    /// Acts as another hub, which reaches only the chats that are shared with it.
    Peer,
    /// Starts attempts on another machine, and makes no other call.
    Runner,
}

words!(TokenRole { Person = "person", Client = "client", ReadOnly = "read-only", Peer = "peer", Runner = "runner" });

/// How a call is served to tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallEffect {
    /// It changes nothing.
    Reads,
    /// It can change state.
    Changes,
    /// It is for processes of this machine: workers, supervisors, and commands about the hub and
    /// its tokens.
    LocalOnly,
}

/// The decision about a token and a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenVerdict {
    Yes,
    /// The token may only read.
    ReadOnly,
    /// The call does not exist for tokens.
    NotFound,
}

/// Whom a token acts as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenIdentity {
    role: TokenRole,
    client: Option<ClientName>,
}

impl TokenIdentity {
    /// Combines a role with a client.
    ///
    /// # Errors
    /// The role `client` needs a client; `person` and `runner` take none.
    pub fn new(role: TokenRole, client: Option<ClientName>) -> Result<Self, Denied> {
        match (role, &client) {
            (TokenRole::Client, None) => Err(Denied::invalid(
                "client",
                "a token of role client needs the client's name",
            )),
            (TokenRole::Person | TokenRole::Peer | TokenRole::Runner, Some(_)) => {
                Err(Denied::invalid(
                    "client",
                    format!("a token of role {} has no client", role.word()),
                ))
            }
            _ => Ok(Self { role, client }),
        }
    }

    #[must_use]
    pub fn role(&self) -> TokenRole {
        self.role
    }

    #[must_use]
    pub fn client(&self) -> Option<&ClientName> {
        self.client.as_ref()
    }

    /// Returns the principal that calls with the token act as. `None`: it is the token of a peer or
    /// a runner, which makes no calls of the contract.
    #[must_use]
    pub fn principal(&self) -> Option<Principal> {
        match self.role {
            TokenRole::Peer | TokenRole::Runner => None,
            TokenRole::Person | TokenRole::Client | TokenRole::ReadOnly => Some(
                self.client
                    .clone()
                    .map_or(Principal::Person, Principal::Client),
            ),
        }
    }

    /// Decides whether the token may make a call. What the principal may do is decided separately.
    #[must_use]
    pub fn may(&self, effect: CallEffect) -> TokenVerdict {
        match (self.role, effect) {
            (_, CallEffect::LocalOnly) | (TokenRole::Peer | TokenRole::Runner, _) => {
                TokenVerdict::NotFound
            }
            (TokenRole::ReadOnly, CallEffect::Changes) => TokenVerdict::ReadOnly,
            (TokenRole::ReadOnly, CallEffect::Reads)
            | (TokenRole::Person | TokenRole::Client, CallEffect::Reads | CallEffect::Changes) => {
                TokenVerdict::Yes
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_of_browsers_expire() {
        assert_eq!(
            expires_at("ui-1", Time(1_000), None),
            Some(Time(43_201_000))
        );
        assert_eq!(
            expires_at("ui-1", Time(1_000), Some(Time(5_000))),
            Some(Time(65_000))
        );
        assert_eq!(
            expires_at("ui-1", Time(1_000), Some(Time(43_200_000))),
            Some(Time(43_201_000))
        );
        assert_eq!(expires_at("ci", Time(1_000), None), None);
    }

    #[test]
    fn read_only_token_changes_nothing() {
        let client = ClientName::parse("/work/a").expect("a name");
        for role in TokenRole::ALL {
            for client in [None, Some(client.clone())] {
                let Ok(identity) = TokenIdentity::new(role, client.clone()) else {
                    continue;
                };
                if matches!(role, TokenRole::Peer | TokenRole::Runner) {
                    assert_eq!(identity.principal(), None);
                    assert!(
                        [
                            CallEffect::Reads,
                            CallEffect::Changes,
                            CallEffect::LocalOnly
                        ]
                        .iter()
                        .all(|effect| identity.may(*effect) == TokenVerdict::NotFound)
                    );
                    continue;
                }
                assert_eq!(
                    identity.may(CallEffect::Reads),
                    TokenVerdict::Yes,
                    "{identity:?}"
                );
                assert_eq!(
                    identity.may(CallEffect::LocalOnly),
                    TokenVerdict::NotFound,
                    "{identity:?}"
                );
                assert_eq!(
                    identity.may(CallEffect::Changes) == TokenVerdict::Yes,
                    role != TokenRole::ReadOnly,
                    "{identity:?}"
                );
                assert_eq!(
                    identity.principal() == Some(Principal::Person),
                    client.is_none(),
                    "{identity:?}"
                );
            }
        }
        assert!(TokenIdentity::new(TokenRole::Client, None).is_err());
        assert!(TokenIdentity::new(TokenRole::Person, Some(client)).is_err());
    }
}
