//! `adj chat post`: a message, and the answers to it.

use super::entries::{print_entries, receipt_text};
use super::{ANSWER_WAIT_MS, directory};
use crate::cli::args::ChatPostArgs;
use crate::cli::context::{Context, text_argument};
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure};
use crate::view::{Answers, PostedMessage, ReadAnswers, Say};
use crate::{config, text};
use adjutant_core::chat::{EntryKind, Receipt};
use std::time::Instant;

/// Posts a message, and waits for the answers of agents, and for the reply of a run if asked to.
pub(super) async fn post(args: ChatPostArgs, cx: &Context) -> CommandResult {
    let (wait, is_detached) = (args.wait, args.detach);
    let posted = cx.hub.call(&say(args)?).await?;
    if !cx.out.json {
        print_posted(&posted, wait.is_some(), cx)?;
    }
    // A run may reply late or never, so only a caller that asks for it waits.
    let deadline = wait
        .filter(|_| !posted.receipts.is_empty())
        .map(|wait| Instant::now() + wait);
    let mut answers = Answers {
        waiting: posted.answering.clone(),
        ..Answers::default()
    };
    if !is_detached {
        await_answers(&posted, deadline, &mut answers, cx).await?;
    }
    if cx.out.json {
        cx.out.print_json(&serde_json::json!({"said": posted, "answers": answers.answers, "waiting": answers.waiting}))?;
    } else if deadline.is_some() {
        print_unanswered(&answers, cx)?;
    }
    Ok(exit_of(&answers, deadline.is_some()))
}

/// Returns the call of a message. A number names a chat; everything else is a recipient.
fn say(args: ChatPostArgs) -> Result<Say, Failure> {
    let text = text_argument(&args.text, "the message")?;
    let here = directory::current()?;
    let cwd = args.cwd.map_or(here.clone(), |dir| here.join(dir));
    let chat_id = args.to.parse::<i64>().ok();
    let mut to = args.at;
    if chat_id.is_none() {
        to.insert(0, args.to);
    }
    Ok(Say {
        chat_id,
        to,
        message: Some(text),
        reply_to: args.reply_to,
        pin: args.pin.then_some(true),
        cwd: directory::as_text(&cwd)?,
        env: config::dispatch_env(),
        ..Say::default()
    })
}

/// Prints where the message is, and who receives it.
fn print_posted(posted: &PostedMessage, is_wait_wanted: bool, cx: &Context) -> Result<(), Failure> {
    let head = format!(
        "{} in chat {} {}",
        posted.message.message_id,
        posted.chat_id,
        text::line(&posted.title)
    );
    cx.out.print_message(cx.out.fold(&head, &head).trim_end())?;
    for note in &posted.notes {
        cx.out
            .print_message(&format!("note: {}", text::line(note)))?;
    }
    for receipt in &posted.receipts {
        cx.out.print_message(&receipt_text(receipt))?;
    }
    if is_wait_wanted && posted.receipts.is_empty() && posted.answering.is_empty() {
        cx.out.print_message(
            "note: not waiting: the message is addressed to no run or agent that replies",
        )?;
    }
    Ok(())
}

/// Waits until all agents have answered and, with a deadline, the run has replied. Prints each
/// answer when it arrives, unless the output is JSON.
async fn await_answers(
    posted: &PostedMessage,
    deadline: Option<Instant>,
    answers: &mut Answers,
    cx: &Context,
) -> Result<(), Failure> {
    let mut printed = 0;
    let mut is_waiting = !answers.waiting.is_empty() || deadline.is_some();
    while is_waiting {
        let left = |end: Instant| {
            u64::try_from(end.saturating_duration_since(Instant::now()).as_millis())
                .unwrap_or(u64::MAX)
        };
        *answers = cx
            .hub
            .call(&ReadAnswers {
                chat_id: posted.chat_id,
                seq: posted.message.seq,
                turn: None,
                wait_ms: deadline.map_or(ANSWER_WAIT_MS, left).min(ANSWER_WAIT_MS),
                replies: deadline.is_some(),
            })
            .await?;
        if !cx.out.json {
            print_entries(answers.answers.get(printed..).unwrap_or_default(), cx)?;
            printed = answers.answers.len();
        }
        is_waiting = !answers.waiting.is_empty()
            && !answers.has_messages
            && deadline.is_none_or(|end| Instant::now() < end);
    }
    Ok(())
}

/// Returns the exit code. `needs_reply`: the caller waited for the reply of a run.
fn exit_of(answers: &Answers, needs_reply: bool) -> Exit {
    let has_failed = answers
        .answers
        .iter()
        .any(|answer| answer.kind == EntryKind::Failure);
    let has_no_reply = needs_reply && answers.answers.is_empty();
    match (has_failed, has_no_reply, answers.waiting.is_empty()) {
        // No more replies can arrive.
        (true, ..) | (false, true, true) => Exit::Failed,
        (false, true, false) => Exit::TimedOut,
        (false, false, _) => Exit::Done,
    }
}

/// Prints which runs have not replied, and why the wait has ended.
fn print_unanswered(answers: &Answers, cx: &Context) -> Result<(), Failure> {
    for receipt in answers
        .receipts
        .iter()
        .filter(|receipt| receipt.receipt == Receipt::RunEnded)
    {
        cx.out.print_message(&receipt_text(receipt))?;
    }
    if !answers.waiting.is_empty() {
        cx.out.print_message(&format!(
            "no reply yet from {}",
            text::line(&answers.waiting.join(", "))
        ))?;
    }
    if answers.has_messages {
        cx.out
            .print_message("messages for this run have arrived: adj show prints them")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::ChatEntryView;

    fn answers(kinds: &[EntryKind], waiting: &[&str]) -> Answers {
        let entry = |kind: &EntryKind| ChatEntryView {
            kind: (*kind).into(),
            ..ChatEntryView::default()
        };
        Answers {
            answers: kinds.iter().map(entry).collect(),
            waiting: waiting.iter().map(|name| (*name).to_owned()).collect(),
            ..Answers::default()
        }
    }

    #[test]
    fn missing_reply_counts_only_if_it_was_awaited() {
        let open = answers(&[], &["run"]);
        assert_eq!(exit_of(&open, true), Exit::TimedOut);
        assert_eq!(exit_of(&open, false), Exit::Done);
        let ended = answers(&[], &[]);
        assert_eq!(exit_of(&ended, true), Exit::Failed);
        assert_eq!(exit_of(&ended, false), Exit::Done);
    }

    #[test]
    fn failed_answer_beats_the_others() {
        let both = answers(&[EntryKind::Answer, EntryKind::Failure], &["slow"]);
        assert_eq!(exit_of(&both, false), Exit::Failed);
        assert_eq!(
            exit_of(&answers(&[EntryKind::Answer], &[]), true),
            Exit::Done
        );
    }
}
