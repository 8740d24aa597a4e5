//! The demo's inner process: starts the runs, prints their events, and acts for the person on a
//! schedule.
//!
//! One event is selected, then applied to completion. Planned steps wait in a list with their
//! times.

use super::chat::{self, DemoChat};
use super::tasks::{self, DemoTask, TASKS};
use crate::cli::args::PsArgs;
use crate::cli::commands::ps;
use crate::cli::context::Context;
use crate::cli::details;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, fail};
use crate::cli::prompt::TerminalLines;
use crate::cli::style::Style;
use crate::present::asked_for;
use crate::process::foreground;
use crate::text;
use crate::view::{
    ChatPage, ErrorView, EventPage, EventView, GetHub, ListRequests, ListRuns, ReadEvents,
    RequestView, RunView, Word,
};
use adjutant_core::EventKind;
use adjutant_core::units::duration;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// Longest duration of the demo.
const DEMO_LIMIT: Duration = Duration::from_secs(28);
/// How long the person has to answer before a second process does.
const PERSON_LIMIT: Duration = Duration::from_secs(11);
/// At full speed the demo takes about 5 seconds.
const PACE_FOR_PEOPLE: u32 = 2;
const STEP_LIMIT: Duration = Duration::from_secs(10);
const POLL_WAIT_MS: u64 = 30_000;

/// A planned step.
#[derive(Debug, Clone)]
enum Step {
    KillHub,
    AskPerson,
    /// A second process answers for the person.
    Answer,
    /// A second process chooses an option by its number.
    Choose,
    Retry,
    Cancel,
    GiveUp,
}

enum DemoEvent {
    Events(Result<EventPage, ErrorView>),
    ChatPage(Result<Box<ChatPage>, ErrorView>),
    Line(String),
    Due(Step),
    Interrupted,
}

struct Demo<'a> {
    cx: &'a Context,
    began: Instant,
    /// Slows the scripts down by this factor, so that a person can read along.
    pace: u32,
    plan: Vec<(Instant, Step)>,
    events: Pin<Box<dyn Future<Output = Result<EventPage, ErrorView>>>>,
    chat: DemoChat,
    typed: TerminalLines,
    /// Lines held back until the person has answered.
    held_lines: Option<Vec<String>>,
    asked: Option<RequestView>,
    choice: Option<RequestView>,
    finished: usize,
    hubs_killed: u32,
    answers: u32,
}

/// Runs the demo in the home that the environment names.
pub(super) async fn run(cx: &Context) -> CommandResult {
    let mut interrupts = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())
        .map_err(|e| fail(cli_codes::IO, format!("cannot take Ctrl-C: {e}")))?;
    let mut demo = Demo {
        cx,
        began: Instant::now(),
        pace: if cx.out.terminal { PACE_FOR_PEOPLE } else { 1 },
        plan: Vec::new(),
        events: Box::pin(std::future::pending()),
        chat: DemoChat::new(),
        typed: TerminalLines::default(),
        held_lines: None,
        asked: None,
        choice: None,
        finished: 0,
        hubs_killed: 0,
        answers: 0,
    };
    demo.open().await?;
    while demo.finished < TASKS.len() + 1 || !demo.chat.is_over() {
        match demo.next(&mut interrupts).await {
            DemoEvent::Events(page) => {
                let page = page?;
                for event in &page.events {
                    demo.apply(event).await?;
                }
                demo.poll(page.cursor);
            }
            DemoEvent::ChatPage(page) => {
                for entry in page?.messages {
                    demo.print_event(
                        &format!("chat {}", chat::CHAT),
                        chat::style(&entry),
                        &chat::line(&entry),
                    )?;
                    demo.chat.entries.push(entry);
                }
                demo.chat.poll(cx);
            }
            DemoEvent::Line(line) => demo.answer_typed_line(line).await?,
            DemoEvent::Due(step) => demo.perform(step).await?,
            DemoEvent::Interrupted => {
                cx.out.print_message("\ninterrupted; cleaning up")?;
                return Err(Failure::Reported(Exit::Interrupted));
            }
        }
    }
    demo.close().await
}

impl Demo<'_> {
    async fn open(&mut self) -> Result<(), Failure> {
        let hub = self.cx.hub.call(&GetHub {}).await?;
        self.print_event(
            "hub",
            Style::Dim,
            &format!("started (pid {}) in {}", hub.pid, hub.home),
        )?;
        self.schedule(DEMO_LIMIT, Step::GiveUp);
        self.run_adj(&chat::START).await?;
        for part in &TASKS {
            self.cx
                .hub
                .call(&super::dispatch(part.name, part.prompt(self.pace), self.cx))
                .await?;
        }
        self.poll(0);
        self.chat.poll(self.cx);
        self.run_adj(&chat::OPENING).await
    }

    fn poll(&mut self, after: i64) {
        let hub = self.cx.hub.clone();
        self.events = Box::pin(async move {
            hub.call(&ReadEvents {
                after,
                run: None,
                limit: None,
                wait_ms: POLL_WAIT_MS,
            })
            .await
        });
    }

    fn schedule(&mut self, after: Duration, step: Step) {
        self.plan.push((Instant::now() + after, step));
        self.plan.sort_by_key(|(at, _)| *at);
    }

    async fn next(&mut self, interrupts: &mut tokio::signal::unix::Signal) -> DemoEvent {
        let due = self.plan.first().map_or(DEMO_LIMIT, |(at, _)| {
            at.saturating_duration_since(Instant::now())
        });
        tokio::select! {
            biased;
            _ = interrupts.recv() => DemoEvent::Interrupted,
            line = self.typed.next_line_or_pend() => DemoEvent::Line(line),
            () = tokio::time::sleep(due) => DemoEvent::Due(self.plan.remove(0).1),
            page = &mut self.chat.page => DemoEvent::ChatPage(page),
            page = &mut self.events => DemoEvent::Events(page),
        }
    }

    /// Prints one event, and plans how the person reacts.
    async fn apply(&mut self, event: &EventView) -> Result<(), Failure> {
        let name = event.run_name.as_str();
        if self.chat.observe(event, self.cx).await? {
            return Ok(());
        }
        match event.kind.known() {
            Some(EventKind::RunStarted) => {
                let task = TASKS
                    .iter()
                    .find(|part| part.name == name)
                    .map_or("second try", |part| part.task);
                self.print_event(name, Style::Good, &format!("● {task}"))?;
                if name == tasks::HANGS {
                    self.schedule(self.pace * Duration::from_millis(4_500), Step::Cancel);
                }
            }
            Some(EventKind::RunProgress) => self.print_event(name, Style::Plain, &event.text)?,
            Some(EventKind::RequestAsked) => {
                self.show_request(name, event.request_id.as_deref()).await?
            }
            Some(EventKind::RequestAnswered) => {
                self.answers += 1;
                self.print_event(name, Style::Good, &format!("✓ {}", event.text))?;
                if name == tasks::ASKS {
                    self.end_prompt()?;
                }
            }
            Some(EventKind::RunFinished) => {
                self.finished += 1;
                let style = if event.text.contains("succeeded") {
                    Style::Good
                } else {
                    Style::Attention
                };
                self.print_event(name, style, &format!("■ {}", event.text))?;
                if name == tasks::FAILS {
                    self.schedule(self.pace * Duration::from_millis(700), Step::Retry);
                }
            }
            _ => {}
        }
        Ok(())
    }

    async fn show_request(&mut self, name: &str, id: Option<&str>) -> Result<(), Failure> {
        let open = self.cx.hub.call(&ListRequests::default()).await?.requests;
        let Some(request) = open
            .into_iter()
            .find(|request| Some(request.message_id.as_str()) == id)
        else {
            return Ok(());
        };
        let options: Vec<String> = request
            .content
            .options
            .iter()
            .enumerate()
            .map(|(n, option)| format!("{}) {option}", n + 1))
            .collect();
        self.print_event(
            name,
            Style::Attention,
            &format!(
                "? {} {}  {}",
                request.number,
                asked_for(&request).line(),
                options.join("  ")
            ),
        )?;
        if name == tasks::CHOOSES {
            self.choice = Some(request);
            self.schedule(self.pace * Duration::from_millis(900), Step::Choose);
        } else {
            self.asked = Some(request);
            self.schedule(self.pace * Duration::from_millis(1_500), Step::KillHub);
        }
        Ok(())
    }

    async fn perform(&mut self, step: Step) -> Result<(), Failure> {
        match step {
            Step::KillHub => self.kill_hub().await,
            Step::AskPerson => self.prompt_person(),
            Step::Answer => {
                let Some(request) = self.asked.take() else {
                    return Ok(());
                };
                self.end_prompt()?;
                self.run_adj(&["reply", &request.number, tasks::ANSWER])
                    .await
            }
            Step::Choose => {
                let Some(request) = self.choice.take() else {
                    return Ok(());
                };
                self.run_adj(&["reply", &request.number, "2"]).await
            }
            Step::Retry => {
                self.run_adj(&["retry", tasks::FAILS, tasks::RETRY_PROMPT])
                    .await
            }
            Step::Cancel => self.run_adj(&["cancel", tasks::HANGS]).await,
            Step::GiveUp => Err(fail(
                cli_codes::TIMED_OUT,
                format!("the demo did not end within {}", duration::of(DEMO_LIMIT)),
            )),
        }
    }

    /// Kills the hub while a question is open, to show that nothing is lost.
    async fn kill_hub(&mut self) -> Result<(), Failure> {
        let Some(number) = self.asked.as_ref().map(|request| request.number.clone()) else {
            return Ok(());
        };
        let before = self.cx.hub.call(&GetHub {}).await?;
        let pid = i32::try_from(before.pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| fail(cli_codes::IO, "the hub has no pid"))?;
        kill_process(pid, Signal::KILL)
            .map_err(|e| fail(cli_codes::IO, format!("cannot kill the demo's hub: {e}")))?;
        let killed = Instant::now();
        self.hubs_killed += 1;
        self.print_event(
            "hub",
            Style::Bad,
            &format!(
                "✗ killed (SIGKILL, pid {}) while {number} is open",
                before.pid
            ),
        )?;
        let after = self.cx.hub.call(&GetHub {}).await?;
        let open = self.cx.hub.call(&ListRequests::default()).await?.requests;
        if after.pid == before.pid || !open.iter().any(|request| request.number == number) {
            return Err(fail(
                cli_codes::RUN_FAILED,
                format!("{number} was lost with the hub"),
            ));
        }
        let took = duration::of(killed.elapsed());
        self.print_event(
            "hub",
            Style::Good,
            &format!("✓ a new one took over in {took}; {number} is still open"),
        )?;
        let next = if self.cx.out.interactive {
            Step::AskPerson
        } else {
            Step::Answer
        };
        self.schedule(Duration::from_millis(900), next);
        Ok(())
    }

    fn prompt_person(&mut self) -> Result<(), Failure> {
        let Some(request) = &self.asked else {
            return Ok(());
        };
        let out = &self.cx.out;
        out.print_text(&format!("\n{}", details::request_block(request, self.cx)?))?;
        self.typed.restart();
        out.print_text(&format!(
            "{} ",
            out.paint.apply(
                Style::Strong,
                &format!("Your answer ({}):", duration::of(PERSON_LIMIT))
            )
        ))?;
        self.held_lines = Some(Vec::new());
        self.schedule(PERSON_LIMIT, Step::Answer);
        Ok(())
    }

    async fn answer_typed_line(&mut self, line: String) -> Result<(), Failure> {
        if line.trim().is_empty() || self.held_lines.is_none() {
            return Ok(());
        }
        let Some(request) = self.asked.take() else {
            return Ok(());
        };
        self.release_lines(false)?;
        let answer = crate::view::AnswerOne {
            message_id: Some(request.message_id),
            answer: line,
            ..crate::view::AnswerOne::default()
        };
        self.cx
            .hub
            .call(&crate::view::AnswerRequests {
                answers: vec![answer],
            })
            .await?;
        Ok(())
    }

    /// Ends the prompt because another process has answered.
    fn end_prompt(&mut self) -> Result<(), Failure> {
        self.release_lines(true)
    }

    fn release_lines(&mut self, fresh_line: bool) -> Result<(), Failure> {
        let Some(held_lines) = self.held_lines.take() else {
            return Ok(());
        };
        if fresh_line {
            self.cx.out.print_line("")?;
        }
        self.cx.out.print_line("")?;
        for line in held_lines {
            self.cx.out.print_line(&line)?;
        }
        Ok(())
    }

    /// Runs `adj` as a second process and prints its command line.
    async fn run_adj(&mut self, args: &[&str]) -> Result<(), Failure> {
        let typed: Vec<String> = args
            .iter()
            .map(|arg| {
                if arg.contains([' ', '\n']) {
                    format!(
                        "\"{}\"",
                        text::cut(arg.lines().next().unwrap_or_default(), 40)
                    )
                } else {
                    (*arg).to_owned()
                }
            })
            .collect();
        self.print_event("", Style::Strong, &format!("$ adj {}", typed.join(" ")))?;
        let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        let output = foreground::own_output(&args, &[], STEP_LIMIT)
            .await
            .map_err(|e| fail(cli_codes::IO, format!("cannot run adj: {e}")))?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        // The person may have answered first.
        if stderr.contains(crate::view::codes::ALREADY_ANSWERED) {
            return Ok(());
        }
        Err(fail(
            cli_codes::RUN_FAILED,
            format!(
                "adj {} failed: {}",
                typed.join(" "),
                text::line(stderr.trim())
            ),
        ))
    }

    async fn close(&mut self) -> CommandResult {
        self.release_lines(true)?;
        let runs = self
            .cx
            .hub
            .call(&ListRuns {
                all: true,
                limit: None,
                before: None,
            })
            .await?
            .runs;
        let wrong = wrong_outcomes(&runs);
        self.chat.check()?;
        if self.cx.out.json {
            self.cx.out.print_json(&serde_json::json!({
                "runs": runs,
                "hubs_killed": self.hubs_killed,
                "answers": self.answers,
                "chat": self.chat.entries,
                "elapsed_ms": u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            }))?;
        } else {
            self.cx.out.print_line("\n$ adj ps -a")?;
            ps::ps(
                &PsArgs {
                    all: true,
                    quiet: false,
                    limit: None,
                    watch: false,
                    columns: Vec::new(),
                },
                self.cx,
            )
            .await?;
            let took = duration::of(self.began.elapsed());
            self.cx.out.print_line(&format!(
                "\n{} runs and a chat of three in {took}, {} questions answered, {} hub killed, nothing lost.",
                runs.len(),
                self.answers,
                self.hubs_killed
            ))?;
            self.cx.out.print_line("Connect your agent:  adj install")?;
        }
        match wrong.first() {
            None => Ok(Exit::Done),
            Some(wrong) => Err(fail(cli_codes::RUN_FAILED, wrong.clone())),
        }
    }

    fn print_event(&mut self, who: &str, style: Style, what: &str) -> Result<(), Failure> {
        if self.cx.out.json {
            return Ok(());
        }
        let paint = self.cx.out.paint;
        let time = paint.apply(
            Style::Dim,
            &format!("{:>5.1}s", self.began.elapsed().as_secs_f32()),
        );
        let columns = self
            .cx
            .out
            .columns
            .map_or(usize::MAX, |columns| columns.saturating_sub(22));
        let line = format!(
            "{time}  {}  {}",
            paint.apply(Style::Strong, &format!("{:<12}", text::line(who))),
            paint.apply(style, &text::cut(&text::line(what), columns))
        );
        match &mut self.held_lines {
            Some(held_lines) => held_lines.push(line),
            None => self.cx.out.print_line(&line)?,
        }
        Ok(())
    }
}

/// Returns the runs that did not end as expected.
fn wrong_outcomes(runs: &[RunView]) -> Vec<String> {
    let mut expected: BTreeMap<&str, &str> = TASKS
        .iter()
        .map(|part: &DemoTask| (part.name, part.outcome))
        .collect();
    let mut wrong = Vec::new();
    for run in runs {
        let is_extra = run.identity.retry_of.is_some() || run.identity.agent == chat::ANSWERS;
        let wanted = if is_extra {
            tasks::EXTRA_OUTCOME
        } else {
            expected
                .remove(run.identity.name.as_str())
                .unwrap_or("nothing")
        };
        if run.condition.outcome.as_ref().map(Word::as_str) != Some(wanted) {
            wrong.push(format!(
                "{} ended as {}, not {wanted}",
                text::line(&run.identity.name),
                text::line(
                    run.condition
                        .outcome
                        .as_ref()
                        .map_or(run.condition.state.as_str(), Word::as_str)
                )
            ));
        }
    }
    wrong.extend(expected.keys().map(|name| format!("{name} is missing")));
    wrong
}
