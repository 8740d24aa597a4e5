//! How many runs and connections the limit on open files allows.

/// The minimum number of descriptors: enough for the hub, one run and the person.
const DESCRIPTORS_MIN: u64 = 96;
/// Descriptors that the hub itself uses, with some to spare.
const DESCRIPTORS_OF_HUB: u64 = 64;
/// Descriptors for a live run, without the connections of its supervisor.
const DESCRIPTORS_OF_RUN: u64 = 8;
/// Descriptors for a connection: the socket and its peer.
const DESCRIPTORS_OF_CONNECTION: u64 = 2;
/// The maximum number of connections, however many descriptors are available.
const CONNECTIONS_MAX: u64 = 4096;

/// How many runs and connections the limit on descriptors allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Capacity {
    pub(super) live_runs_max: u64,
    pub(super) connections_max: usize,
}

/// The limit on descriptors is too low for a hub.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "only {descriptors} open files are allowed here (ulimit -Hn), and the hub needs {DESCRIPTORS_MIN}: raise that limit"
)]
pub(super) struct TooFewDescriptors {
    descriptors: u64,
}

impl Capacity {
    pub(super) fn of(descriptors: u64) -> Result<Self, TooFewDescriptors> {
        if descriptors < DESCRIPTORS_MIN {
            return Err(TooFewDescriptors { descriptors });
        }
        let half = (descriptors - DESCRIPTORS_OF_HUB) / 2;
        let connections = (half / DESCRIPTORS_OF_CONNECTION).min(CONNECTIONS_MAX);
        Ok(Self {
            live_runs_max: (half / DESCRIPTORS_OF_RUN).max(1),
            connections_max: usize::try_from(connections).unwrap_or(usize::MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_limit_is_refused_and_a_high_one_is_shared() {
        let refused = Capacity::of(95).expect_err("too few").to_string();
        assert!(refused.starts_with("only 95 open files are allowed here"));
        let lowest = Capacity::of(96).expect("enough");
        assert_eq!((lowest.live_runs_max, lowest.connections_max), (2, 8));
        let usual = Capacity::of(1024).expect("enough");
        assert_eq!((usual.live_runs_max, usual.connections_max), (60, 240));
        let unlimited = Capacity::of(u64::MAX).expect("enough");
        assert_eq!(unlimited.connections_max, 4096, "they have a maximum");
    }
}
