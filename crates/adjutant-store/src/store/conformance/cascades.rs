//! What follows from random changes of runs, requests and budgets.

use super::budgets::child;
use super::queue_counts::Random;
use crate::store::testing::fixture::{Fixture, KEEP, ended, fixture, new_run, question, random};
use crate::store::*;
use adjutant_core::pool::{AfterEnd, AfterFailed, AfterState};
use adjutant_core::run::{Blocking, resumes_now};
use adjutant_core::signal::{Delegation, Independence, Priority};
use adjutant_core::{
    Budget, Decision, Principal, PromptVia, RequestEvent, RequestId, RequestState, RunEvent, RunId,
    RunName, RunState, StopReason, Subject,
};

const STEPS: usize = 300;

impl Random {
    /// One of the last few, so that changes meet.
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        let from = all.len().saturating_sub(8);
        all[from + self.below(all.len() - from)]
    }
}

/// Runs and requests in the order of their creation.
#[derive(Default)]
struct World {
    runs: Vec<RunId>,
    requests: Vec<RequestId>,
}

impl World {
    fn new_run(&self, random: &mut Random) -> NewRun {
        let mut new = match random.below(3) {
            0 => new_run(&Principal::Person, None),
            _ => child(random.one_of(&self.runs), None),
        };
        new.name = RunName::parse(&format!("r{}", self.runs.len())).ok();
        if random.below(3) == 0 {
            let tokens = 1 + random.below(40);
            new.budget = Budget::parse(&format!("tokens={tokens}k")).expect("a budget");
        }
        if random.below(3) == 0 {
            new.input.agent.prompt = PromptVia::Stream;
        }
        if random.below(2) == 0 {
            let on_end = [AfterEnd::Success, AfterEnd::Any, AfterEnd::Ports][random.below(3)];
            new.after = vec![(random.one_of(&self.runs), on_end)];
            new.after_failed = [AfterFailed::Hold, AfterFailed::Cancel][random.below(2)];
        }
        new
    }
}

fn new_request(random: &mut Random, name: &str) -> NewRequest {
    let mut new = question(random.below(3) > 0, 60_000, Some("a"));
    new.by_block = random.below(2) == 0;
    if random.below(3) == 0 {
        new.subject = Subject::Delegation(Delegation {
            task: format!("task {name}"),
            agent: None,
            directory: None,
            reason: None,
            independence: [Independence::Blocks, Independence::Parallel][random.below(2)],
            priority: Priority::default(),
            context_required: None,
            coordination: None,
            estimate: None,
            budget: Budget::default(),
        });
    }
    new
}

/// Moves a run on, as its state permits.
fn go_on(tx: &mut Tx<'_>, id: RunId, choice: usize) -> Result<(), StoreError> {
    let run = tx.run(id)?;
    let mut advance = |event| tx.advance(&run, event, KEEP, "test", "").map(drop);
    match run.state {
        RunState::Queued => drop(tx.claim(&run, &[1], None, KEEP)?),
        RunState::Starting => match choice {
            0 => advance(RunEvent::NotStarted)?,
            1 => advance(RunEvent::SpawnFailed)?,
            _ => advance(RunEvent::Started)?,
        },
        RunState::Running | RunState::Stopping(_) => {
            advance(ended(i32::from(choice == 0)))?;
            tx.resolve_dependents(id, KEEP)?;
        }
        RunState::Stopped { .. } => advance(RunEvent::Resumed)?,
        RunState::Finished(_) => {}
    }
    Ok(())
}

/// Settles a request in one of the ways that calls have.
fn settle(
    tx: &mut Tx<'_>,
    id: RequestId,
    choice: usize,
    new: &NewRun,
) -> Result<Option<RunId>, StoreError> {
    let request = request_by_id(tx.connection(), id)?.expect("a request");
    let is_delegation = matches!(request.subject, Subject::Delegation(_));
    let decision = match choice {
        _ if !is_delegation => Decision::Text("b".to_owned()),
        0 => Decision::Denied {
            reason: "no".to_owned(),
        },
        _ => Decision::approved(),
    };
    let given = RequestEvent::Answer {
        by: Principal::Person,
        decision,
    };
    let settled = match choice {
        1 => tx.advance_request(&request, RequestEvent::Withdraw)?,
        2 => tx.advance_request(&request, RequestEvent::Retrieve)?,
        3 if !is_delegation => tx.answer_waiting_call(&request, given)?,
        4.. if is_delegation && request.state == RequestState::Pending => {
            let held = choice.is_multiple_of(2) && !tx.run(request.run)?.state.is_finished();
            if held {
                tx.hold(request.run)?;
            }
            let request = tx.advance_request(&request, given)?;
            let request = tx.start_delegated(&request, new, held)?;
            tx.deliver_outcome(&request, KEEP)?;
            return Ok(request.child.map(|(id, _)| id));
        }
        _ => tx.advance_request(&request, given)?,
    };
    tx.deliver_outcome(&settled, KEEP)?;
    Ok(None)
}

/// Makes one random change, which may be refused.
async fn change(f: &Fixture, random: &mut Random, world: &mut World) -> Result<(), StoreError> {
    let (run, kind, choice) = (
        random.one_of(&world.runs),
        random.below(16),
        random.below(8),
    );
    let new = world.new_run(random);
    match kind {
        0 | 1 => {
            let queued = f.store.write_checked(move |tx| tx.dispatch(&new)).await?;
            world.runs.push(queued.id);
        }
        2 | 3 => {
            let new = new_request(random, &format!("{}", world.requests.len()));
            world.requests.push(f.ask(run, new).await?.id);
        }
        4..=6 if !world.requests.is_empty() => {
            let request = random.one_of(&world.requests);
            let new = NewRun {
                after: Vec::new(),
                ..new
            };
            let settled = f
                .store
                .write_checked(move |tx| settle(tx, request, choice, &new));
            world.runs.extend(settled.await?);
        }
        7 => {
            let tokens = u64::try_from(random.below(20_000)).expect("small");
            let model = format!("m{}", world.runs.len());
            f.gate(run, &model, tokens, None).await;
        }
        8 => {
            let reason = [
                StopReason::Cancelled,
                StopReason::Paused,
                StopReason::Parked,
            ][choice % 3];
            let stop = f.store.write_checked(move |tx| {
                let run = tx.run(run)?;
                tx.advance(&run, RunEvent::StopAsked(reason), KEEP, "test", "")?;
                match reason {
                    StopReason::Cancelled => tx.cancel_below(run.id, KEEP, "test"),
                    _ => Ok(()),
                }
            });
            stop.await?;
        }
        9 => {
            f.store
                .write_checked(move |tx| tx.resume_after_raise(run, KEEP, "test"))
                .await?;
        }
        10 => {
            f.store
                .write_checked(move |tx| tx.stop_without_budget(&tx.run(run)?, KEEP).map(drop))
                .await?;
        }
        11 => {
            let events: Vec<_> = (0..3)
                .map(|_| random.one_of(&world.runs))
                .collect::<std::collections::BTreeSet<_>>()
                .into_iter()
                .map(|run| (run, ended(1)))
                .collect();
            f.store
                .write_checked(move |tx| {
                    tx.advance_all(&events, KEEP, "hub")?;
                    events
                        .iter()
                        .try_for_each(|(run, _)| tx.resolve_dependents(*run, KEEP))
                })
                .await?;
        }
        _ => {
            f.store
                .write_checked(move |tx| go_on(tx, run, choice))
                .await?;
        }
    }
    Ok(())
}

/// Checks what holds whenever all that follows from a change was done.
fn check(f: &Fixture, world: &World, at: &str) {
    for id in &world.runs {
        let run = f.run(*id);
        let open = f
            .store
            .read(|connection| requests_of(connection, *id, false, 1_000))
            .expect("requests");
        let pending = open
            .iter()
            .filter(|request| request.state == RequestState::Pending);
        let name = format!("{at}: {}", run.name);
        assert_eq!(run.pending, pending.clone().count() as i64, "{name}");
        if run.state.is_finished() {
            for request in pending {
                assert!(request.subject.outlives_its_run(), "{name}: {}", request.no);
            }
        }
        let (open, settled) = (run.is_waiting(), false);
        assert!(
            !resumes_now(run.state, Blocking { open, settled }),
            "{name} has resumed"
        );
        let after = f
            .store
            .read(|connection| after_of(connection, *id))
            .expect("what it starts after");
        for row in after {
            let ended = f.run(row.run).state.is_finished();
            assert!(
                !(ended && row.state == AfterState::Open && row.on != AfterEnd::Ports),
                "{name} knows that {} has ended",
                row.run
            );
        }
    }
}

#[tokio::test]
async fn all_that_follows_from_random_changes_is_done() {
    let f = fixture();
    let seed = u64::from_le_bytes(random());
    println!("seed {seed}");
    let mut random = Random(seed);
    let first = new_run(&Principal::Person, Some("first"));
    let mut world = World::default();
    let queued = f.store.write(move |tx| tx.dispatch(&first)).await;
    world.runs.push(queued.expect("queued").id);
    let mut seen = [0; 2];
    for step in 0..STEPS {
        match change(&f, &mut random, &mut world).await {
            Ok(()) => seen[0] += 1,
            Err(StoreError::Denied(_)) => seen[1] += 1,
            Err(error) => panic!("seed {seed}, step {step}: {error}"),
        }
        check(&f, &world, &format!("seed {seed}, step {step}"));
    }
    assert!(
        seen.iter().all(|count| *count > 20),
        "seed {seed}: {seen:?}"
    );
    f.store.close();
}
