//! Plans of the campaign's runs, and their scripts.

use crate::random::Random;
use adjutant_core::words;
use serde_json::json;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Asks two questions and waits for each answer.
    Ask,
    /// Never ends, and is cancelled.
    Cancel,
    /// Stops with a checkpoint and is resumed.
    Stop,
    /// Asks in a block, and resumes with the answer.
    Park,
    /// Asks for approval.
    Approve,
    /// Waits for its child run.
    Delegate,
    /// Stops while a question is open, and resumes with the answer.
    StopAsk,
    /// Stops while a blocking delegation is open, and resumes with its result.
    StopDelegate,
}

words!(Kind {
    Ask = "ask",
    Cancel = "cancel",
    Stop = "stop",
    Park = "park",
    Approve = "approve",
    Delegate = "delegate",
    StopAsk = "stop-ask",
    StopDelegate = "stop-delegate",
});

/// The decisions on the requests of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decisions {
    /// Two concurrent approvals.
    Approve,
    /// Two concurrent denials.
    Deny,
    /// A concurrent approval and denial.
    Race,
    /// An approval, and its revocation before the run reads it.
    Revoke,
}

/// The plan of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    pub kind: Kind,
    /// Whether it makes its request with a block instead of a tool.
    pub by_block: bool,
    /// Whether its process stays alive after the block or the stop.
    pub stays: bool,
    /// Whether it stops before it makes its request.
    pub stops_first: bool,
    pub decisions: Decisions,
}

impl Plan {
    pub fn draw(kind: Kind, random: &mut Random) -> Self {
        let either = random.below(2) == 0;
        let by_block = match kind {
            Kind::Ask | Kind::Cancel => false,
            Kind::Park => true,
            Kind::Stop | Kind::Approve | Kind::Delegate | Kind::StopAsk | Kind::StopDelegate => {
                either
            }
        };
        let count = if kind == Kind::Approve && !by_block {
            4
        } else {
            3
        };
        let decisions = [
            Decisions::Approve,
            Decisions::Deny,
            Decisions::Race,
            Decisions::Revoke,
        ][usize::try_from(random.below(count)).unwrap_or(0)];
        Self {
            kind,
            by_block,
            stays: random.below(2) == 0,
            stops_first: random.below(2) == 0,
            decisions,
        }
    }

    pub fn agent(self) -> &'static str {
        if self.kind == Kind::Cancel {
            "stubborn"
        } else {
            "echo"
        }
    }

    /// Returns the script line that stops the run.
    fn stop(self, key: &str) -> String {
        let stop = json!({"stop_reason": "blocker", "details": details(key), "state_snapshot": state(key)});
        if self.by_block {
            format!("block STOP_WORK {stop}\n")
        } else {
            format!("tool stop_work {stop}\n")
        }
    }

    /// Returns the stop and the request in the order of the plan.
    fn stop_with_request(self, key: &str, request: &str) -> String {
        let stop = self.stop(key);
        if self.stops_first {
            stop + request
        } else {
            format!("{request}{stop}")
        }
    }

    /// Returns the run's script. A resumed attempt writes `after` to the journal.
    pub fn script(self, journal: &Path, key: &str) -> String {
        let journal = format!("journal {}", journal.display());
        let end = if self.stays { "hang\n" } else { "fail 0\n" };
        let after = format!("{end}resume-here\n{journal} attempt\n{journal} after\ndone fine\n");
        let body = match (self.kind, self.by_block) {
            (Kind::Ask, _) => format!(
                "spawn setsid\nask \"first of {key}?\"\nprogress 50 half\nspawn keep-stdout ignore-term\nask \"second of {key}?\"\ndone fine\n"
            ),
            (Kind::Cancel, _) => "spawn setsid ignore-term\nspawn doublefork ignore-term\nspawn closedfds\nsay hanging\nhang\n".to_string(),
            (Kind::Stop, _) => format!("spawn setsid\n{}{after}", self.stop(key)),
            (Kind::StopAsk, by_block) => {
                let request = if by_block {
                    format!("block CLARIFICATION_NEEDED {}\n", json!({"reason": format!("which way for {key}?")}))
                } else {
                    format!("tool ask_parent {}\n", json!({"question": format!("which way for {key}?"), "wait_s": 0}))
                };
                self.stop_with_request(key, &request) + &after
            }
            (Kind::StopDelegate, by_block) => {
                let task = format!("\"---\\n{journal} attempt\\ndone {}\" [blocks] [budget: tokens={CHILD_TOKENS}]", child_word(key));
                let request = if by_block { format!("delegate-block {task}\n") } else { format!("delegate {task} [nowait]\n") };
                self.stop_with_request(key, &request) + &after
            }
            (Kind::Park, _) => format!("block CLARIFICATION_NEEDED {}\n{after}", json!({"reason": format!("which way for {key}?")})),
            (Kind::Approve, true) => format!("approve-block \"{key} drops a table\" [risk: high]\n{after}"),
            (Kind::Approve, false) if self.decisions == Decisions::Revoke => {
                format!("approve \"{key} drops a table\" [nowait]\nask \"may {key} look?\"\ncheck wait\n{journal} after\ndone fine\n")
            }
            (Kind::Approve, false) => format!("approve \"{key} drops a table\" [risk: high]\n{journal} after\ndone fine\n"),
            (Kind::Delegate, by_block) => {
                let task = format!("\"---\\n{journal} attempt\\ndone {}\" [blocks] [budget: tokens={CHILD_TOKENS}]", child_word(key));
                if by_block { format!("delegate-block {task}\n{after}") } else { format!("delegate {task}\n{journal} after\ndone fine\n") }
            }
        };
        format!("{journal} attempt\n{body}")
    }
}

/// The budgets of a run that delegates, and of its child.
pub const TOKENS: u64 = 10_000_000;
const CHILD_TOKENS: u64 = 4_000_000;

/// Returns the details of a run's stop.
pub fn details(key: &str) -> String {
    format!("{key} lacks a key")
}

pub fn state(key: &str) -> String {
    format!("{key} is at 3 of 7")
}

/// Returns the last message of a run's child.
pub fn child_word(key: &str) -> String {
    format!("child of {key} is through")
}
