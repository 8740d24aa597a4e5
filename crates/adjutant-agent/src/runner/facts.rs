//! Delivers the facts of all supervisors of this runner: those that arrive during one call to the
//! hub wait for the next.

use super::uplink::{CallFailure, PAUSE, RELAY_MAX, Uplink};
use crate::protocol::{
    FactsStored, PostSupervisorFacts, SUPERVISOR_CALLS_MAX, SupervisorCall, SupervisorFactsAnswer,
    SupervisorFactsAnswers,
};
use crate::view::{ErrorView, codes};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// The path of the calls of supervisors that deliver facts.
pub(super) const FACTS: &str = "/link/facts";
/// The path of the calls that deliver these together.
const SUPERVISOR_FACTS: &str = "/runner/supervisor-facts";
/// How many bytes of facts a call has at most, unless those of one supervisor are more: few enough
/// for a slow line.
const CALL_BYTES_MAX: usize = 512 * 1024;

/// A call of a supervisor, which waits for the answer.
struct QueuedCall {
    call: SupervisorCall,
    /// The size of its arguments.
    bytes: usize,
    answer: oneshot::Sender<Result<FactsStored, ErrorView>>,
}

/// Takes the calls of supervisors, which a task delivers.
#[derive(Clone)]
pub(super) struct FactCalls {
    queue: mpsc::Sender<QueuedCall>,
    uplink: Arc<Uplink>,
}

impl FactCalls {
    /// Returns the queue, and the task that delivers what is queued.
    pub(super) fn new(uplink: Arc<Uplink>) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (queue, queued) = mpsc::channel(SUPERVISOR_CALLS_MAX);
        (
            Self {
                queue,
                uplink: Arc::clone(&uplink),
            },
            deliver_queued(uplink, queued),
        )
    }

    /// Delivers a call of a supervisor, whose arguments have `bytes` bytes.
    ///
    /// # Errors
    /// The hub refuses it, or has not answered within the time that a supervisor waits.
    pub(super) async fn deliver(
        &self,
        call: SupervisorCall,
        bytes: usize,
    ) -> Result<FactsStored, ErrorView> {
        let (answer, answered) = oneshot::channel();
        let delivered = async {
            self.queue
                .send(QueuedCall {
                    call,
                    bytes,
                    answer,
                })
                .await
                .ok()?;
            answered.await.ok()
        };
        let answered = tokio::time::timeout(RELAY_MAX, delivered)
            .await
            .ok()
            .flatten();
        answered.unwrap_or_else(|| {
            Err(no_answer(format!(
                "the hub at {} has not answered",
                self.uplink.address()
            )))
        })
    }
}

/// Delivers calls until the queue is dropped.
async fn deliver_queued(uplink: Arc<Uplink>, mut queue: mpsc::Receiver<QueuedCall>) {
    let mut next = queue.recv().await;
    while let Some(first) = next.take() {
        let mut bytes = first.bytes;
        let mut together = vec![first];
        while together.len() < SUPERVISOR_CALLS_MAX {
            let Ok(other) = queue.try_recv() else { break };
            bytes += other.bytes;
            if bytes > CALL_BYTES_MAX {
                next = Some(other);
                break;
            }
            together.push(other);
        }
        deliver_together(&uplink, together).await;
        if next.is_none() {
            next = queue.recv().await;
        }
    }
}

/// Delivers calls in one, which is repeated until the hub has answered or no supervisor waits any
/// more.
async fn deliver_together(uplink: &Uplink, mut queued: Vec<QueuedCall>) {
    loop {
        queued.retain(|queued| !queued.answer.is_closed());
        if queued.is_empty() {
            return;
        }
        match post(
            uplink,
            queued.iter().map(|queued| queued.call.clone()).collect(),
        )
        .await
        {
            Ok(answers) => {
                for (queued, answer) in queued.into_iter().zip(answers) {
                    queued.reply(match answer {
                        SupervisorFactsAnswer::Stored(stored) => Ok(stored),
                        SupervisorFactsAnswer::Refused(error) => Err(error),
                    });
                }
                return;
            }
            Err(CallFailure::Refused(error)) => {
                queued
                    .into_iter()
                    .for_each(|queued| queued.reply(Err(error.clone())));
                return;
            }
            Err(failure) => {
                tracing::debug!(%failure, "facts cannot be delivered yet");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Makes one call. There are as many answers as calls.
async fn post(
    uplink: &Uplink,
    calls: Vec<SupervisorCall>,
) -> Result<Vec<SupervisorFactsAnswer>, CallFailure> {
    let count = calls.len();
    let SupervisorFactsAnswers { answers } = uplink
        .call_in_session(SUPERVISOR_FACTS, &PostSupervisorFacts { calls })
        .await?;
    if answers.len() == count {
        Ok(answers)
    } else {
        Err(CallFailure::NoReply(format!(
            "{} answers to {count} calls",
            answers.len()
        )))
    }
}

impl QueuedCall {
    fn reply(self, answer: Result<FactsStored, ErrorView>) {
        if self.answer.send(answer).is_err() {
            tracing::debug!(
                attempt = self.call.attempt,
                "its supervisor no longer waits for the answer"
            );
        }
    }
}

/// The error after which a supervisor repeats its call.
fn no_answer(message: String) -> ErrorView {
    ErrorView {
        code: codes::CLOSING.to_owned(),
        message,
        hint: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::Trust;
    use crate::runner::uplink::HubSession;
    use adjutant_core::lease::Lease;
    use axum::{Json, Router};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;
    use tokio::time::Instant;

    fn call_of(attempt: &str) -> SupervisorCall {
        SupervisorCall {
            attempt: attempt.to_owned(),
            token: "token".to_owned(),
            arguments: serde_json::json!({"facts": []}),
        }
    }

    /// A hub that hands its calls over, each with where to send the reply, and a runner that
    /// delivers facts to it.
    struct Case {
        calls: FactCalls,
        called: mpsc::Receiver<(PostSupervisorFacts, oneshot::Sender<SupervisorFactsAnswers>)>,
        delivered: JoinSet<(&'static str, Result<FactsStored, ErrorView>)>,
        _serving: JoinSet<()>,
    }

    impl Case {
        async fn new() -> Self {
            let (calls, called) = mpsc::channel(8);
            let serve = move |Json(call): Json<PostSupervisorFacts>| {
                let calls = calls.clone();
                async move {
                    let (reply, replied) = oneshot::channel();
                    calls.send((call, reply)).await.expect("the test listens");
                    Json(replied.await.expect("a reply"))
                }
            };
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = format!("http://{}", listener.local_addr().expect("an address"))
                .parse()
                .expect("a URL");
            let uplink = Arc::new(Uplink::new(
                vec![address],
                &Trust::Installed,
                "token",
                "home".to_owned(),
            ));
            uplink.begin_session(
                HubSession {
                    id: "one".to_owned(),
                    lease: Lease::from_ms(60_000),
                },
                Instant::now(),
            );
            let (calls, delivering) = FactCalls::new(uplink);
            let mut serving = JoinSet::new();
            serving.spawn(async move {
                axum::serve(
                    listener,
                    Router::new().route(SUPERVISOR_FACTS, axum::routing::post(serve)),
                )
                .await
                .expect("a hub")
            });
            serving.spawn(delivering);
            Self {
                calls,
                called,
                delivered: JoinSet::new(),
                _serving: serving,
            }
        }

        fn deliver(&mut self, attempt: &'static str, bytes: usize) {
            let calls = self.calls.clone();
            self.delivered
                .spawn(async move { (attempt, calls.deliver(call_of(attempt), bytes).await) });
        }

        /// Delivers facts while a call is under way.
        async fn deliver_later(&mut self, attempt: &'static str, bytes: usize) {
            let before = self.calls.queue.capacity();
            self.deliver(attempt, bytes);
            while self.calls.queue.capacity() == before {
                tokio::task::yield_now().await;
            }
        }

        /// Returns the attempts of the next call, and where to send its reply.
        async fn called(&mut self) -> (Vec<String>, oneshot::Sender<SupervisorFactsAnswers>) {
            let (call, reply) = self.called.recv().await.expect("a call");
            (
                call.calls.into_iter().map(|call| call.attempt).collect(),
                reply,
            )
        }

        async fn next_delivered(&mut self) -> (&'static str, Result<u64, String>) {
            let (attempt, delivered) = self
                .delivered
                .join_next()
                .await
                .expect("a delivery")
                .expect("a result");
            (
                attempt,
                delivered
                    .map(|stored| stored.cursor)
                    .map_err(|error| error.code),
            )
        }
    }

    fn stored(cursor: u64) -> SupervisorFactsAnswer {
        SupervisorFactsAnswer::Stored(FactsStored { cursor })
    }

    #[tokio::test]
    async fn facts_that_arrive_during_a_call_are_delivered_in_the_next() {
        let mut case = Case::new().await;
        case.deliver("a/1", 10);
        let (attempts, reply) = case.called().await;
        assert_eq!(attempts, ["a/1"]);
        for attempt in ["b/1", "c/1", "d/1"] {
            case.deliver_later(attempt, 10).await;
        }
        reply
            .send(SupervisorFactsAnswers {
                answers: vec![stored(1)],
            })
            .expect("a waiting call");
        assert_eq!(case.next_delivered().await, ("a/1", Ok(1)));
        let (attempts, reply) = case.called().await;
        assert_eq!(attempts, ["b/1", "c/1", "d/1"], "one call for all of them");
        let refused = ErrorView {
            code: codes::CONFLICT.to_owned(),
            message: "its lease has expired".to_owned(),
            hint: None,
        };
        reply
            .send(SupervisorFactsAnswers {
                answers: vec![
                    stored(2),
                    SupervisorFactsAnswer::Refused(refused),
                    stored(4),
                ],
            })
            .expect("a waiting call");
        let mut answers = [
            case.next_delivered().await,
            case.next_delivered().await,
            case.next_delivered().await,
        ];
        answers.sort();
        assert_eq!(
            answers,
            [
                ("b/1", Ok(2)),
                ("c/1", Err(codes::CONFLICT.to_owned())),
                ("d/1", Ok(4))
            ],
            "each has its own answer"
        );
    }

    #[tokio::test]
    async fn large_facts_do_not_delay_those_before_them() {
        let mut case = Case::new().await;
        case.deliver("a/1", 10);
        let (mut reply, mut answered) = (case.called().await.1, 1);
        for (attempt, bytes) in [
            ("b/1", 10),
            ("c/1", 10),
            ("d/1", CALL_BYTES_MAX),
            ("e/1", 10),
        ] {
            case.deliver_later(attempt, bytes).await;
        }
        for expected in [["b/1", "c/1"].as_slice(), &["d/1"], &["e/1"]] {
            reply
                .send(SupervisorFactsAnswers {
                    answers: vec![stored(1); answered],
                })
                .expect("a waiting call");
            let (attempts, next) = case.called().await;
            assert_eq!(attempts, expected);
            (reply, answered) = (next, expected.len());
        }
    }

    #[tokio::test]
    async fn call_without_a_usable_reply_is_repeated() {
        let mut case = Case::new().await;
        case.deliver("a/1", 10);
        let (_, reply) = case.called().await;
        reply
            .send(SupervisorFactsAnswers::default())
            .expect("a waiting call");
        let (attempts, reply) = case.called().await;
        assert_eq!(attempts, ["a/1"]);
        reply
            .send(SupervisorFactsAnswers {
                answers: vec![stored(3)],
            })
            .expect("a waiting call");
        assert_eq!(case.next_delivered().await, ("a/1", Ok(3)));
    }
}
