//! `adj agents test`: an agent does two short tasks as ordinary runs, and the result is judged.
//! This process acts as the parent; every wait is limited.

mod script;
mod verdict;

use crate::attempt_processes;
use crate::cli::args::AgentTestArgs;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure, fail};
use crate::cli::prompt::ask;
use crate::cli::style::Style;
use crate::config::dispatch_env;
use crate::harness::operation::StatedCommands;
use crate::hub_client::random_hex;
use crate::text;
use crate::view::{
    AgentView, AnswerOne, AnswerRequests, Cancel, DecisionWord, Dispatch, ErrorView, GetRun,
    ReadEvents, ReadLogs, RequestView, Resume, RunView, Wait, WaitOutcome, WaitUntil, Waited, Word,
};
use adjutant_core::report::ReportStatus;
use adjutant_core::{EventKind, Permissions, RequestKind, RunStateKind};
use script::Kind;
use serde_json::{Value, json};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use verdict::{CancelRun, Verdict, WorkRun};

/// How long the processes of a cancelled run may take to disappear.
const CLEANUP_WAIT_MAX: Duration = Duration::from_secs(10);
const CHILD_CHECKS_MAX: u32 = 40;
const CHILD_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of requests of one run that are answered.
const REQUESTS_MAX: u32 = 20;
/// Maximum number of events of a run that are read.
const EVENTS_READ_MAX: u32 = 1_000;

/// Tests an agent.
pub(super) async fn test(args: &AgentTestArgs, cx: &Context) -> CommandResult {
    let agent = super::find_agent(&args.name, cx).await?;
    if !agent.found {
        return Err(fail(
            crate::view::codes::AGENT_NOT_FOUND,
            agent
                .problem
                .unwrap_or_else(|| format!("agent {}: program not found", agent.name)),
        ));
    }
    let kind = match (agent.harness.as_str(), agent.can) {
        ("echo", _) => Kind::Echo,
        (_, Some(can)) if can.tools => Kind::Tools,
        _ => Kind::Blocks,
    };
    if kind != Kind::Echo && !may_use_tokens(&agent, args.yes, cx)? {
        cx.out.print_message("nothing started")?;
        return Ok(Exit::Done);
    }
    let profile = other_profile(&agent);
    if let Some(profile) = profile {
        cx.out.print_message(&format!(
            "{} is not supported; testing with {profile}",
            agent.permissions
        ))?;
    }
    let dir = std::env::temp_dir().join(format!("adj-test-{}", random_hex::<8>()));
    DirBuilder::new().mode(0o700).create(&dir).map_err(|e| {
        fail(
            crate::cli::exit::cli_codes::IO,
            format!("{}: {e}", dir.display()),
        )
    })?;
    let mut trial = Trial {
        cx,
        agent: &agent,
        kind,
        dir: dir.clone(),
        limit: args.timeout,
        profile,
        runs: Vec::new(),
    };
    let tried = trial.run_until_interrupted().await?;
    let runs = trial.runs;
    for run in &runs {
        end(cx, run).await?;
    }
    if let Err(error) = std::fs::remove_dir_all(&dir) {
        cx.out.print_message(&format!(
            "warning: cannot remove {}: {error}",
            dir.display()
        ))?;
    }
    let (worked, cancelled) = tried?;
    let checks = verdict::judge(kind, agent.can, &worked, cancelled.as_ref());
    print_checks(
        cx,
        &agent,
        &checks,
        &[
            worked.run.as_str(),
            cancelled.as_ref().map_or("", |cancelled| &cancelled.run),
        ],
    )
}

/// Says what a test costs, and asks for consent at a terminal.
fn may_use_tokens(agent: &AgentView, is_agreed: bool, cx: &Context) -> Result<bool, Failure> {
    let name = text::line(&agent.name);
    cx.out.print_message(&format!(
        "This starts two short runs of {name} with about ten model calls, which use tokens."
    ))?;
    let agrees = |answer: String| matches!(answer.trim(), "y" | "Y" | "yes");
    Ok(!cx.out.interactive || is_agreed || ask("Continue? [y/N] ")?.is_some_and(agrees))
}

/// Returns the most restrictive supported profile, if the agent's own is not supported.
fn other_profile(agent: &AgentView) -> Option<&'static str> {
    let is_unsupported =
        |profile: &Word<Permissions>| agent.unsupported_profiles.contains_key(profile);
    let mut all = Permissions::ALL.into_iter();
    if is_unsupported(&agent.permissions) {
        all.find(|profile| !is_unsupported(&(*profile).into()))
            .map(Permissions::word)
    } else {
        None
    }
}

/// Cancels a live run.
async fn end(cx: &Context, run: &str) -> Result<(), Failure> {
    let call = Cancel {
        run: run.to_owned(),
        reason: Some("the agent test is over".to_owned()),
    };
    match cx.hub.call(&call).await {
        Ok(_) => Ok(()),
        Err(error) if error.code == crate::view::codes::RUN_FINISHED => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn print_checks(
    cx: &Context,
    agent: &AgentView,
    checks: &[verdict::Check],
    runs: &[&str],
) -> CommandResult {
    let failures = checks
        .iter()
        .filter(|check| check.verdict == Verdict::Fail)
        .count();
    let failed = failures > 0;
    let exit = if failed { Exit::Failed } else { Exit::Done };
    let runs: Vec<&str> = runs.iter().copied().filter(|run| !run.is_empty()).collect();
    if cx.out.json {
        cx.out.print_json(&json!({"agent": agent.name, "version": agent.version, "passed": !failed, "checks": checks, "runs": runs}))?;
        return Ok(exit);
    }
    for check in checks {
        let (glyph, style) = match check.verdict {
            Verdict::Pass => ("✓", Style::Good),
            Verdict::Fail => ("✗", Style::Bad),
            Verdict::NotApplicable => ("–", Style::Dim),
        };
        let name = format!("{:<10}", check.check);
        cx.out.print_line(&format!(
            "{} {name} {}",
            cx.out.paint.apply(style, glyph),
            text::line(&check.reason)
        ))?;
    }
    let version = agent
        .version
        .as_ref()
        .map(|version| format!(" {}", text::line(version)))
        .unwrap_or_default();
    let result = if failed {
        format!("{failures} of {} checks failed", checks.len())
    } else {
        "all checks passed".to_owned()
    };
    cx.out
        .print_message(&format!("{}{version}: {result}", text::line(&agent.name)))?;
    if failed {
        cx.out.suggest(
            &runs
                .iter()
                .map(|run| format!("adj logs {run}"))
                .collect::<Vec<_>>()
                .join("   or   "),
        )?;
    }
    Ok(exit)
}

/// The run that did its work, and the one that was cancelled, if there was contact at all.
type Tried = (WorkRun, Option<CancelRun>);

/// The test of one agent.
struct Trial<'a> {
    cx: &'a Context,
    agent: &'a AgentView,
    kind: Kind,
    /// The working directory of its runs.
    dir: PathBuf,
    /// The time limit of each step.
    limit: Duration,
    /// The profile of its runs, if its own is not supported.
    profile: Option<&'static str>,
    /// The runs that were started.
    runs: Vec<String>,
}

impl Trial<'_> {
    /// Runs the whole test. Ctrl-C, a closed terminal and TERM end it, too.
    async fn run_until_interrupted(&mut self) -> io::Result<Result<Tried, Failure>> {
        let (mut interrupts, mut hangups) = (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
        );
        let mut terminations = signal(SignalKind::terminate())?;
        Ok(tokio::select! {
            tried = self.run_all() => tried,
            _ = interrupts.recv() => Err(Failure::Reported(Exit::Interrupted)),
            _ = hangups.recv() => Err(Failure::Reported(Exit::Interrupted)),
            _ = terminations.recv() => Err(Failure::Reported(Exit::Interrupted)),
        })
    }

    async fn run_all(&mut self) -> Result<Tried, Failure> {
        let worked = self.work().await?;
        // Without any contact, a second run shows nothing.
        if !worked.asked && worked.progress_by.is_none() {
            return Ok((worked, None));
        }
        let cancelled = self.run_cancelled_task().await?;
        Ok((worked, Some(cancelled)))
    }

    async fn start(&mut self, prompt: String) -> Result<RunView, Failure> {
        let run = self
            .cx
            .hub
            .call(&Dispatch {
                agent: self.agent.name.clone(),
                prompt,
                cwd: self.dir.display().to_string(),
                permissions: self.profile.map(Word::read),
                // If this process dies, its runs still end.
                timeout_s: Some(self.limit.as_secs().max(1).saturating_mul(4)),
                env: dispatch_env(),
                ..Dispatch::default()
            })
            .await?;
        self.runs.push(run.identity.run_id.clone());
        self.cx
            .out
            .print_message(&format!("run {} started", text::line(&run.identity.name)))?;
        Ok(run)
    }

    /// Waits until a run asks something, stops or ends; `None` after the time limit.
    async fn wait_for_event(&self, run: &str) -> Result<Option<Waited>, ErrorView> {
        let wait_ms = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
        let waited = self
            .cx
            .hub
            .call(&Wait {
                runs: vec![run.to_owned()],
                until: WaitUntil::Attention,
                after: None,
                new_reports: false,
                wait_ms,
            })
            .await?;
        Ok(Some(waited).filter(|waited| waited.outcome == WaitOutcome::Event))
    }

    async fn work(&mut self) -> Result<WorkRun, Failure> {
        let (first, second) = (
            format!("amber-{}", random_hex::<4>()),
            format!("birch-{}", random_hex::<4>()),
        );
        let run = self.start(script::work(self.kind)).await?;
        let mut seen = WorkRun {
            run: run.identity.name.clone(),
            ..WorkRun::default()
        };
        let id = run.identity.run_id;
        let mut requests = 0;
        loop {
            let Some(waited) = self.wait_for_event(&id).await? else {
                seen.timed_out_waiting_to = Some(match (seen.asked, seen.stopped) {
                    (false, _) => "ask its question",
                    (true, false) => "stop",
                    (true, true) => "end",
                });
                break;
            };
            if let Some(request) = waited.needs.first() {
                requests += 1;
                if requests > REQUESTS_MAX {
                    seen.timed_out_waiting_to = Some("stop asking");
                    break;
                }
                if request.kind == RequestKind::Question {
                    seen.asked = true;
                    let answer = AnswerOne {
                        message_id: Some(request.message_id.clone()),
                        answer: first.clone(),
                        ..AnswerOne::default()
                    };
                    if self.is_answered(&answer).await? {
                        self.cx.out.print_message("  asked a question; answered")?;
                    }
                } else if self.is_refused(request).await? {
                    seen.approvals += 1;
                }
                continue;
            }
            let Some(ended) = waited
                .ended
                .into_iter()
                .chain(waited.stopped)
                .find(|ended| ended.identity.run_id == id)
            else {
                continue;
            };
            if ended.condition.state == RunStateKind::Finished || seen.stopped {
                break;
            }
            seen.stopped = true;
            seen.sessions.0 = ended.identity.session;
            // The scripted agent repeats answers only in its output.
            seen.first_word = self.kind == Kind::Echo && self.log(&id).await?.contains(&first);
            self.cx.out.print_message("  stopped; resumed")?;
            self.cx
                .hub
                .call(&Resume {
                    run: id.clone(),
                    resolution: Some(script::resolution(&second)),
                    next_step: None,
                    choice: None,
                    budget: None,
                    env: dispatch_env(),
                })
                .await?;
        }
        self.read_result(&id, &mut seen, &first, &second).await?;
        Ok(seen)
    }

    /// Reads the result of the work run.
    async fn read_result(
        &self,
        id: &str,
        seen: &mut WorkRun,
        first: &str,
        second: &str,
    ) -> Result<(), Failure> {
        let view = self
            .cx
            .hub
            .call(&GetRun {
                run: id.to_owned(),
                ..GetRun::default()
            })
            .await?;
        let history = self
            .cx
            .hub
            .call(&ReadEvents {
                after: 0,
                run: Some(id.to_owned()),
                limit: Some(EVENTS_READ_MAX),
                wait_ms: 0,
            })
            .await?;
        let progress = history
            .events
            .iter()
            .find(|event| event.kind == EventKind::RunProgress && event.source.is_some());
        seen.progress_by = progress.and_then(|event| event.source.as_ref().and_then(Word::known));
        let text = match self.kind {
            Kind::Echo => self.log(id).await?,
            Kind::Tools | Kind::Blocks => [
                view.results.summary.as_deref(),
                view.results.result.as_deref(),
            ]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("\n"),
        };
        seen.first_word |= text.contains(first);
        seen.second_word = text.contains(second);
        seen.sessions.1 = view.identity.session;
        seen.reported = view
            .results
            .report
            .is_some_and(|report| report.status == ReportStatus::Success);
        seen.outcome = view.condition.outcome.as_ref().and_then(Word::known);
        seen.reason = view.condition.reason;
        seen.usage = view.cost.usage;
        Ok(())
    }

    async fn log(&self, id: &str) -> Result<String, ErrorView> {
        Ok(self
            .cx
            .hub
            .call(&ReadLogs {
                run: id.to_owned(),
                ..ReadLogs::default()
            })
            .await?
            .text)
    }

    async fn run_cancelled_task(&mut self) -> Result<CancelRun, Failure> {
        let run = self.start(script::cancelled(self.kind)).await?;
        let mut seen = CancelRun {
            run: run.identity.name.clone(),
            ..CancelRun::default()
        };
        let id = run.identity.run_id;
        loop {
            let Some(waited) = self.wait_for_event(&id).await? else {
                seen.timed_out_waiting_to = Some("ask whether to continue");
                break;
            };
            let Some(request) = waited.needs.first() else {
                if waited
                    .ended
                    .iter()
                    .chain(&waited.stopped)
                    .any(|ended| ended.identity.run_id == id)
                {
                    break;
                }
                continue;
            };
            if request.kind == RequestKind::Question {
                seen.asked = true;
                break;
            }
            if seen.approvals + seen.other_approvals >= REQUESTS_MAX {
                seen.timed_out_waiting_to = Some("stop asking for approval");
                break;
            }
            if is_the_command(request) {
                let approval = AnswerOne {
                    message_id: Some(request.message_id.clone()),
                    decision: Some(DecisionWord::Approve),
                    content_hash: Some(request.content.content_hash.clone()),
                    ..AnswerOne::default()
                };
                if self.is_answered(&approval).await? {
                    seen.approvals += 1;
                    self.cx
                        .out
                        .print_message("  asked for approval of the command; approved")?;
                }
            } else if self.is_refused(request).await? {
                seen.other_approvals += 1;
            }
        }
        seen.had_child = has_child(&self.cx.home.dir, &id, &self.dir).await;
        // A sandbox can end the process with its command.
        seen.ran_command =
            seen.had_child || self.log(&id).await?.lines().any(script::is_command_output);
        seen.may_run_nothing =
            self.profile.unwrap_or(self.agent.permissions.as_str()) == Permissions::Read.word();
        self.cx.out.print_message("  cancelling")?;
        end(self.cx, &id).await?;
        let wait_ms = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
        self.cx
            .hub
            .call(&Wait {
                runs: vec![id.clone()],
                until: WaitUntil::All,
                after: None,
                new_reports: false,
                wait_ms,
            })
            .await?;
        let view = self
            .cx
            .hub
            .call(&GetRun {
                run: id.clone(),
                ..GetRun::default()
            })
            .await?;
        seen.outcome = view.condition.outcome.as_ref().and_then(Word::known);
        seen.reason = view.condition.reason;
        seen.left = remaining_processes(&self.cx.home.dir, &id, &self.dir).await;
        Ok(seen)
    }

    /// Answers a request. `false`: it is withdrawn, since some agents describe a call a second time
    /// while they ask for it, which replaces the request.
    async fn is_answered(&self, answer: &AnswerOne) -> Result<bool, ErrorView> {
        let answers = vec![answer.clone()];
        match self.cx.hub.call(&AnswerRequests { answers }).await {
            Ok(_) => Ok(true),
            Err(error) if error.code == crate::view::codes::WITHDRAWN => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Denies a request. `false`: it is withdrawn.
    async fn is_refused(&self, request: &RequestView) -> Result<bool, Failure> {
        let reason = "this test does not need it: continue with the next step";
        let denial = AnswerOne {
            message_id: Some(request.message_id.clone()),
            decision: Some(DecisionWord::Deny),
            reason: Some(reason.to_owned()),
            ..AnswerOne::default()
        };
        let is_refused = self.is_answered(&denial).await?;
        if is_refused {
            self.cx.out.print_message(&format!(
                "  asked for approval of something else; denied: {}",
                text::cut(&text::line(&request.content.question), 80)
            ))?;
        }
        Ok(is_refused)
    }
}

/// Returns whether approval is asked for exactly the given command: most agents state it in the
/// tool's input, others show it as the action itself.
fn is_the_command(request: &RequestView) -> bool {
    if request.kind != RequestKind::Approval {
        return false;
    }
    // A preview that is not JSON states no command.
    let input: Value = request
        .content
        .preview
        .as_deref()
        .and_then(|preview| serde_json::from_str(preview).ok())
        .unwrap_or_default();
    let stated = StatedCommands::of(&input);
    let shown = if stated.is_empty() {
        request.content.question.strip_prefix("use ")
    } else {
        stated.only()
    };
    shown.is_some_and(|shown| shown.trim() == script::COMMAND)
}

/// Returns whether the command's background process is running. Nothing signals its start, so the
/// check is repeated a few times.
async fn has_child(home: &Path, run_id: &str, dir: &Path) -> bool {
    for _ in 0..CHILD_CHECKS_MAX {
        if attempt_processes::of_run(home, run_id, dir)
            .iter()
            .any(|(_, command)| is_the_child(command))
        {
            return true;
        }
        tokio::time::sleep(CHILD_CHECK_INTERVAL).await;
    }
    false
}

fn is_the_child(command: &str) -> bool {
    command == script::LEFT_BEHIND || command.contains("__echo --child setsid")
}

/// Returns the processes of a run that are left after the cleanup time.
async fn remaining_processes(home: &Path, run_id: &str, dir: &Path) -> Vec<String> {
    let over = Instant::now() + CLEANUP_WAIT_MAX;
    loop {
        let found = attempt_processes::of_run(home, run_id, dir);
        let Some((pid, _)) = found.first() else {
            return Vec::new();
        };
        let exited = crate::process::watch::exited(*pid);
        if tokio::time::timeout_at(over, exited).await.is_err() {
            return found
                .into_iter()
                .map(|(pid, command)| {
                    format!(
                        "{} ({})",
                        text::cut(&text::line(&command), 60),
                        pid.as_raw_nonzero()
                    )
                })
                .collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::RequestContentView;

    #[test]
    fn trial_approves_only_its_own_command() {
        let asks = |kind: RequestKind, question: &str, preview: Value| {
            is_the_command(&RequestView {
                content: RequestContentView {
                    question: question.to_owned(),
                    preview: Some(preview.to_string()),
                    ..RequestContentView::default()
                },
                kind: kind.into(),
                ..RequestView::default()
            })
        };
        let command = script::COMMAND;
        let action = format!("use {command}");
        assert!(asks(
            RequestKind::Approval,
            "use Bash",
            json!({"command": command, "description": "as told"})
        ));
        assert!(asks(
            RequestKind::Approval,
            "use shell",
            json!({"cmd": format!("{command}\n")})
        ));
        assert!(asks(
            RequestKind::Approval,
            &action,
            json!([{"type": "content"}])
        ));
        assert!(asks(
            RequestKind::Approval,
            "use run_commands: setsid…",
            json!({"commands": [command]})
        ));
        assert!(asks(
            RequestKind::Approval,
            &action,
            json!({"command": command, "commands": [command]})
        ));
        assert!(!asks(
            RequestKind::Approval,
            &action,
            json!({"commands": [command, "rm -rf /"]})
        ));
        assert!(!asks(
            RequestKind::Approval,
            &action,
            json!({"command": "rm -rf /", "commands": [command]})
        ));
        assert!(!asks(
            RequestKind::Approval,
            &action,
            json!({"command": command, "commands": ["rm -rf /"]})
        ));
        assert!(!asks(
            RequestKind::Approval,
            &action,
            json!({"commands": "rm -rf /"})
        ));
        assert!(!asks(
            RequestKind::Approval,
            "use Bash",
            json!({"command": format!("curl x | sh; {command}")})
        ));
        assert!(!asks(
            RequestKind::Approval,
            &action,
            json!({"command": "rm -rf /"})
        ));
        assert!(!asks(
            RequestKind::Approval,
            &format!("{action}; rm -rf /"),
            json!([])
        ));
        assert!(!asks(
            RequestKind::Approval,
            "use write",
            json!({"path": command})
        ));
        assert!(!asks(RequestKind::Delegation, &action, Value::Null));
    }
}
