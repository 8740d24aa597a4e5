//! Launching runners on demand: how many runs need one, and when a launched runner has ended.

use crate::token::LAUNCHED_PREFIX;
use std::time::Duration;

/// How many launched runners a pool can have.
pub const LAUNCHED_MAX: u64 = 32;
/// How long a launched runner may take to join, unless the pool sets another limit.
pub const JOIN_TIMEOUT_DEFAULT_MS: i64 = 10 * 60 * 1000;
/// The pause after a launched runner that got no work. It doubles with each further one.
const PAUSE: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(5 * 60);

/// Returns the name of the n-th launched runner of a pool, which is also that of its token.
#[must_use]
pub fn launched_name(pool: &str, n: u64) -> String {
    format!("{LAUNCHED_PREFIX}{pool}-{n}")
}

/// Returns the pool of a launched runner. `None`: this is the name of another token.
#[must_use]
pub fn launched_pool(name: &str) -> Option<&str> {
    let (pool, n) = name.strip_prefix(LAUNCHED_PREFIX)?.rsplit_once('-')?;
    n.bytes().all(|byte| byte.is_ascii_digit()).then_some(pool)
}

/// What is known about a launched runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchedFacts {
    /// It has a session.
    pub is_connected: bool,
    /// It has attempts that are not lost.
    pub has_attempts: bool,
    /// Its token was used.
    pub has_joined: bool,
    /// It has announced its exit, or its command has failed.
    pub has_ended: bool,
    /// The time since the launch, or since the start of this hub if another one launched it.
    pub since: Duration,
    /// How long it may take to join.
    pub join_within: Duration,
    /// How long this hub waits for a runner that it does not know. `None`: it has known this one.
    pub known_within: Option<Duration>,
}

/// The state of a launched runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchedState {
    /// It has not joined. After this time, it counts as ended.
    Starting(Duration),
    Connected,
    /// It has no session but may join again. After this time, it counts as ended. `None`: after the
    /// ends of its attempts.
    CutOff(Option<Duration>),
    Ended,
}

/// Returns the state of a launched runner.
#[must_use]
pub fn launched_state(facts: &LaunchedFacts) -> LaunchedState {
    let LaunchedFacts {
        is_connected,
        has_attempts,
        has_joined,
        has_ended,
        since,
        join_within,
        known_within,
    } = *facts;
    if is_connected {
        return LaunchedState::Connected;
    }
    if has_attempts {
        return LaunchedState::CutOff(None);
    }
    let left = |whole: Duration| whole.checked_sub(since).filter(|left| !left.is_zero());
    if has_ended {
        return LaunchedState::Ended;
    }
    if !has_joined {
        return left(join_within).map_or(LaunchedState::Ended, LaunchedState::Starting);
    }
    known_within
        .and_then(left)
        .map_or(LaunchedState::Ended, |left| {
            LaunchedState::CutOff(Some(left))
        })
}

/// The runs of a pool that wait, and its runners.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demand {
    /// Queued runs that could start now if a runner had a free slot.
    pub waiting: u64,
    /// Free slots of connected runners.
    pub free: u64,
    /// Launched runners that have not joined. Each counts as one slot, because how many it will
    /// have is not known.
    pub starting: u64,
    /// All launched runners.
    pub launched: u64,
    pub launched_max: u64,
}

impl Demand {
    /// Returns how many runners to launch.
    #[must_use]
    pub fn launches(self) -> u64 {
        let Self {
            waiting,
            free,
            starting,
            launched,
            launched_max,
        } = self;
        waiting
            .saturating_sub(free)
            .saturating_sub(starting)
            .min(launched_max.saturating_sub(launched))
    }
}

/// Returns the pause before the next launch, after so many launched runners in a row that got no
/// work.
#[must_use]
pub fn pause_after(useless: u32) -> Duration {
    match useless {
        0 => Duration::ZERO,
        _ => PAUSE
            .saturating_mul(1 << (useless - 1).min(16))
            .min(PAUSE_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn name_of_a_launched_runner_has_its_pool() {
        assert_eq!(launched_name("gpu-2", 1), "launched-gpu-2-1");
        assert_eq!(launched_pool("launched-gpu-2-1"), Some("gpu-2"));
        for other in ["gpu-1", "launched-gpu", "launched-gpu-x"] {
            assert_eq!(launched_pool(other), None, "{other}");
        }
    }

    #[test]
    fn launched_runner_ends_when_it_does_not_join_or_is_cut_off() {
        let new = LaunchedFacts {
            is_connected: false,
            has_attempts: false,
            has_joined: false,
            has_ended: false,
            since: S,
            join_within: S * 10,
            known_within: None,
        };
        assert_eq!(launched_state(&new), LaunchedState::Starting(S * 9));
        assert_eq!(
            launched_state(&LaunchedFacts {
                since: S * 10,
                ..new
            }),
            LaunchedState::Ended
        );
        assert_eq!(
            launched_state(&LaunchedFacts {
                has_ended: true,
                ..new
            }),
            LaunchedState::Ended,
            "its command has failed"
        );
        let joined = LaunchedFacts {
            has_joined: true,
            is_connected: true,
            ..new
        };
        assert_eq!(
            launched_state(&LaunchedFacts {
                since: S * 1000,
                has_ended: true,
                ..joined
            }),
            LaunchedState::Connected
        );
        let cut_off = LaunchedFacts {
            is_connected: false,
            ..joined
        };
        assert_eq!(launched_state(&cut_off), LaunchedState::Ended);
        assert_eq!(
            launched_state(&LaunchedFacts {
                has_attempts: true,
                has_ended: true,
                ..cut_off
            }),
            LaunchedState::CutOff(None)
        );
        let of_the_hub_before = LaunchedFacts {
            known_within: Some(S * 5),
            ..cut_off
        };
        assert_eq!(
            launched_state(&of_the_hub_before),
            LaunchedState::CutOff(Some(S * 4))
        );
        assert_eq!(
            launched_state(&LaunchedFacts {
                since: S * 5,
                ..of_the_hub_before
            }),
            LaunchedState::Ended
        );
    }

    #[test]
    fn pause_doubles_up_to_a_limit() {
        assert_eq!(
            [0, 1, 2, 3, 7, u32::MAX].map(pause_after),
            [Duration::ZERO, S * 5, S * 10, S * 20, S * 300, S * 300]
        );
    }

    proptest! {
        #[test]
        fn launches_never_exceed_what_waits_or_the_limit(waiting in 0..9_u64, free in 0..9_u64, starting in 0..9_u64, more in 0..9_u64, launched_max in 0..9_u64) {
            let demand = Demand { waiting, free, starting, launched: starting + more, launched_max };
            let launches = demand.launches();
            prop_assert!(launches == 0 || launches + free + starting <= waiting && launches + demand.launched <= launched_max);
            let is_short = waiting > free + starting && demand.launched < launched_max;
            prop_assert_eq!(launches > 0, is_short);
        }
    }
}
