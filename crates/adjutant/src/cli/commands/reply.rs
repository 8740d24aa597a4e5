//! `adj reply`: the answer to a question, or to every open question of a group.

use crate::cli::answering::{answer_to, print_answered, send_answers};
use crate::cli::args::ReplyArgs;
use crate::cli::context::{Context, words_argument};
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, fail, fail_hint};
use crate::text;
use crate::view::{AnswerOne, ListRequests, ReadRequest, RequestView};
use adjutant_core::RequestStateKind;

/// Answers one question, or a group.
pub async fn reply(args: &ReplyArgs, cx: &Context) -> CommandResult {
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
    let named = cx
        .hub
        .call(&ReadRequest {
            message_id: args.to.clone(),
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
    let open: Vec<RequestView> = listed
        .into_iter()
        .filter(|request| request.status == RequestStateKind::Pending && belongs(request))
        .collect();
    let texts: Vec<&String> = std::iter::once(&args.text).chain(&args.more).collect();
    if open.len() != texts.len() {
        let numbers: Vec<String> = open
            .iter()
            .map(|request| text::line(&request.number))
            .collect();
        if open.is_empty() {
            return Err(fail(
                cli_codes::USAGE,
                format!(
                    "no question of the group of {} is open",
                    text::line(&args.to)
                ),
            ));
        }
        let given = text::count(texts.len() as u64, "answer", "answers");
        let message = format!(
            "{given} for {}: {}",
            text::count(open.len() as u64, "open question", "open questions"),
            numbers.join(" ")
        );
        let wanted = vec!["\"…\""; open.len().max(1)].join(" ");
        return Err(fail_hint(
            cli_codes::USAGE,
            message,
            format!("adj reply --group {} {wanted}", text::line(&args.to)),
        ));
    }
    if texts.iter().any(|given| given.trim().is_empty()) {
        return Err(fail_hint(
            cli_codes::USAGE,
            "an answer is empty",
            "give one answer for each open question of the group, in order",
        ));
    }
    let answers = open
        .iter()
        .zip(texts)
        .map(|(request, given)| AnswerOne {
            message_id: Some(request.message_id.clone()),
            answer: given.clone(),
            ..AnswerOne::default()
        })
        .collect();
    let answered = send_answers(answers, cx).await?;
    if cx.out.json {
        cx.out.print_json(&answered)?;
    } else {
        print_answered(&answered, cx)?;
    }
    Ok(Exit::Done)
}
