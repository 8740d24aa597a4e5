//! Which faults a campaign causes, in which order, and for how long: all from its seed.

use super::network::{Trouble, Way};
use super::site::{EACH, LEASE_S, MACHINES};
use crate::random::Random;
use std::time::Duration;

/// The longest stop or cut. Longer than the silence after which another hub takes over, and than
/// the lease of a runner.
const LENGTH_MAX_MS: u64 = LEASE_S * 1_500;
const LENGTH_MIN_MS: u64 = 1_000;
/// A clock is set wrong by at most this, ahead or behind.
const SHIFT_MAX_S: u64 = 600;

/// Another fault comes in the middle of one in so many that last.
const SECOND_ONE_IN: usize = 2;

/// The kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    HubKilled,
    LeaderKilled,
    LeaderStopped,
    LeaderEnded,
    RunnerKilled,
    RunnerStopped,
    RunnersMachineKilled,
    RunnersMachineStopped,
    ServerKilled,
    ServerStopped,
    ServerRestarted,
    ServerReadOnly,
    ReplicaPromoted,
    CommitsHang,
    TimeoutsSet,
    ConnectionsRefused,
    SessionsTerminated,
    StatementsCancelled,
    TableLocked,
    TablesRewritten,
    Cut,
    CutOneWay,
    CutFromOne,
    Slow,
    Lossy,
    HubsDiskFull,
    RunnersDiskFull,
    ServersDiskFull,
    ClockSet,
}

const KINDS: [Kind; 29] = [
    Kind::HubKilled,
    Kind::LeaderKilled,
    Kind::LeaderStopped,
    Kind::LeaderEnded,
    Kind::RunnerKilled,
    Kind::RunnerStopped,
    Kind::RunnersMachineKilled,
    Kind::RunnersMachineStopped,
    Kind::ServerKilled,
    Kind::ServerStopped,
    Kind::ServerRestarted,
    Kind::ServerReadOnly,
    Kind::ReplicaPromoted,
    Kind::CommitsHang,
    Kind::TimeoutsSet,
    Kind::ConnectionsRefused,
    Kind::SessionsTerminated,
    Kind::StatementsCancelled,
    Kind::TableLocked,
    Kind::TablesRewritten,
    Kind::Cut,
    Kind::CutOneWay,
    Kind::CutFromOne,
    Kind::Slow,
    Kind::Lossy,
    Kind::HubsDiskFull,
    Kind::RunnersDiskFull,
    Kind::ServersDiskFull,
    Kind::ClockSet,
];

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::HubKilled => "hub killed",
            Self::LeaderKilled => "leader killed",
            Self::LeaderStopped => "leader stopped for a while",
            Self::LeaderEnded => "leader ended",
            Self::RunnerKilled => "runner killed",
            Self::RunnerStopped => "runner stopped for a while",
            Self::RunnersMachineKilled => "all processes of a runner's machine killed",
            Self::RunnersMachineStopped => {
                "all processes of a runner's machine stopped for a while"
            }
            Self::ServerKilled => "PostgreSQL killed",
            Self::ServerStopped => "PostgreSQL stopped for a while",
            Self::ServerRestarted => "PostgreSQL restarted",
            Self::ServerReadOnly => "PostgreSQL read-only for a while",
            Self::ReplicaPromoted => "PostgreSQL killed and a synchronous replica promoted",
            Self::CommitsHang => "commits wait for a missing standby for a while",
            Self::TimeoutsSet => "timeouts set for the role for a while",
            Self::ConnectionsRefused => "connections to the database refused for a while",
            Self::SessionsTerminated => "sessions terminated again and again",
            Self::StatementsCancelled => "statements cancelled again and again",
            Self::TableLocked => "tables locked for a while",
            Self::TablesRewritten => "all tables rewritten (VACUUM FULL)",
            Self::Cut => "machine cut off",
            Self::CutOneWay => "machine cut off one way",
            Self::CutFromOne => "two machines cut off from each other",
            Self::Slow => "slow network",
            Self::Lossy => "lossy network",
            Self::HubsDiskFull => "a hub's disk full for a while",
            Self::RunnersDiskFull => "a runner's disk full for a while",
            Self::ServersDiskFull => "PostgreSQL's disk full for a while",
            Self::ClockSet => "clock set",
        }
    }

    /// Returns whether a fault of this kind lasts for a while.
    pub fn lasts(self) -> bool {
        let is_stop = matches!(
            self,
            Self::LeaderStopped
                | Self::RunnerStopped
                | Self::RunnersMachineStopped
                | Self::ServerStopped
        );
        is_stop || ["packets", "disk"].contains(&self.target()) || self.is_of_administrator()
    }

    /// Returns whether an administrator of PostgreSQL causes it, with statements.
    pub fn is_of_administrator(self) -> bool {
        use Kind::{
            CommitsHang, ConnectionsRefused, ServerReadOnly, SessionsTerminated,
            StatementsCancelled, TableLocked, TablesRewritten, TimeoutsSet,
        };
        matches!(
            self,
            ServerReadOnly
                | CommitsHang
                | TimeoutsSet
                | ConnectionsRefused
                | SessionsTerminated
                | StatementsCancelled
                | TableLocked
                | TablesRewritten
        )
    }

    /// Returns whether a fault of this kind can come in the middle of another one.
    fn can_come_during(self, other: Self) -> bool {
        let are_packets = |kind: Self| kind.target() == "packets";
        // Which may be stopped, or cannot reach the server.
        let waits_for_end = matches!(
            self,
            Self::LeaderEnded | Self::ServerKilled | Self::ServerRestarted | Self::ReplicaPromoted
        );
        // What an administrator has begun needs the server for its end, and space; a server whose
        // disk was full is waited for.
        let stops_server = matches!(self, Self::ServerStopped | Self::ServersDiskFull);
        let waits_for_end = waits_for_end
            || self.is_of_administrator()
            || other.is_of_administrator() && stops_server;
        let is_stopped = self == Self::ServersDiskFull && other == Self::ServerStopped;
        let is_impossible = waits_for_end || is_stopped || are_packets(self) && are_packets(other);
        other.lasts() && !is_impossible
    }

    /// Returns what a fault of this kind hits.
    pub fn target(self) -> &'static str {
        match self {
            Self::Cut | Self::CutOneWay | Self::CutFromOne | Self::Slow | Self::Lossy => "packets",
            Self::HubsDiskFull | Self::RunnersDiskFull | Self::ServersDiskFull => "disk",
            Self::ClockSet => "clock",
            Self::ServerKilled | Self::ServerRestarted | Self::ReplicaPromoted => "server",
            kind if kind.is_of_administrator() => "server",
            _ => "processes",
        }
    }
}

/// A machine of a plan. The leader is known only when the fault is caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    Leader,
    Number(usize),
}

/// A fault, before the leader is known.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub kind: Kind,
    /// Which of the hubs, or of the runners.
    pub n: usize,
    /// The machine with a bad network or clock.
    pub machine: Machine,
    /// Counts from the machine: never the machine itself.
    pub peer: usize,
    pub trouble: Trouble,
    pub shift_s: i64,
    /// How long a stop or trouble lasts.
    pub length: Duration,
    /// The hub that is killed in the middle of it.
    pub meanwhile: Option<usize>,
    pub pause: Duration,
}

/// One fault, or two of which the second comes in the middle of the first.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    pub fault: Fault,
    pub second: Option<Fault>,
}

/// Shuffles the kinds, so that each occurs once in every [`KINDS`] faults.
#[derive(Debug)]
pub struct Plan {
    random: Random,
    deck: Vec<Kind>,
}

impl Plan {
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            deck: Vec::new(),
        }
    }

    /// Returns what comes next. In the middle of half of the faults that last, another one comes,
    /// if one is left that can.
    pub fn next(&mut self) -> Step {
        if self.deck.is_empty() {
            self.deck = KINDS.to_vec();
        }
        let card = self.below(self.deck.len());
        let kind = self.deck.swap_remove(card);
        let fault = self.fault(kind);
        let fitting: Vec<usize> = (0..self.deck.len())
            .filter(|card| self.deck[*card].can_come_during(kind))
            .collect();
        if fitting.is_empty() || self.below(SECOND_ONE_IN) != 0 {
            return Step {
                fault,
                second: None,
            };
        }
        let card = fitting[self.below(fitting.len())];
        let kind = self.deck.swap_remove(card);
        Step {
            fault,
            second: Some(self.fault(kind)),
        }
    }

    fn fault(&mut self, kind: Kind) -> Fault {
        let way = [Way::Both, Way::Sent, Way::Received][self.below(3)];
        let trouble = match kind {
            Kind::CutOneWay => Trouble::Cut([Way::Sent, Way::Received][self.below(2)]),
            Kind::CutFromOne => Trouble::Cut(way),
            Kind::Slow => Trouble::Slow {
                kbit_per_s: [32, 128, 512][self.below(3)],
            },
            Kind::Lossy => Trouble::Lossy {
                percent: 10 + self.random.below(50),
            },
            _ => Trouble::Cut(Way::Both),
        };
        // One in three, because much depends on the leader.
        let machine = if self.below(3) == 0 {
            Machine::Leader
        } else {
            Machine::Number(self.below(MACHINES))
        };
        let shift_s = 60 + self.random.below(SHIFT_MAX_S - 60).cast_signed();
        Fault {
            kind,
            n: self.below(EACH),
            meanwhile: Some(self.below(EACH)).filter(|_| kind.lasts() && self.below(4) == 0),
            machine,
            peer: 1 + self.below(MACHINES - 1),
            trouble,
            shift_s: if self.below(2) == 0 {
                shift_s
            } else {
                -shift_s
            },
            length: Duration::from_millis(
                LENGTH_MIN_MS + self.random.below(LENGTH_MAX_MS - LENGTH_MIN_MS),
            ),
            pause: Duration::from_millis(self.random.below(300)),
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.random.below(limit as u64)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::{KINDS, Kind, Plan};
    use std::collections::BTreeSet;

    #[test]
    fn each_kind_comes_in_every_round() {
        let mut plan = Plan::new(1);
        for _ in 0..3 {
            let mut kinds = BTreeSet::new();
            let mut count = 0;
            while count < KINDS.len() {
                let step = plan.next();
                let all: Vec<_> = [Some(step.fault), step.second]
                    .into_iter()
                    .flatten()
                    .map(|fault| fault.kind)
                    .collect();
                count += all.len();
                kinds.extend(all);
            }
            assert_eq!((kinds.len(), count), (KINDS.len(), KINDS.len()));
        }
    }

    #[test]
    fn some_faults_overlap_and_can_do_so() {
        let mut plan = Plan::new(1);
        let steps: Vec<_> = (0..300).map(|_| plan.next()).collect();
        let pairs: Vec<_> = steps
            .iter()
            .filter_map(|step| Some((step.fault.kind, step.second?.kind)))
            .collect();
        assert!((20..150).contains(&pairs.len()), "{}", pairs.len());
        assert!(
            pairs
                .iter()
                .all(|(first, second)| second.can_come_during(*first)),
            "{pairs:?}"
        );
        assert!(
            !Kind::ServersDiskFull.can_come_during(Kind::ServerStopped)
                && Kind::ServersDiskFull.can_come_during(Kind::LeaderStopped)
        );
    }
}
