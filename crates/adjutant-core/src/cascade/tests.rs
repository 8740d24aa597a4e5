//! Whole cascades, over a small world in memory.

use super::{Cascade, Cause, Step, effects_of_request};
use crate::pool::{AfterEnd, AfterState, after_end};
use crate::request::{RequestKind, RequestState, RequestTerms};
use crate::run::{
    AttemptEnd, Blocking, Exit, Outcome, Retention, RunChange, RunEffect, RunEvent, RunState,
    StopReason, resumes_now,
};
use crate::{Moment, RequestEvent, RequestId, RunId, SteadyTime, Time, request, run};
use std::collections::BTreeMap;

const KEEP: Retention = Retention { stopped_ms: 1_000 };
const NOW: Moment = Moment {
    wall: Time(5),
    steady: SteadyTime(5),
};

struct Run {
    name: &'static str,
    state: RunState,
    /// The delegation by which it was started, for which the requester waits.
    asked_in: Option<&'static str>,
    /// The runs after whose success it starts.
    after: Vec<&'static str>,
}

struct Request {
    name: &'static str,
    of: &'static str,
    state: RequestState,
    /// Its approved task is being done.
    is_held: bool,
}

/// Runs and blocking requests by their names.
#[derive(Default)]
struct World {
    runs: BTreeMap<RunId, Run>,
    requests: BTreeMap<RequestId, Request>,
    /// Each step and each new state, in order.
    story: Vec<String>,
}

fn id_of(name: &str) -> [u8; 10] {
    let mut id = [0; 10];
    id[..name.len()].copy_from_slice(name.as_bytes());
    id
}

fn run_id(name: &str) -> RunId {
    RunId::new(Time(1), id_of(name))
}

fn request_id(name: &str) -> RequestId {
    RequestId::new(Time(1), id_of(name))
}

impl World {
    fn run(mut self, name: &'static str, state: RunState, after: &[&'static str]) -> Self {
        let run = Run {
            name,
            state,
            asked_in: None,
            after: after.to_vec(),
        };
        self.runs.insert(run_id(name), run);
        self
    }

    fn child(mut self, name: &'static str, state: RunState, asked_in: &'static str) -> Self {
        self = self.run(name, state, &[]);
        self.runs
            .get_mut(&run_id(name))
            .expect("it is new")
            .asked_in = Some(asked_in);
        self
    }

    fn question(mut self, name: &'static str, of: &'static str) -> Self {
        let (state, is_held) = (RequestState::Pending, false);
        let question = Request {
            name,
            of,
            state,
            is_held,
        };
        self.requests.insert(request_id(name), question);
        self
    }

    /// A delegation whose task is being done, for which the run waits.
    fn delegation(mut self, name: &'static str, of: &'static str) -> Self {
        self = self.question(name, of);
        let delegation = self.requests.get_mut(&request_id(name)).expect("it is new");
        delegation.state = RequestState::Withdrawn { at: Time(1) };
        delegation.is_held = true;
        self
    }

    /// Performs a step and all that follows, and returns the story.
    fn after(mut self, run: &str, event: RunEvent) -> Vec<String> {
        let mut cascade = Cascade::new(KEEP);
        let cause = Cause::hub("");
        let run = run_id(run);
        cascade.then(Step::Advance { run, event, cause }, ());
        while let Some((step, ())) = cascade.next_step() {
            self.perform(step, &mut cascade);
        }
        self.story
    }

    fn blocking(&self, run: RunId, settled: bool) -> Blocking {
        let name = self.runs[&run].name;
        let open = self
            .requests
            .values()
            .any(|one| one.of == name && (one.state == RequestState::Pending || one.is_held));
        Blocking { open, settled }
    }

    fn perform(&mut self, step: Step, cascade: &mut Cascade) {
        match step {
            Step::Advance { run, event, .. } => {
                let blocking = self.blocking(run, false);
                let has_parent = self.runs[&run].asked_in.is_some();
                let one = self.runs.get_mut(&run).expect("it is there");
                let to = run::apply(one.state, event, NOW.steady, KEEP).expect("it is valid");
                self.story.push(format!("{}: {}", one.name, to.word()));
                let change = RunChange {
                    from: std::mem::replace(&mut one.state, to),
                    event,
                    to,
                    blocking: matches!(to, RunState::Stopped { .. }).then_some(blocking),
                    has_parent,
                };
                for effect in change.effects() {
                    cascade.then(Step::Effect { run, effect }, ());
                }
            }
            Step::Settle { request, event } => {
                let one = self.requests.get_mut(&request).expect("it is there");
                let terms = RequestTerms {
                    asker: run_id(one.of),
                    kind: RequestKind::Question,
                    expires_at: SteadyTime(100),
                    default: None,
                    is_delivered: false,
                    held: false,
                };
                let to = request::apply(&one.state, &terms, event, NOW).expect("it is valid");
                self.story.push(format!("{}: {}", one.name, to.word()));
                for effect in effects_of_request(true, &one.state, &to) {
                    let run = run_id(one.of);
                    cascade.then(Step::Effect { run, effect }, ());
                }
                one.state = to;
            }
            Step::Effect { run, effect } => self.take_effect(run, effect, cascade),
            Step::Depend { run, on } => {
                let RunState::Finished(outcome) = self.runs[&on].state else {
                    panic!("it has finished");
                };
                let met = after_end(AfterEnd::Success, outcome == Outcome::Succeeded);
                let one = &self.runs[&run];
                self.story.push(format!("{}: {}", one.name, met.word()));
                if met == AfterState::Failed {
                    let event = RunEvent::StopAsked(StopReason::Cancelled);
                    let cause = Cause::hub("a dependency failed");
                    cascade.then(Step::Advance { run, event, cause }, ());
                }
            }
            other => panic!("this world has no {other:?}"),
        }
    }

    fn take_effect(&mut self, run: RunId, effect: RunEffect, cascade: &mut Cascade) {
        let name = self.runs[&run].name;
        match effect {
            RunEffect::WithdrawRequests { .. } => {
                for (id, _) in self
                    .requests
                    .iter()
                    .filter(|(_, one)| one.of == name && one.state == RequestState::Pending)
                {
                    let (request, event) = (*id, RequestEvent::Withdraw);
                    cascade.then(Step::Settle { request, event }, ());
                }
            }
            RunEffect::InformRequester => {
                let asked_in = self.runs[&run].asked_in.expect("it has a parent");
                let delegation = self
                    .requests
                    .get_mut(&request_id(asked_in))
                    .expect("it is there");
                delegation.is_held = false;
                let (run, settled) = (run_id(delegation.of), true);
                self.story.push(format!("{}: told", delegation.of));
                let effect = RunEffect::ResumeIfSettled { settled };
                cascade.then(Step::Effect { run, effect }, ());
            }
            RunEffect::ResumeIfSettled { settled }
                if resumes_now(self.runs[&run].state, self.blocking(run, settled)) =>
            {
                let (event, cause) = (RunEvent::Resumed, Cause::hub(""));
                cascade.then(Step::Advance { run, event, cause }, ());
            }
            RunEffect::ResolveDependents => {
                let waits = |one: &Run| one.after.contains(&name) && !one.state.is_finished();
                for (id, _) in self.runs.iter().filter(|(_, one)| waits(one)) {
                    cascade.then(Step::Depend { run: *id, on: run }, ());
                }
            }
            RunEffect::OfferSlot => self.story.push("the queue: a slot".to_owned()),
            RunEffect::SettleBudgets => self.story.push(format!("{name}: budgets")),
            _ => {}
        }
    }
}

fn parked() -> RunState {
    RunState::Stopped {
        reason: StopReason::Parked,
        until: SteadyTime(1_000),
    }
}

fn ended(code: i32) -> RunEvent {
    RunEvent::Ended(AttemptEnd {
        exit: Exit::Code(code),
        verdict: None,
        again_at: None,
        waits_for_caller: false,
        failure_reported: false,
        blocking_request_open: false,
        checkpoint_left: false,
        unreadable: None,
        can_resume: false,
        by_itself: true,
    })
}

#[test]
fn cancelled_run_closes_its_requests_resumes_its_parent_and_cancels_its_dependents() {
    let world = World::default()
        .run("parent", parked(), &[])
        .delegation("task", "parent")
        .child("child", RunState::Queued, "task")
        .question("which", "child")
        .run("next", RunState::Queued, &["child"])
        .run("last", RunState::Queued, &["next"]);
    let story = world.after("child", RunEvent::StopAsked(StopReason::Cancelled));
    assert_eq!(
        story,
        [
            "child: finished",
            "which: withdrawn",
            "parent: told",
            "parent: queued",
            "the queue: a slot",
            "child: budgets",
            "next: failed",
            "next: finished",
            "next: budgets",
            "last: failed",
            "last: finished",
            "last: budgets",
        ]
    );
}

#[test]
fn parent_with_another_open_request_stays_stopped() {
    let world = World::default()
        .run("parent", parked(), &[])
        .delegation("task", "parent")
        .question("other", "parent")
        .child("child", RunState::Running, "task");
    let story = world.after("child", ended(0));
    assert_eq!(
        story,
        [
            "child: finished",
            "parent: told",
            "the queue: a slot",
            "child: budgets"
        ]
    );
}

#[test]
fn stop_of_a_live_run_changes_no_other_run() {
    let world = World::default()
        .run("parent", parked(), &[])
        .delegation("task", "parent")
        .child("child", RunState::Running, "task")
        .run("next", RunState::Queued, &["child"]);
    let story = world.after("child", RunEvent::StopAsked(StopReason::Cancelled));
    assert_eq!(story, ["child: stopping"], "its process ends first");
}

#[test]
fn run_that_cannot_start_cancels_its_dependents() {
    let world = World::default()
        .run("first", RunState::Starting, &[])
        .question("which", "first")
        .run("next", RunState::Queued, &["first"]);
    assert_eq!(
        world.after("first", RunEvent::SpawnFailed),
        [
            "first: finished",
            "which: withdrawn",
            "the queue: a slot",
            "first: budgets",
            "next: failed",
            "next: finished",
            "next: budgets"
        ]
    );
}

#[test]
fn end_with_evidence_to_examine_starts_no_dependent_yet() {
    let world = World::default().run("first", RunState::Running, &[]).run(
        "next",
        RunState::Queued,
        &["first"],
    );
    let story = world.after("first", ended(0));
    assert_eq!(
        story,
        ["first: finished", "the queue: a slot", "first: budgets"]
    );
}

#[test]
fn what_follows_from_a_step_comes_before_what_was_left() {
    let step = |name: &str| Step::CancelBelow {
        run: run_id(name),
        by: name.to_owned(),
    };
    let mut cascade = Cascade::new(KEEP);
    for name in ["a", "b"] {
        cascade.then(step(name), ());
    }
    let mut order = Vec::new();
    while let Some((Step::CancelBelow { by, .. }, ())) = cascade.next_step() {
        if by == "a" {
            for name in ["a1", "a2"] {
                cascade.then(step(name), ());
            }
        }
        order.push(by);
    }
    assert_eq!(order, ["a", "a1", "a2", "b"]);
}

/// Each kind of change, with the effects that others rely on.
#[test]
fn effects_of_each_kind_of_change() {
    let change = |from, event, to| RunChange {
        from,
        event,
        to,
        blocking: None,
        has_parent: true,
    };
    let claimed = change(RunState::Queued, RunEvent::Claimed, RunState::Starting);
    assert_eq!(
        claimed.effects(),
        [RunEffect::CountStart, RunEffect::CheckLimits]
    );
    let resumed = change(parked(), RunEvent::Resumed, RunState::Queued);
    assert_eq!(
        resumed.effects(),
        [RunEffect::OfferSlot, RunEffect::CheckLimits]
    );
    let stopped = RunChange {
        blocking: Some(Blocking {
            open: true,
            settled: false,
        }),
        ..change(RunState::Stopping(StopReason::Parked), ended(0), parked())
    };
    assert!(!stopped.ends(), "it resumes by itself");
    assert_eq!(
        stopped.effects(),
        [
            RunEffect::ResumeIfSettled { settled: false },
            RunEffect::FreePorts,
            RunEffect::OfferSlot,
            RunEffect::WakeAt(SteadyTime(1_000)),
            RunEffect::CheckLimits
        ]
    );
    let lost = change(
        RunState::Running,
        RunEvent::SupervisorLost,
        RunState::Finished(Outcome::Succeeded),
    );
    assert_eq!(
        lost.effects(),
        [
            RunEffect::WithdrawRequests { all: false },
            RunEffect::WakeAncestors,
            RunEffect::InformRequester,
            RunEffect::FreePorts,
            RunEffect::OfferSlot,
            RunEffect::OfferTurns,
            RunEffect::SettleBudgets,
            RunEffect::CheckLimits,
            RunEffect::ResolveDependents
        ]
    );
    let orphan = RunChange {
        has_parent: false,
        ..lost
    };
    assert!(!orphan.effects().contains(&RunEffect::InformRequester));
}
