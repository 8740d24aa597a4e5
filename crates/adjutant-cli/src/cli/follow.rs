//! Following a run: its output, its questions, its end. Ctrl-C detaches; only `run` offers to
//! cancel with a second one.
//!
//! One event is selected, then applied to completion. After each reply, the long polls (log,
//! history) continue from its position.

use super::alert::{self, Alert};
use super::context::Context;
use super::exit::{Exit, cli_codes};
use super::log_text::PagePrinter;
use super::out::{CommandResult, Failure, fail};
use super::prompt::TerminalLines;
use super::style::Style;
use super::{answering, details, next_step, run_end};
use crate::present::not_kept;
use crate::text;
use crate::view::{
    AnswerRequests, Cancel, ErrorView, EventPage, EventView, GetRun, ListRequests, LogPage,
    ReadEvents, ReadLogs, RequestView, RunView,
};
use adjutant_core::{EventKind, RequestKind, RequestStateKind};
use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long one call waits at the hub, in milliseconds.
const POLL_WAIT_MS: u64 = 30_000;
/// Bytes of output read at once.
const PAGE_BYTES: u64 = 256 * 1024;
/// A second Ctrl-C within this time cancels the run.
const CANCEL_WINDOW: Duration = Duration::from_secs(2);

/// What to print of a run.
#[derive(Debug, Clone)]
pub(super) enum Scope {
    /// Output only, from a position: `logs -f`.
    Log {
        after: u64,
        grep: Option<String>,
        raw: bool,
        pages: PagePrinter,
    },
    /// Output from a position, questions and progress: `run`, `retry`, `resume`.
    Everything { after: u64 },
}

type Poll<T> = Pin<Box<dyn Future<Output = Result<T, ErrorView>>>>;

enum FollowEvent {
    Log(Result<LogPage, ErrorView>),
    History(Result<EventPage, ErrorView>),
    Line(String),
    Interrupted,
}

/// A run that is being followed.
pub(crate) struct Follow<'a> {
    cx: &'a Context,
    run: RunView,
    scope: Scope,
    log: Poll<LogPage>,
    events: Poll<EventPage>,
    interrupts: Signal,
    /// The input of the person, from the first question on.
    typed: TerminalLines,
    /// The open questions that were shown. The next typed line answers the first.
    asking: VecDeque<RequestView>,
    /// The terminal to notify. `None`: only the output is followed.
    alert: Option<Alert>,
    is_line_open: bool,
    is_over: bool,
    /// The end of the printed output, in bytes.
    log_at: u64,
    log_done: bool,
}

impl<'a> Follow<'a> {
    /// Starts to follow a run. With `is_line_open`, the output printed so far does not end with a
    /// newline.
    pub(super) async fn attach(
        cx: &'a Context,
        run: &str,
        scope: Scope,
        is_line_open: bool,
    ) -> Result<Self, Failure> {
        let run = cx
            .hub
            .call(&GetRun {
                run: run.to_owned(),
                ..GetRun::default()
            })
            .await?;
        let open = run.requests.pending.clone();
        let mut follow = Self::new(cx, run, scope)?;
        follow.is_line_open = is_line_open;
        if let Some(why) = follow.run.changes.snapshot_problem.clone() {
            follow.print_note(&not_kept(&why))?;
        }
        for request in open {
            follow.show_question(request)?;
        }
        Ok(follow)
    }

    /// Starts to follow a run whose view is known.
    pub(super) fn new(cx: &'a Context, run: RunView, scope: Scope) -> Result<Self, Failure> {
        let interrupts = signal(SignalKind::interrupt())
            .map_err(|e| fail(cli_codes::IO, format!("cannot take Ctrl-C: {e}")))?;
        let alert = matches!(scope, Scope::Everything { .. }).then(|| Alert::on_stderr(cx));
        let (Scope::Log { after, .. } | Scope::Everything { after }) = scope;
        let mut follow = Self {
            cx,
            scope,
            alert,
            log: Box::pin(std::future::pending()),
            events: Box::pin(std::future::pending()),
            interrupts,
            typed: TerminalLines::default(),
            asking: VecDeque::new(),
            is_line_open: false,
            is_over: run.is_over() && run.requests.pending.is_empty(),
            log_at: after,
            log_done: false,
            run,
        };
        follow.show_title();
        follow.poll_log();
        follow.poll_events(follow.run.cursor);
        Ok(follow)
    }

    /// Shows in the window's title what the run needs.
    fn show_title(&mut self) {
        let title = self.asking.front().map_or_else(
            || format!("adj: {}", self.run.identity.name),
            |request| format!("adj: {}", alert::asked(request)),
        );
        if let Some(alert) = &mut self.alert {
            alert.set_title(&title);
        }
    }

    fn notify(&mut self, message: &str) {
        if let Some(alert) = &mut self.alert {
            alert.notify(message);
        }
    }

    fn log_call(&self, wait_ms: u64) -> ReadLogs {
        let call = ReadLogs {
            run: self.run.identity.run_id.clone(),
            after: Some(self.log_at),
            max_bytes: Some(PAGE_BYTES),
            wait_ms,
            ..ReadLogs::default()
        };
        match &self.scope {
            Scope::Log {
                grep, raw, pages, ..
            } => ReadLogs {
                grep: grep.clone(),
                raw: *raw,
                times: pages.needs_times(),
                ..call
            },
            Scope::Everything { .. } => call,
        }
    }

    fn poll_log(&mut self) {
        let call = self.log_call(if self.is_over { 0 } else { POLL_WAIT_MS });
        let hub = self.cx.hub.clone();
        self.log = Box::pin(async move { hub.call(&call).await });
    }

    fn print(&mut self, page: &LogPage) -> Result<(), Failure> {
        if !page.text.is_empty() {
            match &mut self.scope {
                Scope::Log { pages, .. } => pages.print(page, self.is_line_open, self.cx)?,
                Scope::Everything { .. } => {
                    PagePrinter::default().print(page, self.is_line_open, self.cx)?
                }
            }
            self.is_line_open = !page.text.ends_with('\n');
        }
        self.log_at = page.next;
        Ok(())
    }

    /// Prints the output up to now, so that it comes before the question.
    async fn catch_up(&mut self) -> Result<(), Failure> {
        if self.log_done {
            return Ok(());
        }
        loop {
            let page = self.cx.hub.call(&self.log_call(0)).await?;
            let is_last = page.next <= self.log_at || page.next >= page.total;
            self.print(&page)?;
            if is_last {
                break;
            }
        }
        self.poll_log();
        Ok(())
    }

    fn poll_events(&mut self, after: i64) {
        let call = ReadEvents {
            after,
            run: Some(self.run.identity.run_id.clone()),
            limit: None,
            wait_ms: POLL_WAIT_MS,
        };
        let hub = self.cx.hub.clone();
        self.events = Box::pin(async move { hub.call(&call).await });
    }

    /// Follows until the run is over or the person detaches.
    pub(super) async fn run(&mut self) -> CommandResult {
        if self.cx.out.interactive
            && self.asking.is_empty()
            && matches!(self.scope, Scope::Everything { .. })
        {
            // What is typed without a question gets a note. Otherwise the shell would run it
            // afterwards.
            self.typed.restart();
        }
        loop {
            if self.is_over && self.log_done {
                return self.finish().await;
            }
            match self.next().await {
                FollowEvent::Log(page) => {
                    let page = page?;
                    let nothing_more = page.ended || (self.is_over && page.next <= self.log_at);
                    self.print(&page)?;
                    if nothing_more {
                        self.log_done = true;
                        self.log = Box::pin(std::future::pending());
                    } else {
                        self.poll_log();
                    }
                }
                FollowEvent::History(page) => {
                    let page = page?;
                    for event in &page.events {
                        self.apply(event).await?;
                    }
                    if self.is_over {
                        self.events = Box::pin(std::future::pending());
                        if !self.log_done {
                            self.poll_log();
                        }
                    } else {
                        self.poll_events(page.cursor);
                    }
                }
                FollowEvent::Line(line) => self.answer(line).await?,
                FollowEvent::Interrupted => return self.detach().await,
            }
        }
    }

    async fn next(&mut self) -> FollowEvent {
        tokio::select! {
            biased;
            _ = self.interrupts.recv() => FollowEvent::Interrupted,
            page = &mut self.log => FollowEvent::Log(page),
            page = &mut self.events => FollowEvent::History(page),
            line = self.typed.next_line_or_pend() => FollowEvent::Line(line),
        }
    }

    /// Applies one event of the run's history.
    async fn apply(&mut self, event: &EventView) -> Result<(), Failure> {
        match event.kind.known() {
            Some(EventKind::RunFinished) => self.is_over = true,
            Some(EventKind::RunStopped) => {
                self.run = self
                    .cx
                    .hub
                    .call(&GetRun {
                        run: self.run.identity.run_id.clone(),
                        ..GetRun::default()
                    })
                    .await?;
                self.is_over = self.run.is_over() && self.run.requests.pending.is_empty();
            }
            Some(EventKind::RunQueueChanged | EventKind::RunHeld) => {
                self.run = self
                    .cx
                    .hub
                    .call(&GetRun {
                        run: self.run.identity.run_id.clone(),
                        ..GetRun::default()
                    })
                    .await?;
                self.is_over = self.run.is_over() && self.run.requests.pending.is_empty();
                self.print_note(&event.text)?;
            }
            Some(EventKind::RunStarting) if self.run.in_queue.queue.take().is_some() => {
                let text = format!("started with {}", self.run.identity.agent);
                self.print_note(&text)?;
            }
            Some(EventKind::RunSnapshotFailed) => self.print_note(&not_kept(&event.text))?,
            Some(EventKind::RequestAsked) => self.show_asked(event.request_id.as_deref()).await?,
            Some(
                kind @ (EventKind::RequestAnswered
                | EventKind::RequestExpired
                | EventKind::RequestWithdrawn),
            ) => {
                let what = kind.word().trim_start_matches("request.");
                self.print_note(&format!("{what}: {}", event.text))?;
                self.remove_request(event.request_id.as_deref())?;
            }
            Some(
                EventKind::RunProgress
                | EventKind::RunStopping
                | EventKind::RunRequeued
                | EventKind::RunStalled
                | EventKind::RunRetrying
                | EventKind::RunRecovered
                | EventKind::RunOverdue
                | EventKind::RunWriteDenied
                | EventKind::BudgetNearlyUsed
                | EventKind::BudgetChanged,
            ) => self.print_note(&event.text)?,
            _ => {}
        }
        Ok(())
    }

    async fn show_asked(&mut self, id: Option<&str>) -> Result<(), Failure> {
        if self.cx.out.json {
            return Ok(());
        }
        let open = self
            .cx
            .hub
            .call(&ListRequests {
                run: Some(self.run.identity.run_id.clone()),
                all: false,
                limit: None,
            })
            .await?;
        match open
            .requests
            .into_iter()
            .find(|r| r.status == RequestStateKind::Pending && Some(r.message_id.as_str()) == id)
        {
            Some(request) => {
                self.catch_up().await?;
                self.show_question(request)
            }
            None => Ok(()),
        }
    }

    fn show_question(&mut self, request: RequestView) -> Result<(), Failure> {
        if self.cx.out.json {
            return Ok(());
        }
        self.end_open_line()?;
        self.cx
            .out
            .print_message(details::request_block(&request, self.cx)?.trim_end())?;
        self.notify(&alert::asked(&request));
        if !self.cx.out.interactive {
            return self.cx.out.suggest(&next_step::answer_command(&request));
        }
        self.asking.push_back(request);
        self.show_title();
        if self.asking.len() == 1 {
            return self.prompt();
        }
        // The line being typed still answers the first question.
        let first = self
            .asking
            .front()
            .map(|first| text::line(&first.number))
            .unwrap_or_default();
        self.print_note(&format!(
            "{} questions open; your next line answers {first}",
            self.asking.len()
        ))
    }

    /// Prints the request that the next line answers. Input typed before is discarded.
    fn prompt(&mut self) -> Result<(), Failure> {
        let Some(request) = self.asking.front() else {
            return Ok(());
        };
        let number = text::line(&request.number);
        let how = match (request.kind.known(), request.content.options.is_empty()) {
            (Some(RequestKind::Question), true) => format!("type the answer to {number}"),
            (Some(RequestKind::Question), false) => {
                format!("type the answer to {number}, or the number of an option")
            }
            _ => format!(
                "{} Type y, or n and a reason",
                answering::approval_question(request)
            ),
        };
        let prompt = self.cx.out.paint_err.apply(
            Style::Dim,
            &format!("  {how}; or: {}", next_step::answer_command(request)),
        );
        self.typed.restart();
        self.cx.out.print_message(&prompt)
    }

    /// Removes a closed question and shows the next one again.
    fn remove_request(&mut self, id: Option<&str>) -> Result<(), Failure> {
        let Some(place) = self
            .asking
            .iter()
            .position(|asking| Some(asking.message_id.as_str()) == id)
        else {
            return Ok(());
        };
        self.asking.remove(place);
        self.show_title();
        if place > 0 {
            return Ok(());
        }
        let Some(next) = self.asking.front() else {
            return Ok(());
        };
        let question = details::request_block(next, self.cx)?;
        self.cx.out.print_message(question.trim_end())?;
        self.prompt()
    }

    async fn answer(&mut self, line: String) -> Result<(), Failure> {
        if line.trim().is_empty() {
            return Ok(());
        }
        let Some(request) = self.asking.front() else {
            return self.print_note("no question is open; use adj send to message the run");
        };
        let answer = match answering::parse_answer(request, &line) {
            Ok(answer) => answer,
            Err(usage) => return self.print_note(usage),
        };
        let id = request.message_id.clone();
        match self
            .cx
            .hub
            .call(&AnswerRequests {
                answers: vec![answer],
            })
            .await
        {
            // The history reports it, and what is open then.
            Ok(_) => Ok(()),
            Err(error) => {
                self.cx.out.print_error(&error)?;
                let open = self
                    .cx
                    .hub
                    .call(&ListRequests {
                        run: Some(self.run.identity.run_id.clone()),
                        all: false,
                        limit: None,
                    })
                    .await?;
                if open
                    .requests
                    .iter()
                    .any(|open| open.message_id == id && open.status == RequestStateKind::Pending)
                {
                    Ok(())
                } else {
                    self.remove_request(Some(&id))
                }
            }
        }
    }

    /// Prints the run's end and returns its exit code.
    async fn finish(&mut self) -> CommandResult {
        self.run = self
            .cx
            .hub
            .call(&GetRun {
                run: self.run.identity.run_id.clone(),
                ..GetRun::default()
            })
            .await?;
        if std::mem::take(&mut self.is_line_open) && !self.cx.out.json {
            self.cx.out.print_line("")?;
        }
        if matches!(self.scope, Scope::Log { .. }) {
            return Ok(Exit::Done);
        }
        self.cx
            .out
            .print_message(&run_end::end_line(&self.run, self.cx))?;
        self.notify(&alert::ended(&self.run));
        run_end::confirm_run_notified(&self.run, self.cx).await?;
        run_end::end_with_run(&self.run, self.cx)
    }

    /// Detaches from the run. After `run`, a second Ctrl-C soon after cancels it; who only reads a
    /// log never ends its run.
    async fn detach(&mut self) -> CommandResult {
        self.end_open_line()?;
        let name = text::line(&self.run.identity.name);
        if matches!(self.scope, Scope::Log { .. }) {
            if self.cx.out.json {
                return Err(fail(
                    cli_codes::INTERRUPTED,
                    format!("stopped reading the log of {name}"),
                ));
            }
            if !self.is_over {
                self.cx.out.print_message(&format!("{name} continues"))?;
            }
            return Err(Failure::Reported(Exit::Interrupted));
        }
        self.cx.out.print_message(&format!(
            "detached; {name} continues. Press Ctrl-C again within 2s to cancel it."
        ))?;
        let again = tokio::time::timeout(CANCEL_WINDOW, self.interrupts.recv()).await;
        if again.is_ok() {
            let run = self
                .cx
                .hub
                .call(&Cancel {
                    run: self.run.identity.run_id.clone(),
                    reason: Some("Ctrl-C twice".to_owned()),
                })
                .await?;
            self.cx
                .out
                .print_message(&format!("cancelling {}", text::line(&run.identity.name)))?;
        }
        if again.is_err() {
            self.cx.out.suggest(&format!("adj logs -f {name}"))?;
        }
        if self.cx.out.json {
            return Err(fail(
                cli_codes::INTERRUPTED,
                format!("detached from {name}"),
            ));
        }
        Err(Failure::Reported(Exit::Interrupted))
    }

    fn print_note(&mut self, note: &str) -> Result<(), Failure> {
        if matches!(self.scope, Scope::Log { .. }) {
            return Ok(());
        }
        self.end_open_line()?;
        let note = format!("· {}", text::line(note));
        self.cx.out.print_message(
            self.cx
                .out
                .fold(&note, &self.cx.out.paint_err.apply(Style::Dim, &note))
                .trim_end(),
        )
    }

    /// Ends an unfinished line of output, so that our line starts at the left.
    fn end_open_line(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.is_line_open) && self.cx.out.terminal {
            self.cx.out.print_line("")?;
        }
        Ok(())
    }
}
