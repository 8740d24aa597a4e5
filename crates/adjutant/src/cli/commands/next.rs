//! `adj next`: handles the oldest item that needs the person, on the terminal.

use super::chat;
use crate::cli::context::{Context, now};
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, fail, fail_hint};
use crate::cli::prompt::ask;
use crate::cli::style::Style;
use crate::cli::{age, answering, details, prompt, run_end, run_state};
use crate::config::dispatch_env;
use crate::text;
use crate::view::{
    AnswerOne, AnswerRequests, AttentionView, Cancel, ListAttention, MentionView, ReadRequest, RequestView, Resume, Retry, RunView, codes,
};
use adjutant_core::RequestStateKind;
use std::io::Write;

/// How long one call that watches a request waits at the hub, in milliseconds.
const CLOSED_WAIT_MS: u64 = 30_000;

/// Shows the oldest item that needs the person, and applies what they type.
pub async fn next(cx: &Context) -> CommandResult {
    if !cx.out.interactive {
        return Err(fail_hint(
            cli_codes::USAGE,
            "adj next needs a terminal",
            "use adj inbox to list what needs you, and adj reply Q1 \"…\" to answer",
        ));
    }
    let list = cx.hub.call(&ListAttention::default()).await?;
    let left = list.total().saturating_sub(1);
    let done = if let Some(oldest) = list.requests.first() {
        let left = list.requests.iter().skip(1).map(|r| format!("{} ({})", text::line(&r.number), text::line(&r.run_name))).collect();
        next_request(oldest, left, cx).await?
    } else if let Some(run) = list.runs.first() {
        match &run.attention {
            Some(attention) if attention.is_stop() => next_stopped(run, cx).await?,
            Some(attention) if run.undo_interrupted.is_none() => next_ended(run, attention, cx).await?,
            _ => next_undo(run, cx).await?,
        }
    } else if let Some(mention) = list.mentions.first() {
        next_message(mention, cx).await?
    } else {
        cx.out.print_message("nothing needs you")?;
        return Ok(Exit::Done);
    };
    match (done, left) {
        (Handled::Nothing, _) => cx.out.print_message("skipped")?,
        (Handled::InputEnded, _) => {
            cx.out.print_message("skipped")?;
            return Err(Failure::Reported(Exit::Interrupted));
        }
        (Handled::Done(_), 0) => cx.out.print_message("nothing else needs you")?,
        (Handled::Done(names), left) if names.is_empty() => cx.out.print_message(&format!("{left} left: adj next"))?,
        (Handled::Done(names), left) => cx.out.print_message(&format!("{left} left: {}", names.join(", ")))?,
    }
    Ok(Exit::Done)
}

/// The result of a prompt.
enum Handled {
    /// Handled. Holds the names of the remaining requests, if known.
    Done(Vec<String>),
    Nothing,
    /// The terminal input ended.
    InputEnded,
}

async fn next_request(oldest: &RequestView, left: Vec<String>, cx: &Context) -> Result<Handled, Failure> {
    cx.out.print_text(&details::request_block(oldest, cx)?)?;
    if let Some(seconds) = age::seconds_since(&oldest.expires_at, now()).filter(|s| *s < 0) {
        cx.out.print_line(&cx.out.paint.apply(Style::Dim, &format!("  (expires in {})", age::left(-seconds))))?;
    }
    let answer = match read_answer(oldest, cx).await? {
        Answered::With(answer) => *answer,
        Answered::Skipped => return Ok(Handled::Nothing),
        Answered::InputEnded => return Ok(Handled::InputEnded),
        Answered::Elsewhere(request) => {
            cx.out.print_message(&format!(
                "{} was closed meanwhile: {}",
                text::line(&request.number),
                text::line(&details::request_outcome(&request))
            ))?;
            if !left.is_empty() {
                cx.out.suggest("adj next")?;
            }
            return Err(Failure::Reported(Exit::Conflict));
        }
    };
    let answered = cx.hub.call(&AnswerRequests { answers: vec![answer] }).await?;
    for request in &answered.requests {
        let chosen = answering::recorded_answer(request);
        let word = if request.decision.is_none() { "answered " } else { "" };
        cx.out.print_line(&format!("{} {word}{}: {chosen}", cx.out.paint.apply(Style::Good, "✓"), text::line(&request.number)))?;
    }
    Ok(Handled::Done(left))
}

/// Shows a stopped run. A typed line resumes it with that resolution or choice, or cancels it.
async fn next_stopped(run: &RunView, cx: &Context) -> Result<Handled, Failure> {
    let name = text::line(&run.name);
    cx.out.print_line(&run_end::end_line(run, cx))?;
    if let Some(checkpoint) = &run.checkpoint {
        cx.out.print_text(&details::checkpoint_block(checkpoint, cx)?)?;
    }
    for choice in &run.choices {
        cx.out.print_line(&format!("  {:<9} {}", text::line(choice.choice.as_str()), text::line(&choice.about)))?;
    }
    run_end::confirm_run_notified(run, cx).await?;
    let words = if run.choices.is_empty() { "" } else { " or one of these choices" };
    let how = if run.is_held() { " (type resume)".to_owned() } else { format!(" with a resolution{words}") };
    let Some(line) = ask(&format!("resume {name}{how}, or cancel > "))? else { return Ok(Handled::InputEnded) };
    let line = line.trim();
    let (run, choices) = (run.run_id.clone(), &run.choices);
    let word = match line {
        "" => return Ok(Handled::Nothing),
        "cancel" => {
            cx.hub.call(&Cancel { run, reason: None }).await?;
            "cancelled"
        }
        line => {
            let choice = choices.iter().map(|choice| choice.choice.clone()).find(|choice| choice.as_str() == line);
            let resolution = Some(line.to_owned()).filter(|_| choice.is_none());
            cx.hub.call(&Resume { run, resolution, next_step: None, choice, budget: None, env: dispatch_env() }).await?;
            "resumed"
        }
    };
    cx.out.print_line(&format!("{} {word} {name}", cx.out.paint.apply(Style::Good, "✓")))?;
    Ok(Handled::Done(Vec::new()))
}

/// Shows a failed run that the person has not seen yet.
async fn next_ended(run: &RunView, attention: &AttentionView, cx: &Context) -> Result<Handled, Failure> {
    let name = text::line(&run.name);
    cx.out.print_line(&run_end::end_line(run, cx))?;
    cx.out.print_text(&cx.out.indent("  ", &run_state::attention_text(attention)))?;
    run_end::confirm_run_notified(run, cx).await?;
    match ask(&format!("Press Enter to continue, or type retry to run {name} again > "))? {
        None => return Ok(Handled::InputEnded),
        Some(line) if line.trim() == "retry" => {
            let run = cx.hub.call(&Retry { run: run.run_id.clone(), prompt: None, env: dispatch_env() }).await?;
            cx.out.print_line(&format!("{} started {}", cx.out.paint.apply(Style::Good, "✓"), text::line(&run.name)))?;
        }
        Some(_) => cx.out.suggest(&format!("adj show {name}   or   adj logs {name}"))?,
    }
    Ok(Handled::Done(Vec::new()))
}

/// Shows a run with an interrupted undo, and the commands that end it.
async fn next_undo(run: &RunView, cx: &Context) -> Result<Handled, Failure> {
    cx.out.print_line(&run_end::end_line(run, cx))?;
    if let Some(undo) = &run.undo_interrupted {
        cx.out.print_text(&cx.out.indent("  ", &format!("undo {}", undo.line())))?;
    }
    run_end::confirm_run_notified(run, cx).await?;
    Ok(Handled::Nothing)
}

/// Shows and marks as read the unread messages of a chat. A typed line is posted there.
async fn next_message(mention: &MentionView, cx: &Context) -> Result<Handled, Failure> {
    chat::show_unread(mention, cx).await?;
    match ask("Press Enter to continue, or type a reply > ")? {
        None => return Ok(Handled::InputEnded),
        Some(line) if line.trim().is_empty() => {}
        Some(line) => chat::reply(mention, line, cx).await?,
    }
    Ok(Handled::Done(Vec::new()))
}

/// The result of asking for an answer.
enum Answered {
    With(Box<AnswerOne>),
    /// An empty line.
    Skipped,
    /// The terminal input ended.
    InputEnded,
    /// The request was closed from elsewhere: answered, expired or withdrawn.
    Elsewhere(Box<RequestView>),
}

/// Prompts for the answer to a request while it is open.
async fn read_answer(request: &RequestView, cx: &Context) -> Result<Answered, Failure> {
    let mut typed = prompt::TerminalLines::default();
    let mut err = std::io::stderr();
    loop {
        typed.restart();
        write!(err, "{}", answering::answer_prompt(request)).and_then(|()| err.flush())?;
        let line = tokio::select! {
            biased;
            settled = request_closed(request, cx) => {
                writeln!(err)?;
                return Ok(Answered::Elsewhere(Box::new(settled?)));
            }
            line = typed.next_line() => line,
        };
        let line = line.map_err(|e| match e.kind() {
            std::io::ErrorKind::InvalidData => fail(codes::INVALID, "the input is not valid UTF-8"),
            _ => fail(cli_codes::IO, format!("cannot read the terminal: {e}")),
        })?;
        let Some(line) = line else {
            writeln!(err)?;
            return Ok(Answered::InputEnded);
        };
        if line.trim().is_empty() {
            return Ok(Answered::Skipped);
        }
        match answering::parse_answer(request, &line) {
            Ok(answer) => return Ok(Answered::With(Box::new(answer))),
            Err(usage) => cx.out.print_message(usage)?,
        }
    }
}

/// Waits until a request is closed.
async fn request_closed(request: &RequestView, cx: &Context) -> Result<RequestView, Failure> {
    let call = ReadRequest { message_id: request.message_id.clone(), wait_ms: CLOSED_WAIT_MS };
    loop {
        let now = cx.hub.call(&call).await?;
        if now.status != RequestStateKind::Pending {
            return Ok(now);
        }
    }
}
