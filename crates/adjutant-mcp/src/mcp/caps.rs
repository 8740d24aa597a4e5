//! How long a tool call may block, by client.
//!
//! Each client has its own timeout for tool calls, and few report it. A call that exceeds it is
//! lost to the model, so each wait ends a little earlier and returns a cursor or message id to
//! continue with. The table has the measured or documented timeouts of clients in their default
//! configuration:
//!
//! | client | allows | renewed by progress | we block |
//! |---|---|---|---|
//! | Claude Code | practically unlimited; 30 min without progress on stdio | idle limit only | 1,500 s with progress, 240 s without |
//! | Codex, goose | 300 s, hard | no | 240 s |
//! | Gemini CLI | 600 s, hard | no | 540 s |
//! | Qwen Code | 300 s idle | yes | 900 s with progress, 240 s without |
//! | Copilot CLI | 180 s | yes | 900 s with progress, 150 s without |
//! | opencode | 60 s | yes | 300 s with progress, 45 s without |
//! | Claude Desktop, Zed, kimi, cline, continue | 60 s, hard | no | 45 s |
//! | anything else | 60 s is the default of the TypeScript SDK | unknown | 45 s |
//!
//! A worker whose configuration Adjutant writes has a timeout of four hours, so that it blocks and
//! spends no tokens on polling. `--max-wait` overrides all of this. Clients report their names
//! themselves; the names affect nothing but these times.

use std::time::Duration;

/// For unknown clients: below the 60 s that most clients use by default.
pub const UNKNOWN: Duration = Duration::from_secs(45);
/// For a worker that Adjutant configured: a minute less than its four hours.
pub(crate) const OWN_WORKER: Duration = Duration::from_secs(4 * 3600 - 60);

struct Row {
    /// A prefix of `clientInfo.name`.
    name: &'static str,
    quiet_s: u64,
    with_progress_s: u64,
}

const fn row(name: &'static str, quiet_s: u64, with_progress_s: u64) -> Row {
    Row {
        name,
        quiet_s,
        with_progress_s,
    }
}

/// The first matching row counts.
const CLIENTS: [Row; 9] = [
    row("claude-code", 240, 1_500),
    row("codex", 240, 240),
    row("goose", 240, 240),
    row("gemini-cli", 540, 540),
    row("qwen-cli", 240, 900),
    row("copilot-cli", 150, 900),
    row("github-copilot", 150, 900),
    row("opencode", 45, 300),
    row("claude-ai", 45, 45),
];

/// How the limit for blocking calls on a connection is determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallCap {
    /// By the calling client.
    ByClient,
    /// The same on a connection that sends no progress.
    ByQuietClient,
    /// Fixed by `--max-wait`, or for a worker that Adjutant configured.
    Fixed(Duration),
}

impl CallCap {
    /// Returns how long a call of this client may block.
    #[must_use]
    pub(crate) fn for_call(self, client: Option<&str>, gets_progress: bool) -> Duration {
        match self {
            Self::Fixed(cap) => cap,
            Self::ByClient | Self::ByQuietClient => {
                let row = client
                    .and_then(|client| CLIENTS.iter().find(|row| client.starts_with(row.name)));
                let gets_progress = gets_progress && self == Self::ByClient;
                row.map_or(UNKNOWN, |row| {
                    Duration::from_secs(if gets_progress {
                        row.with_progress_s
                    } else {
                        row.quiet_s
                    })
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_client_gets_less_than_a_minute() {
        for client in [None, Some("mcp"), Some("Zed"), Some("kimi-code")] {
            assert_eq!(CallCap::ByClient.for_call(client, true), UNKNOWN);
        }
    }

    #[test]
    fn known_client_gets_its_own_cap_unless_one_is_fixed() {
        assert_eq!(
            CallCap::ByClient.for_call(Some("codex-mcp-client"), true),
            Duration::from_secs(240)
        );
        assert_eq!(
            CallCap::ByQuietClient.for_call(Some("claude-code"), true),
            Duration::from_secs(240)
        );
        assert_eq!(
            CallCap::ByClient.for_call(Some("opencode"), false),
            Duration::from_secs(45)
        );
        assert_eq!(
            CallCap::Fixed(Duration::from_secs(1)).for_call(Some("claude-code"), true),
            Duration::from_secs(1)
        );
    }
}
