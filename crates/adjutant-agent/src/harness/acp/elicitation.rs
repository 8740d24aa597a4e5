//! Elicitations of an ACP agent, which become questions to the run's parent.

use super::Acp;
use super::form::{Form, FormReply};
use crate::harness::step::{Elicitation, Step, line};
use serde_json::{Value, json};

/// How often the questions of a form are asked before it is cancelled.
const TRIES_MAX: u32 = 3;
/// The protocol's error code for invalid parameters.
const INVALID_PARAMS: i64 = -32602;

/// An elicitation without a response.
#[derive(Debug)]
pub(super) struct PendingElicitation {
    /// The id as received.
    id: Value,
    form: Form,
    tries: u32,
}

impl PendingElicitation {
    fn response(&self, result: &Value) -> Vec<u8> {
        line(&json!({ "jsonrpc": "2.0", "id": self.id, "result": result }))
    }

    /// Returns the response that cancels the elicitation.
    pub(super) fn cancelled(&self) -> Vec<u8> {
        self.response(&json!({ "action": "cancel" }))
    }

    /// Returns the id as received.
    pub(super) fn into_id(self) -> Value {
        self.id
    }
}

impl Acp {
    /// Handles an `elicitation/create` request.
    pub(super) fn elicit(&mut self, id: &Value, params: &Value) -> Vec<Step> {
        let key = id.to_string();
        if let Some(before) = self.elicitations.remove(&key) {
            // An answer could not be assigned to one of them.
            let note = "! two elicitations with one id: both are cancelled".to_owned();
            return vec![
                Step::Withdraw(key),
                Step::Note(note),
                Step::Write(before.cancelled().repeat(2)),
            ];
        }
        let form = match Form::read(params) {
            Ok(form) => form,
            Err(why) => {
                let error = json!({ "code": INVALID_PARAMS, "message": why.to_string() });
                return vec![
                    Step::Note(format!("! an elicitation was refused: {why}")),
                    Step::Write(line(&json!({ "jsonrpc": "2.0", "id": id, "error": error }))),
                ];
            }
        };
        let questions = form.questions();
        self.elicitations.insert(
            key.clone(),
            PendingElicitation {
                id: id.clone(),
                form,
                tries: 1,
            },
        );
        vec![Step::Elicit(Elicitation { id: key, questions })]
    }

    /// Handles the answers to the open questions of an elicitation. `None`: there is no answer.
    pub(in crate::harness) fn answer(&mut self, id: &str, answers: Option<&[String]>) -> Vec<Step> {
        let Some(mut pending) = self.elicitations.remove(id) else {
            return Vec::new();
        };
        let result = match answers.map(|answers| pending.form.answer(answers)) {
            None => json!({ "action": "cancel" }),
            Some(FormReply::Accepted(content)) => json!({ "action": "accept", "content": content }),
            Some(FormReply::Declined) => json!({ "action": "decline" }),
            Some(FormReply::Retry(questions)) if pending.tries < TRIES_MAX => {
                pending.tries += 1;
                self.elicitations.insert(id.to_owned(), pending);
                return vec![Step::Elicit(Elicitation {
                    id: id.to_owned(),
                    questions,
                })];
            }
            Some(FormReply::Retry(_)) => {
                let note = format!(
                    "! an elicitation was cancelled: {TRIES_MAX} answers did not fit its form"
                );
                return vec![Step::Note(note), Step::Write(pending.cancelled())];
            }
        };
        vec![Step::Write(pending.response(&result))]
    }
}
