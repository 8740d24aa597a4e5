//! Attempts whose runners are cut off for longer than the lease.
//!
//! Thousands can be lost at once, with a rack or a network. Each transaction records a bounded
//! number, so that other calls are answered in between. A hub that is killed meanwhile leaves the
//! others live in the store, and the next one records them.

use super::Runners;
use crate::ops::attempts::lose_with_runners;
use crate::ops::{AttemptId, OpError};
use crate::store::{HostedAttempt, StoreError, hosted_attempts, runner_name};
use adjutant_core::lease::Lease;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// How many lost attempts one transaction records. Other calls wait for it.
const LOST_TOGETHER_MAX: usize = 48;

impl Runners {
    /// Records the loss of the attempts whose leases have expired. Returns when the next one
    /// expires.
    ///
    /// # Errors
    /// A failure of the store. The attempts that it does not concern are recorded.
    pub async fn lose_expired_attempts(&self) -> Result<Option<Instant>, OpError> {
        let hosted = self.store.read(hosted_attempts)?;
        let with_attempts: BTreeSet<String> =
            hosted.iter().map(|attempt| attempt.host.clone()).collect();
        let (mut next, mut failed) = (None, None);
        let mut expired = self.only_expired(hosted, &mut next);
        expired.sort_by(|one, other| one.host.cmp(&other.host));
        for batch in expired.chunks(LOST_TOGETHER_MAX) {
            // A runner can have joined again while earlier ones were recorded.
            let batch = self.only_expired(batch.to_vec(), &mut next);
            failed = self.lose(&batch).await?.or(failed);
        }
        match failed {
            Some(error) => Err(error),
            None => Ok([
                next,
                self.sessions.forget_silent(&with_attempts, Instant::now()),
            ]
            .into_iter()
            .flatten()
            .min()),
        }
    }

    /// Returns the attempts whose leases have expired, and ends the sessions of their runners.
    /// `next` becomes the earliest expiry of the others.
    fn only_expired(
        &self,
        attempts: Vec<HostedAttempt>,
        next: &mut Option<Instant>,
    ) -> Vec<HostedAttempt> {
        let is_expired = |attempt: &HostedAttempt| {
            let lease = lease_of(attempt);
            let is_expired = self
                .sessions
                .end_expired(&attempt.host, lease, Instant::now());
            if !is_expired {
                let expiry = self.sessions.expiry(&attempt.host, lease);
                *next = Some(next.map_or(expiry, |next| next.min(expiry)));
            }
            is_expired
        };
        attempts.into_iter().filter(is_expired).collect()
    }

    /// Records the loss of a batch. If an attempt of it cannot be recorded, the others are, and its
    /// error is returned as `Some`.
    async fn lose(&self, batch: &[HostedAttempt]) -> Result<Option<OpError>, OpError> {
        let ids = |attempts: &[HostedAttempt]| {
            attempts
                .iter()
                .map(|attempt| AttemptId {
                    run: attempt.run,
                    n: attempt.n,
                })
                .collect::<Vec<_>>()
        };
        match lose_with_runners(&self.store, &self.settings, ids(batch)).await {
            Ok(lost) => {
                log_lost(batch, &lost.into_iter().collect());
                return Ok(None);
            }
            Err(error) if is_of_one(&error) => {
                tracing::warn!(%error, "lost attempts cannot be recorded together")
            }
            Err(error) => return Err(error),
        }
        let (mut lost, mut failed) = (BTreeSet::new(), None);
        for attempt in batch {
            match lose_with_runners(
                &self.store,
                &self.settings,
                ids(std::slice::from_ref(attempt)),
            )
            .await
            {
                Ok(recorded) => lost.extend(recorded),
                Err(error) if is_of_one(&error) => {
                    tracing::error!(run = %attempt.run, %error, "the loss of an attempt cannot be recorded");
                    failed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        log_lost(batch, &lost);
        match failed {
            // The store refuses everything.
            Some(error) if lost.is_empty() && batch.len() > 1 => Err(error),
            failed => Ok(failed),
        }
    }
}

fn lease_of(attempt: &HostedAttempt) -> Lease {
    Lease::from_ms(u64::try_from(attempt.lease_ms).unwrap_or(0))
}

/// Returns whether an error concerns what is recorded, and not the store.
fn is_of_one(error: &OpError) -> bool {
    matches!(
        error,
        OpError::Store(StoreError::Denied(_) | StoreError::Corrupt(_) | StoreError::Sql(_))
    )
}

/// Logs each runner once, with the number of its lost attempts.
fn log_lost(batch: &[HostedAttempt], lost: &BTreeSet<AttemptId>) {
    let mut runners: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for attempt in batch.iter().filter(|attempt| {
        lost.contains(&AttemptId {
            run: attempt.run,
            n: attempt.n,
        })
    }) {
        let (attempts, lease_s) = runners.entry(&attempt.host).or_default();
        *attempts += 1;
        *lease_s = Duration::as_secs(&lease_of(attempt).whole());
    }
    for (host, (attempts, lease_s)) in runners {
        tracing::warn!(
            host = runner_name(host),
            attempts,
            lease_s,
            "a runner was cut off for longer than the lease"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Ops;
    use crate::store::testing::fixture::{Fixture, KEEP, fixture, new_run, question};
    use crate::store::{NewRun, Run, has_live_runs, live_by_host, run_by_id};
    use adjutant_core::tree::TreeLimits;
    use adjutant_core::{Budget, Principal, RunEvent, RunId, RunState, StopReason};

    const PERSON: Principal = Principal::Person;

    fn ops(fixture: &Fixture) -> Ops {
        Ops::new(fixture.store.clone(), fixture.home.clone(), 100, None)
    }

    fn id(run: &Run) -> AttemptId {
        AttemptId {
            run: run.id,
            n: run.attempt,
        }
    }

    async fn hosted_runs(fixture: &Fixture, count: usize) -> Vec<Run> {
        let mut runs = Vec::new();
        for n in 0..count {
            runs.push(
                fixture
                    .hosted(new_run(&PERSON, None), &format!("rack-{}/aa", n % 3))
                    .await,
            );
        }
        runs
    }

    fn assert_lost_once(fixture: &Fixture, run: &Run) {
        let now = fixture.run(run.id);
        assert!(
            matches!(
                now.state,
                RunState::Stopped {
                    reason: StopReason::HostLost,
                    ..
                }
            ),
            "{:?}",
            now.state
        );
        assert!(now.checkpoint.is_some());
        assert_eq!(
            fixture
                .kinds(run.id)
                .iter()
                .filter(|kind| **kind == "run.stopped")
                .count(),
            1
        );
    }

    fn below(parent: &Run, new: NewRun) -> NewRun {
        NewRun {
            under: Some((parent.id, TreeLimits::default())),
            ..new
        }
    }

    /// Runs whose loss has different consequences.
    async fn different_runs(fixture: &Fixture) -> Vec<Run> {
        let store = &fixture.store;
        let plain = fixture.hosted(new_run(&PERSON, None), "a/aa").await;
        let budget = Budget {
            tokens: Some(1_000),
            ..Budget::default()
        };
        let parent = fixture
            .hosted(
                NewRun {
                    budget,
                    ..new_run(&PERSON, None)
                },
                "a/aa",
            )
            .await;
        let child = fixture
            .hosted(below(&parent, new_run(&PERSON, None)), "b/bb")
            .await;
        let sibling = fixture
            .hosted(below(&parent, new_run(&PERSON, None)), "a/aa")
            .await;
        let asking = fixture.hosted(new_run(&PERSON, None), "a/aa").await;
        let cancelled = fixture.hosted(new_run(&PERSON, None), "b/bb").await;
        let ended = fixture.hosted(new_run(&PERSON, None), "b/bb").await;
        let changed = (asking.clone(), cancelled.clone(), ended.clone());
        let change = store.write(move |tx| {
            let (asking, cancelled, ended) = changed;
            tx.ask(&asking, &question(true, 60_000, None))?;
            tx.advance(
                &cancelled,
                RunEvent::StopAsked(StopReason::Cancelled),
                KEEP,
                "test",
                "",
            )?;
            tx.set_agent_end(ended.id, ended.attempt, AGENT_END)
        });
        change.await.expect("changed");
        vec![plain, parent, child, sibling, asking, cancelled, ended]
    }

    /// The fact of an agent that has succeeded.
    const AGENT_END: &str = r#"{"fact":"ended","exit_code":0,"signal":null,"swept":0,"output_left_open":false,"active_ms":5,"result":"done","output_bytes":4}"#;

    #[tokio::test(flavor = "multi_thread")]
    async fn attempts_lost_together_end_as_one_by_one() {
        let (together, singly) = (fixture(), fixture());
        let (first, second) = (
            different_runs(&together).await,
            different_runs(&singly).await,
        );
        assert!(
            Runners::of(&ops(&together))
                .lose_expired_attempts()
                .await
                .expect("recorded")
                .is_none()
        );
        let one_by_one = ops(&singly);
        for run in &second {
            lose_with_runners(&one_by_one.store, &one_by_one.settings, vec![id(run)])
                .await
                .expect("recorded");
        }
        for (first, second) in first.iter().zip(&second) {
            let (one, other) = (together.run(first.id), singly.run(second.id));
            assert_eq!(together.kinds(one.id), singly.kinds(other.id));
            let word = |state| match state {
                RunState::Stopped { reason, .. } => format!("stopped, {}", reason.word()),
                state => format!("{state:?}"),
            };
            assert_eq!(word(one.state), word(other.state));
            assert_eq!(
                (
                    one.checkpoint_attempt,
                    one.is_waiting(),
                    one.end_seq.is_some()
                ),
                (
                    other.checkpoint_attempt,
                    other.is_waiting(),
                    other.end_seq.is_some()
                )
            );
        }
        let states: Vec<RunState> = first.iter().map(|run| together.run(run.id).state).collect();
        assert!(
            states[..5].iter().all(|state| matches!(
                state,
                RunState::Stopped {
                    reason: StopReason::HostLost,
                    ..
                }
            )),
            "{states:?}"
        );
        assert!(
            states[5..].iter().all(|state| state.is_finished()),
            "{states:?}"
        );
        assert_eq!(
            together.kinds(first[0].id),
            [
                "run.queued",
                "run.starting",
                "run.started",
                "run.checkpoint",
                "run.stopped"
            ]
        );
    }

    #[tokio::test]
    async fn calls_are_answered_while_many_attempts_are_recorded() {
        let fixture = fixture();
        let runs = hosted_runs(&fixture, 3 * LOST_TOGETHER_MAX).await;
        let runners = Runners::of(&ops(&fixture));
        let live = fixture.store.write(|tx| live_by_host(tx.connection()));
        // The call is made when the first batch is being recorded.
        let (lost, live) = tokio::join!(runners.lose_expired_attempts(), live);
        lost.expect("recorded");
        assert_eq!(
            live.expect("answered").values().sum::<u64>(),
            2 * LOST_TOGETHER_MAX as u64
        );
        runs.iter().for_each(|run| assert_lost_once(&fixture, run));
    }

    #[tokio::test]
    async fn next_hub_records_the_rest() {
        let fixture = fixture();
        let runs = hosted_runs(&fixture, 2 * LOST_TOGETHER_MAX).await;
        let (first, ids) = (
            ops(&fixture),
            runs[..LOST_TOGETHER_MAX].iter().map(id).collect(),
        );
        lose_with_runners(&first.store, &first.settings, ids)
            .await
            .expect("recorded");
        Runners::of(&ops(&fixture))
            .lose_expired_attempts()
            .await
            .expect("recorded");
        runs.iter().for_each(|run| assert_lost_once(&fixture, run));
        assert!(!fixture.store.read(has_live_runs).expect("a store"));
    }

    #[tokio::test]
    async fn unreadable_attempt_does_not_delay_the_others() {
        let fixture = fixture();
        let runs = hosted_runs(&fixture, 2 * LOST_TOGETHER_MAX).await;
        let bad = id(&runs[LOST_TOGETHER_MAX]);
        fixture
            .store
            .write(move |tx| tx.set_agent_end(bad.run, bad.n, "not JSON"))
            .await
            .expect("stored");
        let failed = Runners::of(&ops(&fixture))
            .lose_expired_attempts()
            .await
            .expect_err("it cannot be read");
        assert!(
            matches!(failed, OpError::Store(StoreError::Corrupt(_))),
            "{failed}"
        );
        let state = |run: RunId| {
            fixture
                .store
                .read(|connection| run_by_id(connection, run))
                .expect("a store")
                .expect("a run")
                .state
        };
        assert_eq!(state(bad.run), RunState::Running);
        runs.iter()
            .filter(|run| run.id != bad.run)
            .for_each(|run| assert_lost_once(&fixture, run));
    }
}
