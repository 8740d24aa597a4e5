//! Following a run: its output, its questions, its end; Ctrl-C lets go of it.
//!
//! One event is selected, then applied to completion. The two long polls (log, history) are made
//! anew after each reply, from the position that it gave.

use super::context::Context;
use super::exit::{Exit, words};
use super::out::{Ended, Stop, fail};
use super::style::Style;
use super::{logs, look, state, waiting};
use crate::text;
use crate::view::{
    AnswerRequests, Cancel, ErrorView, EventPage, EventView, GetRun, ListRequests, LogPage, ReadEvents, ReadLogs, RequestView, RunView,
};
use std::io::BufRead;
use std::pin::Pin;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// How long one look for more stays at the hub, in milliseconds.
const POLL_WAIT_MS: u64 = 30_000;
/// Bytes of output taken at once.
const PAGE_BYTES: u64 = 256 * 1024;
/// A second Ctrl-C within this time cancels the run.
const CANCEL_WINDOW: Duration = Duration::from_secs(2);

/// What is followed.
#[derive(Debug, Clone)]
pub enum What {
    /// Output only, from a position: `logs -f`.
    Log { after: u64, grep: Option<String> },
    /// Output, questions and progress from the beginning: `run`.
    Everything,
}

type Poll<T> = Pin<Box<dyn Future<Output = Result<T, ErrorView>>>>;

enum Happened {
    Log(Result<LogPage, ErrorView>),
    Events(Result<EventPage, ErrorView>),
    Line(Option<String>),
    Signal,
}

/// A run that is being followed.
pub struct Follow<'a> {
    cx: &'a Context,
    run: RunView,
    what: What,
    log: Poll<LogPage>,
    events: Poll<EventPage>,
    interrupts: Signal,
    /// Lines that the person types, once a question made us read them.
    typed: Option<mpsc::Receiver<String>>,
    /// The question that the next typed line answers.
    asking: Option<RequestView>,
    line_begun: bool,
    over: bool,
    log_done: bool,
}

impl<'a> Follow<'a> {
    /// Begins to follow a run.
    pub async fn attach(cx: &'a Context, run: &str, what: What) -> Result<Self, Stop> {
        let run = cx.hub.call(&GetRun { run: run.to_owned() }).await?;
        let open = run.pending.clone();
        let mut follow = Self::new(cx, run, what)?;
        for request in open {
            follow.show_question(request)?;
        }
        Ok(follow)
    }

    /// Begins to follow a run that is known already.
    pub fn new(cx: &'a Context, run: RunView, what: What) -> Result<Self, Stop> {
        let interrupts = signal(SignalKind::interrupt()).map_err(|e| fail(words::IO, format!("cannot take Ctrl-C: {e}")))?;
        let after = if let What::Log { after, .. } = what { after } else { 0 };
        let mut follow = Self {
            cx,
            what,
            log: Box::pin(std::future::pending()),
            events: Box::pin(std::future::pending()),
            interrupts,
            typed: None,
            asking: None,
            line_begun: false,
            over: state::is_over(&run) && run.pending.is_empty(),
            log_done: false,
            run,
        };
        follow.poll_log(after);
        follow.poll_events(follow.run.cursor);
        Ok(follow)
    }

    fn poll_log(&mut self, after: u64) {
        let grep = if let What::Log { grep, .. } = &self.what { grep.clone() } else { None };
        let call = ReadLogs {
            run: self.run.run_id.clone(),
            after: Some(after),
            max_bytes: Some(PAGE_BYTES),
            grep,
            wait_ms: if self.over { 0 } else { POLL_WAIT_MS },
        };
        let hub = self.cx.hub.clone();
        self.log = Box::pin(async move { hub.call(&call).await });
    }

    fn poll_events(&mut self, after: i64) {
        let call = ReadEvents { after, run: Some(self.run.run_id.clone()), limit: None, wait_ms: POLL_WAIT_MS };
        let hub = self.cx.hub.clone();
        self.events = Box::pin(async move { hub.call(&call).await });
    }

    /// Follows until the run is over, or the user lets go.
    pub async fn run(&mut self) -> Ended {
        let mut last_log = 0;
        loop {
            if self.over && self.log_done {
                return self.end().await;
            }
            match self.next().await {
                Happened::Log(page) => {
                    let page = page?;
                    if !page.text.is_empty() {
                        self.line_begun = !page.text.ends_with('\n');
                        logs::print(&page, self.cx)?;
                    }
                    let nothing_more = page.ended || (self.over && page.next <= last_log);
                    last_log = page.next;
                    if nothing_more {
                        self.log_done = true;
                        self.log = Box::pin(std::future::pending());
                    } else {
                        self.poll_log(page.next);
                    }
                }
                Happened::Events(page) => {
                    let page = page?;
                    for event in &page.events {
                        self.take(event).await?;
                    }
                    if self.over {
                        self.events = Box::pin(std::future::pending());
                        if !self.log_done {
                            self.poll_log(last_log.max(if let What::Log { after, .. } = self.what { after } else { 0 }));
                        }
                    } else {
                        self.poll_events(page.cursor);
                    }
                }
                Happened::Line(line) => self.answer(line).await?,
                Happened::Signal => return self.let_go().await,
            }
        }
    }

    async fn next(&mut self) -> Happened {
        let typed = async {
            match &mut self.typed {
                Some(lines) => lines.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = self.interrupts.recv() => Happened::Signal,
            page = &mut self.log => Happened::Log(page),
            page = &mut self.events => Happened::Events(page),
            line = typed => Happened::Line(line),
        }
    }

    /// Applies one event of the run's history.
    async fn take(&mut self, event: &EventView) -> Result<(), Stop> {
        match event.kind.as_str() {
            "run.finished" => self.over = true,
            "run.stopped" => {
                self.run = self.cx.hub.call(&GetRun { run: self.run.run_id.clone() }).await?;
                self.over = state::is_over(&self.run) && self.run.pending.is_empty();
            }
            "request.asked" => self.was_asked(event.request_id.as_deref()).await?,
            "request.answered" | "request.expired" | "request.withdrawn" => {
                if self.asking.as_ref().is_some_and(|asking| Some(asking.message_id.as_str()) == event.request_id.as_deref()) {
                    self.asking = None;
                }
                let what = event.kind.strip_prefix("request.").unwrap_or_default();
                self.note(&format!("{what}: {}", event.text))?;
            }
            "run.progress" | "run.stopping" | "run.requeued" | "run.stalled" => self.note(&event.text)?,
            _ => {}
        }
        Ok(())
    }

    async fn was_asked(&mut self, id: Option<&str>) -> Result<(), Stop> {
        if self.cx.out.json {
            return Ok(());
        }
        let open = self.cx.hub.call(&ListRequests { run: Some(self.run.run_id.clone()), all: false, limit: None }).await?;
        match open.requests.into_iter().find(|r| r.status == "pending" && Some(r.message_id.as_str()) == id) {
            Some(request) => self.show_question(request),
            None => Ok(()),
        }
    }

    fn show_question(&mut self, request: RequestView) -> Result<(), Stop> {
        if self.cx.out.json {
            return Ok(());
        }
        self.fresh_line()?;
        self.cx.out.say(look::question(&request, self.cx)?.trim_end())?;
        if self.cx.out.interactive {
            self.cx.out.say(&self.cx.out.paint_err.apply(
                Style::Dim,
                &format!(
                    "  type the answer{}, or: adj reply {} \"…\"",
                    if request.options.is_empty() { "" } else { " or its number" },
                    text::line(&request.number)
                ),
            ))?;
            self.typed.get_or_insert_with(read_lines);
            self.asking.get_or_insert(request);
        } else {
            self.cx.out.next(&super::decide::way(&request))?;
        }
        Ok(())
    }

    async fn answer(&mut self, line: Option<String>) -> Result<(), Stop> {
        let Some(line) = line else {
            // The terminal's input has ended; the run is followed on.
            self.typed = None;
            return Ok(());
        };
        if line.trim().is_empty() {
            return Ok(());
        }
        let Some(request) = self.asking.take() else {
            return self.note("no question is open; adj send reaches the run");
        };
        let answer = match super::decide::typed(&request, &line) {
            Ok(answer) => answer,
            Err(usage) => {
                self.asking = Some(request);
                return self.note(usage);
            }
        };
        match self.cx.hub.call(&AnswerRequests { answers: vec![answer] }).await {
            Ok(_) => {}
            Err(error) => self.cx.out.error(&error)?,
        }
        let open = self.cx.hub.call(&ListRequests { run: Some(self.run.run_id.clone()), all: false, limit: None }).await?;
        self.asking = open.requests.into_iter().find(|r| r.status == "pending");
        Ok(())
    }

    /// Ends with what became of the run.
    async fn end(&mut self) -> Ended {
        self.run = self.cx.hub.call(&GetRun { run: self.run.run_id.clone() }).await?;
        self.fresh_line()?;
        let exit = state::exit_of(&self.run);
        if matches!(self.what, What::Log { .. }) {
            return Ok(Exit::Done);
        }
        self.cx.out.say(&waiting::ending(&self.run, self.cx))?;
        if exit == Exit::Done { Ok(exit) } else { waiting::failure(&self.run, self.cx) }
    }

    /// Lets go of the run; a second Ctrl-C soon after cancels it.
    async fn let_go(&mut self) -> Ended {
        self.fresh_line()?;
        let name = text::line(&self.run.name);
        self.cx.out.say(&format!("detached; {name} goes on. Ctrl-C again within 2 s cancels it."))?;
        let again = tokio::time::timeout(CANCEL_WINDOW, self.interrupts.recv()).await;
        if again.is_ok() {
            let run = self.cx.hub.call(&Cancel { run: self.run.run_id.clone(), reason: Some("Ctrl-C twice".to_owned()) }).await?;
            self.cx.out.say(&format!("cancelling {}", text::line(&run.name)))?;
        }
        if again.is_err() {
            self.cx.out.next(&format!("adj logs -f {name}"))?;
        }
        if self.cx.out.json {
            return Err(fail(words::INTERRUPTED, format!("detached from {name}")));
        }
        Err(Stop::Quiet(Exit::Interrupted))
    }

    fn note(&mut self, note: &str) -> Result<(), Stop> {
        if matches!(self.what, What::Log { .. }) {
            return Ok(());
        }
        self.fresh_line()?;
        let note = format!("· {}", text::line(note));
        self.cx.out.say(self.cx.out.folded(&note, &self.cx.out.paint_err.apply(Style::Dim, &note)).trim_end())
    }

    /// Ends a half-written line of output, so that ours begins at the left.
    fn fresh_line(&mut self) -> Result<(), Stop> {
        if std::mem::take(&mut self.line_begun) && self.cx.out.terminal {
            self.cx.out.line("")?;
        }
        Ok(())
    }
}

/// Reads the terminal's lines on a thread of its own: a read cannot be cancelled, and the process
/// ends without waiting for it.
pub fn read_lines() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}
