//! Tokens for callers over HTTP. Only the person manages them, on the hub's socket.

use super::Word;
use adjutant_core::token::TokenRole;
use serde::{Deserialize, Serialize};

/// Stores a new token, which the caller has made and the hub never sees.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    pub name: String,
    pub role: Word<TokenRole>,
    /// The client that the token acts as, or whose runs it reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The SHA-256 of the token, in hexadecimal.
    pub sha256: String,
}

/// Lists the tokens.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListTokens {
    /// Also those that were revoked.
    #[serde(default)]
    pub all: bool,
}

/// Revokes a token. Its connections are closed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RevokeToken {
    pub name: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TokenList {
    pub tokens: Vec<TokenView>,
}

/// A token, without the secret.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TokenView {
    pub name: String,
    pub role: Word<TokenRole>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    pub created_at: String,
    /// When it was last used, to the hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<String>,
    /// When the token of a browser expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// Permits one browser to sign in to the dashboard as the person. If the hub does not listen, it
/// listens from now on. The caller has made the code, of which the hub sees the hash. Only for the
/// person, on the hub's socket.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OpenDashboard {
    /// Where to listen. Default: 127.0.0.1:7317, or a free port if it is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// The SHA-256 of the code, in hexadecimal.
    pub sha256: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DashboardView {
    /// The base address at which the hub listens.
    pub url: String,
    /// How long the code is valid, in seconds.
    pub code_valid_s: u64,
}
