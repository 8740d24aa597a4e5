//! Facts of many supervisors, delivered by their runner in one call.

use super::supervised_attempt;
use crate::ops::attempts::apply_facts;
use crate::ops::runner_sessions::RunnerSession;
use crate::ops::settings::Settings;
use crate::ops::{AttemptId, OpError};
use crate::protocol::{
    FactsStored, PostFacts, PostSupervisorFacts, SUPERVISOR_CALLS_MAX, SupervisorCall,
    SupervisorFactsAnswer, SupervisorFactsAnswers,
};
use crate::store::Store;
use crate::view::{codes, json_problem};
use adjutant_core::Denied;
use futures::future::join_all;

/// Applies the facts of supervisors on a runner, and answers each of them. They are written
/// together, as far as possible. Returns also the attempts that may have new facts.
///
/// # Errors
/// There are too many, or the store cannot be read.
pub async fn apply_supervisor_facts(
    store: &Store,
    settings: &Settings,
    session: &RunnerSession,
    call: PostSupervisorFacts,
) -> Result<(SupervisorFactsAnswers, Vec<AttemptId>), OpError> {
    let PostSupervisorFacts { calls } = call;
    if calls.len() > SUPERVISOR_CALLS_MAX {
        return Err(
            Denied::invalid("calls", format!("send {SUPERVISOR_CALLS_MAX} at most")).into(),
        );
    }
    let checked = store.read(|connection| {
        let check = |SupervisorCall {
                         attempt,
                         token,
                         arguments,
                     }: SupervisorCall| {
            let id = supervised_attempt(connection, session, &attempt, &token)?;
            let PostFacts { facts } = serde_json::from_value(arguments)
                .map_err(|error| Denied::invalid("facts", json_problem(&error)))?;
            Ok((id, facts))
        };
        Ok(calls
            .into_iter()
            .map(check)
            .collect::<Vec<Result<_, OpError>>>())
    })?;
    let attempts = checked.iter().flatten().map(|(id, _)| *id).collect();
    let applied = checked.into_iter().map(|checked| async move {
        let (id, facts) = checked?;
        apply_facts(store, settings, id, facts).await
    });
    let answers = join_all(applied).await.into_iter().map(answer).collect();
    Ok((SupervisorFactsAnswers { answers }, attempts))
}

fn answer(applied: Result<u64, OpError>) -> SupervisorFactsAnswer {
    match applied {
        Ok(cursor) => SupervisorFactsAnswer::Stored(FactsStored { cursor }),
        Err(error) => {
            let view = error.view();
            if view.code == codes::INTERNAL {
                tracing::error!(%error, "facts of a supervisor cannot be stored");
            }
            SupervisorFactsAnswer::Refused(view)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Ops;
    use crate::store::testing::fixture::{Fixture, TOKEN, fixture, new_run};
    use adjutant_core::Principal;
    use serde_json::{Value, json};

    async fn answers(
        ops: &Ops,
        host: &str,
        calls: Vec<(AttemptId, &str, Value)>,
    ) -> Vec<Result<u64, String>> {
        let calls = calls
            .into_iter()
            .map(|(id, token, arguments)| SupervisorCall {
                attempt: id.to_string(),
                token: token.to_owned(),
                arguments,
            });
        let call = PostSupervisorFacts {
            calls: calls.collect(),
        };
        let answers = apply_supervisor_facts(
            &ops.store,
            &ops.settings,
            &RunnerSession::of_host(host),
            call,
        )
        .await
        .expect("answers")
        .0
        .answers;
        answers
            .into_iter()
            .map(|answer| match answer {
                SupervisorFactsAnswer::Stored(stored) => Ok(stored.cursor),
                SupervisorFactsAnswer::Refused(error) => Err(error.code),
            })
            .collect()
    }

    async fn hosted(fixture: &Fixture, host: &str) -> AttemptId {
        let run = fixture
            .hosted(new_run(&Principal::Person, None), host)
            .await;
        AttemptId {
            run: run.id,
            n: run.attempt,
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn each_call_is_checked_and_answered_by_itself() {
        let fixture = fixture();
        let ops = Ops::new(fixture.store.clone(), fixture.home.clone(), 100, None);
        let (first, second) = (
            hosted(&fixture, "rack/aa").await,
            hosted(&fixture, "rack/aa").await,
        );
        let foreign = hosted(&fixture, "other/bb").await;
        let facts = |numbers: &[u64]| json!({"facts": numbers.iter().map(|n| json!({"n": n, "at_ms": 0, "fact": "guard_lost"})).collect::<Vec<_>>()});
        let calls = vec![
            (first, TOKEN, facts(&[1, 2])),
            (first, "another token", facts(&[3])),
            (foreign, TOKEN, facts(&[1])),
            (
                second,
                TOKEN,
                json!({"facts": [{"n": 1, "at_ms": 0, "fact": "of a later version"}]}),
            ),
            (second, TOKEN, facts(&[1])),
        ];
        let [not_allowed, invalid] =
            [codes::NOT_ALLOWED, codes::INVALID].map(|code| Err(code.to_owned()));
        assert_eq!(
            answers(&ops, "rack/aa", calls).await,
            [Ok(2), not_allowed.clone(), not_allowed, invalid, Ok(1)]
        );
        // A repetition changes nothing, and a gap is not filled.
        let calls = vec![(first, TOKEN, facts(&[1, 2])), (second, TOKEN, facts(&[3]))];
        assert_eq!(answers(&ops, "rack/aa", calls).await, [Ok(2), Ok(1)]);
        let call = SupervisorCall {
            attempt: first.to_string(),
            token: TOKEN.to_owned(),
            arguments: facts(&[3]),
        };
        let many = PostSupervisorFacts {
            calls: vec![call; SUPERVISOR_CALLS_MAX + 1],
        };
        assert!(
            apply_supervisor_facts(
                &ops.store,
                &ops.settings,
                &RunnerSession::of_host("rack/aa"),
                many
            )
            .await
            .is_err()
        );
    }
}
