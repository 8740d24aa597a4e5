//! The calls that a standby hub passes to the leader.

/// The prefix of the paths.
pub const PASSED: &str = "/hub";
/// The header with the token of the hub that passes a call.
pub const HUB_TOKEN: &str = "adj-hub-token";
