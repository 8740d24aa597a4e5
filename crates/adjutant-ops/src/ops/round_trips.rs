//! How often calls wait for a PostgreSQL server. Like the conformance tests of the store, these run
//! again in a process whose fixtures use one.

use super::{AttemptId, Caller, Ops};
use crate::ops::attempts::apply_facts;
use crate::ops::chats::SayCall;
use crate::ops::requests::{AnswerCall, ask, read_request};
use crate::ops::runners::Runners;
use crate::protocol::{Fact, FactKind};
use crate::store::testing::fixture::{Fixture, fixture, new_run};
use crate::store::testing::{run_on_newest_server, run_on_server};
use crate::store::{Key, Run};
use crate::view::{AnswerOne, AnswerRequests, Ask, ReadRequest, Say};
use adjutant_core::{Principal, RunId};
use std::future::Future;

/// The most round trips of the calls, with the two of a commit.
const ASK_MAX: u64 = 2;
const ANSWER_MAX: u64 = 3;
/// One of them checks the connection if it was idle.
const RETRIEVE_MAX: u64 = 5;
const POST_MAX: u64 = 9;
const FACTS_MAX: u64 = 2;
/// For all attempts of [`LOST`] together.
const LOST_MAX: u64 = 24;
const LOST: usize = 24;

/// Each call is made at least this often: its statements are prepared by the first ones.
const ROUNDS_MIN: usize = 3;
/// On a loaded machine a connection counts as idle between two statements, and is checked again. So
/// the calls are repeated until each of them was made without a pause.
const ROUNDS_MAX: usize = 40;

struct Counted {
    fixture: Fixture,
    ops: Ops,
    calls: u64,
}

impl Counted {
    fn begin() -> Self {
        let fixture = fixture();
        let ops = Ops::new(fixture.store.clone(), fixture.home.clone(), 100, None);
        Self {
            fixture,
            ops,
            calls: 0,
        }
    }

    /// Returns how often the sessions have waited, not counting this question.
    async fn waited(&self) -> u64 {
        let store = &self.fixture.store;
        let reads = store
            .read(|connection| Ok(connection.round_trips()))
            .expect("a count");
        reads
            + store
                .write(|tx| Ok(tx.connection().round_trips()))
                .await
                .expect("a count")
    }

    /// Returns the round trips of a call, and its reply.
    async fn count<T>(&self, call: impl Future<Output = T>) -> (u64, T) {
        let first = self.waited().await;
        let second = self.waited().await;
        let reply = call.await;
        (self.waited().await - second - (second - first), reply)
    }

    fn caller(&mut self, who: Principal) -> Caller {
        self.calls += 1;
        Caller {
            who,
            key: Some(Key::new(&format!("key {}", self.calls), "call", b"")),
        }
    }

    async fn ask(&mut self, run: RunId) -> (u64, String) {
        let caller = self.caller(Principal::Run(run));
        let question = Ask {
            question: "which?".to_owned(),
            blocking: true,
            ..Ask::default()
        };
        let (count, asked) = self
            .count(ask(&self.ops.store, &self.ops.settings, caller, question))
            .await;
        (count, asked.expect("asked").message_id)
    }

    async fn answer(&mut self, message_id: &str) -> u64 {
        let caller = self.caller(Principal::Person);
        let one = AnswerOne {
            message_id: Some(message_id.to_owned()),
            answer: "this".to_owned(),
            ..AnswerOne::default()
        };
        let (count, answered) = self
            .count(AnswerCall::of(&self.ops).answer(caller, AnswerRequests { answers: vec![one] }))
            .await;
        answered.expect("answered");
        count
    }

    async fn retrieve(&mut self, run: RunId, message_id: &str) -> u64 {
        let caller = self.caller(Principal::Run(run));
        let (count, read) = self
            .count(read_request(
                &self.ops.store,
                &self.ops.settings,
                caller,
                ReadRequest {
                    message_id: message_id.to_owned(),
                    wait_ms: 0,
                },
            ))
            .await;
        assert_eq!(read.expect("read").reply.answer.as_deref(), Some("this"));
        count
    }

    async fn post(&mut self, chat_id: Option<i64>, to: Vec<String>) -> (u64, i64) {
        let caller = self.caller(Principal::Person);
        let say = Say {
            chat_id,
            to,
            message: Some("hello".to_owned()),
            cwd: "/tmp".to_owned(),
            ..Say::default()
        };
        let (count, posted) = self.count(SayCall::of(&self.ops).say(caller, say)).await;
        (count, posted.expect("posted").chat_id)
    }

    async fn state(&self, run: &Run, n: u64) -> u64 {
        let fact = Fact {
            n,
            at_ms: 0,
            what: FactKind::Session {
                session: format!("s{n}"),
            },
        };
        let (count, applied) = self
            .count(apply_facts(
                &self.ops.store,
                &self.ops.settings,
                AttemptId {
                    run: run.id,
                    n: run.attempt,
                },
                vec![fact],
            ))
            .await;
        assert_eq!(applied.expect("applied"), n);
        count
    }
}

/// How often a call has waited each time, and may wait.
struct Counts {
    call: &'static str,
    max: u64,
    counts: Vec<u64>,
}

impl Counts {
    fn new(call: &'static str, max: u64) -> Self {
        Self {
            call,
            max,
            counts: Vec::new(),
        }
    }

    /// The first call prepares its statements. Later ones wait longer only because of a commit that
    /// is not theirs, or a check.
    fn fewest(&self) -> Option<u64> {
        self.counts.iter().skip(1).min().copied()
    }

    fn are_few(&self) -> bool {
        self.counts.len() >= ROUNDS_MIN && self.fewest().is_some_and(|fewest| fewest <= self.max)
    }

    fn check(self) {
        let Self { call, max, counts } = &self;
        println!("{call}: {counts:?}");
        let fewest = self.fewest().expect("counted");
        assert!(
            fewest <= *max,
            "{call} waits {fewest} times for the server, and may wait {max} times: {counts:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_wait_for_few_round_trips() {
    let mut counted = Counted::begin();
    if !counted.fixture.store.is_on_server() {
        return;
    }
    let run = counted.fixture.running(&Principal::Person).await;
    let [mut ask, mut answer, mut retrieve, mut post, mut facts] = [
        Counts::new("ask", ASK_MAX),
        Counts::new("answer", ANSWER_MAX),
        Counts::new("retrieve", RETRIEVE_MAX),
        Counts::new("post", POST_MAX),
        Counts::new("facts", FACTS_MAX),
    ];
    let other = counted.fixture.running(&Principal::Person).await;
    let (_, chat) = counted.post(None, vec![other.name.clone()]).await;
    for n in 1..=ROUNDS_MAX as u64 {
        let (count, message_id) = counted.ask(run.id).await;
        ask.counts.push(count);
        answer.counts.push(counted.answer(&message_id).await);
        retrieve
            .counts
            .push(counted.retrieve(run.id, &message_id).await);
        post.counts
            .push(counted.post(Some(chat), Vec::new()).await.0);
        facts.counts.push(counted.state(&run, n).await);
        if [&ask, &answer, &retrieve, &post, &facts]
            .iter()
            .all(|counts| counts.are_few())
        {
            break;
        }
    }
    [ask, answer, retrieve, post, facts]
        .into_iter()
        .for_each(Counts::check);
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_lost_together_wait_for_few_round_trips() {
    let counted = Counted::begin();
    if !counted.fixture.store.is_on_server() {
        return;
    }
    let mut losses = Counts::new("loss of attempts", LOST_MAX);
    while losses.counts.len() < ROUNDS_MAX && !losses.are_few() {
        let mut runs = Vec::new();
        for _ in 0..LOST {
            runs.push(
                counted
                    .fixture
                    .hosted(new_run(&Principal::Person, None), "rack/aa")
                    .await
                    .id,
            );
        }
        let (count, lost) = counted
            .count(Runners::of(&counted.ops).lose_expired_attempts())
            .await;
        lost.expect("recorded");
        losses.counts.push(count);
        for run in runs {
            let stopped = [
                "run.queued",
                "run.starting",
                "run.started",
                "run.checkpoint",
                "run.stopped",
            ];
            assert_eq!(counted.fixture.kinds(run), stopped);
        }
    }
    losses.check();
}

/// Part of the names of these tests.
const TESTS: [&str; 1] = ["ops::round_trips::"];

#[test]
fn round_trips_are_few_on_postgresql() {
    run_on_server(&TESTS);
}

#[test]
fn round_trips_are_few_on_the_newest_version_on_postgresql() {
    run_on_newest_server(&TESTS);
}
