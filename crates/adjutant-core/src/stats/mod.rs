//! Statistics of runs: outcomes, times, answers and costs, in all and by group. Everything is
//! computed in one pass over runs, in memory that does not grow with their number.

mod distribution;
mod tree;

pub use distribution::Distribution;
pub use tree::{TreeStats, TreeTotals};

use crate::request::{AnsweredBy, Rule};
use crate::{OutcomeKind, Principal, RunStateKind, words};
use std::collections::BTreeMap;

/// Groups beyond this number are counted together.
pub const GROUPS_MAX: usize = 200;

/// By what runs are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatsBy {
    Agent,
    Pool,
    /// The repository of the run's workspace, else its directory.
    Project,
    /// The run, client or person that dispatched it.
    Parent,
}

words!(StatsBy { Agent = "agent", Pool = "pool", Project = "project", Parent = "parent" });

/// Who answers requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnswerSource {
    /// A parent agent or a run.
    Parent,
    Person,
    /// A policy, or a grant.
    Policy,
    /// The asker's default, at the deadline.
    Default,
}

words!(AnswerSource { Parent = "parent", Person = "person", Policy = "policy", Default = "default" });

impl From<&AnsweredBy> for AnswerSource {
    fn from(by: &AnsweredBy) -> Self {
        match by {
            AnsweredBy::Principal(Principal::Person) | AnsweredBy::Link(_) => Self::Person,
            AnsweredBy::Principal(Principal::Client(_) | Principal::Run(_)) => Self::Parent,
            AnsweredBy::Rule(Rule::Policy(_) | Rule::Grant(_)) => Self::Policy,
            AnsweredBy::Default => Self::Default,
        }
    }
}

/// A request of a run, with the times at which it was asked and settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTimes {
    pub asked_at_ms: i64,
    /// When it was answered, expired or was withdrawn; now if it is open.
    pub until_ms: i64,
    pub answered_by: Option<AnswerSource>,
    /// The run could not continue without the answer.
    pub is_blocking: bool,
}

/// The data about one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunFacts<'a> {
    pub state: RunStateKind,
    pub outcome: Option<OutcomeKind>,
    /// An attempt of it has started.
    pub has_started: bool,
    /// Another run has done its task again.
    pub is_retried: bool,
    pub is_merged: bool,
    /// It succeeded, and its acceptance command confirms that.
    pub is_verified: bool,
    pub has_used_chat: bool,
    /// Time from its dispatch to its first start. `None`: it has not started, or did not wait for a
    /// slot alone.
    pub queue_ms: Option<i64>,
    pub active_ms: i64,
    /// `None`: unknown.
    pub cost_micros: Option<u64>,
    pub tokens: Option<Tokens>,
    pub requests: &'a [RequestTimes],
}

/// Tokens of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokens {
    pub input: u64,
    pub output: u64,
}

/// A sum over the runs for which a number is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KnownSum {
    sum: u64,
    known: u64,
    pub unknown: u64,
}

impl KnownSum {
    /// Adds the number of one run.
    pub fn add(&mut self, number: Option<u64>) {
        match number {
            Some(number) => {
                self.sum = self.sum.saturating_add(number);
                self.known += 1;
            }
            None => self.unknown += 1,
        }
    }

    /// Returns the sum of the known numbers. `None`: no number is known.
    #[must_use]
    pub fn known(self) -> Option<u64> {
        (self.known > 0).then_some(self.sum)
    }
}

/// Statistics of some runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    pub runs: u64,
    pub queued: u64,
    /// Started and not finished, the stopped ones included.
    pub unfinished: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub spawn_failed: u64,
    pub lost: u64,
    pub retried: u64,
    pub merged: u64,
    pub verified: u64,
    /// Merged or verified.
    pub accepted: u64,
    pub used_chat: u64,
    pub queue_ms: Distribution,
    /// Of each run that has asked: how long it waited for answers, requests that were open at the
    /// same time counted once.
    pub waiting_ms: Distribution,
    pub active_ms: Distribution,
    pub answers: BTreeMap<AnswerSource, Distribution>,
    /// Of the runs that have started.
    pub cost_micros: KnownSum,
    pub input_tokens: KnownSum,
    pub output_tokens: KnownSum,
}

impl Tally {
    fn add_queued(&mut self, runs: u64) {
        self.runs += runs;
        self.queued += runs;
    }

    fn add(&mut self, run: &RunFacts<'_>) {
        self.runs += 1;
        match run.outcome {
            Some(OutcomeKind::Succeeded) => self.succeeded += 1,
            Some(OutcomeKind::Failed) => self.failed += 1,
            Some(OutcomeKind::Cancelled) => self.cancelled += 1,
            Some(OutcomeKind::SpawnFailed) => self.spawn_failed += 1,
            Some(OutcomeKind::Lost) => self.lost += 1,
            None if run.state == RunStateKind::Queued => self.queued += 1,
            None => self.unfinished += 1,
        }
        self.retried += u64::from(run.is_retried);
        self.merged += u64::from(run.is_merged);
        self.verified += u64::from(run.is_verified);
        self.accepted += u64::from(run.is_merged || run.is_verified);
        self.used_chat += u64::from(run.has_used_chat);
        if let Some(ms) = run.queue_ms {
            self.queue_ms.add(ms);
        }
        if run.requests.iter().any(|request| request.is_blocking) {
            self.waiting_ms.add(waiting_ms(run.requests));
        }
        for request in run.requests {
            if let Some(source) = request.answered_by {
                self.answers
                    .entry(source)
                    .or_default()
                    .add(request.until_ms.saturating_sub(request.asked_at_ms));
            }
        }
        if run.has_started {
            self.active_ms.add(run.active_ms);
            self.cost_micros.add(run.cost_micros);
            self.input_tokens.add(run.tokens.map(|tokens| tokens.input));
            self.output_tokens
                .add(run.tokens.map(|tokens| tokens.output));
        }
    }
}

/// Returns how long at least one blocking request was open. The requests are in the order in which
/// they were asked.
fn waiting_ms(requests: &[RequestTimes]) -> i64 {
    let mut total: i64 = 0;
    let mut covered_until = i64::MIN;
    for request in requests.iter().filter(|request| request.is_blocking) {
        let from = request.asked_at_ms.max(covered_until);
        total = total.saturating_add(request.until_ms.saturating_sub(from).max(0));
        covered_until = covered_until.max(request.until_ms);
    }
    total
}

/// Statistics of runs, in all and by group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    pub total: Tally,
    by_group: BTreeMap<String, Tally>,
    /// Runs of groups beyond the maximum.
    others: Tally,
}

impl Stats {
    /// Adds one run, to a group if there are groups.
    pub fn add(&mut self, group: Option<&str>, run: &RunFacts<'_>) {
        self.total.add(run);
        if let Some(group) = group {
            self.tally_of(group).add(run);
        }
    }

    /// Adds queued runs that have never started, to a group if there are groups.
    pub fn add_queued(&mut self, group: Option<&str>, runs: u64) {
        self.total.add_queued(runs);
        if let Some(group) = group {
            self.tally_of(group).add_queued(runs);
        }
    }

    fn tally_of(&mut self, group: &str) -> &mut Tally {
        if self.by_group.contains_key(group) || self.by_group.len() < GROUPS_MAX {
            self.by_group.entry(group.to_owned()).or_default()
        } else {
            &mut self.others
        }
    }

    /// Returns the groups, those with the most runs first, and the runs of further groups together.
    #[must_use]
    pub fn groups(&self) -> (Vec<(&str, &Tally)>, Option<&Tally>) {
        let mut groups: Vec<(&str, &Tally)> = self
            .by_group
            .iter()
            .map(|(name, tally)| (name.as_str(), tally))
            .collect();
        groups.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.runs));
        (groups, Some(&self.others).filter(|others| others.runs > 0))
    }
}

#[cfg(test)]
mod tests;
