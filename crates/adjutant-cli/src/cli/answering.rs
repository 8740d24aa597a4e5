//! Answers to requests: which request is meant, how a typed line is parsed, what was recorded.

use super::context::{Context, now};
use super::details::person;
use super::out::Failure;
use super::style::Style;
use super::{age, next_step};
use crate::present::{AskedFor, asked_for};
use crate::text;
use crate::view::{
    AnswerOne, AnswerRequests, Answered, DecisionWord, ErrorView, ListRequests, ReadRequest,
    RequestView, codes,
};
use adjutant_core::units::duration;
use adjutant_core::{RequestId, RequestKind, RequestNo, RunStateKind};

/// Starts an answer to a request, given by its number or id or by its run.
pub(super) async fn answer_to(to: &str, cx: &Context) -> Result<AnswerOne, Failure> {
    let to_one = Some(to.to_owned());
    Ok(if names_request(to, cx).await? {
        AnswerOne {
            message_id: to_one,
            ..AnswerOne::default()
        }
    } else {
        AnswerOne {
            run: to_one,
            ..AnswerOne::default()
        }
    })
}

/// Sends answers. A refusal names the request, what was answered, and the command to use.
pub(crate) async fn send_answers(
    answers: Vec<AnswerOne>,
    cx: &Context,
) -> Result<Answered, Failure> {
    let only = match answers.as_slice() {
        [one] => Some((one.message_id.clone(), one.run.clone())),
        _ => None,
    };
    let error = match cx.hub.call(&AnswerRequests { answers }).await {
        Ok(answered) => return Ok(answered),
        Err(error) => error,
    };
    let is_of_request = [
        codes::ALREADY_ANSWERED,
        codes::UNFITTING,
        codes::EXPIRED,
        codes::WITHDRAWN,
        codes::USED,
    ]
    .contains(&error.code.as_str());
    let Some((message_id, run)) = only.filter(|_| is_of_request) else {
        return Err(error.into());
    };
    let request = match message_id {
        Some(message_id) => cx
            .hub
            .call(&ReadRequest {
                message_id,
                wait_ms: 0,
            })
            .await
            .map(Some),
        None => cx
            .hub
            .call(&ListRequests {
                run,
                all: false,
                limit: Some(1),
            })
            .await
            .map(|list| list.requests.into_iter().next()),
    };
    Err(match request {
        Ok(Some(request)) => reword_refusal(error, &request).into(),
        // The first refusal is the relevant one.
        Ok(None) | Err(_) => error.into(),
    })
}

/// Rewords a refusal to answer for the person at the terminal.
fn reword_refusal(error: ErrorView, request: &RequestView) -> ErrorView {
    let number = text::line(&request.number);
    let of_run = format!("{number} of {}", text::line(&request.run_name));
    if error.code == codes::UNFITTING {
        return ErrorView {
            message: format!("{of_run}: {}", error.message),
            hint: Some(next_step::answer_command(request)),
            ..error
        };
    }
    if error.code != codes::ALREADY_ANSWERED {
        return ErrorView {
            message: format!("{of_run}: {}", error.message),
            ..error
        };
    }
    let by = person(
        request
            .reply
            .answered_by
            .as_deref()
            .unwrap_or("another party"),
    )
    .to_owned();
    let ago = request
        .times
        .answered_at
        .as_deref()
        .and_then(|at| age::seconds_since(at, now()))
        .map(duration::age);
    let recorded = match request.reply.decision.is_none() && request.option_chosen().is_none() {
        true => format!("{:?}", recorded_answer(request)),
        false => recorded_answer(request),
    };
    let ago = ago.map(|ago| format!(", {ago} ago")).unwrap_or_default();
    ErrorView {
        message: format!(
            "{number} was already answered: {} ({}{ago})",
            recorded,
            text::line(&by)
        ),
        ..error
    }
}

/// Returns whether the text names a request rather than a run. A UUID can be either.
async fn names_request(text: &str, cx: &Context) -> Result<bool, Failure> {
    if RequestNo::parse(text).is_ok() {
        return Ok(true);
    }
    if RequestId::parse(text).is_err() {
        return Ok(false);
    }
    match cx
        .hub
        .call(&ReadRequest {
            message_id: text.to_owned(),
            wait_ms: 0,
        })
        .await
    {
        Ok(_) => Ok(true),
        Err(error) if error.code == codes::NOT_FOUND => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A letter typed at a prompt of `adj next` instead of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PromptKey {
    View,
    Skip,
    Quit,
}

/// Returns the key that a line typed below a request is. A letter that is an option of the question
/// is an answer.
pub(crate) fn prompt_key(request: &RequestView, line: &str) -> Option<PromptKey> {
    let typed = line.trim();
    if request
        .content
        .options
        .iter()
        .any(|option| option.trim() == typed)
    {
        return None;
    }
    key_of(typed)
}

/// Returns the key that a typed line is.
pub(super) fn key_of(typed: &str) -> Option<PromptKey> {
    match typed.to_ascii_lowercase().as_str() {
        "v" | "view" => Some(PromptKey::View),
        "s" | "skip" => Some(PromptKey::Skip),
        "q" | "quit" => Some(PromptKey::Quit),
        _ => None,
    }
}

/// Parses the line typed below a request.
///
/// # Errors
/// A text that says what can be typed instead.
pub(super) fn parse_answer(request: &RequestView, line: &str) -> Result<AnswerOne, &'static str> {
    let message_id = Some(request.message_id.clone());
    if request.kind == RequestKind::Question {
        let number = line.trim().parse::<usize>().ok();
        let has_numbers = request
            .content
            .options
            .iter()
            .all(|option| option.trim().parse::<usize>().is_ok());
        // Where all options are numbers, the hub decides what another number means.
        let is_no_option = number.is_some_and(|number| {
            !has_numbers && !(1..=request.content.options.len()).contains(&number)
        });
        match (
            line.trim() == "?" || is_no_option,
            request.content.options.is_empty(),
        ) {
            (true, true) => return Err("type the answer"),
            (true, false) => return Err("type the number of an option, or an answer in words"),
            (false, _) => {}
        }
        return Ok(AnswerOne {
            message_id,
            answer: line.to_owned(),
            ..AnswerOne::default()
        });
    }
    let (word, rest) = line
        .trim()
        .split_once(char::is_whitespace)
        .unwrap_or((line.trim(), ""));
    let rest = Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty());
    // The hash ensures that the decision covers exactly the text on the screen.
    let content_hash = Some(request.content.content_hash.clone());
    let (decision, reason) = match (word.to_ascii_lowercase().as_str(), rest) {
        ("y" | "yes" | "approve", note) => (DecisionWord::Approve, note),
        ("n" | "no" | "deny", Some(reason)) => (DecisionWord::Deny, Some(reason)),
        _ => return Err("type y, or n and a reason"),
    };
    Ok(AnswerOne {
        message_id,
        decision: Some(decision),
        reason,
        content_hash,
        ..AnswerOne::default()
    })
}

/// Longest preview that a prompt repeats, in characters.
const PREVIEW_CHARS_MAX: usize = 60;
/// Widest risk of a request in its prompt.
const RISK_COLUMNS_MAX: usize = 60;

/// Returns the prompt below a request. It repeats what is asked for, which a long preview can
/// scroll away.
pub(crate) fn answer_prompt(request: &RequestView) -> String {
    match request.kind.known() {
        Some(RequestKind::Question) => format!("answer {} > ", text::line(&request.number)),
        _ => format!(
            "{}\n[y]es [n]o REASON [v]iew [s]kip [q]uit > ",
            approval_question(request)
        ),
    }
}

/// Asks for a decision in one line, with everything that it allows, and its risk. A long preview,
/// which is shown above, is only counted.
pub(crate) fn approval_question(request: &RequestView) -> String {
    let mut asked = asked_for(request);
    for preview in asked.parts.iter_mut().filter(|part| part.name == "preview") {
        let lines = preview.text.lines().count();
        if lines > 1 || preview.text.chars().count() > PREVIEW_CHARS_MAX {
            preview.text = format!(
                "{}, shown above",
                text::count(lines as u64, "line", "lines")
            );
        }
    }
    format!(
        "Approve {} ({})?",
        text::line(&request.number),
        with_risk(&asked, request)
    )
}

/// Describes in one line what an approval covers.
#[cfg(feature = "top")]
pub(crate) fn asked_with_risk(request: &RequestView) -> String {
    with_risk(&asked_for(request), request)
}

fn with_risk(asked: &AskedFor<'_>, request: &RequestView) -> String {
    let what = text::line(&asked.line());
    let risk = request
        .content
        .risk
        .as_deref()
        .map(|risk| format!(", risk {}", text::cut(&text::line(risk), RISK_COLUMNS_MAX)))
        .unwrap_or_default();
    what + &risk
}

/// Describes the recorded answer.
pub(crate) fn recorded_answer(request: &RequestView) -> String {
    let answer = text::cut(
        &text::line(request.reply.answer.as_deref().unwrap_or_default()),
        60,
    );
    match request
        .option_chosen()
        .filter(|_| request.reply.decision.is_none())
    {
        Some(number) => format!("option {number}, {answer:?}"),
        None => answer,
    }
}

pub(crate) fn print_answered(answered: &Answered, cx: &Context) -> Result<(), Failure> {
    for request in &answered.requests {
        let answer = recorded_answer(request);
        let (number, name) = (text::line(&request.number), text::line(&request.run_name));
        let done = if request.reply.decision.is_none() {
            format!("answered {number} of {name}: {answer}")
        } else {
            format!("{number} of {name} {answer}")
        };
        let started = request
            .delegated
            .child_name
            .as_ref()
            .map(|name| format!("; started {}", text::line(name)))
            .unwrap_or_default();
        let line = format!("{} {done}{started}", cx.out.paint.apply(Style::Good, "✓"));
        cx.out.print_line(&line)?;
    }
    for run in &answered.runs {
        if run.condition.state == RunStateKind::Finished {
            cx.out.print_message(&format!(
                "note: {} has ended, so it does not learn of this",
                text::line(&run.identity.name)
            ))?;
        } else if let Some(open) = run.requests.pending.first() {
            if open.kind != RequestKind::Question {
                let line = format!("{} {}: {}", open.number, open.kind, asked_for(open).line());
                cx.out.print_message(&text::line(&line))?;
            }
            cx.out.suggest(&format!(
                "{}   ({} asks {} more)",
                next_step::answer_command(open),
                text::line(&run.identity.name),
                run.requests.pending.len()
            ))?;
        } else {
            cx.out
                .suggest(&format!("adj logs -f {}", text::line(&run.identity.name)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::RequestContentView;

    #[test]
    fn letter_of_an_option_is_an_answer_and_no_key() {
        let question = RequestView {
            kind: RequestKind::Question.into(),
            ..RequestView::default()
        };
        assert_eq!(
            ["v", " s ", "Q", "quit", "sv", "n"].map(|line| prompt_key(&question, line)),
            [
                Some(PromptKey::View),
                Some(PromptKey::Skip),
                Some(PromptKey::Quit),
                Some(PromptKey::Quit),
                None,
                None,
            ]
        );
        let sizes = RequestView {
            content: RequestContentView {
                options: ["s", "m", "quit"].map(str::to_owned).to_vec(),
                ..question.content
            },
            ..question
        };
        assert_eq!(
            ["s", "quit", "q"].map(|line| prompt_key(&sizes, line)),
            [None, None, Some(PromptKey::Quit)]
        );
    }

    #[test]
    fn prompt_repeats_only_a_short_preview() {
        let approval = |preview: &str| RequestView {
            content: RequestContentView {
                question: "apply".to_owned(),
                preview: Some(preview.to_owned()),
                ..RequestContentView::default()
            },
            kind: RequestKind::Approval.into(),
            number: "Q1".to_owned(),
            ..RequestView::default()
        };
        assert_eq!(
            approval_question(&approval("touch a")),
            "Approve Q1 (apply; preview: touch a)?"
        );
        assert_eq!(
            approval_question(&approval("one\ntwo")),
            "Approve Q1 (apply; preview: 2 lines, shown above)?"
        );
        assert_eq!(
            approval_question(&approval(&"x".repeat(61))),
            "Approve Q1 (apply; preview: 1 line, shown above)?"
        );
    }

    #[test]
    fn decision_needs_yes_or_no_with_reason() {
        let request = RequestView {
            content: RequestContentView {
                options: vec!["once".to_owned(), "always".to_owned()],
                ..RequestContentView::default()
            },
            kind: RequestKind::Approval.into(),
            ..RequestView::default()
        };
        let read =
            |line| parse_answer(&request, line).map(|answer| (answer.decision, answer.reason));
        assert_eq!(read("y"), Ok((Some(DecisionWord::Approve), None)));
        assert_eq!(
            read("yes 2"),
            Ok((Some(DecisionWord::Approve), Some("2".to_owned())))
        );
        assert_eq!(
            read("n too late"),
            Ok((Some(DecisionWord::Deny), Some("too late".to_owned())))
        );
        for unclear in ["n", "maybe", "ok", "1"] {
            assert!(read(unclear).is_err(), "{unclear}");
        }
        let question = RequestView {
            kind: RequestKind::Question.into(),
            ..RequestView::default()
        };
        assert_eq!(
            parse_answer(&question, "n").map(|answer| answer.answer),
            Ok("n".to_owned())
        );
        assert_eq!(
            parse_answer(&question, "7").map(|answer| answer.answer),
            Ok("7".to_owned())
        );
        let choice = RequestView {
            content: RequestContentView {
                options: vec!["red".to_owned(), "green".to_owned()],
                ..question.clone().content
            },
            ..question.clone()
        };
        assert!(parse_answer(&choice, "2").is_ok() && parse_answer(&choice, "neither").is_ok());
        for unclear in ["?", "3", "0"] {
            assert!(parse_answer(&choice, unclear).is_err(), "{unclear}");
        }
        assert!(parse_answer(&question, "?").is_err());
    }
}
