//! The calls that a hub which stands by passes to the one that leads.

/// The prefix of the paths.
pub const PASSED: &str = "/hub";
/// The header with the token of the hub that passes a call.
pub const HUB_TOKEN: &str = "adj-hub-token";
