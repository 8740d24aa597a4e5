//! Unit tests of runs' states.

use super::*;
use crate::SteadyTime;
use crate::report::Claim;
use crate::signal::UnreadableEnd;
use proptest::prelude::*;

const KEEP: Retention = Retention { stopped_ms: 1_000 };

fn reason() -> impl Strategy<Value = StopReason> {
    proptest::sample::select(StopReason::ALL.to_vec())
}

fn exit() -> impl Strategy<Value = Exit> {
    prop_oneof![
        (0_i32..3).prop_map(Exit::Code),
        (1_i32..16).prop_map(Exit::Signal)
    ]
}

fn verdict() -> impl Strategy<Value = Option<Verdict>> {
    prop_oneof![
        Just(None),
        Just(Some(Verdict::Succeeded)),
        proptest::sample::select(Cause::ALL.to_vec())
            .prop_map(|cause| Some(Verdict::Failed(cause))),
    ]
}

fn unreadable() -> impl Strategy<Value = Option<UnreadableEnd>> {
    prop_oneof![2 => Just(None), 1 => Just(Some(UnreadableEnd::Notify)), 1 => Just(Some(UnreadableEnd::NeedsAttention))]
}

fn event() -> impl Strategy<Value = RunEvent> {
    prop_oneof![
        3 => Just(RunEvent::Claimed),
        1 => Just(RunEvent::NotStarted),
        3 => Just(RunEvent::Started),
        1 => Just(RunEvent::SpawnFailed),
        1 => Just(RunEvent::FellBack),
        1 => proptest::sample::select(Cause::ALL.to_vec()).prop_map(RunEvent::Refused),
        2 => reason().prop_map(RunEvent::StopAsked),
        2 => (exit(), verdict(), any::<[bool; 6]>(), unreadable()).prop_map(|(exit, verdict, [failure_reported, blocking_request_open, can_resume, checkpoint_left, waits_for_caller, by_itself], unreadable)| {
            let again_at = can_resume.then_some(SteadyTime(9));
            RunEvent::Ended(AttemptEnd { exit, verdict, again_at, waits_for_caller, failure_reported, blocking_request_open, checkpoint_left, unreadable, can_resume, by_itself })
        }),
        1 => Just(RunEvent::SupervisorLost),
        1 => Just(RunEvent::HostLost),
        2 => Just(RunEvent::Resumed),
        1 => Just(RunEvent::Retired),
    ]
}

fn allowed(from: RunState, to: RunState) -> bool {
    use RunState as S;
    matches!(
        (from, to),
        (S::Queued, S::Starting | S::Stopped { .. } | S::Finished(_))
            | (
                S::Starting,
                S::Running | S::Queued | S::Stopping(_) | S::Stopped { .. } | S::Finished(_)
            )
            | (
                S::Running,
                S::Queued | S::Stopping(_) | S::Stopped { .. } | S::Finished(_)
            )
            | (
                S::Stopping(_),
                S::Stopping(_) | S::Stopped { .. } | S::Queued | S::Finished(_)
            )
            | (S::Stopped { .. }, S::Queued | S::Finished(_))
            | (
                S::Stopped {
                    reason: StopReason::MemoryPressure,
                    ..
                },
                S::Stopped {
                    reason: StopReason::Paused,
                    ..
                }
            )
    )
}

proptest! {
    #[test]
    fn finished_run_never_changes(events in proptest::collection::vec(event(), 0..60)) {
        let mut state = RunState::Queued;
        for (now, event) in events.into_iter().enumerate() {
            match apply(state, event, SteadyTime(now as i64), KEEP) {
                Ok(next) => {
                    prop_assert!(!state.is_finished());
                    let falls_back = event == RunEvent::FellBack && (state, next) == (RunState::Running, RunState::Queued);
                    prop_assert!(falls_back || allowed(state, next), "{state:?} -> {next:?}");
                    state = next;
                }
                Err(StateRefusal::Finished(_)) => prop_assert!(state.is_finished()),
                Err(StateRefusal::NotIn { .. }) => prop_assert!(!state.is_finished()),
            }
        }
    }

    #[test]
    fn cancel_overrides_every_end(before in reason(), exit in exit(), open in any::<bool>(), by_itself in any::<bool>()) {
        let stopping = apply(RunState::Stopping(before), RunEvent::StopAsked(StopReason::Cancelled), SteadyTime(0), KEEP).expect("a cancel is always accepted");
        let end = AttemptEnd { exit, verdict: None, again_at: None, waits_for_caller: false, failure_reported: false, blocking_request_open: open, checkpoint_left: false, unreadable: None, can_resume: true, by_itself };
        prop_assert_eq!(apply(stopping, RunEvent::Ended(end), SteadyTime(1), KEEP), Ok(RunState::Finished(Outcome::Cancelled)));
    }

    #[test]
    fn open_blocking_request_is_never_success(exit in exit(), can_resume in any::<bool>()) {
        let end = AttemptEnd { exit, verdict: Some(Verdict::Succeeded), again_at: None, waits_for_caller: false, failure_reported: false, blocking_request_open: true, checkpoint_left: true, unreadable: None, can_resume, by_itself: true };
        let next = apply(RunState::Running, RunEvent::Ended(end), SteadyTime(1), KEEP).expect("a running attempt can end");
        prop_assert_ne!(next, RunState::Finished(Outcome::Succeeded));
    }
}

#[test]
fn unreadable_block_is_never_success() {
    let outcome = |end| apply(RunState::Running, RunEvent::Ended(end), SteadyTime(0), KEEP);
    let stopped = RunState::Stopped {
        reason: StopReason::UnreadableBlock,
        until: SteadyTime(1_000),
    };
    for (verdict, exit) in [
        (None, Exit::Code(0)),
        (Some(Verdict::Succeeded), Exit::Code(0)),
        (None, Exit::Code(1)),
    ] {
        let of = |unreadable| {
            outcome(AttemptEnd {
                exit,
                unreadable: Some(unreadable),
                ..end(verdict)
            })
        };
        assert_eq!(of(UnreadableEnd::Notify), Ok(RunState::Queued));
        assert_eq!(of(UnreadableEnd::NeedsAttention), Ok(stopped));
    }
    for unreadable in [UnreadableEnd::Notify, UnreadableEnd::NeedsAttention] {
        let of = |end| {
            outcome(AttemptEnd {
                unreadable: Some(unreadable),
                ..end
            })
        };
        assert!(
            matches!(
                of(end(Some(Verdict::Failed(Cause::NotSignedIn)))),
                Ok(RunState::Finished(_))
            ),
            "the agent cannot work"
        );
        assert!(matches!(
            of(AttemptEnd {
                blocking_request_open: true,
                ..end(None)
            }),
            Ok(RunState::Stopped {
                reason: StopReason::Parked,
                ..
            })
        ));
    }
    assert_eq!(
        outcome(end(None)),
        Ok(RunState::Finished(Outcome::Succeeded))
    );
}

#[test]
fn stop_with_an_open_request_resumes_when_it_is_decided() {
    let blocking = |open, settled| Blocking { open, settled };
    for reason in StopReason::ALL {
        let state = RunState::Stopped {
            reason,
            until: SteadyTime(1),
        };
        let waits = reason == StopReason::Parked || reason.is_announced();
        assert_eq!(
            awaits_requests(state, blocking(true, false)),
            waits,
            "{reason:?}"
        );
        assert_eq!(
            resumes_now(state, blocking(false, true)),
            waits,
            "{reason:?}"
        );
        assert!(
            !resumes_now(state, blocking(true, true)),
            "{reason:?}: another request is open"
        );
        assert_eq!(
            resumes_now(state, blocking(false, false)),
            reason == StopReason::Parked,
            "{reason:?}"
        );
    }
    assert!(!awaits_requests(RunState::Running, blocking(true, true)));
}

#[test]
fn announced_stop_fails_if_the_agent_cannot_resume() {
    let end = AttemptEnd {
        blocking_request_open: true,
        can_resume: false,
        ..end(None)
    };
    let unanswered = Ok(RunState::Finished(Outcome::Failed(Failure::Unanswered)));
    for state in [
        RunState::Running,
        RunState::Stopping(StopReason::Blocker),
        RunState::Stopping(StopReason::Error),
    ] {
        assert_eq!(
            apply(state, RunEvent::Ended(end), SteadyTime(0), KEEP),
            unanswered,
            "{state:?}"
        );
    }
    let plain = AttemptEnd {
        blocking_request_open: false,
        ..end
    };
    let stopped = Ok(RunState::Stopped {
        reason: StopReason::Blocker,
        until: SteadyTime(1_000),
    });
    assert_eq!(
        apply(
            RunState::Stopping(StopReason::Blocker),
            RunEvent::Ended(plain),
            SteadyTime(0),
            KEEP
        ),
        stopped
    );
}

#[test]
fn pause_by_a_caller_outlasts_memory_pressure() {
    let next = |state, event| apply(state, event, SteadyTime(0), KEEP);
    let paused = Ok(RunState::Stopped {
        reason: StopReason::Paused,
        until: SteadyTime(1_000),
    });
    let pause = RunEvent::StopAsked(StopReason::Paused);
    let stopping = next(RunState::Stopping(StopReason::MemoryPressure), pause);
    assert_eq!(stopping, Ok(RunState::Stopping(StopReason::Paused)));
    assert_eq!(
        next(
            RunState::Stopping(StopReason::Paused),
            RunEvent::Ended(end(None))
        ),
        paused
    );
    assert_eq!(
        next(
            RunState::Stopped {
                reason: StopReason::MemoryPressure,
                until: SteadyTime(9)
            },
            pause
        ),
        paused
    );
    assert!(
        next(
            RunState::Stopped {
                reason: StopReason::RateLimited,
                until: SteadyTime(9)
            },
            pause
        )
        .is_err()
    );
    let cancelling = RunState::Stopping(StopReason::Cancelled);
    assert_eq!(next(cancelling, pause), Ok(cancelling));
}

#[test]
fn refused_start_fails_the_run() {
    let refused = |state| apply(state, RunEvent::Refused(Cause::TooOld), SteadyTime(0), KEEP);
    assert_eq!(
        refused(RunState::Starting),
        Ok(RunState::Finished(Outcome::Failed(Failure::Agent(
            Cause::TooOld
        ))))
    );
    assert_eq!(
        refused(RunState::Stopping(StopReason::Cancelled)),
        Ok(RunState::Finished(Outcome::Cancelled))
    );
    assert!(
        refused(RunState::Running).is_err(),
        "a running agent was started"
    );
}

#[test]
fn failure_with_a_checkpoint_can_be_resumed() {
    let end = AttemptEnd {
        exit: Exit::Code(1),
        checkpoint_left: true,
        ..end(None)
    };
    let next = apply(RunState::Running, RunEvent::Ended(end), SteadyTime(0), KEEP);
    assert_eq!(
        next,
        Ok(RunState::Stopped {
            reason: StopReason::Error,
            until: SteadyTime(1_000)
        })
    );
}

#[test]
fn less_than_success_is_never_shown_as_success() {
    let open = OpenRequests {
        blocking_pending: false,
        answered_unread: false,
    };
    let word = |claim| status(RunState::Finished(Outcome::Succeeded), open, claim).word();
    assert_eq!(
        (
            word(None),
            word(Some(Claim::Completed)),
            word(Some(Claim::Partial))
        ),
        ("success", "completed", "partial_success")
    );
    assert_eq!(
        status(
            RunState::Finished(Outcome::Failed(Failure::Reported)),
            open,
            Some(Claim::Partial)
        ),
        RunStatus::Error
    );
}

#[test]
fn claimed_failure_is_never_shown_as_success() {
    for verdict in [None, Some(Verdict::Succeeded)] {
        let end = AttemptEnd {
            failure_reported: true,
            ..end(verdict)
        };
        assert_eq!(
            apply(RunState::Running, RunEvent::Ended(end), SteadyTime(0), KEEP),
            Ok(RunState::Finished(Outcome::Failed(Failure::Reported)))
        );
    }
}

fn end(verdict: Option<Verdict>) -> AttemptEnd {
    AttemptEnd {
        exit: Exit::Code(0),
        verdict,
        again_at: None,
        waits_for_caller: false,
        failure_reported: false,
        blocking_request_open: false,
        checkpoint_left: false,
        unreadable: None,
        can_resume: true,
        by_itself: false,
    }
}

#[test]
fn stated_outcome_takes_precedence_over_exit_status() {
    let outcome = |end| apply(RunState::Running, RunEvent::Ended(end), SteadyTime(0), KEEP);
    let failed = AttemptEnd {
        exit: Exit::Code(0),
        ..end(Some(Verdict::Failed(Cause::NotSignedIn)))
    };
    assert_eq!(
        outcome(failed),
        Ok(RunState::Finished(Outcome::Failed(Failure::Agent(
            Cause::NotSignedIn
        ))))
    );
    let succeeded = AttemptEnd {
        exit: Exit::Signal(15),
        ..end(Some(Verdict::Succeeded))
    };
    assert_eq!(
        outcome(succeeded),
        Ok(RunState::Finished(Outcome::Succeeded))
    );
}

#[test]
fn temporary_cause_is_the_reason_of_the_stop() {
    let until = SteadyTime(77);
    for cause in Cause::ALL.iter().copied() {
        let failed = AttemptEnd {
            again_at: Some(until),
            ..end(Some(Verdict::Failed(cause)))
        };
        let next = apply(
            RunState::Running,
            RunEvent::Ended(failed),
            SteadyTime(0),
            KEEP,
        );
        let expected = match cause.stop() {
            Some(reason) => RunState::Stopped { reason, until },
            None => RunState::Finished(Outcome::Failed(Failure::Agent(cause))),
        };
        assert_eq!(next, Ok(expected), "{cause:?}");
        assert!(
            cause
                .stop()
                .is_none_or(|reason| reason.word() == cause.word() && reason.waits_for_model()),
            "{cause:?}"
        );
    }
}

#[test]
fn rate_limit_stops_the_run_until_it_resumes() {
    let limited = end(Some(Verdict::Failed(Cause::RateLimited)));
    let outcome = |end| apply(RunState::Running, RunEvent::Ended(end), SteadyTime(0), KEEP);
    let until = SteadyTime(77);
    let stopped = RunState::Stopped {
        reason: StopReason::RateLimited,
        until,
    };
    assert_eq!(
        outcome(AttemptEnd {
            again_at: Some(until),
            ..limited
        }),
        Ok(stopped)
    );
    assert_eq!(
        outcome(limited),
        Ok(RunState::Finished(Outcome::Failed(Failure::Agent(
            Cause::RateLimited
        ))))
    );
    assert_eq!(
        apply(stopped, RunEvent::Resumed, until, KEEP),
        Ok(RunState::Queued)
    );
    let forbidden = outcome(AttemptEnd {
        again_at: Some(until),
        waits_for_caller: true,
        ..limited
    });
    assert!(
        matches!(
            forbidden,
            Ok(RunState::Stopped {
                reason: StopReason::Error,
                ..
            })
        ),
        "{forbidden:?}"
    );
    let other = end(Some(Verdict::Failed(Cause::NotSignedIn)));
    assert!(
        matches!(
            outcome(AttemptEnd {
                waits_for_caller: true,
                ..other
            }),
            Ok(RunState::Finished(_))
        ),
        "it does not pass by itself"
    );
}

#[test]
fn stop_that_came_too_late_does_not_repeat_the_work() {
    let next = |reason, end| {
        apply(
            RunState::Stopping(reason),
            RunEvent::Ended(end),
            SteadyTime(0),
            KEEP,
        )
        .expect("a stopping attempt can end")
    };
    let own = |exit| AttemptEnd {
        exit,
        by_itself: true,
        ..end(None)
    };
    for reason in StopReason::ALL {
        let stopped = RunState::Stopped {
            reason,
            until: SteadyTime(1_000),
        };
        let (done, failed) = (
            next(reason, own(Exit::Code(0))),
            next(reason, own(Exit::Code(3))),
        );
        match reason {
            StopReason::Cancelled => assert_eq!(
                (done, failed),
                (
                    RunState::Finished(Outcome::Cancelled),
                    RunState::Finished(Outcome::Cancelled)
                )
            ),
            reason if reason.outlasts_an_exit() => assert_eq!(
                (done, failed),
                (stopped, stopped),
                "{reason:?}: another attempt has to follow"
            ),
            _ => {
                assert_eq!(done, RunState::Finished(Outcome::Succeeded), "{reason:?}");
                assert_eq!(
                    failed,
                    RunState::Finished(Outcome::Failed(Failure::Exit(Exit::Code(3)))),
                    "{reason:?}"
                );
                let asks = AttemptEnd {
                    blocking_request_open: true,
                    ..own(Exit::Code(0))
                };
                assert_eq!(
                    next(reason, asks),
                    stopped,
                    "{reason:?}: it has not finished"
                );
                assert_eq!(
                    next(
                        reason,
                        AttemptEnd {
                            by_itself: false,
                            ..own(Exit::Code(0))
                        }
                    ),
                    stopped,
                    "{reason:?}: the stop ended it"
                );
            }
        }
    }
}
