//! `adj reply`: the answer to a question, or to every open question of a group.

use crate::cli::answering::{answer_to, print_answered, send_answers};
use crate::cli::args::ReplyArgs;
use crate::cli::context::{Context, words_argument};
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, fail, fail_hint};
use crate::text;
use crate::view::{AnswerOne, ListRequests, ReadRequest, RequestView};
use adjutant_core::RequestStateKind;

/// Answers one question, or a group.
pub(crate) async fn reply(args: &ReplyArgs, cx: &Context) -> CommandResult {
    if args.group {
        return reply_to_group(args, cx).await;
    }
    // Quoted texts are separate answers; an answer is final, so they are not joined by guess.
    let is_quoted = |text: &String| text.contains(char::is_whitespace);
    if !args.more.is_empty() && std::iter::once(&args.text).chain(&args.more).any(is_quoted) {
        let hint =
            "put the answer in quotes, or use --group to answer questions that were asked together";
        return Err(fail_hint(
            cli_codes::USAGE,
            "more than one answer was given",
            hint,
        ));
    }
    let given = words_argument(std::iter::once(&args.text).chain(&args.more), "the answer")?
        .unwrap_or_default();
    let given = if args.text == "-" {
        given.trim_end_matches(['\n', '\r']).to_owned()
    } else {
        given
    };
    if given.trim().is_empty() {
        return Err(fail_hint(
            cli_codes::USAGE,
            "the answer is empty",
            format!("adj reply {} \"…\"", text::line(&args.to)),
        ));
    }
    let answer = AnswerOne {
        answer: given,
        ..answer_to(&args.to, cx).await?
    };
    let answered = send_answers(vec![answer], cx).await?;
    if cx.out.json {
        cx.out.print_json(&answered)?;
        return Ok(Exit::Done);
    }
    print_answered(&answered, cx)?;
    Ok(Exit::Done)
}

/// Answers every open question of a group, or none if one answer is refused.
async fn reply_to_group(args: &ReplyArgs, cx: &Context) -> CommandResult {
    let open = open_questions(&args.to, cx).await?;
    let texts: Vec<&String> = std::iter::once(&args.text).chain(&args.more).collect();
    let answers = answers_to(&open, &texts, &args.to)?;
    let answered = send_answers(answers, cx).await?;
    if cx.out.json {
        cx.out.print_json(&answered)?;
    } else {
        print_answered(&answered, cx)?;
    }
    Ok(Exit::Done)
}

/// Returns the open questions of the group of a request, in their order.
async fn open_questions(to: &str, cx: &Context) -> Result<Vec<RequestView>, Failure> {
    let named = cx
        .hub
        .call(&ReadRequest {
            message_id: to.to_owned(),
            wait_ms: 0,
        })
        .await?;
    let first = named.group.as_ref().map(|group| &group.first);
    let belongs = |request: &RequestView| match first {
        Some(first) => request
            .group
            .as_ref()
            .is_some_and(|group| group.first == *first),
        None => request.message_id == named.message_id,
    };
    let listed = cx
        .hub
        .call(&ListRequests {
            run: Some(named.run_id.clone()),
            all: false,
            limit: Some(u32::MAX),
        })
        .await?
        .requests;
    Ok(listed
        .into_iter()
        .filter(|request| request.status == RequestStateKind::Pending && belongs(request))
        .collect())
}

/// Pairs each open question with its answer. `to`: the request that names the group.
fn answers_to(
    open: &[RequestView],
    texts: &[&String],
    to: &str,
) -> Result<Vec<AnswerOne>, Failure> {
    let to = text::line(to);
    if open.is_empty() {
        return Err(fail(
            cli_codes::USAGE,
            format!("no question of the group of {to} is open"),
        ));
    }
    if open.len() != texts.len() {
        let numbers: Vec<String> = open
            .iter()
            .map(|request| text::line(&request.number))
            .collect();
        let message = format!(
            "{} for {}: {}",
            text::count(texts.len() as u64, "answer", "answers"),
            text::count(open.len() as u64, "open question", "open questions"),
            numbers.join(" ")
        );
        let wanted = vec!["\"…\""; open.len()].join(" ");
        return Err(fail_hint(
            cli_codes::USAGE,
            message,
            format!("adj reply --group {to} {wanted}"),
        ));
    }
    if texts.iter().any(|given| given.trim().is_empty()) {
        return Err(fail_hint(
            cli_codes::USAGE,
            "an answer is empty",
            "give one answer for each open question of the group, in order",
        ));
    }
    let pairs = open.iter().zip(texts);
    Ok(pairs
        .map(|(request, given)| AnswerOne {
            message_id: Some(request.message_id.clone()),
            answer: (*given).clone(),
            ..AnswerOne::default()
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(numbers: &[&str]) -> Vec<RequestView> {
        let request = |number: &&str| RequestView {
            number: (*number).to_owned(),
            message_id: format!("id of {number}"),
            ..RequestView::default()
        };
        numbers.iter().map(request).collect()
    }

    fn refusal(open: &[RequestView], texts: &[&String]) -> (String, Option<String>) {
        match answers_to(open, texts, "p1.1") {
            Err(Failure::Error(error)) => (error.message, error.hint),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_open_question_gets_its_answer() {
        let (a, b) = ("yes".to_owned(), "no".to_owned());
        let answers = answers_to(&open(&["1", "2"]), &[&a, &b], "1").expect("they fit");
        let pairs: Vec<(Option<&str>, &str)> = answers
            .iter()
            .map(|answer| (answer.message_id.as_deref(), answer.answer.as_str()))
            .collect();
        assert_eq!(pairs, [(Some("id of 1"), "yes"), (Some("id of 2"), "no")]);
    }

    #[test]
    fn answers_are_refused_unless_there_is_one_for_each_question() {
        let (given, empty) = ("yes".to_owned(), " ".to_owned());
        assert_eq!(
            refusal(&[], &[&given]),
            ("no question of the group of p1.1 is open".to_owned(), None)
        );
        assert_eq!(
            refusal(&open(&["1", "2"]), &[&given]),
            (
                "1 answer for 2 open questions: 1 2".to_owned(),
                Some("adj reply --group p1.1 \"…\" \"…\"".to_owned())
            )
        );
        assert_eq!(refusal(&open(&["1"]), &[&empty]).0, "an answer is empty");
    }
}
