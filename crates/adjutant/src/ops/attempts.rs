//! Attempts as the hub drives them: claiming, launching, taking facts in, saying what is wanted.

use super::leftovers::{Began, LeftFacts, exchanged_lock, rule_out};
use super::trust::Honoured;
use super::{OpError, Ops, Terms, render, resumption};

use crate::config::is_credential;
use crate::link::{AttemptDir, Closing, Fact, FactKind, Order, Orders, Saw, SawAcceptance, UsageText};
use crate::preset::Preset;
use crate::store::{
    EndRow, Run, StoreError, Topic, Tx, Usage, attempt_row, counts, fruitless_attempts, live_in_dir, live_runs, measure_of, next_queued,
    queued_messages, report_of, run_by_id, run_input, times_limited, turn_of_run, untold_of,
};
use adjutant_core::chat::MESSAGE_BYTES_MAX;
use adjutant_core::checkpoint::{self, Known};
use adjutant_core::condition::Retrying;
use adjutant_core::identity::{Measure, Voice, with_statement};
use adjutant_core::report::{Claim, named_files};
use adjutant_core::resume::{compose, compose_in_session};
use adjutant_core::tree::Rank;
use adjutant_core::{
    AttemptEnd, AttemptNo, Cause, Denied, Exit, HarnessKind, PromptVia, RequestEvent, RequestState, RunEvent, RunId, RunState, StopReason, Time,
    Verdict,
};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;

/// After this many attempts of which nothing ever came to life, a run is given up. Far more than hubs
/// that were killed while they began one can account for.
const FRUITLESS_ATTEMPTS_MAX: u32 = 20;
/// Most answers that a new attempt is told with its prompt.
const TOLD_MAX: u32 = 10_000;
/// So much more than a message holds is kept of an answer: what is cut then shows, whatever blanks it ends with.
const BEYOND_MESSAGE_BYTES: usize = 64 * 1024;
/// A supervisor is told whether its clock runs this long after something happened: a question that is
/// answered at once costs it nothing.
const CLOCK_SETTLES: Duration = Duration::from_millis(100);

/// One attempt of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttemptId {
    pub run: RunId,
    pub n: AttemptNo,
}

impl AttemptId {
    /// Parses `<run-id>/<attempt>`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (run, n) = text.split_once('/')?;
        Some(Self { run: RunId::parse(run).ok()?, n: AttemptNo(n.parse().ok()?) })
    }
}

impl std::fmt::Display for AttemptId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.run, self.n)
    }
}

/// An attempt that is on record as begun and is now to be started.
#[derive(Debug)]
pub struct Launch {
    pub id: AttemptId,
    pub dir: AttemptDir,
    pub order: Order,
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

impl Ops {
    /// Returns where an attempt's files are.
    #[must_use]
    pub fn attempt_dir(&self, id: AttemptId) -> AttemptDir {
        AttemptDir::new(&self.home.dir, &id.run.to_string(), id.n.0)
    }

    /// Begins the next queued run, when a place is free. On record when it returns.
    ///
    /// # Errors
    /// A failure of the store or of the configuration.
    pub async fn claim_next(&self) -> Result<Option<Launch>, OpError> {
        let config = self.config_or_builtin();
        let retention = self.retention();
        let token = crate::client::random_hex::<32>();
        let token_hash = hash(&token);
        let live_runs_max = self.live_runs_max(&config);
        let claimed = self
            .store
            .write(move |tx| {
                let counts = counts(tx.connection())?;
                if counts.live.saturating_sub(counts.lent) >= live_runs_max {
                    return Ok(None);
                }
                let Some(run) = next_queued(tx.connection())? else { return Ok(None) };
                // What nobody waits for takes no place that was only lent.
                if run.rank == Rank::SPARE && counts.live >= live_runs_max {
                    return Ok(None);
                }
                let run = tx.claim(&run, &token_hash, retention)?;
                let mut input = run_input(tx.connection(), run.id)?;
                let preset = Preset::from_text(&input.agent.preset);
                // In its own session it has its task and the statement before it.
                let session = run.session.clone().filter(|_| run.attempt.0 > 1 && preset.as_ref().is_some_and(|preset| preset.can.resume));
                let mut since = None;
                if run.attempt.0 > 1 + fruitless_attempts(tx.connection(), run.id)? {
                    let told = untold_of(tx.connection(), run.id, TOLD_MAX)?;
                    let resumption = resumption::of(tx, &run, &told)?;
                    input.prompt = compose(&input.prompt, &resumption);
                    since = Some(resumption);
                    for request in &told {
                        tx.tell(request, run.attempt)?;
                    }
                }
                let others = live_in_dir(tx.connection(), &run.cwd, run.id)?;
                let is_chat = turn_of_run(tx.connection(), run.id)?.is_some();
                let voice = if is_chat { Voice::Chat } else { voice(input.agent.harness, preset.as_ref()) };
                let measure = Measure { criteria: input.criteria.as_deref(), accept: &input.accept };
                let whole = with_statement(run.id, &run.name, &others, voice, &measure, &input.prompt);
                let (prompt, prompt_anew) = match since.filter(|_| session.is_some()) {
                    Some(since) => (compose_in_session(&since), Some(whole)),
                    None => (whole, None),
                };
                // More than a message may have, so that it shows when it is cut.
                let answer_bytes_max = if is_chat { MESSAGE_BYTES_MAX + BEYOND_MESSAGE_BYTES } else { 0 };
                Ok(Some((run, input, preset, session, prompt, prompt_anew, answer_bytes_max)))
            })
            .await?;
        let Some((run, input, preset, session, prompt, prompt_anew, answer_bytes_max)) = claimed else { return Ok(None) };
        let id = AttemptId { run: run.id, n: run.attempt };
        let mut argv = input.agent.command.clone();
        let mut args = input.agent.args.clone();
        if preset.is_none() {
            argv.append(&mut args);
        }
        let mut env = input.env.variables().clone();
        match self.store.credentials(&input.env).await {
            // A turn of a chat keeps those of all vendors.
            Ok(credentials) => env.extend(super::agents::own_env(&input.agent, credentials)),
            Err(error) => tracing::warn!(attempt = %id, %error, "an attempt starts without its dispatcher's credentials"),
        }
        for (name, value) in crate::config::base_env() {
            env.entry(name).or_insert(value);
        }
        env.extend(input.agent.env.clone());
        if let Some(entry) = config.agents.get(&input.agent.name) {
            env.extend(entry.spec.env.clone().into_iter().filter(|(name, _)| is_credential(name)));
        }
        if let (Some(entry), Some(first)) = (config.agents.get(&input.agent.name), argv.first_mut()) {
            let entry = crate::config::AgentEntry { spec: input.agent.clone(), source: entry.source.clone() };
            if let Ok(Some(found)) = super::agents::program(&entry, env.get("PATH").map_or("", String::as_str)) {
                *first = found.display().to_string();
            }
        }
        let honoured = match &preset {
            Some(preset) => self.honoured(&run.cwd, preset, input.agent.trust_repo).await,
            None => Honoured { trust: false, note: None },
        };
        if honoured.note != run.note {
            let note = honoured.note.clone();
            self.store.write(move |tx| tx.set_note(id.run, note.as_deref())).await?;
        }
        let order = Order {
            home: self.home.dir.clone(),
            run_id: run.id.to_string(),
            run_name: run.name.clone(),
            attempt: run.attempt.0,
            agent: run.agent.clone(),
            harness: input.agent.harness.word().to_owned(),
            preset,
            permissions: input.agent.permissions.word().to_owned(),
            trust_repo: honoured.trust,
            session,
            prompt_anew,
            argv,
            args,
            prompt_via: input.agent.prompt.word().to_owned(),
            prompt,
            cwd: PathBuf::from(&run.cwd),
            env,
            timeout_ms: input.agent.timeout_ms,
            active_ms_before: run.active_ms,
            patience_ms: input.agent.patience_ms,
            stall_ms: input.agent.stall_ms,
            grace_ms: input.agent.grace_ms,
            accept: input.accept.clone(),
            answer_bytes_max,
            log_bytes_max: config.log_bytes_max,
            token,
            containment: config.containment.word().to_owned(),
        };
        Ok(Some(Launch { id, dir: self.attempt_dir(id), order }))
    }

    /// Tells whether `token` is the one that an attempt's supervisor was given.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn is_supervisor_of(&self, id: AttemptId, token: &str) -> Result<bool, OpError> {
        let row = self.store.read(|connection| attempt_row(connection, id.run, id.n))?;
        // Hashes are compared, so the time it takes says nothing about the token.
        Ok(row.is_some_and(|row| row.token_hash == hash(token)))
    }

    /// Lists the attempts that may be alive.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn live_attempts(&self) -> Result<Vec<AttemptId>, OpError> {
        Ok(self.store.read(live_runs)?.into_iter().map(|run| AttemptId { run: run.id, n: run.attempt }).collect())
    }

    /// Tells whether an attempt is still to be started, as far as is known.
    #[must_use]
    pub fn is_starting(&self, id: AttemptId) -> bool {
        let run = self.store.read(|connection| run_by_id(connection, id.run));
        run.map_or(true, |run| run.is_some_and(|run| run.attempt == id.n && run.state == RunState::Starting))
    }

    /// Records that an attempt's guard could not be started.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn not_spawned(&self, id: AttemptId, message: String) -> Result<(), OpError> {
        let retention = self.retention();
        self.current(id, move |tx, run| {
            tx.set_detail(run.id, &message)?;
            tx.advance(run, RunEvent::SpawnFailed, retention, "hub", &message).map(|_| ())
        })
        .await
    }

    /// Records that an attempt's agent was not started because its program is too old.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn refused_as_too_old(&self, id: AttemptId, message: String) -> Result<(), OpError> {
        let retention = self.retention();
        self.current(id, move |tx, run| {
            tx.set_detail(run.id, &message)?;
            tx.set_fruitless(run.id, id.n)?;
            tx.advance(run, RunEvent::Refused(Cause::TooOld), retention, "hub", "").map(|_| ())
        })
        .await
    }

    /// Runs `work` on the run of an attempt when that attempt is still its newest and live.
    async fn current(&self, id: AttemptId, work: impl FnOnce(&mut Tx<'_>, &Run) -> Result<(), StoreError> + Send + 'static) -> Result<(), OpError> {
        Ok(self
            .store
            .write(move |tx| {
                let Some(run) = run_by_id(tx.connection(), id.run)? else { return Ok(()) };
                if run.attempt == id.n && run.state.is_live() { work(tx, &run) } else { Ok(()) }
            })
            .await?)
    }

    /// Takes facts in: each once, in order, with its effect in the same transaction. Returns the
    /// number of the last one taken.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn take_facts(&self, id: AttemptId, facts: Vec<Fact>) -> Result<u64, OpError> {
        let terms = self.terms();
        Ok(self
            .store
            .write(move |tx| {
                let Some(row) = attempt_row(tx.connection(), id.run, id.n)? else {
                    return Err(Denied::not_found("attempt", &id.to_string()).into());
                };
                let mut cursor = row.fact;
                for fact in facts {
                    if fact.n != cursor + 1 {
                        continue;
                    }
                    let at = Time(fact.at_ms).between(row.claimed_at, tx.now());
                    tx.dated(at, |tx| take(tx, id, fact.what, terms))?;
                    cursor = fact.n;
                }
                if cursor > row.fact {
                    tx.set_fact(id.run, id.n, cursor)?;
                }
                Ok(cursor)
            })
            .await?)
    }

    /// Tells whether nothing about an attempt is left to be decided.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn is_settled(&self, id: AttemptId) -> Result<bool, OpError> {
        let run = self.store.read(|connection| run_by_id(connection, id.run))?;
        Ok(run.is_none_or(|run| run.attempt != id.n || !run.state.is_live()))
    }

    /// Settles an attempt of which no process is left: takes in what its supervisor wrote down and could not
    /// deliver. If that is not how it ended, the run is lost, or begins anew when nothing of it ever came
    /// to life.
    ///
    /// # Errors
    /// A failure of the store, or of the disk.
    pub async fn settle_left(&self, id: AttemptId) -> Result<(), OpError> {
        let facts_problem = self.take_left_facts(id).await?;
        if self.is_settled(id)? { Ok(()) } else { self.settle_without_word(id, facts_problem).await }
    }

    /// Takes in what a supervisor wrote down. Returns what is wrong with it.
    async fn take_left_facts(&self, id: AttemptId) -> Result<Option<String>, OpError> {
        let path = self.attempt_dir(id).facts();
        let failed = |error: std::io::Error| OpError::Io(format!("{}: {error}", path.display()));
        let dir = self.attempt_dir(id);
        let mut left = on_disk(move || LeftFacts::open(&dir)).await.map_err(failed)?;
        loop {
            let known = self.store.read(|connection| attempt_row(connection, id.run, id.n))?.map_or(0, |row| row.fact);
            let (read, batch) = on_disk(move || left.next_batch(known).map(|batch| (left, batch))).await.map_err(failed)?;
            left = read;
            if batch.is_empty() && left.is_at_end() {
                return Ok(left.problem);
            }
            if !batch.is_empty() {
                self.take_facts(id, batch).await?;
            }
        }
    }

    /// Settles an attempt that has no last word.
    async fn settle_without_word(&self, id: AttemptId, facts_problem: Option<String>) -> Result<(), OpError> {
        let dir = self.attempt_dir(id);
        let failed = |error: std::io::Error| OpError::Io(format!("{}: {error}", self.attempt_dir(id).0.display()));
        let (began, lock_problem) = on_disk(move || rule_out(&dir).map(|began| (began, exchanged_lock(&dir)))).await.map_err(failed)?;
        let never_started = began == Began::Never;
        let marker_problem = if let Began::Unknown(problem) = began { Some(problem) } else { None };
        let problem = facts_problem.or(marker_problem).or(lock_problem);
        let terms = self.terms();
        self.current(id, move |tx, run| {
            let row = attempt_row(tx.connection(), id.run, id.n)?;
            if let Some((end, at)) = row.and_then(|row| Some((row.agent_end?, row.agent_end_at))) {
                let end = serde_json::from_str(&end).map_err(|error| StoreError::Corrupt(format!("attempt {id}: {error}")))?;
                return tx.dated(at.unwrap_or(tx.now()), |tx| settle_unlooked(tx, id, end, terms));
            }
            if never_started {
                tx.set_fruitless(id.run, id.n)?;
            }
            let event = match never_started {
                false => {
                    if let Some(problem) = problem {
                        tracing::warn!(attempt = %id, problem, "its files were changed by somebody else");
                        tx.set_detail(run.id, &problem)?;
                    }
                    RunEvent::SupervisorLost
                }
                true if fruitless_attempts(tx.connection(), id.run)? >= FRUITLESS_ATTEMPTS_MAX => {
                    tx.set_detail(run.id, "its supervisor ended before it could start, again and again")?;
                    RunEvent::SpawnFailed
                }
                true => RunEvent::NotStarted,
            };
            tx.advance(run, event, terms.retention, "hub", "").map(|_| ())
        })
        .await
    }

    /// Returns what is wanted of an attempt, as soon as it differs from what is known.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn orders(&self, id: AttemptId, known: i64, wait_ms: u64) -> Result<Orders, OpError> {
        let deadline = super::end_of_wait(wait_ms);
        let pressing = self.store.bells().listen(vec![Topic::Orders(id.run)]);
        let anything = self.store.bells().listen(vec![Topic::Run(id.run)]);
        let mut settled = false;
        loop {
            let orders = self.wanted(id)?;
            let is_known = orders.version == known;
            let is_news = !is_known && (settled || !clock_only(&orders, known)?);
            if is_news || Instant::now() >= deadline {
                return Ok(orders);
            }
            if is_known {
                tokio::select! {
                    biased;
                    () = pressing.heard() => {
                        settled = false;
                        continue;
                    }
                    () = tokio::time::sleep_until(deadline) => continue,
                    () = anything.heard() => {}
                }
            }
            // At most the clock is wrong, and questions may be asked and answered in quick succession.
            let look_again = deadline.min(Instant::now() + CLOCK_SETTLES);
            settled = tokio::time::timeout_at(look_again, pressing.heard()).await.is_err();
        }
    }

    /// Says what is to be looked at now that an attempt's agent has ended.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn closing(&self, id: AttemptId) -> Result<Closing, OpError> {
        Ok(self.store.read(|connection| {
            let Some(run) = run_by_id(connection, id.run)?.filter(|run| run.attempt == id.n) else { return Ok(Closing::default()) };
            let (report, _) = report_of(connection, run.id)?;
            let leaves = matches!(run.state, RunState::Stopping(reason) if reason != StopReason::Cancelled);
            let ends = matches!(run.state, RunState::Starting | RunState::Running) && !run.is_waiting();
            Ok(Closing {
                files: report.as_ref().filter(|_| ends || leaves).map(|report| named_files(&report.deliverables)),
                accept: ends && !measure_of(connection, run.id)?.1.is_empty(),
                changed: leaves || matches!(run.state, RunState::Starting | RunState::Running),
            })
        })?)
    }

    fn wanted(&self, id: AttemptId) -> Result<Orders, OpError> {
        let mut orders = self.store.read(|connection| {
            let run = run_by_id(connection, id.run)?;
            let Some(run) = run.filter(|run| run.attempt == id.n) else {
                return Ok(Orders { stop: Some(StopReason::Cancelled.word().to_owned()), ..Orders::default() });
            };
            let stop = match run.state {
                RunState::Stopping(reason) | RunState::Stopped { reason, .. } => Some(reason.word().to_owned()),
                RunState::Finished(_) => Some(StopReason::Cancelled.word().to_owned()),
                RunState::Queued | RunState::Starting | RunState::Running => None,
            };
            let messages = if run.prompt_via == PromptVia::Stream { queued_messages(connection, run.id)? } else { Vec::new() };
            let messages = messages.iter().map(|message| render::message(message, &run.name)).collect();
            Ok(Orders { version: 0, stop, waiting: run.is_waiting(), messages })
        })?;
        orders.version = version(&orders)?;
        Ok(orders)
    }
}

/// Stands for everything that the orders say.
fn version(orders: &Orders) -> Result<i64, OpError> {
    let said = serde_json::to_vec(&Orders { version: 0, ..orders.clone() }).map_err(|error| OpError::Io(error.to_string()))?;
    let digest: [u8; 32] = Sha256::digest(&said).into();
    let [a, b, c, d, e, f, ..] = digest;
    Ok(1 + i64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

/// Tells whether orders differ from the known ones only in whether the clock runs.
fn clock_only(orders: &Orders, known: i64) -> Result<bool, OpError> {
    Ok(version(&Orders { waiting: !orders.waiting, ..orders.clone() })? == known)
}

/// Lets one fact take effect. What the rules refuse (a fact about a run that has ended otherwise)
/// is on record in the attempt's own file and changes nothing.
fn take(tx: &mut Tx<'_>, id: AttemptId, fact: FactKind, terms: Terms) -> Result<(), StoreError> {
    let retention = terms.retention;
    let Some(run) = run_by_id(tx.connection(), id.run)? else { return Ok(()) };
    if run.attempt != id.n {
        return Ok(());
    }
    let by = "supervisor";
    let advanced = match fact {
        FactKind::Started { pid, guard_pid: _, containment } => {
            tx.set_containment(run.id, id.n, &containment)?;
            if id.n.0 > 1 + fruitless_attempts(tx.connection(), run.id)? {
                // What the new attempt was told with its prompt has been read.
                for request in untold_of(tx.connection(), run.id, TOLD_MAX)? {
                    if request.told == Some(id.n) && matches!(request.state, RequestState::Answered(_)) {
                        tx.settle(&request, RequestEvent::Retrieve)?;
                    }
                }
                let claimed_at = attempt_row(tx.connection(), run.id, id.n)?.map_or(tx.now(), |row| row.claimed_at);
                let sent = resumption::unsent(tx, &run)?.into_iter().filter(|message| message.sent_at <= claimed_at).map(|message| message.id);
                tx.deliver_messages(&run, &sent.collect::<Vec<_>>(), "prompt")?;
                tx.set_resolution(run.id, None, None, None)?;
            }
            let run = tx.run(run.id)?;
            tx.advance(&run, RunEvent::Started, retention, by, &format!("process {pid}"))
        }
        FactKind::SpawnFailed { code, message } => {
            tx.set_detail(run.id, &message)?;
            tx.advance(&run, RunEvent::SpawnFailed, retention, by, &format!("{code}: {message}"))
        }
        FactKind::Signal { found } => return super::signals::take(tx, &run, &found, terms),
        FactKind::Output { .. } | FactKind::GuardLost {} => return Ok(()),
        FactKind::Stalled { silent_ms } => return tx.set_stalled(&run, Some(silent_ms), by),
        FactKind::Stirred {} => return tx.set_stalled(&run, None, by),
        FactKind::Retrying { cause, words, tries, for_ms } => {
            let cause = Cause::from_word(&cause).unwrap_or(Cause::Agent);
            return tx.set_retrying(&run, &Retrying { cause, words, tries, for_ms }, by);
        }
        FactKind::Subagents(all) => {
            let kept = serde_json::to_string(&all).map_err(|error| StoreError::Corrupt(error.to_string()))?;
            return tx.set_subagents(&run, &kept);
        }
        FactKind::Recovered {} => return tx.set_recovered(&run, by),
        FactKind::AgentEnded { end } => {
            let end = serde_json::to_string(&end).map_err(|error| StoreError::Corrupt(error.to_string()))?;
            return tx.set_agent_end(run.id, id.n, &end);
        }
        FactKind::Looked(saw) => return looked(tx, &run, &saw),
        FactKind::Session { session } => return tx.set_session(run.id, &session),
        FactKind::Delivered { message_id } => return tx.deliver_messages(&run, &[message_id], "live"),
        FactKind::LimitReached { active_ms } => {
            tx.advance(&run, RunEvent::StopAsked(StopReason::ResourceLimit), retention, by, &format!("active for {} s", active_ms / 1000))
        }
        FactKind::Ended { exit_code, signal, swept, output_left_open, active_ms, result, output_bytes: _, verdict, usage } => {
            if run.state.is_finished() {
                return Ok(());
            }
            let exit = match (exit_code, signal) {
                (Some(code), _) => Exit::Code(code),
                (None, Some(signal)) => Exit::Signal(signal),
                (None, None) => Exit::Code(-1),
            };
            tx.set_end(run.id, id.n, &EndRow { exit, swept, output_left_open, active_ms, result })?;
            if let Some(usage) = usage {
                tx.add_usage(run.id, &usage_of(usage))?;
            }
            let told = verdict.as_ref().and_then(|verdict| verdict.again_at_ms).map(Time);
            let mut detail = verdict.as_ref().map_or_else(String::new, |verdict| verdict.message.clone());
            let verdict = verdict.map(|verdict| match verdict.cause {
                Some(cause) => Verdict::Failed(Cause::from_word(&cause).unwrap_or(Cause::Agent)),
                None => Verdict::Succeeded,
            });
            let mut again_at = None;
            if matches!(verdict, Some(Verdict::Failed(cause)) if cause.passes()) {
                let times = times_limited(tx.connection(), run.id)?;
                again_at = terms.patience.goes_on_at(told, times, tx.now()).map(|at| tx.steady_at(at));
                if again_at.is_none() && times > 0 {
                    detail.push_str(&format!("\nit went on by itself {times} times, as often as it may (rate_limits in the configuration)"));
                }
            }
            if !detail.is_empty() && !matches!(run.state, RunState::Stopping(_)) {
                tx.set_detail(run.id, detail.trim_start())?;
            }
            let end = AttemptEnd {
                exit,
                again_at,
                verdict,
                failure_reported: run.claim == Some(Claim::Failed),
                blocking_request_open: run.is_waiting(),
                checkpoint_left: run.checkpoint_attempt == Some(id.n),
                can_resume: true,
            };
            if run.state == RunState::Stopping(StopReason::ResourceLimit) && run.checkpoint_attempt != Some(id.n) {
                leave_checkpoint(tx, run.id)?;
            }
            let advanced = tx.advance(&run, RunEvent::Ended(end), retention, by, "");
            if let Ok(run) = &advanced {
                super::reports::note_shortfall(tx, run)?;
            }
            advanced
        }
    };
    match advanced {
        Ok(_) => Ok(()),
        Err(StoreError::Denied(denied)) => {
            tracing::info!(attempt = %id, %denied, "a fact came too late to change anything");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn usage_of(usage: UsageText) -> Usage {
    let UsageText { input_tokens, cached_tokens, output_tokens, cost_micros, of_session, cost_of_session } = usage;
    Usage { input_tokens, cached_tokens, output_tokens, cost_micros, of_session, cost_of_session }
}

/// How an agent of this harness reaches its parent.
fn voice(harness: HarnessKind, preset: Option<&Preset>) -> Voice {
    match harness {
        HarnessKind::Echo => Voice::Tools,
        HarnessKind::Vendor if preset.is_some_and(|preset| preset.can.tools) => Voice::Tools,
        HarnessKind::Vendor | HarnessKind::Plain => Voice::Blocks,
    }
}

/// Keeps what was seen of what an attempt left behind; its checkpoint is where it was and what it
/// changed, too.
fn looked(tx: &mut Tx<'_>, run: &Run, saw: &Saw) -> Result<(), StoreError> {
    if run.state.is_finished() {
        return Ok(());
    }
    let saw = with_earlier(tx, run, saw.clone())?;
    let text = serde_json::to_string(&saw).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    tx.set_saw(run.id, &text)
}

/// Most changed files that are kept of all attempts together.
const CHANGED_MAX: usize = 500;

/// Adds what earlier attempts changed: each sees only what changed since its own start.
fn with_earlier(tx: &Tx<'_>, run: &Run, mut saw: Saw) -> Result<Saw, StoreError> {
    if run.attempt.0 <= 1 || (saw.changed.is_some() && !saw.changed_since_start) {
        return Ok(saw);
    }
    let (_, earlier) = report_of(tx.connection(), run.id)?;
    let Some(earlier) = super::reports::saw_of(earlier, run.id)? else { return Ok(saw) };
    let Some(files) = earlier.changed else { return Ok(saw) };
    saw.changed_since_start = earlier.changed_since_start;
    let mut all: std::collections::BTreeSet<String> = files.into_iter().collect();
    all.extend(saw.changed.take().unwrap_or_default());
    saw.changed_cut |= earlier.changed_cut || all.len() > CHANGED_MAX;
    saw.changed = Some(all.into_iter().take(CHANGED_MAX).collect());
    Ok(saw)
}

/// Settles an attempt whose agent had ended when its supervisor died over looking at the rest: the
/// agent's end counts, and what was not seen is not known.
fn settle_unlooked(tx: &mut Tx<'_>, id: AttemptId, end: FactKind, terms: Terms) -> Result<(), StoreError> {
    let (_, saw) = report_of(tx.connection(), id.run)?;
    let (_, accept) = measure_of(tx.connection(), id.run)?;
    if saw.is_none() && !accept.is_empty() {
        let not_known = SawAcceptance { not_known: Some("its supervisor died while it ran".to_owned()), ..SawAcceptance::default() };
        let run = tx.run(id.run)?;
        looked(tx, &run, &Saw { acceptance: Some(not_known), ..Saw::default() })?;
    }
    take(tx, id, end, terms)
}

/// Leaves the checkpoint that a run which used up its time did not leave itself.
fn leave_checkpoint(tx: &mut Tx<'_>, id: RunId) -> Result<(), StoreError> {
    let run = tx.run(id)?;
    let known = Known {
        active_ms: run.active_ms,
        percent: run.percent,
        progress: run.progress.as_deref(),
        summary: run.summary.as_deref(),
        last_words: run.result.as_deref(),
    };
    tx.set_checkpoint(&run, &checkpoint::at_the_limit(&known), "hub")
}

/// Reads or writes on a thread that may wait for the disk.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> std::io::Result<T> + Send + 'static) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_clock_needs_can_wait() {
        let known = Orders { waiting: false, ..Orders::default() };
        let told = version(&known).expect("a version");
        let asked = Orders { waiting: true, ..known.clone() };
        assert!(clock_only(&asked, told).expect("told apart"));
        assert!(!clock_only(&known, told).expect("told apart"));
        let stopped = Orders { stop: Some("cancelled".to_owned()), ..asked.clone() };
        assert!(!clock_only(&stopped, told).expect("told apart"));
        assert!(!clock_only(&asked, 0).expect("told apart"), "nothing is known yet");
    }
}
