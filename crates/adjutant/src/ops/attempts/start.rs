//! Starting attempts.

use crate::config::{Config, Home, is_credential};
use crate::link::{FenceOrder, Order};
use crate::ops::attempts::{AttemptId, Launch, hash, resumption};
use crate::ops::trust::TrustDecision;
use crate::ops::workspaces::{order_of, source_of};
use crate::ops::{OpError, Ops};
use crate::preset::Preset;
use crate::store::{counts, fruitless_attempts, live_in_dir, next_queued, run_input, turn_of_run, undelivered_of};
use adjutant_core::chat::MESSAGE_BYTES_MAX;
use adjutant_core::identity::{Acceptance, ParentChannel, with_statement};
use adjutant_core::resume::{compose, compose_in_session};
use adjutant_core::tree::Rank;
use adjutant_core::{AgentSpec, Cause, Fence, HarnessKind, RunEvent};
use std::path::{Path, PathBuf};

/// Maximum number of answers in the prompt of a new attempt.
pub(super) const UNDELIVERED_MAX: u32 = 10_000;
/// Kept beyond the maximum length of a message, so that a cut is detected even if the answer ends with blanks.
const BEYOND_MESSAGE_BYTES: usize = 64 * 1024;

impl Ops {
    /// Claims the next queued run when a slot is free. Recorded when it returns.
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
                // Optional runs do not use slots lent by held runs.
                if run.rank == Rank::SPARE && counts.live >= live_runs_max {
                    return Ok(None);
                }
                let run = tx.claim(&run, &token_hash, retention)?;
                let mut input = run_input(tx.connection(), run.id)?;
                let preset = Preset::from_text(&input.agent.preset);
                // A resumed session already contains the task and the statement.
                let session = run.session.clone().filter(|_| run.attempt.0 > 1 && preset.as_ref().is_some_and(|preset| preset.can.resume));
                let mut since = None;
                if run.attempt.0 > 1 + fruitless_attempts(tx.connection(), run.id)? {
                    let told = undelivered_of(tx.connection(), run.id, UNDELIVERED_MAX)?;
                    let resumption = resumption::of(tx, &run, &told)?;
                    input.prompt = compose(&input.prompt, &resumption);
                    since = Some(resumption);
                    for request in &told {
                        tx.tell(request, run.attempt)?;
                    }
                }
                let others = live_in_dir(tx.connection(), &run.cwd, run.id)?;
                let is_chat = turn_of_run(tx.connection(), run.id)?.is_some();
                let channel = if is_chat { ParentChannel::Chat } else { channel(input.agent.harness, preset.as_ref()) };
                let acceptance = Acceptance { criteria: input.criteria.as_deref(), accept: &input.accept };
                let whole = with_statement(run.id, &run.name, &others, channel, &acceptance, &input.prompt);
                let (prompt, new_session_prompt) = match since.filter(|_| session.is_some()) {
                    Some(since) => (compose_in_session(&since), Some(whole)),
                    None => (whole, None),
                };
                // More than a message may have, so that a cut is detected.
                let answer_bytes_max = if is_chat { MESSAGE_BYTES_MAX + BEYOND_MESSAGE_BYTES } else { 0 };
                let workspace = order_of(tx.connection(), &run.cwd)?;
                Ok(Some((run, input, preset, session, prompt, new_session_prompt, answer_bytes_max, workspace)))
            })
            .await?;
        let Some((run, input, preset, session, prompt, new_session_prompt, answer_bytes_max, workspace)) = claimed else { return Ok(None) };
        let id = AttemptId { run: run.id, n: run.attempt };
        let mut argv = input.agent.command.clone();
        let mut args = input.agent.args.clone();
        if preset.is_none() {
            argv.append(&mut args);
        }
        let mut env = input.env.variables().clone();
        match self.store.credentials(&input.env).await {
            // Chat turns store the credentials of all vendors.
            Ok(credentials) => env.extend(crate::ops::programs::own_env(&input.agent, credentials)),
            Err(error) => tracing::warn!(attempt = %id, %error, "an attempt starts without the dispatcher's credentials"),
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
            match crate::ops::programs::program(&entry, env.get("PATH").map_or("", String::as_str)) {
                Ok(Some(found)) => *first = found.display().to_string(),
                // The supervisor resolves the program again and reports the problem.
                Ok(None) => {}
                Err(error) => tracing::warn!(attempt = %id, ?error, "the agent's program cannot be resolved"),
            }
        }
        let honoured = match &preset {
            Some(preset) => self.honoured(&source_of(&run.cwd, workspace.as_ref()), preset, input.agent.trust_repo).await,
            None => TrustDecision { trust: false, note: None },
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
            new_session_prompt,
            argv,
            args,
            prompt_via: input.agent.prompt.word().to_owned(),
            prompt,
            cwd: PathBuf::from(&run.cwd),
            workspace,
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
            fence: fence_order(&input.agent, &self.home, &config),
        };
        Ok(Some(Launch { id, dir: self.attempt_dir(id), order }))
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
}

/// Returns the fence that an agent's run is to have.
fn fence_order(agent: &AgentSpec, home: &Home, config: &Config) -> Option<FenceOrder> {
    // Settings outside the home can hold secrets, such as those of webhooks.
    let settings = config.path.parent().filter(|dir| !config.path.starts_with(&home.dir) && dir.file_name().is_some_and(|name| name == "adjutant"));
    (agent.fence != Fence::None).then(|| FenceOrder {
        wanted: agent.fence.word().to_owned(),
        writable: agent.fence_write.iter().map(PathBuf::from).collect(),
        hidden: settings.map(Path::to_owned).into_iter().collect(),
    })
}

/// Returns how an agent of this harness reaches its parent.
fn channel(harness: HarnessKind, preset: Option<&Preset>) -> ParentChannel {
    match harness {
        HarnessKind::Echo => ParentChannel::Tools,
        HarnessKind::Vendor if preset.is_some_and(|preset| preset.can.tools) => ParentChannel::Tools,
        HarnessKind::Vendor | HarnessKind::Plain => ParentChannel::Blocks,
    }
}
