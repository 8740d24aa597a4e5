//! Asks the client's person about a request that is escalated to a person: with
//! `elicitation/create` in the older protocol versions, with an `input_required` result in
//! 2026-07-28. The hub decides whether the client may answer, as for any answer.
//!
//! A person who declines leaves the request open, and is not asked about it again in this session.

use super::caller::{Elicitation, McpCaller};
use super::refusal::ToolRefusal;
use super::session::McpSession;
use crate::present::asked_for;
use crate::text;
use crate::view::{AnswerOne, AnswerRequests, DecisionWord, ReadRequest, RequestView, codes};
use adjutant_core::{RequestKind, RequestStateKind};
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, InputRequest, InputRequests, InputRequiredResult,
};
use serde_json::{Value, json};

/// Longest message that a person is shown. A request with more is left to other interfaces, so that
/// nobody approves what they have not seen.
const MESSAGE_CHARS_MAX: usize = 8_000;
/// How long one call waits at the hub for an answer that is given elsewhere, in milliseconds.
const CLOSED_WAIT_MS: u64 = 30_000;

/// The refusals of an answer to a request that was answered elsewhere, or has ended.
const CLOSED: [&str; 5] = [
    codes::ALREADY_ANSWERED,
    codes::EXPIRED,
    codes::WITHDRAWN,
    codes::RUN_FINISHED,
    codes::NOT_FOUND,
];

/// The outcome of asking.
#[derive(Debug)]
pub(crate) enum ElicitOutcome {
    /// Nobody is to be asked, or the person declined.
    Nothing,
    /// The request is closed.
    Closed,
    /// The client has to ask.
    Required(Box<InputRequiredResult>),
}

/// The outcome of a request after the person's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PersonReply {
    /// The person declined; the request is open.
    Declined,
    /// The reply is the answer.
    Answered,
    /// The request was closed before the reply arrived.
    Late,
}

/// Asks the client's person about the first open request that is escalated. `run`: the run that the
/// call has started.
pub(crate) async fn ask_person(
    session: &McpSession,
    caller: &McpCaller,
    needs: &[RequestView],
    run: Option<&str>,
) -> Result<ElicitOutcome, ToolRefusal> {
    let Some(how) = caller.elicitation else {
        return Ok(ElicitOutcome::Nothing);
    };
    let is_open = |request: &&RequestView| {
        request.status == RequestStateKind::Pending && !request.escalated.is_empty()
    };
    let asked = needs
        .iter()
        .filter(is_open)
        .find(|request| !session.was_declined(&request.message_id));
    let Some((request, form)) = asked.and_then(|request| Some((request, form(request)?))) else {
        return Ok(ElicitOutcome::Nothing);
    };
    match how {
        Elicitation::Result => {
            let input = InputRequest::Elicitation(ElicitRequest::new(form));
            // The state only says what the call has done; the hub checks every id in it.
            let state =
                json!({"run": run, "content_hash": request.content.content_hash}).to_string();
            let requests = InputRequests::from([(request.message_id.clone(), input)]);
            Ok(ElicitOutcome::Required(Box::new(InputRequiredResult::new(
                Some(requests),
                Some(state),
            ))))
        }
        Elicitation::Request => {
            let Some(time) = caller.time_to_ask() else {
                return Ok(ElicitOutcome::Nothing);
            };
            let reply = async {
                tokio::select! {
                    reply = caller.elicit(form, time) => Some(reply),
                    () = closed(session, &request.message_id) => None,
                }
            };
            match caller
                .wait_with_progress("asking the person", reply)
                .await?
            {
                None => Ok(ElicitOutcome::Closed),
                // The next call asks again.
                Some(None) => Ok(ElicitOutcome::Nothing),
                Some(Some(reply)) => match take(
                    session,
                    &request.message_id,
                    Some(request.content.content_hash.clone()),
                    &reply,
                )
                .await?
                {
                    PersonReply::Declined => Ok(ElicitOutcome::Nothing),
                    // The wait shows what is open now.
                    PersonReply::Answered | PersonReply::Late => Ok(ElicitOutcome::Closed),
                },
            }
        }
    }
}

/// Takes the input with which a client repeats its call.
pub(crate) async fn take_input(
    session: &McpSession,
    caller: &McpCaller,
) -> Result<(), ToolRefusal> {
    for (message_id, reply) in &caller.input {
        let hash = caller.state("content_hash");
        take(session, message_id, hash, reply).await?;
    }
    Ok(())
}

/// Waits until a request is closed. If the hub cannot say so, the person is still asked.
async fn closed(session: &McpSession, message_id: &str) {
    loop {
        match session
            .client()
            .call(&ReadRequest {
                message_id: message_id.to_owned(),
                wait_ms: CLOSED_WAIT_MS,
            })
            .await
        {
            Ok(request) if request.status == RequestStateKind::Pending => {}
            Ok(_) => return,
            Err(error) => {
                tracing::debug!(%error, "an open request cannot be watched");
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Answers a request with what the person entered.
pub(super) async fn take(
    session: &McpSession,
    message_id: &str,
    content_hash: Option<String>,
    reply: &Value,
) -> Result<PersonReply, ToolRefusal> {
    let Some(answer) = answer(message_id, content_hash, reply) else {
        session.note_declined(message_id);
        return Ok(PersonReply::Declined);
    };
    match session
        .client()
        .call(&AnswerRequests {
            answers: vec![answer],
        })
        .await
    {
        Ok(_) => Ok(PersonReply::Answered),
        Err(error) if CLOSED.contains(&error.code.as_str()) => Ok(PersonReply::Late),
        Err(error) => Err(error.into()),
    }
}

/// Returns the answer of a person. `None`: declined, cancelled or not usable.
fn answer(message_id: &str, content_hash: Option<String>, reply: &Value) -> Option<AnswerOne> {
    if reply["action"] != "accept" {
        return None;
    }
    let entered = |field: &str| {
        reply["content"][field]
            .as_str()
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let mut answer = AnswerOne {
        message_id: Some(message_id.to_owned()),
        content_hash,
        ..AnswerOne::default()
    };
    match entered("decision").as_deref() {
        Some("approve") => answer.decision = Some(DecisionWord::Approve),
        Some("deny") => answer.decision = Some(DecisionWord::Deny),
        Some(_) => return None,
        None => {
            answer.answer = entered("answer")?;
            return Some(answer);
        }
    }
    let is_denied = answer.decision == Some(DecisionWord::Deny);
    answer.reason =
        entered("reason").or_else(|| is_denied.then(|| "denied by the person".to_owned()));
    Some(answer)
}

/// Returns the form for a request. `None`: a person could not see all of it.
pub(super) fn form(request: &RequestView) -> Option<ElicitRequestParams> {
    let is_question = request.kind == RequestKind::Question;
    let asked = asked_for(request);
    let (parts, is_whole) = asked.part_lines(MESSAGE_CHARS_MAX, usize::MAX);
    let asks = if is_question {
        "asks"
    } else {
        "needs a decision"
    };
    let mut lines = vec![
        format!("{} {asks} ({}):", request.run_name, request.number),
        text::block(asked.text),
    ];
    lines.extend(parts.iter().map(|part| text::block(part)));
    lines.extend(
        request
            .content
            .context
            .as_ref()
            .map(|context| format!("context: {}", text::block(context))),
    );
    let message = lines.join("\n");
    if !is_whole || message.chars().count() > MESSAGE_CHARS_MAX {
        return None;
    }
    let (properties, required) = if !is_question {
        let decision = json!({"type": "string", "title": "Decision", "enum": ["approve", "deny"]});
        (
            json!({"decision": decision, "reason": {"type": "string", "title": "Reason or note"}}),
            "decision",
        )
    } else if request.content.options.is_empty() {
        (
            json!({"answer": {"type": "string", "title": "Answer"}}),
            "answer",
        )
    } else {
        (
            json!({"answer": {"type": "string", "title": "Answer", "enum": request.content.options}}),
            "answer",
        )
    };
    let schema = json!({"type": "object", "properties": properties, "required": [required]});
    serde_json::from_value(json!({"mode": "form", "message": message, "requestedSchema": schema}))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::RequestContentView;

    #[test]
    fn only_an_accepted_form_is_an_answer() {
        let read = |reply: Value| answer("m1", None, &reply);
        for reply in [
            json!({"action": "decline"}),
            json!({"action": "cancel"}),
            json!({"action": "decline", "content": {"answer": "yes"}}),
            json!({"action": "accept"}),
            json!({"action": "accept", "content": {"answer": " "}}),
            json!({"action": "accept", "content": {"decision": "maybe"}}),
            json!({"action": "accept", "content": {"answer": 5}}),
            json!("yes"),
        ] {
            assert!(read(reply.clone()).is_none(), "{reply}");
        }
        let denied =
            read(json!({"action": "accept", "content": {"decision": "deny"}})).expect("an answer");
        assert_eq!(
            (denied.decision, denied.reason.is_some()),
            (Some(DecisionWord::Deny), true)
        );
        let answered =
            read(json!({"action": "accept", "content": {"answer": "red"}})).expect("an answer");
        assert_eq!((answered.answer.as_str(), answered.decision), ("red", None));
    }

    #[test]
    fn request_that_cannot_be_shown_whole_is_not_asked() {
        let request = |preview: String| RequestView {
            content: RequestContentView {
                preview: Some(preview),
                ..RequestContentView::default()
            },
            kind: RequestKind::Approval.into(),
            ..RequestView::default()
        };
        assert!(form(&request("rm -rf build".to_owned())).is_some());
        assert!(form(&request("x".repeat(MESSAGE_CHARS_MAX))).is_none());
    }
}
