//! The numbers of queued runs, which are kept in memory.

use crate::store::queue_counts::QueueCounts;
use crate::store::testing::fixture::{Fixture, KEEP, ended, fixture, new_run, random};
use crate::store::*;
use adjutant_core::pool::{AfterEnd, AfterFailed};
use adjutant_core::{
    AgentName, AgentSpec, ClientName, Denied, PoolName, Principal, RunEvent, RunId, RunState,
    StopReason,
};

const STEPS: usize = 300;
const POOLS: [&str; 3] = ["default", "gpu", "other"];

/// Random numbers that a seed determines.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, max: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % max
    }

    fn pool(&mut self) -> PoolName {
        PoolName::parse(POOLS[self.below(POOLS.len())]).expect("a name")
    }

    fn run(&mut self, all: &[RunId]) -> RunId {
        all[self.below(all.len())]
    }
}

/// Queues a run, which another agent in another pool may take over.
fn queue(tx: &mut Tx<'_>, new: &NewRun, other: PoolName) -> Result<RunId, StoreError> {
    let run = tx.dispatch(new)?;
    let second = AgentSpec {
        name: AgentName::parse("second").expect("a name"),
        ..new.input.agent.clone()
    };
    tx.add_alternatives(
        &run,
        &new.input,
        &[(new.input.agent.clone(), new.pool.clone()), (second, other)],
        true,
    )?;
    Ok(run.id)
}

/// Makes one random change, which may be refused. Returns the new runs.
async fn change(f: &Fixture, random: &mut Random, all: &[RunId]) -> Vec<RunId> {
    let owner =
        Principal::Client(ClientName::parse(["/a", "/b"][random.below(2)]).expect("a name"));
    let mut new = NewRun {
        pool: random.pool(),
        ..new_run(&owner, None)
    };
    let (run, other, pool, kind) = (
        random.run(all),
        random.run(all),
        random.pool(),
        random.below(12),
    );
    let changed = match kind {
        0..3 => {
            f.store
                .write(move |tx| Ok(vec![queue(tx, &new, pool)?]))
                .await
        }
        3 | 4 => {
            new.after = vec![(run, AfterEnd::Success), (other, AfterEnd::Any)];
            new.after_failed = if random.below(2) == 0 {
                AfterFailed::Hold
            } else {
                AfterFailed::Cancel
            };
            f.store
                .write(move |tx| Ok(vec![queue(tx, &new, pool)?]))
                .await
        }
        5 => {
            let refused = f.store.write(move |tx| {
                queue(tx, &new, pool)?;
                Err::<Vec<RunId>, _>(Denied::invalid("test", "refused after it was written").into())
            });
            refused.await
        }
        kind => {
            let work = move |tx: &mut Tx<'_>| {
                let run = tx.run(run)?;
                let advance = |tx: &mut Tx<'_>, event| tx.advance(&run, event, KEEP, "test", "");
                match (kind, run.state) {
                    (6..9, RunState::Queued) => drop(tx.claim(&run, &[1], None, KEEP)?),
                    (6, RunState::Starting) => drop(advance(tx, RunEvent::NotStarted)?),
                    (7, RunState::Starting) => {
                        let run = advance(tx, RunEvent::FellBack)?;
                        tx.switch_agent(&run, "second", "it could not work", "test")?;
                    }
                    (_, RunState::Starting) => drop(advance(tx, RunEvent::Started)?),
                    (6 | 7, RunState::Running | RunState::Stopping(_)) => {
                        advance(tx, ended(i32::from(kind == 7)))?;
                        tx.resolve_dependents(run.id, KEEP)?;
                    }
                    (9, RunState::Queued) if run.after_open > 0 => {
                        tx.release_held(&run, &Principal::Person)?;
                    }
                    (9, RunState::Queued) => {
                        drop(tx.switch_agent(&run, "second", "it is limited", "test")?)
                    }
                    (10, _) => drop(advance(tx, RunEvent::StopAsked(StopReason::Cancelled))?),
                    (_, RunState::Stopped { .. }) => drop(advance(tx, RunEvent::Resumed)?),
                    _ => drop(advance(tx, RunEvent::StopAsked(StopReason::Paused))?),
                }
                Ok(Vec::new())
            };
            f.store.write(work).await
        }
    };
    match changed {
        Ok(added) => added,
        Err(StoreError::Denied(_)) => Vec::new(),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn numbers_of_queued_runs_equal_a_count_after_random_changes() {
    let f = fixture();
    let seed = u64::from_le_bytes(random());
    println!("seed {seed}");
    let mut random = Random(seed);
    let (new, other) = (new_run(&Principal::Person, None), random.pool());
    let mut all = vec![
        f.store
            .write(move |tx| queue(tx, &new, other))
            .await
            .expect("queued"),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for step in 0..STEPS {
        all.extend(change(&f, &mut random, &all).await);
        let counted = QueueCounts::default();
        f.store
            .read(|connection| counted.count(connection))
            .expect("counted");
        let (kept, counted) = (f.store.queued_by_pool(), counted.by_pool());
        assert_eq!(kept, counted, "seed {seed}, step {step}");
        assert_eq!(
            f.store.queued_runs(),
            counted.values().map(|counts| counts.queued).sum::<u64>()
        );
        seen.extend(
            counted
                .into_iter()
                .filter(|(_, counts)| counts.after > 0 && counts.after < counts.queued)
                .map(|(pool, _)| pool),
        );
    }
    assert_eq!(
        seen.len(),
        POOLS.len(),
        "seed {seed}: each pool had runs of both kinds"
    );
    let Fixture {
        store, home, place, ..
    } = &f;
    let before = store.queued_by_pool();
    store.close();
    let reopened = Store::open_at(home, place.clone()).expect("reopened");
    assert_eq!(reopened.queued_by_pool(), before);
    reopened.close();
}
