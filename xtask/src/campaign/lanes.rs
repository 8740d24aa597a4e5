//! The kinds of runs that the campaign starts, and how it sees each of them to its end.

use super::ledger::{Dispatched, Shared, lock};
use crate::lab::Lab;
use crate::random::Random;
use adjutant::client::Client;
use adjutant::view::{Cancel, ErrorView, GetRun, ReadEvents, Resume, RunView, codes};
use adjutant_core::{EventKind, RunStateKind};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

/// A run that is not at its end by then hangs.
const RUN_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Asks twice and waits for each answer.
    Ask,
    /// Never ends, and is cancelled.
    Cancel,
    /// Stops with a checkpoint and is resumed.
    Stop,
    /// Asks in a block, and goes on by itself with the answer.
    Park,
    /// Asks for leave.
    Approve,
    /// Waits for what it delegates.
    Delegate,
    /// Stops beside a question, and resumes by itself with the answer.
    StopAsk,
    /// Stops beside a blocking delegation, and resumes by itself with what comes of it.
    StopDelegate,
}

impl Kind {
    pub const ALL: [Self; 8] = [Self::Ask, Self::Cancel, Self::Stop, Self::Park, Self::Approve, Self::Delegate, Self::StopAsk, Self::StopDelegate];

    pub fn word(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Cancel => "cancel",
            Self::Stop => "stop",
            Self::Park => "park",
            Self::Approve => "approve",
            Self::Delegate => "delegate",
            Self::StopAsk => "stop-ask",
            Self::StopDelegate => "stop-delegate",
        }
    }
}

/// What is decided about what a run wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Yes, twice at once.
    Grant,
    /// No, twice at once.
    Deny,
    /// Yes and no at once.
    Race,
    /// Yes, then no, before the run looks.
    Veto,
}

/// What one run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    pub kind: Kind,
    /// By a block of its own words instead of a tool.
    pub by_block: bool,
    /// Its process stays after that block, or after it has stopped.
    pub stays: bool,
    /// It says that it stops before it makes the request beside it.
    pub stops_first: bool,
    pub way: Way,
}

impl Plan {
    pub fn draw(kind: Kind, random: &mut Random) -> Self {
        let either = random.below(2) == 0;
        let by_block = match kind {
            Kind::Ask | Kind::Cancel => false,
            Kind::Park => true,
            Kind::Stop | Kind::Approve | Kind::Delegate | Kind::StopAsk | Kind::StopDelegate => either,
        };
        let ways = if kind == Kind::Approve && !by_block { 4 } else { 3 };
        let way = [Way::Grant, Way::Deny, Way::Race, Way::Veto][usize::try_from(random.below(ways)).unwrap_or(0)];
        Self { kind, by_block, stays: random.below(2) == 0, stops_first: random.below(2) == 0, way }
    }

    fn agent(self) -> &'static str {
        if self.kind == Kind::Cancel { "stubborn" } else { "echo" }
    }

    /// The line by which it says that it stops.
    fn stop(self, key: &str) -> String {
        let stop = json!({"stop_reason": "blocker", "details": details(key), "state_snapshot": state(key)});
        if self.by_block { format!("block STOP_WORK {stop}\n") } else { format!("tool stop_work {stop}\n") }
    }

    /// The same, and a request beside it.
    fn beside(self, key: &str, request: &str) -> String {
        let stop = self.stop(key);
        if self.stops_first { stop + request } else { format!("{request}{stop}") }
    }

    /// The run's script. What it does after it was begun anew is in the journal as `after`.
    fn script(self, journal: &Path, key: &str) -> String {
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
                self.beside(key, &request) + &after
            }
            (Kind::StopDelegate, by_block) => {
                let task = format!("\"---\\n{journal} attempt\\ndone {}\" [blocks]", child_word(key));
                let request = if by_block { format!("delegate-block {task}\n") } else { format!("delegate {task} [nowait]\n") };
                self.beside(key, &request) + &after
            }
            (Kind::Park, _) => format!("block CLARIFICATION_NEEDED {}\n{after}", json!({"reason": format!("which way for {key}?")})),
            (Kind::Approve, true) => format!("approve-block \"{key} drops a table\" [risk: high]\n{after}"),
            (Kind::Approve, false) if self.way == Way::Veto => {
                format!("approve \"{key} drops a table\" [nowait]\nask \"may {key} look?\"\ncheck wait\n{journal} after\ndone fine\n")
            }
            (Kind::Approve, false) => format!("approve \"{key} drops a table\" [risk: high]\n{journal} after\ndone fine\n"),
            (Kind::Delegate, by_block) => {
                let task = format!("\"---\\n{journal} attempt\\ndone {}\" [blocks]", child_word(key));
                if by_block { format!("delegate-block {task}\n{after}") } else { format!("delegate {task}\n{journal} after\ndone fine\n") }
            }
        };
        format!("{journal} attempt\n{body}")
    }
}

/// What a stopping run says about itself.
pub fn details(key: &str) -> String {
    format!("{key} lacks a key")
}

pub fn state(key: &str) -> String {
    format!("{key} is at 3 of 7")
}

/// The last words of what a run delegates.
pub fn child_word(key: &str) -> String {
    format!("child of {key} is through")
}

/// Whether nothing moves the run any more, but for the driver.
pub fn is_over(view: &RunView) -> bool {
    view.state == RunStateKind::Finished || (view.state == RunStateKind::Stopped && view.reason.as_deref() == Some("supervisor_lost"))
}

/// Dispatches one run and sees it to its end.
pub async fn one_run(lab: &Lab, ledger: &Shared, journal: &Path, key: &str, plan: Plan, random: &mut Random) {
    if let Err(problem) = drive(lab, ledger, journal, key, plan, random).await {
        lock(ledger).problems.push(format!("{key} ({plan:?}): {problem}"));
    }
}

async fn drive(lab: &Lab, ledger: &Shared, journal: &Path, key: &str, plan: Plan, random: &mut Random) -> Result<(), String> {
    let client = lab.client();
    let order = lab.order(plan.agent(), plan.script(journal, key));
    let run = lab.persist(&client, &order, key).await.map_err(said)?.run_id;
    lock(ledger).dispatched.insert(key.to_string(), Dispatched { run: run.clone(), order, plan });
    let start = Instant::now();
    let cancel_after = Duration::from_millis(200 + random.below(800));
    loop {
        let view = lab.persist(&client, &GetRun { run: run.clone() }, "look").await.map_err(said)?;
        let children_over = see_children(lab, &client, ledger, &view).await?;
        if is_over(&view) && children_over {
            return Ok(());
        }
        if start.elapsed() > RUN_LIMIT {
            return Err(format!("{run} is still {} ({:?}) after {RUN_LIMIT:?}", view.state, view.reason));
        }
        if plan.kind == Kind::Cancel && start.elapsed() > cancel_after && !lock(ledger).cancelled.contains(&run) {
            cancel(lab, &client, ledger, &run).await?;
        }
        if plan.kind == Kind::Stop && view.state == RunStateKind::Stopped && view.reason.as_deref() == Some("blocker") {
            resume(lab, &client, ledger, key, &view).await?;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn said(error: ErrorView) -> String {
    format!("{}: {error}", error.code)
}

async fn cancel(lab: &Lab, client: &Client, ledger: &Shared, run: &str) -> Result<(), String> {
    match lab.persist(client, &Cancel { run: run.to_string(), reason: None }, &format!("cancel-{run}")).await {
        Ok(_) => {
            lock(ledger).cancelled.insert(run.to_string());
            Ok(())
        }
        Err(error) if error.code == codes::RUN_FINISHED || error.code == codes::CONFLICT => Ok(()),
        Err(error) => Err(format!("cancel {run}: {}", said(error))),
    }
}

/// Resumes a run that has stopped, in two ways at once: exactly one may win, once for each stop.
async fn resume(lab: &Lab, client: &Client, ledger: &Shared, key: &str, view: &RunView) -> Result<(), String> {
    let left = view.checkpoint.as_ref().map(|left| (left.details.as_str(), left.state_snapshot.as_deref(), left.made_by.as_str()));
    if left != Some((details(key).as_str(), Some(state(key).as_str()), "run")) {
        return Err(format!("{} stopped and left {left:?}", view.run_id));
    }
    if let Some((_, resolution)) = lock(ledger).resumed.get(&view.run_id) {
        return Err(format!("{} was resumed with {resolution:?} and is stopped again", view.run_id));
    }
    let one = async |rival: u32| {
        let (key, resolution) = (format!("{key}-resume-{rival}"), format!("{key} resolved by {rival}"));
        let call = Resume { run: view.run_id.clone(), resolution: Some(resolution.clone()), ..Resume::default() };
        (key.clone(), resolution, lab.persist(client, &call, &key).await)
    };
    let (first, second) = tokio::join!(one(0), one(1));
    let mut accepted = Vec::new();
    for (key, resolution, result) in [first, second] {
        match result {
            Ok(_) => accepted.push((key, resolution)),
            Err(error) if [codes::CONFLICT, codes::RUN_FINISHED].contains(&error.code.as_str()) => {}
            Err(error) => return Err(format!("resume {}: {}", view.run_id, said(error))),
        }
    }
    if accepted.len() == 2 {
        let page = lab.persist(client, &ReadEvents { run: Some(view.run_id.clone()), ..ReadEvents::default() }, "events").await.map_err(said)?;
        if page.events.iter().filter(|event| event.kind == EventKind::RunStopped).count() > 1 {
            // The first was in effect and its supervisor was killed before the second came.
            lock(ledger).resumed_twice.insert(view.run_id.clone());
            accepted.pop();
        }
    }
    let [accepted] = accepted.as_slice() else { return Err(format!("{} was resumed by {accepted:?}", view.run_id)) };
    lock(ledger).resumed.insert(view.run_id.clone(), accepted.clone());
    Ok(())
}

/// Notes what a run has delegated, and gives up what lost its supervisor, because the run waits for
/// it. Tells whether all of it is over.
async fn see_children(lab: &Lab, client: &Client, ledger: &Shared, view: &RunView) -> Result<bool, String> {
    let mut over = true;
    for name in &view.children {
        let child = lab.persist(client, &GetRun { run: name.clone() }, "look").await.map_err(said)?;
        lock(ledger).children.insert(child.run_id.clone());
        if child.state == RunStateKind::Stopped {
            cancel(lab, client, ledger, &child.run_id).await?;
        }
        over &= child.state == RunStateKind::Finished;
    }
    Ok(over)
}

/// Waits until nothing that was delegated late is under way any more: by a run that was over when it
/// was decided.
pub async fn late_children(lab: &Lab, ledger: &Shared) -> Result<(), String> {
    let client = lab.client();
    let delegating: Vec<String> = lock(ledger)
        .dispatched
        .values()
        .filter(|one| matches!(one.plan.kind, Kind::Delegate | Kind::StopDelegate))
        .map(|one| one.run.clone())
        .collect();
    let start = Instant::now();
    for run in delegating {
        loop {
            let view = lab.persist(&client, &GetRun { run: run.clone() }, "look").await.map_err(said)?;
            if see_children(lab, &client, ledger, &view).await? {
                break;
            }
            if start.elapsed() > RUN_LIMIT {
                return Err(format!("what {run} delegated is still under way after {RUN_LIMIT:?}"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}
