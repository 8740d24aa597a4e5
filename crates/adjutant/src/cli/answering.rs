//! Answers to requests: which request is meant, how a typed line is parsed, what was recorded.

use super::age;
use super::context::{Context, now};
use super::details::person;
use super::next_step;
use super::out::Failure;
use super::style::Style;
use crate::present::asked_for;
use crate::text;
use crate::view::{AnswerOne, AnswerRequests, Answered, DecisionWord, ErrorView, ReadRequest, RequestView, codes};
use adjutant_core::{RequestId, RequestKind, RequestNo};

/// Starts an answer to a request, given by its number or id or by its run.
pub async fn answer_to(to: &str, cx: &Context) -> Result<AnswerOne, Failure> {
    let to_one = Some(to.to_owned());
    Ok(if names_request(to, cx).await? {
        AnswerOne { message_id: to_one, ..AnswerOne::default() }
    } else {
        AnswerOne { run: to_one, ..AnswerOne::default() }
    })
}

/// Sends answers. A refusal names the request, what was answered, and the command to use.
pub async fn send_answers(answers: Vec<AnswerOne>, cx: &Context) -> Result<Answered, Failure> {
    let named = match answers.as_slice() {
        [one] => one.message_id.clone(),
        _ => None,
    };
    let error = match cx.hub.call(&AnswerRequests { answers }).await {
        Ok(answered) => return Ok(answered),
        Err(error) => error,
    };
    let Some(message_id) = named.filter(|_| [codes::ALREADY_ANSWERED, codes::UNFITTING].contains(&error.code.as_str())) else {
        return Err(error.into());
    };
    Err(match cx.hub.call(&ReadRequest { message_id, wait_ms: 0 }).await {
        Ok(request) => reword_refusal(error, &request).into(),
        // The first refusal is the relevant one.
        Err(_) => error.into(),
    })
}

/// Rewords a refusal to answer for the person at the terminal.
fn reword_refusal(error: ErrorView, request: &RequestView) -> ErrorView {
    let number = text::line(&request.number);
    if error.code == codes::UNFITTING {
        return ErrorView { hint: Some(next_step::answer_command(request)), ..error };
    }
    let by = person(request.answered_by.as_deref().unwrap_or("another party")).to_owned();
    let ago = request.answered_at.as_deref().and_then(|at| age::seconds_since(at, now())).map(age::short);
    let recorded = match request.decision.is_none() && request.option_chosen().is_none() {
        true => format!("{:?}", recorded_answer(request)),
        false => recorded_answer(request),
    };
    let ago = ago.map(|ago| format!(", {ago} ago")).unwrap_or_default();
    ErrorView { message: format!("{number} was already answered: {} ({}{ago})", recorded, text::line(&by)), ..error }
}

/// Returns whether the text names a request rather than a run. A UUID can be either.
async fn names_request(text: &str, cx: &Context) -> Result<bool, Failure> {
    if RequestNo::parse(text).is_ok() {
        return Ok(true);
    }
    if RequestId::parse(text).is_err() {
        return Ok(false);
    }
    match cx.hub.call(&ReadRequest { message_id: text.to_owned(), wait_ms: 0 }).await {
        Ok(_) => Ok(true),
        Err(error) if error.code == codes::NOT_FOUND => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Parses the line typed below a request.
///
/// # Errors
/// A text that says what can be typed instead.
pub fn parse_answer(request: &RequestView, line: &str) -> Result<AnswerOne, &'static str> {
    let message_id = Some(request.message_id.clone());
    if request.kind == RequestKind::Question {
        let number = line.trim().parse::<usize>().ok();
        let is_no_option = number.is_some_and(|number| !request.options.is_empty() && !(1..=request.options.len()).contains(&number));
        match (line.trim() == "?" || is_no_option, request.options.is_empty()) {
            (true, true) => return Err("type the answer"),
            (true, false) => return Err("type the number of an option, or an answer in words"),
            (false, _) => {}
        }
        return Ok(AnswerOne { message_id, answer: line.to_owned(), ..AnswerOne::default() });
    }
    let (word, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
    let rest = Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty());
    // The hash ensures that the decision covers exactly the text on the screen.
    let content_hash = Some(request.content_hash.clone());
    let (decision, reason) = match (word.to_ascii_lowercase().as_str(), rest) {
        ("y" | "yes" | "approve", note) => (DecisionWord::Approve, note),
        ("n" | "no" | "deny", Some(reason)) => (DecisionWord::Deny, Some(reason)),
        _ => return Err("type y, or n and a reason"),
    };
    Ok(AnswerOne { message_id, decision: Some(decision), reason, content_hash, ..AnswerOne::default() })
}

/// Widest risk of a request in its prompt.
const RISK_COLUMNS_MAX: usize = 60;

/// Returns the prompt below a request. It repeats what is asked for, which a long preview can scroll away.
pub fn answer_prompt(request: &RequestView) -> String {
    match request.kind.known() {
        Some(RequestKind::Question) => format!("answer {} > ", text::line(&request.number)),
        _ => format!("{} [y]es / [n]o, reason > ", approval_question(request)),
    }
}

/// Asks for a decision in one line, with everything that it allows, and its risk.
pub fn approval_question(request: &RequestView) -> String {
    format!("Approve {} ({})?", text::line(&request.number), asked_with_risk(request))
}

/// Describes in one line what an approval covers.
pub fn asked_with_risk(request: &RequestView) -> String {
    let what = text::line(&asked_for(request).line());
    let risk = request.risk.as_deref().map(|risk| format!(", risk {}", text::cut(&text::line(risk), RISK_COLUMNS_MAX))).unwrap_or_default();
    what + &risk
}

/// Describes the recorded answer.
pub fn recorded_answer(request: &RequestView) -> String {
    let answer = text::cut(&text::line(request.answer.as_deref().unwrap_or_default()), 60);
    match request.option_chosen().filter(|_| request.decision.is_none()) {
        Some(number) => format!("option {number}, {answer:?}"),
        None => answer,
    }
}

pub fn print_answered(answered: &Answered, cx: &Context) -> Result<(), Failure> {
    for request in &answered.requests {
        let answer = recorded_answer(request);
        let (number, name) = (text::line(&request.number), text::line(&request.run_name));
        let done = if request.decision.is_none() { format!("answered {number} of {name}: {answer}") } else { format!("{number} of {name} {answer}") };
        let started = request.child_name.as_ref().map(|name| format!("; started {}", text::line(name))).unwrap_or_default();
        let line = format!("{} {done}{started}", cx.out.paint.apply(Style::Good, "✓"));
        cx.out.print_line(&line)?;
    }
    for run in &answered.runs {
        if let Some(open) = run.pending.first() {
            if open.kind != RequestKind::Question {
                let line = format!("{} {}: {}", open.number, open.kind, asked_for(open).line());
                cx.out.print_message(&text::line(&line))?;
            }
            cx.out.suggest(&format!("{}   ({} asks {} more)", next_step::answer_command(open), text::line(&run.name), run.pending.len()))?;
        } else {
            cx.out.suggest(&format!("adj logs -f {}", text::line(&run.name)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decision_needs_yes_or_no_with_reason() {
        let request =
            RequestView { kind: RequestKind::Approval.into(), options: vec!["once".to_owned(), "always".to_owned()], ..RequestView::default() };
        let read = |line| parse_answer(&request, line).map(|answer| (answer.decision, answer.reason));
        assert_eq!(read("y"), Ok((Some(DecisionWord::Approve), None)));
        assert_eq!(read("yes 2"), Ok((Some(DecisionWord::Approve), Some("2".to_owned()))));
        assert_eq!(read("n too late"), Ok((Some(DecisionWord::Deny), Some("too late".to_owned()))));
        for unclear in ["n", "maybe", "ok", "1"] {
            assert!(read(unclear).is_err(), "{unclear}");
        }
        let question = RequestView { kind: RequestKind::Question.into(), ..RequestView::default() };
        assert_eq!(parse_answer(&question, "n").map(|answer| answer.answer), Ok("n".to_owned()));
        assert_eq!(parse_answer(&question, "7").map(|answer| answer.answer), Ok("7".to_owned()));
        let choice = RequestView { options: vec!["red".to_owned(), "green".to_owned()], ..question.clone() };
        assert!(parse_answer(&choice, "2").is_ok() && parse_answer(&choice, "neither").is_ok());
        for unclear in ["?", "3", "0"] {
            assert!(parse_answer(&choice, unclear).is_err(), "{unclear}");
        }
        assert!(parse_answer(&question, "?").is_err());
    }
}
