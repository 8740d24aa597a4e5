//! `adj top`: the board in a terminal, kept current by the hub's events.
//!
//! One event is selected, then applied to completion; then the screen is drawn once. The events of
//! the hub say which runs to read again.

mod actions;
mod board;
mod calls;
mod change;
mod dialog;
mod draw;
mod guard;
mod item;
mod list;
mod log;
mod look;
mod model;
mod press;
mod reads;
mod screen;
#[cfg(test)]
mod tests;

use super::demo;
use crate::cli::alert::Alert;
use crate::cli::context::{Context, now};
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::keys::read_keys;
use crate::cli::out::{CommandResult, Failure, fail, fail_hint};
use crate::cli::style::Paint;
use crate::config::text_variable;
use crate::hub_client::Client;
use crate::view::{ErrorView, EventPage, GetHub, HubView, LogPage, ReadEvents, ReadLogs, Wait};
use actions::Command;
use calls::TopReply;
use crossterm::event::{Event, KeyEventKind};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use look::Look;
use model::{HubState, Page, Tone, Top};
use reads::{BoardUpdate, Poll, poll_or_pend, read_all, read_some};
use screen::Screen;
use std::collections::BTreeSet;
use std::io;
use std::pin::Pin;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// More changed runs than this are read as one list.
const SINGLE_RUNS_MAX: usize = 8;
/// How long one call waits at the hub, in milliseconds.
const WAIT_MS: u64 = 30_000;
/// Events within this time are handled together.
const TOGETHER: Duration = Duration::from_millis(60);
/// Pause after a read, so that frequent events are shown about four times a second.
const READ_PAUSE_MIN: Duration = Duration::from_millis(250);
/// After a read, the pause is this many times its duration, so that a busy hub is not slowed down.
const PAUSE_FACTOR: u32 = 9;
/// Ages are drawn again after this time.
const TICK: Duration = Duration::from_secs(1);
/// Pauses between tries to reach the hub.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Bytes of a log that are read first, and then at once.
const LOG_BYTES: u64 = 64 * 1024;

/// An event.
enum TopEvent {
    Terminal(Option<io::Result<Event>>),
    Ended(Exit),
    Events(Result<EventPage, ErrorView>),
    Connected(Result<HubView, ErrorView>),
    BoardRead(Result<BoardUpdate, ErrorView>),
    Log(Result<LogPage, ErrorView>),
    Reply(Box<TopReply>),
    /// An action can no longer be undone.
    ActionDue,
    Due,
    Tick,
}

/// Shows the board until the person ends it.
pub(crate) async fn top(cx: &Context) -> CommandResult {
    if !cx.out.interactive || text_variable("TERM").as_deref() == Some("dumb") {
        return Err(fail_hint(
            cli_codes::USAGE,
            "adj top needs a terminal",
            "adj ps --watch prints the runs at each change",
        ));
    }
    // Changes after this position are read again.
    let after = cx.hub.call(&Wait::default()).await?.cursor;
    let update = read_all(cx.hub.clone()).await?;
    let mut session = TopSession::new(cx, after)?;
    session.apply_update(update);
    if let Some(hint) = demo::hint("top", cx).await {
        session.top.notify(Tone::Plain, &hint);
    }
    session.run().await
}

struct TopSession<'a> {
    cx: &'a Context,
    top: Top,
    alert: Alert,
    title: String,
    /// The hub, which this client does not start, so that its absence is seen.
    running_hub: Client,
    signals: [(Signal, Exit); 3],
    after: i64,
    events: Option<Poll<EventPage>>,
    connecting: Option<Poll<HubView>>,
    retry_pause: Duration,
    update: Option<Poll<BoardUpdate>>,
    log: Option<Poll<LogPage>>,
    replies: FuturesUnordered<Pin<Box<dyn Future<Output = TopReply>>>>,
    /// The runs to read again; `all` overrides it.
    changed: BTreeSet<String>,
    is_all_changed: bool,
    read_began: Instant,
    next_read: Instant,
}

impl<'a> TopSession<'a> {
    fn new(cx: &'a Context, after: i64) -> Result<Self, Failure> {
        let taken = |kind| {
            signal(kind).map_err(|e| fail(cli_codes::IO, format!("cannot take signals: {e}")))
        };
        let signals = [
            (taken(SignalKind::interrupt())?, Exit::Interrupted),
            (taken(SignalKind::terminate())?, Exit::Terminated),
            (taken(SignalKind::hangup())?, Exit::Terminated),
        ];
        let now = Instant::now();
        let mut session = Self {
            cx,
            top: Top::default(),
            alert: Alert::on_stdout(cx),
            title: String::new(),
            running_hub: Client::running_hub(&cx.home),
            signals,
            after,
            events: None,
            connecting: None,
            retry_pause: RETRY_MIN,
            update: None,
            log: None,
            replies: FuturesUnordered::new(),
            changed: BTreeSet::new(),
            is_all_changed: false,
            read_began: now,
            next_read: now,
        };
        session.await_events();
        Ok(session)
    }

    /// Runs until the end. The screen is restored before the result is printed.
    async fn run(mut self) -> CommandResult {
        let io_failed =
            |error: io::Error| fail(cli_codes::IO, format!("cannot use the terminal: {error}"));
        let mut screen = Screen::open().map_err(io_failed)?;
        let mut keys = read_keys();
        loop {
            self.show_title();
            let look = Look {
                has_color: self.cx.out.paint != Paint::OFF,
                now: now(),
            };
            screen
                .draw(|frame| draw::draw(frame, &mut self.top, look))
                .map_err(io_failed)?;
            let tick = Instant::now() + TICK;
            // Several events at once are drawn once.
            loop {
                let happened = self.next(&mut keys, tick).await;
                match self.apply(happened) {
                    Ok(Drawing::Due) => break,
                    Ok(Drawing::Unchanged) => {}
                    Ok(Drawing::Over(exit)) => {
                        drop(screen);
                        self.finish_calls().await?;
                        return if exit == Exit::Done {
                            Ok(exit)
                        } else {
                            Err(Failure::Reported(exit))
                        };
                    }
                    Err(error) => return Err(io_failed(error)),
                }
            }
        }
    }

    async fn next(
        &mut self,
        keys: &mut mpsc::Receiver<io::Result<Event>>,
        tick: Instant,
    ) -> TopEvent {
        let [
            (interrupts, interrupted),
            (terminations, terminated),
            (hangups, hung_up),
        ] = &mut self.signals;
        let has_changes = (self.is_all_changed || !self.changed.is_empty())
            && self.update.is_none()
            && self.connecting.is_none();
        let action_due = self.top.later().first().map(|later| later.due);
        tokio::select! {
            biased;
            _ = interrupts.recv() => TopEvent::Ended(*interrupted),
            _ = terminations.recv() => TopEvent::Ended(*terminated),
            _ = hangups.recv() => TopEvent::Ended(*hung_up),
            key = keys.recv() => TopEvent::Terminal(key),
            () = tokio::time::sleep_until(action_due.unwrap_or(tick)), if action_due.is_some() => TopEvent::ActionDue,
            Some(reply) = self.replies.next() => TopEvent::Reply(Box::new(reply)),
            hub = poll_or_pend(&mut self.connecting) => TopEvent::Connected(hub),
            update = poll_or_pend(&mut self.update) => TopEvent::BoardRead(update),
            page = poll_or_pend(&mut self.log) => TopEvent::Log(page),
            page = poll_or_pend(&mut self.events) => TopEvent::Events(page),
            () = tokio::time::sleep_until(self.next_read), if has_changes => TopEvent::Due,
            () = tokio::time::sleep_until(tick) => TopEvent::Tick,
        }
    }

    fn apply(&mut self, happened: TopEvent) -> io::Result<Drawing> {
        match happened {
            TopEvent::Ended(exit) => return Ok(Drawing::Over(exit)),
            TopEvent::Terminal(None) => return Ok(Drawing::Over(Exit::Terminated)),
            TopEvent::Terminal(Some(event)) => return self.apply_terminal(event?),
            TopEvent::Tick => {}
            TopEvent::ActionDue => {
                for command in self.top.take_due(Some(Instant::now())) {
                    self.execute(command);
                }
            }
            TopEvent::Due => {
                self.read_again();
                return Ok(Drawing::Unchanged);
            }
            TopEvent::Events(Ok(page)) => {
                self.after = page.cursor;
                self.await_events();
                if page.events.is_empty() && !page.reset {
                    return Ok(Drawing::Unchanged);
                }
                if self.changed.is_empty() {
                    self.next_read = self.next_read.max(Instant::now() + TOGETHER);
                }
                for event in page.events {
                    // Events about pools name no run.
                    self.is_all_changed |= event.run_id.is_empty();
                    self.changed.insert(event.run_id);
                }
                return Ok(Drawing::Unchanged);
            }
            TopEvent::Events(Err(_)) => {
                self.events = None;
                self.top.connection = HubState::Lost(None);
                self.connect(Duration::ZERO);
            }
            TopEvent::Connected(Ok(hub)) => {
                self.connecting = None;
                self.retry_pause = RETRY_MIN;
                self.top.connection = HubState::Live;
                self.top
                    .notify(Tone::Good, &format!("connected again (hub {})", hub.pid));
                self.is_all_changed = true;
                self.await_events();
            }
            TopEvent::Connected(Err(error)) => {
                self.top.connection = HubState::Lost(Some(error.message));
                let pause = self.retry_pause;
                self.retry_pause = (pause * 2).min(RETRY_MAX);
                self.connect(pause);
            }
            TopEvent::BoardRead(update) => {
                self.update = None;
                self.next_read =
                    Instant::now() + (self.read_began.elapsed() * PAUSE_FACTOR).max(READ_PAUSE_MIN);
                match update {
                    Ok(update) => self.apply_update(update),
                    // The events break too, and then everything is read again.
                    Err(error) => {
                        self.is_all_changed = true;
                        self.next_read = Instant::now() + RETRY_MAX;
                        self.top.notify(Tone::Bad, &error.message);
                    }
                }
            }
            TopEvent::Log(page) => self.take_log(page),
            TopEvent::Reply(reply) => self.take_reply(*reply),
        }
        Ok(Drawing::Due)
    }

    fn apply_terminal(&mut self, event: Event) -> io::Result<Drawing> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                if let Some(command) = self.top.press(key) {
                    return Ok(self.perform(command));
                }
            }
            Event::Paste(pasted) => self.top.paste(&pasted),
            Event::Resize(..) => {}
            _ => return Ok(Drawing::Unchanged),
        }
        Ok(Drawing::Due)
    }

    fn perform(&mut self, command: Command) -> Drawing {
        if let Command::Quit(exit) = command {
            return Drawing::Over(exit);
        }
        if let Some(command) = self.top.send_later(command, Instant::now()) {
            self.execute(command);
        }
        Drawing::Due
    }

    fn await_events(&mut self) {
        let call = ReadEvents {
            after: self.after,
            run: None,
            limit: None,
            wait_ms: WAIT_MS,
        };
        let hub = self.running_hub.clone();
        self.events = Some(Box::pin(async move { hub.call(&call).await }));
    }

    /// Reaches the hub again, and starts one if there is none.
    fn connect(&mut self, pause: Duration) {
        let hub = self.cx.hub.clone();
        self.connecting = Some(Box::pin(async move {
            tokio::time::sleep(pause).await;
            hub.call(&GetHub {}).await
        }));
    }

    /// Reads what has changed.
    fn read_again(&mut self) {
        let hub = self.cx.hub.clone();
        let changed = std::mem::take(&mut self.changed);
        let is_all = std::mem::take(&mut self.is_all_changed) || changed.len() > SINGLE_RUNS_MAX;
        self.read_began = Instant::now();
        self.update = Some(if is_all {
            Box::pin(read_all(hub))
        } else {
            Box::pin(read_some(hub, changed))
        });
    }

    fn apply_update(&mut self, update: BoardUpdate) {
        match update {
            BoardUpdate::All(list, attention) => {
                self.top.warning = list.clock.clone();
                self.top.board.replace(*list, *attention);
            }
            BoardUpdate::Some {
                runs,
                gone,
                attention,
            } => self.top.board.update(runs, &gone, *attention),
        }
        self.top.settle_selection();
        if let Some(message) = self.top.take_new_needs() {
            self.alert.notify(&message);
        }
    }

    fn show_title(&mut self) {
        let title = self.top.title();
        if title != self.title {
            self.alert.set_title(&title);
            self.title = title;
        }
    }

    fn read_log(&mut self, run: String, after: Option<u64>) {
        let hub = self.cx.hub.clone();
        let call = ReadLogs {
            run,
            after,
            max_bytes: Some(LOG_BYTES),
            wait_ms: if after.is_some() { WAIT_MS } else { 0 },
            ..ReadLogs::default()
        };
        self.log = Some(Box::pin(async move { hub.call(&call).await }));
    }

    fn take_log(&mut self, page: Result<LogPage, ErrorView>) {
        self.log = None;
        let Page::Log(log) = &mut self.top.page else {
            return;
        };
        match page {
            Ok(page) => {
                log.extend(&page);
                let (run, is_over) = (log.run_id.clone(), page.ended && page.next >= page.total);
                if !is_over {
                    self.read_log(run, Some(page.next));
                }
            }
            Err(error) => self.top.notify(Tone::Bad, &error.message),
        }
    }
}

/// Whether the screen must be drawn.
enum Drawing {
    Due,
    Unchanged,
    Over(Exit),
}
