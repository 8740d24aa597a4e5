//! Pools: named limits on the number of live runs. Decides which queued run starts next, why a run
//! waits, and when it is likely to start.

use crate::limits::NAME_BYTES_MAX;
use crate::tree::Rank;
use crate::words;
use std::collections::BTreeMap;
use std::fmt;

/// Maximum number of slots of a pool.
pub const SLOTS_MAX: u64 = 10_000;

/// Maximum number of build jobs of a pool.
pub const BUILD_JOBS_MAX: u64 = 10_000;

/// A change of a pool that is an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolChange {
    Paused,
    Resumed,
    Slots { before: u64, now: u64 },
}

impl PoolChange {
    /// Describes the change in one line.
    #[must_use]
    pub fn text(self, pool: &PoolName) -> String {
        match self {
            Self::Paused => format!("pool {pool} is paused"),
            Self::Resumed => format!("pool {pool} is resumed"),
            Self::Slots { before, now: 1 } => format!("pool {pool} has 1 slot, before: {before}"),
            Self::Slots { before, now } => format!("pool {pool} has {now} slots, before: {before}"),
        }
    }
}

/// Compares the slots and the pause of a pool before and now, and returns the changes.
#[must_use]
pub fn changes(
    (slots_before, was_paused): (u64, bool),
    (slots, is_paused): (u64, bool),
) -> Vec<PoolChange> {
    let slots = (slots != slots_before).then_some(PoolChange::Slots {
        before: slots_before,
        now: slots,
    });
    let paused = match (was_paused, is_paused) {
        (false, true) => Some(PoolChange::Paused),
        (true, false) => Some(PoolChange::Resumed),
        _ => None,
    };
    slots.into_iter().chain(paused).collect()
}

/// Returns the number of build jobs for one run of a pool with `slots` slots, so that all its runs
/// together have at most `jobs`. At least 1.
#[must_use]
pub fn build_jobs_of_run(jobs: u64, slots: u64) -> u64 {
    (jobs / slots.max(1)).max(1)
}
/// Maximum number of runs that one run may wait for.
pub const AFTER_MAX: usize = 64;
/// Minimum number of measured runs for predicting a start time.
const MEASURED_MIN: usize = 3;
/// Maximum number of runs before a queued run that are counted. No start time is predicted beyond.
pub const AHEAD_COUNTED_MAX: u32 = 1_000;

/// The name of a pool: 1 to 50 characters of `[a-z0-9_-]`, starting with a letter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolName(String);

/// The error for an invalid pool name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a pool name: use 1 to {NAME_BYTES_MAX} characters of a-z, 0-9, _ and -, starting with a letter"
)]
pub struct PoolNameError;

impl PoolName {
    /// The name of the pool that always exists.
    pub const DEFAULT: &'static str = "default";

    /// Parses the name of a pool.
    ///
    /// # Errors
    /// The text is not a valid name.
    pub fn parse(text: &str) -> Result<Self, PoolNameError> {
        let well_formed = (1..=NAME_BYTES_MAX).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_');
        if well_formed {
            Ok(Self(text.to_owned()))
        } else {
            Err(PoolNameError)
        }
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for PoolName {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The limits of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLimits {
    pub slots: u64,
    /// Whether a run keeps its slot while it waits for an answer.
    pub keep_slot: bool,
    /// Whether no run of the pool starts. Live runs continue.
    pub is_paused: bool,
    pub place: PoolTarget,
}

/// Maximum length of the name or value of a runner's label, in bytes.
const LABEL_BYTES_MAX: usize = 63;

/// Returns whether a text can be the name or value of a runner's label: letters, digits, `.`, `_`,
/// `-` and `/`.
#[must_use]
pub fn is_label_part(text: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'/');
    (1..=LABEL_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

/// Where the runs of a pool start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PoolTarget {
    /// On the hub's own machine.
    #[default]
    Here,
    /// On runners, of which at least one is connected.
    Runners,
    /// On runners, none of which takes a run now: the loads of their machines delay starts, or
    /// their homes cannot be written.
    RunnersHeld(QueueReason),
    /// On runners, of which none is connected.
    NoRunner,
}

impl PoolTarget {
    /// Returns whether its runs start on runners.
    #[must_use]
    pub fn is_on_runners(self) -> bool {
        self != Self::Here
    }
}

/// The number of live runs of one pool or of all pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotUsage {
    pub live: u64,
    /// Live runs that have released their slot while they wait.
    pub lent: u64,
}

impl SlotUsage {
    /// Returns the number of occupied slots.
    #[must_use]
    pub fn used(self) -> u64 {
        self.live.saturating_sub(self.lent)
    }

    /// Returns whether a run of this rank may use one more of these slots. An optional run does not
    /// use a released slot.
    #[must_use]
    pub fn has_slot(self, slots: u64, rank: Rank) -> bool {
        let used = if rank == Rank::SPARE {
            self.live
        } else {
            self.used()
        };
        used < slots
    }
}

/// A queued run that can start: the first of its owner and agent in its pool and rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    pub rank: Rank,
    /// Live runs of its owner in its pool.
    pub owner_live: u64,
    /// The sequence number of the event of the last start of its owner's runs in its pool.
    pub owner_started: Option<i64>,
    /// The order of dispatch.
    pub no: i64,
}

impl Candidate {
    /// Returns the sort key of candidates: rank, then the number of the owner's live runs, then the
    /// time of the owner's last start, then the order of dispatch.
    fn turn(&self) -> (Rank, u64, Option<i64>, i64) {
        (self.rank, self.owner_live, self.owner_started, self.no)
    }
}

/// Returns the candidate that starts next.
#[must_use]
pub fn next_start(candidates: &[Candidate]) -> Option<&Candidate> {
    candidates.iter().min_by_key(|candidate| candidate.turn())
}

/// The reason why a queued run waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QueueReason {
    /// Other runs start first.
    Turn,
    /// Its pool has no free slot.
    Slot,
    /// The hub's limit of live runs is reached.
    LiveLimit,
    /// Its pool is paused.
    PoolPaused,
    /// The configuration no longer has its pool.
    PoolRemoved,
    /// No runner that serves its pool is connected.
    NoRunner,
    /// Its dependencies have not ended.
    After,
    /// A dependency has failed.
    AfterFailed,
    /// Its agent has reached its usage limit.
    Quota,
    /// Other tasks of the machine wait for memory.
    MemoryPressure,
    /// Other tasks of the machine wait for a CPU.
    CpuPressure,
    /// Less memory is free than runs of its agent usually use.
    FreeMemory,
    /// Not enough ports are free.
    Ports,
    /// No runner can write to its home.
    RunnerStorage,
}

words!(QueueReason {
    Turn = "turn",
    Slot = "slot",
    LiveLimit = "live_limit",
    PoolPaused = "pool_paused",
    PoolRemoved = "pool_removed",
    NoRunner = "no_runner",
    After = "after",
    AfterFailed = "after_failed",
    Quota = "quota",
    MemoryPressure = "memory_pressure",
    CpuPressure = "cpu_pressure",
    FreeMemory = "free_memory",
    Ports = "ports",
    RunnerStorage = "runner_storage",
});

/// The data about a queued run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued {
    pub rank: Rank,
    /// The number of open dependencies, and of failed ones.
    pub after_open: u64,
    pub after_failed: u64,
    /// The number of runs that it waits for only because of their ports.
    pub after_ports: u64,
    /// Whether its agent has reached a usage limit.
    pub is_limited: bool,
    /// `None`: the configuration does not have its pool.
    pub pool: Option<PoolLimits>,
    pub in_pool: SlotUsage,
    pub in_all: SlotUsage,
    /// The overall limit.
    pub live_max: u64,
    /// The reason of a delay because of the machine's load.
    pub pressure: Option<QueueReason>,
}

/// Returns the reason why a queued run waits.
#[must_use]
pub fn queue_reason(run: &Queued) -> QueueReason {
    let Queued {
        rank,
        after_open,
        after_failed,
        after_ports,
        is_limited,
        pool,
        in_pool,
        in_all,
        live_max,
        pressure,
    } = *run;
    match pool {
        _ if after_failed > 0 => QueueReason::AfterFailed,
        _ if after_open > after_ports => QueueReason::After,
        _ if after_open > 0 => QueueReason::Ports,
        None => QueueReason::PoolRemoved,
        Some(pool) if pool.is_paused => QueueReason::PoolPaused,
        Some(pool) if pool.place == PoolTarget::NoRunner => QueueReason::NoRunner,
        Some(_) if is_limited => QueueReason::Quota,
        Some(pool) if !in_pool.has_slot(pool.slots, rank) => QueueReason::Slot,
        Some(PoolLimits {
            place: PoolTarget::RunnersHeld(reason),
            ..
        }) => reason,
        // The other limits are those of the hub's own machine.
        Some(pool) if pool.place.is_on_runners() => QueueReason::Turn,
        Some(_) if !in_all.has_slot(live_max, rank) => QueueReason::LiveLimit,
        Some(_) => pressure.unwrap_or(QueueReason::Turn),
    }
}

/// The queued runs of one pool that start before a given one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ahead {
    /// How far each number was counted, at least 1. A number that is as large may be larger.
    pub counted_max: u64,
    /// The number of runs with a lower rank number, which start first.
    pub of_lower_rank: u64,
    /// The number of runs of its owner and rank that were dispatched before.
    pub of_owner: u64,
    /// The number of runs of its rank of each other owner.
    pub of_others: Vec<u64>,
}

/// The place of a queued run in its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueuePosition {
    /// From 1.
    At(u64),
    /// At least this many runs start before it.
    Behind(u64),
}

/// Returns the place of a run in its pool. Owners alternate, so each other owner starts about as
/// many runs before it as its own owner.
#[must_use]
pub fn queue_place(ahead: &Ahead) -> QueuePosition {
    let Ahead {
        counted_max,
        of_lower_rank,
        of_owner,
        of_others,
    } = ahead;
    // If it is larger, so is the place. Of the others, no more than this number count.
    if of_lower_rank.max(of_owner) >= counted_max {
        return QueuePosition::Behind(*counted_max);
    }
    QueuePosition::At(
        1 + of_lower_rank
            + of_owner
            + of_others
                .iter()
                .map(|count| (*count).min(*of_owner))
                .sum::<u64>(),
    )
}

/// Predicts the time until a run at this place starts, in milliseconds, from the active times of
/// ended runs of the pool and the expected remaining time of its live runs. A live run without an
/// estimate counts with the measured mean less its time so far. `None`: there is too little data.
#[must_use]
pub fn likely_start_ms(
    place: u64,
    slots: u64,
    measured_ms: &[i64],
    live: &[LiveTime],
) -> Option<i64> {
    let mean_ms = (measured_ms.len() >= MEASURED_MIN)
        .then(|| measured_ms.iter().sum::<i64>() / i64::try_from(measured_ms.len()).unwrap_or(1));
    if place == 0 || place > u64::from(AHEAD_COUNTED_MAX) || slots == 0 {
        return None;
    }
    // The times at which slots become free, each with the number of slots.
    let mut free: BTreeMap<i64, u64> = BTreeMap::new();
    let live_max = usize::try_from(slots).unwrap_or(usize::MAX);
    for one in live.iter().take(live_max) {
        let expected = one.estimate_ms.or(mean_ms)?;
        *free
            .entry(expected.saturating_sub(one.active_ms).max(0))
            .or_default() += 1;
    }
    let idle = slots.saturating_sub(live.len() as u64);
    if idle > 0 {
        *free.entry(0).or_default() += idle;
    }
    for turn in 1..=place {
        let at = *free.first_key_value()?.0;
        if turn == place {
            return Some(at);
        }
        if let Some(count) = free.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                free.remove(&at);
            }
        }
        *free.entry(at.saturating_add(mean_ms?)).or_default() += 1;
    }
    None
}

/// The time of a live run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveTime {
    pub active_ms: i64,
    pub estimate_ms: Option<i64>,
}

/// The outcome of a dependency that allows a run to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AfterEnd {
    #[default]
    Success,
    Any,
    /// Any outcome, because the other run has ports that this one needs. Only the hub adds such a
    /// dependency.
    Ports,
}

words!(AfterEnd { Success = "success", Any = "any", Ports = "ports" });

/// The effect of a failed dependency on a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AfterFailed {
    #[default]
    Cancel,
    /// The run stays in the queue until it is resumed, or until a retry of the failed dependency
    /// succeeds.
    Hold,
}

words!(AfterFailed { Cancel = "cancel", Hold = "hold" });

/// The state of a dependency between two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AfterState {
    Open,
    Met,
    Failed,
}

words!(AfterState { Open = "open", Met = "met", Failed = "failed" });

/// Returns the state of a dependency after its run has ended.
#[must_use]
pub fn after_end(on: AfterEnd, has_succeeded: bool) -> AfterState {
    if has_succeeded || on != AfterEnd::Success {
        AfterState::Met
    } else {
        AfterState::Failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::{Independence, Priority};
    use proptest::prelude::*;

    fn rank(number: u8) -> Rank {
        Rank::from_number(number).expect("a rank")
    }

    #[test]
    fn confusing_pool_names_are_refused() {
        for text in ["", "-x", "GPU", "a b", "a/b", "ä", "1a", &"a".repeat(51)] {
            assert!(PoolName::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(
            PoolName::parse("gpu_2-b")
                .map(|name| name.to_string())
                .as_deref(),
            Ok("gpu_2-b")
        );
    }

    #[test]
    fn start_order_is_rank_then_owner_then_dispatch() {
        let base = Candidate {
            rank: rank(1),
            owner_live: 1,
            owner_started: Some(5),
            no: 3,
        };
        let earlier = [
            Candidate {
                rank: rank(0),
                owner_live: 9,
                owner_started: Some(9),
                no: 9,
            },
            Candidate {
                owner_live: 0,
                owner_started: Some(9),
                no: 9,
                ..base
            },
            Candidate {
                owner_started: Some(4),
                no: 9,
                ..base
            },
            Candidate {
                owner_started: None,
                no: 9,
                ..base
            },
            Candidate { no: 2, ..base },
        ];
        for first in earlier {
            assert_eq!(next_start(&[base, first]), Some(&first));
            assert_eq!(next_start(&[first, base]), Some(&first));
        }
        assert_eq!(next_start(&[]), None);
    }

    #[test]
    fn optional_run_uses_no_released_slot() {
        let usage = SlotUsage { live: 2, lent: 1 };
        assert!(usage.has_slot(2, rank(2)) && !usage.has_slot(2, Rank::SPARE));
    }

    #[test]
    fn reason_names_the_first_obstacle() {
        let pool = PoolLimits {
            slots: 2,
            keep_slot: true,
            is_paused: false,
            place: PoolTarget::Here,
        };
        let full = SlotUsage { live: 2, lent: 0 };
        let free = Queued {
            rank: rank(1),
            after_open: 0,
            after_failed: 0,
            after_ports: 0,
            is_limited: false,
            pool: Some(pool),
            in_pool: SlotUsage::default(),
            in_all: SlotUsage::default(),
            live_max: 2,
            pressure: None,
        };
        let paused = Some(PoolLimits {
            is_paused: true,
            ..pool
        });
        let at = |place| Some(PoolLimits { place, ..pool });
        for (queued, expected) in [
            (free, QueueReason::Turn),
            (
                Queued {
                    pressure: Some(QueueReason::CpuPressure),
                    ..free
                },
                QueueReason::CpuPressure,
            ),
            (
                Queued {
                    pressure: Some(QueueReason::CpuPressure),
                    in_all: full,
                    ..free
                },
                QueueReason::LiveLimit,
            ),
            (
                Queued {
                    in_all: full,
                    ..free
                },
                QueueReason::LiveLimit,
            ),
            (
                Queued {
                    in_pool: full,
                    in_all: full,
                    ..free
                },
                QueueReason::Slot,
            ),
            (
                Queued {
                    in_pool: full,
                    is_limited: true,
                    ..free
                },
                QueueReason::Quota,
            ),
            (
                Queued {
                    pool: paused,
                    is_limited: true,
                    ..free
                },
                QueueReason::PoolPaused,
            ),
            (
                Queued {
                    pool: None,
                    in_pool: full,
                    ..free
                },
                QueueReason::PoolRemoved,
            ),
            (
                Queued {
                    pool: at(PoolTarget::NoRunner),
                    is_limited: true,
                    ..free
                },
                QueueReason::NoRunner,
            ),
            (
                Queued {
                    pool: at(PoolTarget::RunnersHeld(QueueReason::CpuPressure)),
                    ..free
                },
                QueueReason::CpuPressure,
            ),
            (
                Queued {
                    pool: at(PoolTarget::Runners),
                    in_pool: full,
                    ..free
                },
                QueueReason::Slot,
            ),
            (
                Queued {
                    pool: at(PoolTarget::Runners),
                    in_all: full,
                    pressure: Some(QueueReason::CpuPressure),
                    ..free
                },
                QueueReason::Turn,
            ),
            (
                Queued {
                    pool: None,
                    after_open: 1,
                    ..free
                },
                QueueReason::After,
            ),
            (
                Queued {
                    after_open: 2,
                    after_failed: 1,
                    ..free
                },
                QueueReason::AfterFailed,
            ),
            (
                Queued {
                    after_open: 2,
                    after_ports: 1,
                    ..free
                },
                QueueReason::After,
            ),
            (
                Queued {
                    after_open: 1,
                    after_ports: 1,
                    pool: None,
                    ..free
                },
                QueueReason::Ports,
            ),
        ] {
            assert_eq!(queue_reason(&queued), expected);
        }
    }

    #[test]
    fn start_is_predicted_only_from_evidence() {
        let live = |active_ms, estimate_ms| LiveTime {
            active_ms,
            estimate_ms,
        };
        assert_eq!(
            likely_start_ms(1, 1, &[10, 10], &[live(4, None)]),
            None,
            "too few were measured"
        );
        assert_eq!(likely_start_ms(1, 1, &[], &[live(4, Some(10))]), Some(6));
        assert_eq!(
            likely_start_ms(2, 1, &[], &[live(4, Some(10))]),
            None,
            "the length of the first is not known"
        );
        let measured = [10, 20, 30];
        assert_eq!(likely_start_ms(1, 1, &measured, &[live(5, None)]), Some(15));
        assert_eq!(likely_start_ms(3, 1, &measured, &[live(5, None)]), Some(55));
        assert_eq!(
            likely_start_ms(3, 2, &measured, &[live(5, None), live(50, None)]),
            Some(20)
        );
        assert_eq!(likely_start_ms(1, 2, &measured, &[live(5, None)]), Some(0));
        assert_eq!(likely_start_ms(1, 0, &measured, &[]), None);
    }

    #[test]
    fn only_a_failure_of_a_needed_success_fails_a_dependency() {
        assert_eq!(after_end(AfterEnd::Success, true), AfterState::Met);
        assert_eq!(after_end(AfterEnd::Success, false), AfterState::Failed);
        assert_eq!(after_end(AfterEnd::Any, false), AfterState::Met);
    }

    #[test]
    fn place_counts_runs_of_other_owners() {
        let ahead = |of_lower_rank, of_owner, of_others: &[u64]| {
            queue_place(&Ahead {
                counted_max: 10,
                of_lower_rank,
                of_owner,
                of_others: of_others.to_vec(),
            })
        };
        assert_eq!(
            [ahead(0, 0, &[]), ahead(3, 0, &[9]), ahead(0, 2, &[1, 9])],
            [1, 4, 6].map(QueuePosition::At)
        );
        // A run of another owner that was not counted starts after it.
        assert_eq!(
            [ahead(9, 9, &[10]), ahead(10, 0, &[]), ahead(0, 10, &[])],
            [
                QueuePosition::At(28),
                QueuePosition::Behind(10),
                QueuePosition::Behind(10)
            ]
        );
    }

    /// One queued or live run of a simulated pool.
    #[derive(Debug, Clone)]
    struct SimulatedRun {
        owner: usize,
        rank: Rank,
        no: i64,
    }

    proptest! {
        #[test]
        fn pool_is_fair_and_within_its_slots(
            queue in proptest::collection::vec((0_usize..4, 0_u8..3), 1..60),
            slots in 1_u64..5,
            ends in proptest::collection::vec(any::<u16>(), 400),
        ) {
            let mut queued: Vec<SimulatedRun> =
                queue.iter().enumerate().map(|(no, (owner, number))| SimulatedRun { owner: *owner, rank: rank(*number), no: no as i64 }).collect();
            let mut live: Vec<SimulatedRun> = Vec::new();
            let mut started = [None::<i64>; 4];
            let mut clock = 0;
            let mut ends = ends.into_iter();
            let total = queued.len();
            let mut order: Vec<SimulatedRun> = Vec::new();
            while order.len() < total {
                let usage = SlotUsage { live: live.len() as u64, lent: 0 };
                if usage.has_slot(slots, rank(1)) {
                    let owner_live = |owner| live.iter().filter(|run: &&SimulatedRun| run.owner == owner).count() as u64;
                    let candidates: Vec<Candidate> = queued
                        .iter()
                        .map(|run| Candidate { rank: run.rank, owner_live: owner_live(run.owner), owner_started: started[run.owner], no: run.no })
                        .collect();
                    let no = next_start(&candidates).expect("a run is queued").no;
                    let at = queued.iter().position(|run| run.no == no).expect("it is queued");
                    let next = queued.remove(at);
                    // A lower rank never starts while a higher one is queued.
                    prop_assert!(queued.iter().all(|other| next.rank <= other.rank));
                    // Runs of one owner and rank start in the order of dispatch.
                    prop_assert!(queued.iter().all(|other| other.owner != next.owner || other.rank != next.rank || next.no < other.no));
                    // No owner of the same rank has fewer live runs.
                    prop_assert!(queued.iter().all(|other| other.rank != next.rank || owner_live(next.owner) <= owner_live(other.owner)));
                    clock += 1;
                    started[next.owner] = Some(clock);
                    live.push(next.clone());
                    order.push(next);
                    prop_assert!(live.len() as u64 <= slots);
                } else {
                    let end = usize::from(ends.next().unwrap_or(0)) % live.len();
                    live.remove(end);
                }
            }
        }

        /// Regardless of the number of runs that one owner queues, the first run of another owner
        /// is the first or second to start.
        #[test]
        fn no_owner_starves(mine in 1_i64..200) {
            let mut started = [None::<i64>; 2];
            let mut starts = 0;
            for clock in 0..3 {
                let candidates = [
                    Candidate { rank: rank(1), owner_live: 0, owner_started: started[0], no: clock },
                    Candidate { rank: rank(1), owner_live: 0, owner_started: started[1], no: 1_000 + mine },
                ];
                let next = next_start(&candidates).expect("a candidate");
                let owner = usize::from(next.no >= 1_000);
                started[owner] = Some(clock);
                starts += usize::from(owner == 1);
            }
            prop_assert!(starts >= 1);
        }

        #[test]
        fn predicted_start_is_never_negative_and_grows_with_the_place(
            slots in 0_u64..5, place in 1_u64..20, measured in proptest::collection::vec(0_i64..1_000_000, 0..6),
            live in proptest::collection::vec((0_i64..1_000_000, proptest::option::of(0_i64..1_000_000)), 0..5),
        ) {
            let live: Vec<LiveTime> = live.into_iter().map(|(active_ms, estimate_ms)| LiveTime { active_ms, estimate_ms }).collect();
            let first = likely_start_ms(place, slots, &measured, &live);
            let second = likely_start_ms(place + 1, slots, &measured, &live);
            prop_assert!(first.is_none_or(|ms| ms >= 0));
            if let (Some(first), Some(second)) = (first, second) {
                prop_assert!(first <= second);
            }
        }
    }

    #[test]
    fn build_jobs_of_all_runs_are_no_more_than_those_of_the_pool() {
        for (jobs, slots, of_run) in [
            (8, 2, 4),
            (8, 3, 2),
            (8, 8, 1),
            (8, 20, 1),
            (1, 1, 1),
            (5, 0, 5),
        ] {
            assert_eq!(
                build_jobs_of_run(jobs, slots),
                of_run,
                "{jobs} jobs, {slots} slots"
            );
        }
    }

    #[test]
    fn rank_of_a_priority_round_trips() {
        for priority in Priority::ALL {
            assert_eq!(
                Rank::of(priority, Independence::Parallel).priority(),
                Some(priority)
            );
        }
        assert_eq!(Rank::SPARE.priority(), None);
    }
}
