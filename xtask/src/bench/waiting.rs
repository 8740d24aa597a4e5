//! Workers on runners that wait for answers: the memory of the hub, and whether answers reach them.
//!
//! This program plays the runners: it makes their calls, over TLS and as they do, and starts
//! nothing. As for a real one, two calls of each worker wait at the hub: its supervisor's for
//! orders, and its own for the answer.

use super::hosts::{RunnerToken, TLS, write_certificate};
use super::{Bench, fleet};
use crate::lab::{Lab, Result, private_mb, rss_mb};
use crate::stats::{Row, Samples, short};
use adjutant_api::protocol::{
    ATTEMPT_TOKEN, Fact, FactKind, FactsStored, GetOrders, GetRunnerWork, JoinRunner, Orders,
    PostFacts, RUNNER_HOME, RUNNER_RELAY, RUNNER_SESSION, RunnerJoined, RunnerWork, headers,
};
use adjutant_api::view::{AnswerOne, AnswerRequests, Ask, AskAndWait, RequestView};
use adjutant_core::Fingerprint;
use adjutant_net::remote::{Connections, Trust};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

const RUNNERS: usize = 50;
/// The hub's maximum, for all workers together.
const MEMORY_MAX_MB: f64 = 400.0;
/// Number of answers.
const ANSWERS: usize = 100;
/// The wait of each call, longer than the measurement.
const WAIT_MS: u64 = 60 * 60 * 1000;
/// The pause before the memory is measured.
const QUIET: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(300);
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// The lease is as long as the waits, so that no call is repeated.
const CONFIG: &str = "listen = \"127.0.0.1:0\"\nrunner_lease = \"12h\"\n[pools.fleet]\nrunners = true\nslots = 10000\n";

pub async fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let workers = bench.scale.waiting_workers;
    raise_descriptors()?;
    let lab = Arc::new(bench.lab(&format!("{CONFIG}{TLS}"))?);
    write_certificate(&lab)?;
    lab.start_hub()?;
    fleet::fill(&lab, workers).await?;
    let started = start(&lab, workers).await?;
    let pid = lab.hub().await?.pid;
    let (private_before, rss_before) = (private_mb(pid)?, rss_mb(pid)?);
    let mut waits = Waits::begin(&lab, started).await?;
    let (private, rss) = (private_mb(pid)?, rss_mb(pid)?);
    let count = waits.waiting.len();
    let (times, lost) = answer(&lab, &mut waits).await?;
    if let Some(refusal) = &waits.refusal {
        eprintln!("{count} of {workers} workers can wait: {refusal}");
    }
    let mut memory = Row::number(
        &format!("  memory, private: hub with {count} of them"),
        private,
        "MB",
        MEMORY_MAX_MB,
        true,
    );
    memory.met = Some(memory.met == Some(true) && count == workers);
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let (accepted, all, lost) = (count as f64, workers as f64, lost as f64);
    Ok(vec![
        Row::number(
            &format!(
                "of {workers} workers on {RUNNERS} runners, that wait for an answer (two calls each, TLS)"
            ),
            accepted,
            "",
            all,
            false,
        ),
        memory,
        Row::plain(
            "  the same before their calls",
            mb(private_before),
            String::new(),
        ),
        Row::plain(
            "  RSS: hub with them (before)",
            format!("{} ({})", mb(rss), mb(rss_before)),
            String::new(),
        ),
        Row::number(
            &format!(
                "  answers to {} of them that did not arrive",
                count.min(ANSWERS)
            ),
            lost,
            "",
            0.0,
            true,
        ),
        Row::plain(
            "  an answer's call to the return of the waiting one",
            super::ms(times.p50()),
            super::ms(times.p99()),
        ),
    ])
}

fn mb(value: f64) -> String {
    format!("{} MB", short(value))
}

/// Lets this program open as many files as it may, because each waiting call has a connection.
fn raise_descriptors() -> Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    )?)
}

/// A runner, as the hub sees it.
struct Runner {
    hub: Connections,
    bearer: String,
    home_id: String,
    session: String,
}

/// An attempt on a runner.
struct Worker {
    runner: Arc<Runner>,
    run_id: String,
    attempt: String,
    token: String,
}

impl Runner {
    async fn join(url: &str, token: &RunnerToken, number: usize, slots: usize) -> Result<Self> {
        let fingerprint = Fingerprint::parse(&token.fingerprint)?;
        let hub = Connections::shared(url.parse()?, Trust::Fingerprints(vec![fingerprint]));
        let mut runner = Self {
            hub,
            bearer: format!("Bearer {}", token.token),
            home_id: format!("{number:032x}"),
            session: String::new(),
        };
        let join = JoinRunner {
            home_id: runner.home_id.clone(),
            pools: vec!["fleet".to_owned()],
            slots: u64::try_from(slots)?,
            ..JoinRunner::default()
        };
        runner.session = runner
            .post::<RunnerJoined>("/runner/join", &[], &join)
            .await?
            .session;
        Ok(runner)
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        own: &[(&str, &str)],
        call: &impl Serialize,
    ) -> Result<T> {
        let mut all = vec![
            ("authorization", self.bearer.as_str()),
            (RUNNER_SESSION, &self.session),
            (RUNNER_HOME, &self.home_id),
        ];
        all.extend(own);
        let reply = self
            .hub
            .post(
                path,
                &all,
                serde_json::to_vec(call)?.into(),
                2 * Duration::from_millis(WAIT_MS),
            )
            .await?;
        if !reply.status.is_success() {
            return Err(format!(
                "{path}: {}: {}",
                reply.status,
                String::from_utf8_lossy(&reply.body)
            )
            .into());
        }
        Ok(serde_json::from_slice(&reply.body)?)
    }

    /// Takes as many orders as it has slots.
    async fn take_orders(self: &Arc<Self>, slots: usize) -> Result<Vec<Worker>> {
        let (mut workers, mut taken) = (Vec::new(), Vec::new());
        while workers.len() < slots {
            let call = GetRunnerWork {
                taken,
                wait_ms: WAIT_MS,
                ..GetRunnerWork::default()
            };
            let work: RunnerWork = self.post("/runner/work", &[], &call).await?;
            taken = work
                .orders
                .iter()
                .map(|order| format!("{}/{}", order.run_id, order.attempt))
                .collect();
            for (order, attempt) in work.orders.into_iter().zip(&taken) {
                workers.push(Worker {
                    runner: Arc::clone(self),
                    run_id: order.run_id,
                    attempt: attempt.clone(),
                    token: order.token,
                });
            }
        }
        self.post::<RunnerWork>(
            "/runner/work",
            &[],
            &GetRunnerWork {
                taken,
                ..GetRunnerWork::default()
            },
        )
        .await?;
        Ok(workers)
    }
}

impl Worker {
    async fn relay<T: DeserializeOwned>(&self, path: &str, call: &impl Serialize) -> Result<T> {
        let key = adjutant_net::hub_client::fresh_key();
        let own = [
            (headers::ATTEMPT, self.attempt.as_str()),
            (ATTEMPT_TOKEN, &self.token),
            (headers::KEY, &key),
        ];
        self.runner
            .post(&format!("{RUNNER_RELAY}{path}"), &own, call)
            .await
    }

    async fn report_start(&self) -> Result<()> {
        let what = FactKind::Started {
            pid: 1,
            guard_pid: 1,
            containment: "subreaper".to_owned(),
            fence: None,
        };
        self.relay::<FactsStored>(
            "/link/facts",
            &PostFacts {
                facts: vec![Fact {
                    n: 1,
                    at_ms: 0,
                    what,
                }],
            },
        )
        .await
        .map(drop)
    }

    /// Reads the orders, as a supervisor does. Returns their version once it is another one.
    async fn orders(&self, known: i64) -> Result<i64> {
        Ok(self
            .relay::<Orders>(
                "/link/orders",
                &GetOrders {
                    known,
                    wait_ms: WAIT_MS,
                    standing: None,
                },
            )
            .await?
            .version)
    }

    async fn follow_orders(&self, mut known: i64) -> Result<Infallible> {
        loop {
            known = self.orders(known).await?;
        }
    }

    /// Asks, and waits for the answer.
    async fn ask(&self) -> Result<RequestView> {
        let ask = Ask {
            question: format!("what does {} do next?", self.run_id),
            blocking: true,
            ..Ask::default()
        };
        self.relay(
            "/api/v1/ask-wait",
            &AskAndWait {
                ask,
                wait_ms: WAIT_MS,
            },
        )
        .await
    }

    /// Has two calls that wait, until one of them ends.
    async fn wait(&self) -> Result<RequestView> {
        let known = self.orders(0).await?;
        tokio::select! {
            ended = self.follow_orders(known) => match ended {
                Err(error) => Err(error),
            },
            answered = self.ask() => answered,
        }
    }
}

/// Starts the queued runs on the runners. Returns their workers, those of each runner far from each
/// other.
async fn start(lab: &Arc<Lab>, workers: usize) -> Result<Vec<Worker>> {
    let url = lab.hub().await?.url.ok_or("the hub does not listen")?;
    let slots = workers / RUNNERS;
    let mut runners = JoinSet::new();
    for number in 0..RUNNERS {
        let token = RunnerToken::new(lab, &format!("runner{number}"))?;
        let url = url.clone();
        runners.spawn(async move {
            let started = async {
                let runner = Arc::new(Runner::join(&url, &token, number, slots).await?);
                let workers = runner.take_orders(slots).await?;
                for worker in &workers {
                    worker.report_start().await?;
                }
                Result::Ok(workers)
            };
            tokio::time::timeout(LIMIT, started)
                .await
                .map_err(|_| format!("runner {number} has not started all runs in {LIMIT:?}"))?
        });
    }
    let mut started = Vec::new();
    while let Some(workers) = runners.join_next().await {
        started.push(workers??.into_iter());
    }
    Ok((0..slots)
        .flat_map(|_| {
            started
                .iter_mut()
                .filter_map(Iterator::next)
                .collect::<Vec<_>>()
        })
        .collect())
}

/// The end of a wait.
struct Ended {
    worker: usize,
    answer: Result<RequestView>,
    at: Instant,
}

/// The waiting calls of all workers.
struct Waits {
    workers: Vec<Arc<Worker>>,
    /// The workers whose calls wait.
    waiting: BTreeSet<usize>,
    sender: UnboundedSender<Ended>,
    ended: UnboundedReceiver<Ended>,
    /// Why the first call was refused.
    refusal: Option<String>,
    calls: JoinSet<()>,
}

impl Waits {
    /// Lets workers wait, one of each runner at a time, until all do or the hub refuses those of
    /// all runners.
    async fn begin(lab: &Lab, workers: Vec<Worker>) -> Result<Self> {
        let workers: Vec<Arc<Worker>> = workers.into_iter().map(Arc::new).collect();
        let (sender, ended) = unbounded_channel();
        let mut waits = Self {
            workers,
            waiting: BTreeSet::new(),
            sender,
            ended,
            refusal: None,
            calls: JoinSet::new(),
        };
        let mut opened = 0;
        while opened < waits.workers.len() && opened - waits.waiting.len() < RUNNERS {
            let next = (opened + RUNNERS).min(waits.workers.len());
            (opened..next).for_each(|worker| waits.open(worker));
            opened = next;
            waits.settle(lab, opened).await?;
        }
        tokio::time::sleep(QUIET).await;
        waits.note_ended();
        Ok(waits)
    }

    fn open(&mut self, number: usize) {
        let (worker, sender) = (Arc::clone(&self.workers[number]), self.sender.clone());
        self.waiting.insert(number);
        self.calls.spawn(async move {
            let answer = worker.wait().await;
            // The receiver lives as long as the calls.
            drop(sender.send(Ended {
                worker: number,
                answer,
                at: Instant::now(),
            }));
        });
    }

    fn note_ended(&mut self) {
        while let Ok(Ended {
            worker,
            answer,
            at: _,
        }) = self.ended.try_recv()
        {
            self.waiting.remove(&worker);
            if let (None, Err(error)) = (&self.refusal, answer) {
                self.refusal = Some(error.to_string());
            }
        }
    }

    /// Waits until each of the workers has asked or was refused.
    async fn settle(&mut self, lab: &Lab, opened: usize) -> Result<()> {
        let began = Instant::now();
        loop {
            self.note_ended();
            let asked = usize::try_from(lab.hub().await?.pending_requests)?;
            if asked >= self.waiting.len() {
                return Ok(());
            }
            if began.elapsed() > LIMIT {
                return Err(format!(
                    "{asked} of {opened} workers have asked, {} were refused",
                    opened - self.waiting.len()
                )
                .into());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Answers some of the workers, one after the other. Returns the times until their calls returned,
/// and how many did not.
async fn answer(lab: &Lab, waits: &mut Waits) -> Result<(Samples, usize)> {
    let client = lab.client();
    let (mut times, mut lost) = (Samples::default(), 0);
    let every = (waits.waiting.len() / ANSWERS).max(1);
    for worker in waits.waiting.iter().step_by(every).take(ANSWERS) {
        let run = waits.workers[*worker].run_id.clone();
        let text = format!("go on, {run}");
        let start = Instant::now();
        client
            .call(&AnswerRequests {
                answers: vec![AnswerOne {
                    run: Some(run),
                    answer: text.clone(),
                    ..AnswerOne::default()
                }],
            })
            .await?;
        let arrived = tokio::time::timeout(ANSWER_LIMIT, async {
            while let Some(ended) = waits.ended.recv().await {
                if ended.worker == *worker {
                    return ended
                        .answer
                        .is_ok_and(|request| request.reply.answer == Some(text))
                        .then_some(ended.at);
                }
            }
            None
        });
        match arrived.await.ok().flatten() {
            Some(at) => times.push(at - start),
            None => lost += 1,
        }
    }
    Ok((times, lost))
}
