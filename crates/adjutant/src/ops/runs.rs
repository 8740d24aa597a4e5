//! Dispatching runs, looking at them, ending them.

use super::answers::bounded;
use super::{Caller, OpError, Ops, agents, pick, profiles, render};
use crate::clock;
use crate::preset::Preset;
use crate::store::{
    Connection, KeptCredentials, NewRun, Run, RunInput, StoreError, Tx, beside, newest_of, run_input, runs_newest, signals_of, taken_by, unread_of,
};
use crate::view::{
    Adopt, Cancel, Cleaned, Dispatch, GetRun, ListRuns, LogPage, MessageView, Pause, ReadLogs, Resume, Retry, RunList, RunView, SendToRun,
};
use adjutant_core::checkpoint::{Choice, choices};
use adjutant_core::tree::Rank;
use adjutant_core::{
    Action, AgentName, ClientName, Denied, Permissions, Principal, PromptVia, RequestId, RunEvent, RunId, RunName, RunState, StopReason, limits,
};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Runs that are listed when the caller says no number.
const LIST_DEFAULT: u32 = 200;
const LIST_MAX: u32 = 10_000;
/// Most answered, unread requests that a run's look at itself shows.
const UNREAD_SHOWN_MAX: u32 = 20;
/// Most events of its signals that a run is shown with, the newest.
const SIGNALS_SHOWN_MAX: u32 = 10;
/// Most settled requests that a run is shown with, the newest.
const SETTLED_SHOWN_MAX: u32 = 20;
/// Most variables that a dispatch can carry, and the longest of them in bytes.
const ENV_MAX: usize = 200;
const ENV_BYTES_MAX: usize = 128 * 1024;
/// Most words of an acceptance command, and all of them in bytes.
const ACCEPT_WORDS_MAX: usize = 200;
const ACCEPT_BYTES_MAX: usize = 32 * 1024;
/// A prompt that is one argument has to fit into the kernel's limit for one, 128 KiB.
const PROMPT_ARG_BYTES_MAX: usize = 120 * 1024;

/// Draws random bytes.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0_u8; N];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    bytes
}

pub(super) fn checked_prompt(prompt: &str, via: PromptVia) -> Result<(), Denied> {
    if prompt.trim().is_empty() {
        return Err(Denied::invalid("prompt", "is empty: say what the run is to do"));
    }
    bounded("prompt", prompt, limits::PROMPT_BYTES_MAX)?;
    if via == PromptVia::Arg {
        if prompt.len() > PROMPT_ARG_BYTES_MAX {
            let bytes = prompt.len();
            return Err(Denied::invalid(
                "prompt",
                format!("has {bytes} bytes, and this agent takes it in an argument, of at most {PROMPT_ARG_BYTES_MAX}"),
            ));
        }
        if prompt.contains('\0') {
            return Err(Denied::invalid("prompt", "contains a NUL, which an argument cannot carry"));
        }
    }
    Ok(())
}

fn checked_measure(criteria: Option<&str>, accept: &[String]) -> Result<(), Denied> {
    bounded("criteria", criteria.unwrap_or(""), limits::TEXT_BYTES_MAX)?;
    if accept.len() > ACCEPT_WORDS_MAX || accept.iter().map(String::len).sum::<usize>() > ACCEPT_BYTES_MAX {
        return Err(Denied::invalid("accept", format!("at most {ACCEPT_WORDS_MAX} words of {ACCEPT_BYTES_MAX} bytes together")));
    }
    if accept.first().is_some_and(|program| program.contains(char::is_whitespace) && !program.contains('/')) {
        return Err(Denied::invalid("accept", "give the program and each of its arguments as words of their own: there is no shell to split them"));
    }
    if accept.first().is_some_and(|program| program.trim().is_empty()) || accept.iter().any(|word| word.contains('\0')) {
        return Err(Denied::invalid("accept", "begins with no program, or contains a NUL"));
    }
    Ok(())
}

pub(super) fn checked_cwd(cwd: &str) -> Result<String, Denied> {
    let path = Path::new(cwd);
    if !path.is_absolute() || cwd.contains('\0') {
        return Err(Denied::invalid("cwd", "must be an absolute path"));
    }
    match path.metadata() {
        Ok(meta) if meta.is_dir() => {}
        Ok(_) => return Err(Denied::invalid("cwd", format!("{cwd} is not a directory"))),
        Err(error) => return Err(Denied::invalid("cwd", format!("{cwd}: {error}"))),
    }
    if let Err(error) = rustix::fs::accessat(rustix::fs::CWD, path, rustix::fs::Access::EXEC_OK, rustix::fs::AtFlags::EACCESS) {
        return Err(Denied::invalid("cwd", format!("{cwd} cannot be entered: {}", io::Error::from(error))));
    }
    let canonical = path.canonicalize().map_err(|error| Denied::invalid("cwd", format!("{cwd}: {error}")))?;
    canonical.into_os_string().into_string().map_err(|_| Denied::invalid("cwd", "is not valid UTF-8"))
}

pub(super) fn checked_env(env: &BTreeMap<String, String>) -> Result<(), Denied> {
    let bad_name = |name: &str| name.is_empty() || name.contains(['=', '\0']) || name.starts_with("ADJ_");
    if env.len() > ENV_MAX || env.iter().any(|(name, value)| bad_name(name) || value.contains('\0') || value.len() > ENV_BYTES_MAX) {
        return Err(Denied::invalid("env", "holds a variable that cannot be passed on"));
    }
    Ok(())
}

/// Whose the runs of a principal are.
fn owner_of(who: &Principal) -> Principal {
    who.clone()
}

/// Refuses a directory that another run works in, or is queued to.
fn refuse_shared_directory(connection: &Connection, cwd: &str, except: RunId) -> Result<(), StoreError> {
    match taken_by(connection, cwd, except)?.first() {
        None => Ok(()),
        Some(other) => {
            let problem = format!("{other} is working in this directory (refuse_shared_directory = true): wait for it, or name another directory");
            Err(Denied::conflict("cwd", problem).into())
        }
    }
}

impl Ops {
    /// Queues a run. Durable when it returns; the hub starts it as soon as a place is free.
    ///
    /// # Errors
    /// The agent, its program, the directory, the name or the prompt is unusable.
    pub async fn dispatch(&self, caller: Caller, call: Dispatch) -> Result<RunView, OpError> {
        Self::check(&caller.who, Action::Dispatch)?;
        let config = self.config()?;
        let known = || config.agents.keys().map(AgentName::as_str).collect::<Vec<_>>().join(", ");
        let wanted = match (call.agent.as_str(), &config.default_agent) {
            ("", Some(default)) => default.clone(),
            ("", None) => return Err(OpError::NoAgent { name: "(none given)".to_owned(), known: known() }),
            (name, _) => name.to_owned(),
        };
        let Some(entry) = AgentName::parse(&wanted).ok().and_then(|name| config.agents.get(&name)) else {
            return Err(OpError::NoAgent { name: wanted.chars().take(80).filter(|c| !c.is_control()).collect(), known: known() });
        };
        checked_prompt(&call.prompt, entry.spec.prompt)?;
        let cwd = checked_cwd(&call.cwd)?;
        let name = call.name.as_deref().map(|name| RunName::parse(name).map_err(|error| Denied::invalid("name", error.to_string()))).transpose()?;
        checked_env(&call.env)?;
        agents::program(entry, call.env.get("PATH").map_or("", String::as_str))?;
        let mut agent = entry.spec.clone();
        if let Some(word) = &call.permissions {
            agent.permissions = Permissions::from_word(word).ok_or_else(|| Denied::invalid("permissions", "use read, edit or full"))?;
        }
        profiles::check(&agent, entry.spec.permissions)?;
        agent.trust_repo |= call.trust_repo;
        let preset = Preset::from_text(&agent.preset);
        let found = match preset.filter(|_| agent.trust_repo) {
            Some(preset) => self.look_at_directory(&cwd, &preset).await?,
            None => None,
        };
        // Who says so for this run has looked at it; the configuration alone holds for what was trusted.
        if let Some(found) = found.as_ref().filter(|_| !call.trust_repo) {
            self.check_trusted(&cwd, found)?;
        }
        let env = agents::own_env(&agent, call.env);
        match call.timeout_s {
            Some(0) => return Err(Denied::invalid("timeout_s", "at least 1").into()),
            Some(seconds) => agent.timeout_ms = Some(i64::try_from(seconds).unwrap_or(i64::MAX / 1000).saturating_mul(1000)),
            None => {}
        }
        checked_measure(call.criteria.as_deref(), &call.accept)?;
        let (refuse_shared, live_runs_max) = (config.refuse_shared_directory, self.live_runs_max(&config));
        let kept = self.store.keep_credentials(env).await?;
        let env = kept.env.clone();
        let (id, name_seed) = (RunId::new(clock::now(), random()), random());
        let home = self.home.clone();
        let dispatch = move |tx: &mut Tx<'_>, who: &Principal| {
            if refuse_shared {
                refuse_shared_directory(tx.connection(), &cwd, id)?;
            }
            if let Some(found) = &found {
                tx.trust(&cwd, &found.hash, who)?;
            }
            let new = NewRun {
                id,
                name,
                name_seed,
                cwd,
                owner: owner_of(who),
                retry_of: None,
                under: None,
                rank: Rank::default(),
                estimate_ms: None,
                task: call.prompt.clone(),
                by: who.clone(),
                input: RunInput { prompt: call.prompt, agent, env, criteria: call.criteria, accept: call.accept },
            };
            let run = tx.dispatch(&new)?;
            let mut view = render::run(tx.connection(), &home, &run)?;
            render::starts_at_once(tx.connection(), live_runs_max, &mut view)?;
            Ok(view)
        };
        let dispatched = self.write(caller, dispatch).await;
        self.settle_credentials(kept).await;
        dispatched
    }

    /// Keeps the credentials that somebody gives for a run's next attempt: those of its agent, which has to
    /// be one that can be held to the run's profile. A run that is not there has none; that is told later.
    async fn credentials_for(&self, who: &Principal, action: Action, run: &str, env: BTreeMap<String, String>) -> Result<KeptCredentials, OpError> {
        checked_env(&env)?;
        let agent = self.store.read(|connection| match pick::run(connection, who, action, run) {
            Ok(run) => Ok(Some(run_input(connection, run.id)?.agent)),
            Err(StoreError::Denied(_)) => Ok(None),
            Err(error) => Err(error),
        })?;
        if let Some(agent) = &agent {
            self.check_again(agent)?;
        }
        let own = agent.map_or_else(BTreeMap::new, |agent| agents::own_env(&agent, env));
        Ok(self.store.keep_credentials(own).await?)
    }

    /// Lets go of kept credentials that nothing refers to. What fails is done by the next sweep.
    pub(super) async fn settle_credentials(&self, kept: KeptCredentials) {
        if let Err(error) = self.store.settle_credentials(kept).await {
            tracing::warn!(%error, "kept credentials cannot be settled yet");
        }
    }

    /// Lists runs that the caller may see, newest first.
    ///
    /// # Errors
    /// The caller may not list.
    pub fn list_runs(&self, who: &Principal, call: &ListRuns) -> Result<RunList, OpError> {
        Self::check(who, Action::ListRuns)?;
        let owner = if *who == Principal::Person { None } else { Some(who) };
        let limit = call.limit.unwrap_or(LIST_DEFAULT).clamp(1, LIST_MAX);
        Ok(self.store.read(|connection| {
            let page = runs_newest(connection, owner, call.all, limit)?;
            let runs = page.runs.iter().map(|run| render::run(connection, &self.home, run)).collect::<Result<_, _>>()?;
            Ok(RunList { runs, more: page.more, clock: clock::warning() })
        })?)
    }

    /// Looks at one run. A run that looks at itself gets its messages along, and sees which of its
    /// requests were answered and not read yet.
    ///
    /// # Errors
    /// Unknown or foreign.
    pub async fn get_run(&self, Caller { who, key }: &Caller, call: &GetRun) -> Result<RunView, OpError> {
        let (run, mut view) = self.store.read(|connection| {
            let run = pick::run(connection, who, Action::See, &call.run)?;
            let mut view = render::run(connection, &self.home, &run)?;
            if view.changed_files.as_ref().is_some_and(|files| !files.is_empty()) {
                view.changed_beside = beside(connection, &run)?;
            }
            let settled = newest_of(connection, run.id, false, SETTLED_SHOWN_MAX + 1)?;
            let left_out = settled.len().saturating_sub(SETTLED_SHOWN_MAX as usize);
            super::delegations::add_room(connection, &self.config_or_builtin(), &mut view.pending)?;
            view.signals = signals_of(connection, run.id, SIGNALS_SHOWN_MAX)?.iter().map(render::event).collect();
            view.settled_more = left_out > 0;
            view.settled = render::requests(&settled[left_out..]);
            if *who == Principal::Run(run.id) && run.unread > 0 {
                view.pending.extend(render::requests(&unread_of(connection, run.id, UNREAD_SHOWN_MAX)?));
                view.pending.sort_by_key(|request| request.asked_at.clone());
            }
            Ok((run, view))
        })?;
        if *who == Principal::Run(run.id) {
            view.messages = self.hand_messages(run.id, key.as_ref()).await?;
        }
        Ok(view)
    }

    /// Reads a part of a run's log, waiting for more when there is none.
    ///
    /// # Errors
    /// Unknown or foreign, or the file cannot be read.
    pub async fn logs(&self, who: &Principal, call: &ReadLogs) -> Result<LogPage, OpError> {
        let run = self.store.read(|connection| pick::run(connection, who, Action::Logs, &call.run))?;
        super::logs::page(self, &run, call).await
    }

    /// Ends a run.
    ///
    /// # Errors
    /// Unknown, foreign or finished.
    pub async fn cancel(&self, caller: Caller, call: Cancel) -> Result<RunView, OpError> {
        Self::check(&caller.who, Action::Cancel)?;
        bounded("reason", call.reason.as_deref().unwrap_or(""), limits::TEXT_BYTES_MAX)?;
        let (home, retention) = (self.home.clone(), self.retention());
        self.write_with_ballast(caller, move |tx, who| {
            let run = pick::run(tx.connection(), who, Action::Cancel, &call.run)?;
            if let Some(reason) = &call.reason {
                tx.set_detail(run.id, reason)?;
            }
            let text = call.reason.as_deref().unwrap_or("");
            let run = tx.advance(&run, RunEvent::StopAsked(StopReason::Cancelled), retention, &who.to_string(), text)?;
            tx.cancel_below(run.id, retention, &who.to_string())?;
            render::run(tx.connection(), &home, &run)
        })
        .await
    }

    /// Stops a run's attempt, to go on later.
    ///
    /// # Errors
    /// Unknown, foreign, finished or stopped already.
    pub async fn pause(&self, caller: Caller, call: Pause) -> Result<RunView, OpError> {
        Self::check(&caller.who, Action::Pause)?;
        let (home, retention) = (self.home.clone(), self.retention());
        self.write_with_ballast(caller, move |tx, who| {
            let run = pick::run(tx.connection(), who, Action::Pause, &call.run)?;
            let run = tx.advance(&run, RunEvent::StopAsked(StopReason::Paused), retention, &who.to_string(), "")?;
            render::run(tx.connection(), &home, &run)
        })
        .await
    }

    /// Begins a new attempt of a stopped run.
    ///
    /// # Errors
    /// Unknown, foreign, or not stopped.
    pub async fn resume(&self, caller: Caller, call: Resume) -> Result<RunView, OpError> {
        Self::check(&caller.who, Action::Resume)?;
        bounded("resolution", call.resolution.as_deref().unwrap_or(""), limits::TEXT_BYTES_MAX)?;
        bounded("next_step", call.next_step.as_deref().unwrap_or(""), limits::TEXT_BYTES_MAX)?;
        let choice = call
            .choice
            .as_deref()
            .map(|word| Choice::from_word(word).ok_or_else(|| Denied::invalid("choice", "use skip, retry, delegate or reduce")))
            .transpose()?;
        let (home, retention) = (self.home.clone(), self.retention());
        let kept = self.credentials_for(&caller.who, Action::Resume, &call.run, call.env).await?;
        let credentials = kept.id().map(ToOwned::to_owned);
        let resume = move |tx: &mut Tx<'_>, who: &Principal| {
            let run = pick::run(tx.connection(), who, Action::Resume, &call.run)?;
            let text = call.resolution.as_deref().or(choice.map(Choice::about)).unwrap_or("");
            if choice.is_some() && choices(run.state, run.checkpoint.as_ref()).is_empty() && matches!(run.state, RunState::Stopped { .. }) {
                return Err(Denied::invalid("choice", "neither an error nor a limit stopped this run: resume it without one").into());
            }
            if matches!(run.state, RunState::Stopped { reason: StopReason::ResourceLimit, .. }) {
                // Without time it would be stopped again at once: who resumes it grants its limit anew.
                tx.forget_active_time(run.id)?;
            }
            tx.set_credentials(run.id, credentials.as_deref())?;
            tx.advance(&run, RunEvent::Resumed, retention, &who.to_string(), text)?;
            tx.set_resolution(run.id, call.resolution.as_deref(), call.next_step.as_deref(), choice)?;
            render::run(tx.connection(), &home, &tx.run(run.id)?)
        };
        let resumed = self.write(caller, resume).await;
        self.settle_credentials(kept).await;
        resumed
    }

    /// Makes a new run of one that has ended. A stopped one is given up with it.
    ///
    /// # Errors
    /// Unknown, foreign, or still under way.
    pub async fn retry(&self, caller: Caller, call: Retry) -> Result<RunView, OpError> {
        Self::check(&caller.who, Action::Retry)?;
        let (id, name_seed) = (RunId::new(clock::now(), random()), random());
        let (home, retention, config) = (self.home.clone(), self.retention(), self.config_or_builtin());
        let (tree, refuse_shared, live_runs_max) = (config.tree, config.refuse_shared_directory, self.live_runs_max(&config));
        let kept = self.credentials_for(&caller.who, Action::Retry, &call.run, call.env).await?;
        let credentials = kept.id().map(ToOwned::to_owned);
        let retry = move |tx: &mut Tx<'_>, who: &Principal| {
            let run = pick::run(tx.connection(), who, Action::Retry, &call.run)?;
            let old = match run.state {
                RunState::Finished(_) => run,
                RunState::Stopped { .. } => tx.advance(&run, RunEvent::Retired, retention, &who.to_string(), "retried")?,
                RunState::Queued | RunState::Starting | RunState::Running | RunState::Stopping(_) => {
                    return Err(Denied::WrongState { state: run.state.word(), wanted: "retried (cancel it first)" }.into());
                }
            };
            if old.owner == *who {
                // Who retries it knows how it ended.
                tx.set_notified(who, &[(old.id, old.last_seq)])?;
            }
            if refuse_shared {
                refuse_shared_directory(tx.connection(), &old.cwd, old.id)?;
            }
            let mut input = run_input(tx.connection(), old.id)?;
            if let Some(prompt) = &call.prompt {
                checked_prompt(prompt, input.agent.prompt)?;
                input.prompt.clone_from(prompt);
            }
            let task = call.prompt.unwrap_or_else(|| old.task.clone());
            let new = NewRun {
                id,
                name: None,
                name_seed,
                cwd: old.cwd.clone(),
                owner: old.owner.clone(),
                retry_of: Some(old.id),
                under: old.parent.map(|parent| (parent, tree)),
                rank: old.rank,
                estimate_ms: None,
                task,
                by: who.clone(),
                input,
            };
            let run = tx.dispatch(&new)?;
            tx.set_credentials(run.id, credentials.as_deref())?;
            let mut view = render::run(tx.connection(), &home, &run)?;
            render::starts_at_once(tx.connection(), live_runs_max, &mut view)?;
            Ok(view)
        };
        let retried = self.write(caller, retry).await;
        self.settle_credentials(kept).await;
        retried
    }

    /// Keeps a message for a live run.
    ///
    /// # Errors
    /// Unknown, foreign, finished, or the text is unusable.
    pub async fn send(&self, caller: Caller, call: SendToRun) -> Result<MessageView, OpError> {
        Self::check(&caller.who, Action::Message)?;
        if call.text.trim().is_empty() {
            return Err(Denied::invalid("text", "is empty").into());
        }
        bounded("text", &call.text, limits::TEXT_BYTES_MAX)?;
        let id = RequestId::new(clock::now(), random());
        self.write(caller, move |tx, who| {
            let run = pick::run(tx.connection(), who, Action::Message, &call.run)?;
            if let RunState::Finished(outcome) = run.state {
                return Err(Denied::RunFinished(outcome).into());
            }
            let message = tx.send_message(&run, who, id, &call.text)?;
            Ok(render::message(&message, &run.name))
        })
        .await
    }

    /// Gives runs, with everything under them, to another client or to the person.
    ///
    /// # Errors
    /// Unknown, or no usable name.
    pub async fn adopt(&self, caller: Caller, call: Adopt) -> Result<RunList, OpError> {
        Self::check(&caller.who, Action::Adopt)?;
        let owner = if call.client.is_empty() { Principal::Person } else { Principal::Client(ClientName::parse(&call.client)?) };
        if call.runs.is_empty() {
            return Err(Denied::invalid("runs", "name at least one").into());
        }
        let home = self.home.clone();
        self.write(caller, move |tx, who| {
            let mut list = RunList::default();
            for given in &call.runs {
                let run = pick::run(tx.connection(), who, Action::Adopt, given)?;
                let root = if run.root == run.id { run } else { tx.run(run.root)? };
                let root = tx.adopt(&root, &owner, &super::chats::name_of(&owner), who)?;
                list.runs.push(render::run(tx.connection(), &home, &root)?);
            }
            Ok(list)
        })
        .await
    }

    /// Removes finished runs that ended long enough ago, with their files.
    ///
    /// # Errors
    /// The caller may not, or a failure of the store.
    pub async fn clean(&self, who: &Principal, older_than_ms: i64, dry_run: bool) -> Result<Cleaned, OpError> {
        Self::check(who, Action::Clean)?;
        let before = clock::steady().plus_ms(older_than_ms.saturating_neg());
        let mut cleaned = Cleaned { runs: Vec::new(), dry_run };
        loop {
            let skip = if dry_run { u32::try_from(cleaned.runs.len()).unwrap_or(u32::MAX) } else { 0 };
            let old = self.store.read(|connection| crate::store::old_finished(connection, before, skip.saturating_add(100)))?;
            let old: Vec<Run> = old.into_iter().skip(skip as usize).collect();
            if old.is_empty() {
                return Ok(cleaned);
            }
            cleaned.runs.extend(old.iter().map(|run| run.name.clone()));
            if !dry_run {
                // Files first: what is left over when we die in between is found by the next clean.
                let (home, runs) = (self.home.clone(), old.iter().map(|run| run.id).collect::<Vec<_>>());
                let removed = tokio::task::spawn_blocking(move || super::chores::remove_files(&home, &runs)).await;
                removed.map_err(|error| OpError::Io(error.to_string()))?;
                self.store.write(move |tx| old.iter().try_for_each(|run| tx.remove(run))).await?;
            }
        }
    }
}
