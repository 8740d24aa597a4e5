//! `adj next`: handles what needs the person on the terminal, one item after the other, oldest
//! first.

use super::chat;
use crate::cli::answering::PromptKey;
use crate::cli::args::NextArgs;
use crate::cli::context::{Context, now};
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, fail_hint};
use crate::cli::prompt::{TerminalLines, unreadable};
use crate::cli::style::Style;
use crate::cli::{age, answering, details, pager, run_end, run_state, symbols};
use crate::config::dispatch_env;
use crate::present::{RunNeed, run_need};
use crate::text;
use crate::view::{
    AnswerOne, AnswerRequests, AttentionList, Cancel, ErrorView, GetRun, ListAttention,
    MentionView, ReadRequest, RequestView, Resume, Retry, RunView, Word,
};
use adjutant_core::agent::edit_distance;
use adjutant_core::checkpoint::Choice;
use adjutant_core::units::duration;
use adjutant_core::{RequestId, RequestNo, RequestStateKind};
use std::collections::BTreeSet;
use std::io::Write;
use tokio::signal::unix::{SignalKind, signal};

/// How long one call that watches a request waits at the hub, in milliseconds.
const CLOSED_WAIT_MS: u64 = 30_000;
/// Rows of the terminal that stay free below a request: for the prompt, and for the lines around
/// it.
const ROWS_FREE: usize = 4;
/// The largest edit distance at which a single word is taken for a misspelled command.
const TYPING_ERRORS_MAX: usize = 2;

/// Handles the items that need the person, until none is left or the input ends. An item is skipped
/// once.
pub(crate) async fn next(args: &NextArgs, cx: &Context) -> CommandResult {
    if !cx.out.interactive {
        return Err(fail_hint(
            cli_codes::USAGE,
            "adj next needs a terminal",
            "use adj inbox to list what needs you, and adj reply Q1 \"…\" to answer",
        ));
    }
    let only = match &args.of {
        Some(of) => Some(Only::read(of, cx).await?),
        None => None,
    };
    let mut next = Next {
        cx,
        lines: TerminalLines::default(),
        skipped: BTreeSet::new(),
    };
    let mut shown = 0_u64;
    loop {
        let mut list = cx.hub.call(&ListAttention::default()).await?;
        if let Some(only) = &only {
            only.restrict(&mut list);
        }
        let (open, change) = (list.total(), list.policy_change.take());
        let Some(item) = next.oldest(list) else {
            let done = match (open, shown, &args.of) {
                (0, 0, Some(of)) => format!("{} does not need you", text::line(of)),
                (0, 0, None) => "nothing needs you".to_owned(),
                (0, ..) => "nothing else needs you".to_owned(),
                (skipped, ..) => format!("{skipped} skipped: adj next"),
            };
            match change.filter(|_| args.of.is_none()) {
                Some(change) => {
                    cx.out.print_message(&text::line(&change.summary()))?;
                    cx.out.suggest("adj policy")?;
                }
                None => cx.out.print_message(&done)?,
            }
            return Ok(Exit::Done);
        };
        if shown > 0 {
            cx.out.print_line("")?;
        }
        shown += 1;
        let all = open.saturating_sub(next.skipped.len() as u64) + shown - 1;
        if all > 1 {
            cx.out
                .print_line(&cx.out.paint.apply(Style::Dim, &format!("{shown} of {all}")))?;
        }
        let key = item.key();
        match next.handle(item).await? {
            Handled::Done => {}
            Handled::Skipped => {
                next.skipped.insert(key);
            }
            Handled::InputEnded => {
                cx.out.print_message(&format!("{open} left: adj next"))?;
                return Err(Failure::Reported(Exit::Interrupted));
            }
        }
    }
}

/// What the items are restricted to.
enum Only {
    Request(String),
    /// A run, by its id.
    Run(String),
}

impl Only {
    async fn read(of: &str, cx: &Context) -> Result<Self, Failure> {
        if RequestNo::parse(of).is_ok() || RequestId::parse(of).is_ok() {
            match cx
                .hub
                .call(&ReadRequest {
                    message_id: of.to_owned(),
                    wait_ms: 0,
                })
                .await
            {
                Ok(request) => return Ok(Self::Request(request.message_id)),
                // A UUID can also be that of a run.
                Err(error) if RequestNo::parse(of).is_ok() => return Err(error.into()),
                Err(_) => {}
            }
        }
        Ok(Self::Run(
            cx.hub
                .call(&GetRun {
                    run: of.to_owned(),
                    ..GetRun::default()
                })
                .await?
                .identity
                .run_id,
        ))
    }

    fn restrict(&self, list: &mut AttentionList) {
        list.mentions.clear();
        (list.requests_more, list.runs_more) = (0, 0);
        match self {
            Self::Request(id) => {
                list.requests.retain(|request| request.message_id == *id);
                list.runs.clear();
            }
            Self::Run(id) => {
                list.requests.retain(|request| request.run_id == *id);
                list.runs.retain(|run| run.identity.run_id == *id);
            }
        }
    }
}

/// What needs the person.
enum Item {
    Request(Box<RequestView>),
    Stopped(Box<RunView>),
    Ended(Box<RunView>),
    /// Its process lives on after its report.
    Alive(Box<RunView>),
    /// Its undo was interrupted.
    Undone(Box<RunView>),
    Message(Box<MentionView>),
}

impl Item {
    /// Identifies an item that was skipped. A later stop or message of the same run or chat is
    /// another item.
    fn key(&self) -> String {
        match self {
            Self::Request(request) => request.message_id.clone(),
            Self::Stopped(run) | Self::Ended(run) | Self::Alive(run) | Self::Undone(run) => {
                format!("{} {}", run.identity.run_id, run.cursor)
            }
            Self::Message(mention) => mention.message.message_id.clone(),
        }
    }
}

/// The result of a prompt.
enum Handled {
    Done,
    Skipped,
    /// The terminal input ended, or Ctrl-C.
    InputEnded,
}

/// A line typed at a prompt.
enum Typed {
    Line(String),
    /// An empty line, or `s`.
    Skip,
    /// `v`: show the item again.
    View,
    /// The terminal input ended, Ctrl-C, or `q`.
    End,
}

impl Typed {
    fn key(key: PromptKey) -> Self {
        match key {
            PromptKey::View => Self::View,
            PromptKey::Skip => Self::Skip,
            PromptKey::Quit => Self::End,
        }
    }
}

struct Next<'a> {
    cx: &'a Context,
    lines: TerminalLines,
    /// The keys of skipped items.
    skipped: BTreeSet<String>,
}

impl Next<'_> {
    /// Returns the oldest item that was not skipped.
    fn oldest(&self, list: AttentionList) -> Option<Item> {
        let of_run = |run: RunView| match run_need(&run) {
            RunNeed::Resume => Item::Stopped(Box::new(run)),
            RunNeed::EndOrWait => Item::Alive(Box::new(run)),
            RunNeed::Undo(_) => Item::Undone(Box::new(run)),
            RunNeed::Notice => Item::Ended(Box::new(run)),
        };
        let requests = list
            .requests
            .into_iter()
            .map(|request| Item::Request(Box::new(request)));
        let mentions = list
            .mentions
            .into_iter()
            .map(|mention| Item::Message(Box::new(mention)));
        requests
            .chain(list.runs.into_iter().map(of_run))
            .chain(mentions)
            .find(|item| !self.skipped.contains(&item.key()))
    }

    async fn handle(&mut self, item: Item) -> Result<Handled, Failure> {
        match item {
            Item::Request(request) => self.request(&request).await,
            Item::Stopped(run) => self.stopped(&run).await,
            Item::Ended(run) => self.ended(&run).await,
            Item::Alive(run) => self.alive(&run).await,
            Item::Undone(run) => self.undone(&run).await,
            Item::Message(mention) => self.message(&mention).await,
        }
    }

    /// Prompts, and reads one line typed after it, or a key.
    async fn ask(&mut self, prompt: &str) -> Result<Typed, Failure> {
        Ok(match self.ask_line(prompt).await? {
            Typed::Line(line) => {
                answering::key_of(line.trim()).map_or(Typed::Line(line), Typed::key)
            }
            typed => typed,
        })
    }

    /// Prompts, and reads one line typed after it.
    async fn ask_line(&mut self, prompt: &str) -> Result<Typed, Failure> {
        let mut err = std::io::stderr();
        self.lines.restart();
        write!(err, "{}", symbols::shown(prompt, None)).and_then(|()| err.flush())?;
        // Once a pager has run, Ctrl-C no longer ends the process by itself.
        let mut interrupts = signal(SignalKind::interrupt())?;
        let line = tokio::select! {
            _ = interrupts.recv() => None,
            line = self.lines.next_line() => line.map_err(unreadable)?,
        };
        match line {
            None => {
                writeln!(err)?;
                Ok(Typed::End)
            }
            Some(line) if line.trim().is_empty() => Ok(Typed::Skip),
            Some(line) => Ok(Typed::Line(line)),
        }
    }

    fn done(&self, what: &str) -> Result<Handled, Failure> {
        self.cx.out.print_line(&format!(
            "{} {what}",
            self.cx.out.paint.apply(Style::Good, "✓")
        ))?;
        Ok(Handled::Done)
    }

    /// Shows a request and asks until it is answered, skipped or closed.
    async fn request(&mut self, request: &RequestView) -> Result<Handled, Failure> {
        let cx = self.cx;
        let mut shown = details::request_block(request, cx)?;
        if let Some(seconds) =
            age::seconds_since(&request.times.expires_at, now()).filter(|s| *s < 0)
        {
            shown.push_str(&cx.out.paint.apply(
                Style::Dim,
                &format!("  (expires in {})", duration::left(-seconds)),
            ));
            shown.push('\n');
        }
        let is_long = pager::rows().is_some_and(|rows| shown.lines().count() + ROWS_FREE > rows);
        pager::print(&shown, is_long, &cx.out).await?;
        let prompt = answering::answer_prompt(request);
        loop {
            let typed = tokio::select! {
                biased;
                closed = request_closed(request, cx) => {
                    writeln!(std::io::stderr())?;
                    return self.closed_meanwhile(&closed?);
                }
                typed = self.ask_line(&prompt) => match typed? {
                    Typed::Line(line) => answering::prompt_key(request, &line).map_or(Typed::Line(line), Typed::key),
                    typed => typed,
                },
            };
            let answer = match typed {
                Typed::End => return Ok(Handled::InputEnded),
                Typed::Skip => return Ok(Handled::Skipped),
                Typed::View => {
                    pager::print(&shown, is_long, &cx.out).await?;
                    continue;
                }
                Typed::Line(line) => match answering::parse_answer(request, &line) {
                    Ok(answer) => answer,
                    Err(usage) => {
                        cx.out.print_message(&format!(
                            "{usage}; v shows it again, Enter skips it, q ends"
                        ))?;
                        continue;
                    }
                },
            };
            match self.answer(request, answer).await? {
                Some(handled) => return Ok(handled),
                None => continue,
            }
        }
    }

    /// Sends an answer. `None`: it was refused, and the request is still open.
    async fn answer(
        &self,
        request: &RequestView,
        answer: AnswerOne,
    ) -> Result<Option<Handled>, Failure> {
        let cx = self.cx;
        let answered = match cx
            .hub
            .call(&AnswerRequests {
                answers: vec![answer],
            })
            .await
        {
            Ok(answered) => answered,
            Err(error) => {
                let now = cx
                    .hub
                    .call(&ReadRequest {
                        message_id: request.message_id.clone(),
                        wait_ms: 0,
                    })
                    .await;
                return match now {
                    Ok(now) if now.status != RequestStateKind::Pending => {
                        self.closed_meanwhile(&now).map(Some)
                    }
                    Ok(_) => self.refused(&error).map(|()| None),
                    Err(_) => Err(error.into()),
                };
            }
        };
        for request in &answered.requests {
            let chosen = answering::recorded_answer(request);
            let word = if request.reply.decision.is_none() {
                "answered "
            } else {
                ""
            };
            self.done(&format!("{word}{}: {chosen}", text::line(&request.number)))?;
        }
        Ok(Some(Handled::Done))
    }

    fn closed_meanwhile(&self, request: &RequestView) -> Result<Handled, Failure> {
        let outcome = text::line(&details::request_outcome(request));
        self.cx.out.print_message(&format!(
            "{} was closed meanwhile: {outcome}",
            text::line(&request.number)
        ))?;
        Ok(Handled::Done)
    }

    fn refused(&self, error: &ErrorView) -> Result<(), Failure> {
        Ok(self.cx.out.print_error(error)?)
    }

    /// Shows a stopped run. A typed line resumes it with that resolution or choice, or cancels it.
    async fn stopped(&mut self, run: &RunView) -> Result<Handled, Failure> {
        let cx = self.cx;
        self.show_stopped(run)?;
        run_end::confirm_run_notified(run, cx).await?;
        let commands = commands_of(run);
        let prompt = stopped_prompt(run);
        loop {
            let line = match self.ask_stopped(&prompt, &commands).await? {
                Typed::End => return Ok(Handled::InputEnded),
                Typed::Skip => return Ok(Handled::Skipped),
                Typed::View => {
                    self.show_stopped(run)?;
                    continue;
                }
                Typed::Line(line) => line,
            };
            let line = line.trim();
            if let Some(meant) = misspelled(line, &commands) {
                cx.out.print_message(&format!(
                    "{} is not a command: type {meant}, or a resolution of several words",
                    text::line(line)
                ))?;
                continue;
            }
            let next = AfterStop::parse(line, run);
            match self.continue_stopped(run, &next).await {
                Ok(()) => {
                    return self.done(&format!(
                        "{} {}",
                        next.done(),
                        text::line(&run.identity.name)
                    ));
                }
                Err(error) => {
                    self.refused(&error)?;
                    if !self.is_unchanged(run).await? {
                        return Ok(Handled::Done);
                    }
                }
            }
        }
    }

    async fn continue_stopped(&self, run: &RunView, next: &AfterStop) -> Result<(), ErrorView> {
        let hub = &self.cx.hub;
        let run = run.identity.run_id.clone();
        let (resolution, choice) = match next {
            AfterStop::Cancel => return hub.call(&Cancel { run, reason: None }).await.map(drop),
            AfterStop::Choose(choice) => (None, Some(choice.clone())),
            AfterStop::Resolve(resolution) => (Some(resolution.clone()), None),
        };
        let resume = Resume {
            run,
            resolution,
            next_step: None,
            choice,
            budget: None,
            env: dispatch_env(),
        };
        hub.call(&resume).await.map(drop)
    }

    fn show_stopped(&self, run: &RunView) -> Result<(), Failure> {
        let cx = self.cx;
        cx.out.print_line(&run_end::end_line(run, cx))?;
        if let Some(checkpoint) = &run.activity.checkpoint {
            cx.out
                .print_text(&details::checkpoint_block(checkpoint, cx)?)?;
        }
        for choice in &run.condition.choices {
            cx.out.print_line(&format!(
                "  {:<9} {}",
                text::line(choice.choice.as_str()),
                text::line(&choice.about)
            ))?;
        }
        Ok(())
    }

    /// Prompts for how to resume a run. A word that is one of its choices, as `skip`, is no key.
    async fn ask_stopped(&mut self, prompt: &str, commands: &[&str]) -> Result<Typed, Failure> {
        Ok(match self.ask_line(prompt).await? {
            Typed::Line(line) if !commands.contains(&line.trim()) => {
                answering::key_of(line.trim()).map_or(Typed::Line(line), Typed::key)
            }
            typed => typed,
        })
    }

    /// Returns whether a run is still as it was shown.
    async fn is_unchanged(&self, run: &RunView) -> Result<bool, Failure> {
        let now = self
            .cx
            .hub
            .call(&GetRun {
                run: run.identity.run_id.clone(),
                ..GetRun::default()
            })
            .await?;
        Ok(now.condition.state == run.condition.state
            && now.identity.attempt == run.identity.attempt)
    }

    /// Shows a failed run that the person has not seen yet.
    async fn ended(&mut self, run: &RunView) -> Result<Handled, Failure> {
        let cx = self.cx;
        let name = text::line(&run.identity.name);
        cx.out.print_line(&run_end::end_line(run, cx))?;
        let why = run
            .condition
            .attention
            .as_ref()
            .map(run_state::attention_text)
            .unwrap_or_default();
        cx.out.print_text(&cx.out.indent("  ", &why))?;
        run_end::confirm_run_notified(run, cx).await?;
        loop {
            match self
                .ask(&format!(
                    "Press Enter to continue, or type retry to run {name} again > "
                ))
                .await?
            {
                Typed::End => return Ok(Handled::InputEnded),
                Typed::Skip => {
                    cx.out
                        .suggest(&format!("adj show {name}   or   adj logs {name}"))?;
                    return Ok(Handled::Done);
                }
                Typed::Line(line) if line.trim() == "retry" => {
                    let run = cx
                        .hub
                        .call(&Retry {
                            run: run.identity.run_id.clone(),
                            prompt: None,
                            env: dispatch_env(),
                        })
                        .await?;
                    return self.done(&format!("started {}", text::line(&run.identity.name)));
                }
                Typed::View => cx.out.print_line(&run_end::end_line(run, cx))?,
                Typed::Line(_) => cx.out.print_message("type retry, or press Enter; q ends")?,
            }
        }
    }

    /// Shows a run whose process lives on after its report.
    async fn alive(&mut self, run: &RunView) -> Result<Handled, Failure> {
        let cx = self.cx;
        let name = text::line(&run.identity.name);
        cx.out.print_line(&run_end::end_line(run, cx))?;
        let why = run
            .condition
            .attention
            .as_ref()
            .map(run_state::attention_text)
            .unwrap_or_default();
        cx.out.print_text(&cx.out.indent("  ", &why))?;
        loop {
            match self
                .ask(&format!(
                    "Press Enter to let it run, or type cancel to end {name} > "
                ))
                .await?
            {
                Typed::End => return Ok(Handled::InputEnded),
                Typed::Skip => return Ok(Handled::Skipped),
                Typed::Line(line) if line.trim() == "cancel" => {
                    let Err(error) = cx
                        .hub
                        .call(&Cancel {
                            run: run.identity.run_id.clone(),
                            ..Cancel::default()
                        })
                        .await
                    else {
                        return self.done(&format!("cancelling {name}"));
                    };
                    cx.out.print_message(&text::line(&error.message))?;
                    return Ok(Handled::Skipped);
                }
                Typed::View => cx.out.print_line(&run_end::end_line(run, cx))?,
                Typed::Line(_) => cx
                    .out
                    .print_message("type cancel, or press Enter; q ends")?,
            }
        }
    }

    /// Shows a run with an interrupted undo, and the commands that end it.
    async fn undone(&self, run: &RunView) -> Result<Handled, Failure> {
        let cx = self.cx;
        cx.out.print_line(&run_end::end_line(run, cx))?;
        if let Some(undo) = &run.changes.undo_interrupted {
            cx.out
                .print_text(&cx.out.indent("  ", &format!("undo {}", undo.line())))?;
        }
        run_end::confirm_run_notified(run, cx).await?;
        Ok(Handled::Skipped)
    }

    /// Shows and marks as read the unread messages of a chat. A typed line is posted there.
    async fn message(&mut self, mention: &MentionView) -> Result<Handled, Failure> {
        chat::show_unread(mention, self.cx).await?;
        loop {
            match self
                .ask("Press Enter to continue, or type a reply > ")
                .await?
            {
                Typed::End => return Ok(Handled::InputEnded),
                Typed::Skip => {}
                Typed::View => {
                    self.cx
                        .out
                        .suggest(&format!("adj chat show {}", mention.chat_id))?;
                    continue;
                }
                Typed::Line(line) => chat::reply(mention, line, self.cx).await?,
            }
            return Ok(Handled::Done);
        }
    }
}

/// What the person wants for a stopped run.
#[derive(Debug, PartialEq)]
enum AfterStop {
    Cancel,
    Choose(Word<Choice>),
    Resolve(String),
}

impl AfterStop {
    /// Parses a line. A text that is neither a command nor a choice of the run is a resolution.
    fn parse(line: &str, run: &RunView) -> Self {
        if line == "cancel" {
            return Self::Cancel;
        }
        let mut choices = run.condition.choices.iter().map(|choice| &choice.choice);
        match choices.find(|choice| choice.as_str() == line) {
            Some(choice) => Self::Choose(choice.clone()),
            None => Self::Resolve(line.to_owned()),
        }
    }

    /// Returns what is said once it is done.
    fn done(&self) -> &'static str {
        match self {
            Self::Cancel => "cancelled",
            Self::Choose(_) | Self::Resolve(_) => "resumed",
        }
    }
}

/// Returns the words that are commands for a stopped run.
fn commands_of(run: &RunView) -> Vec<&str> {
    ["cancel", "resume"]
        .into_iter()
        .chain(
            run.condition
                .choices
                .iter()
                .map(|choice| choice.choice.as_str()),
        )
        .collect()
}

fn stopped_prompt(run: &RunView) -> String {
    let how = if run.is_held() {
        " (type resume)"
    } else if run.condition.choices.is_empty() {
        " with a resolution"
    } else {
        " with a resolution or one of these choices"
    };
    format!(
        "resume {}{how}, or cancel > ",
        text::line(&run.identity.name)
    )
}

/// Returns the command that a single misspelled word probably means.
fn misspelled<'a>(line: &str, commands: &[&'a str]) -> Option<&'a str> {
    if line.contains(char::is_whitespace) || commands.contains(&line) {
        return None;
    }
    let distance = |command: &str| edit_distance(&line.to_lowercase(), command);
    commands
        .iter()
        .copied()
        .filter(|command| distance(command) <= TYPING_ERRORS_MAX)
        .min_by_key(|command| distance(command))
}

/// Waits until a request is closed.
async fn request_closed(request: &RequestView, cx: &Context) -> Result<RequestView, Failure> {
    let call = ReadRequest {
        message_id: request.message_id.clone(),
        wait_ms: CLOSED_WAIT_MS,
    };
    loop {
        let now = cx.hub.call(&call).await?;
        if now.status != RequestStateKind::Pending {
            return Ok(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{ChoiceView, RunConditionView, RunIdentityView};

    #[test]
    fn misspelled_command_is_not_a_resolution() {
        let commands = ["cancel", "resume", "skip"];
        for (typed, meant) in [
            ("cancle", Some("cancel")),
            ("Cancel", Some("cancel")),
            ("resum", Some("resume")),
            ("cancel", None),
        ] {
            assert_eq!(misspelled(typed, &commands), meant, "{typed}");
        }
        for resolution in ["installed", "cancel nothing, it is back", "done"] {
            assert_eq!(misspelled(resolution, &commands), None, "{resolution}");
        }
    }

    #[test]
    fn line_for_a_stopped_run_is_a_choice_only_if_it_is_offered() {
        let skip: Word<Choice> = Choice::Skip.into();
        let run = RunView {
            identity: RunIdentityView {
                name: "p1".to_owned(),
                ..RunIdentityView::default()
            },
            condition: RunConditionView {
                choices: vec![ChoiceView {
                    choice: skip.clone(),
                    about: String::new(),
                }],
                ..RunConditionView::default()
            },
            ..RunView::default()
        };
        assert_eq!(AfterStop::parse("cancel", &run), AfterStop::Cancel);
        assert_eq!(AfterStop::parse("skip", &run), AfterStop::Choose(skip));
        for line in ["retry", "resume", "use the other file"] {
            assert_eq!(
                AfterStop::parse(line, &run),
                AfterStop::Resolve(line.to_owned())
            );
        }
        assert_eq!(commands_of(&run), ["cancel", "resume", "skip"]);
        assert_eq!(
            stopped_prompt(&run),
            "resume p1 with a resolution or one of these choices, or cancel > "
        );
    }
}
