//! Protocols with live agents, as pure state machines: a line in, steps out.

use super::acp::Acp;
use super::claude::Claude;
use super::codex::Codex;
use super::pi::Pi;
use super::step::{Decision, Step, line};
use crate::view::MessageView;
use serde_json::{Value, json};

/// The protocol with a live agent.
#[derive(Debug)]
pub enum Dialogue {
    /// Adjutant's own: JSON lines to the agent, no replies.
    Lines,
    Claude(Claude),
    Codex(Box<Codex>),
    Acp(Box<Acp>),
    Pi(Pi),
}

impl Dialogue {
    /// Returns the first bytes to write.
    #[must_use]
    pub fn opening(&mut self, prompt: &str) -> Vec<u8> {
        match self {
            Self::Lines => line(&json!({ "type": "prompt", "text": prompt })),
            Self::Claude(claude) => claude.opening(prompt),
            Self::Codex(codex) => codex.opening(prompt),
            Self::Acp(acp) => acp.opening(prompt),
            Self::Pi(pi) => pi.opening(prompt),
        }
    }

    /// Handles a line that the stream's rules pass to the dialogue.
    pub fn receive(&mut self, line: &str) -> Vec<Step> {
        let Ok(line) = serde_json::from_str::<Value>(line) else {
            return Vec::new();
        };
        match self {
            Self::Lines => Vec::new(),
            Self::Claude(claude) => claude.receive(&line),
            Self::Codex(codex) => codex.receive(&line),
            Self::Acp(acp) => acp.receive(&line),
            Self::Pi(pi) => pi.receive(&line),
        }
    }

    /// Records that the model has written text.
    pub(crate) fn note_model_text(&mut self) {
        if let Self::Acp(acp) = self {
            acp.note_model_text();
        }
    }

    /// Returns the line that sends a message, and whether writing it counts as delivery. `None`:
    /// the agent accepts no messages while it works.
    pub fn message(&mut self, message: &MessageView) -> Option<(Vec<u8>, bool)> {
        match self {
            Self::Lines => Some((
                line(&json!({ "type": "message", "from": message.from, "text": message.text })),
                true,
            )),
            Self::Claude(claude) => Some((claude.message(message), false)),
            Self::Codex(codex) => Some((codex.message(message), false)),
            Self::Pi(pi) => Some((pi.message(message), false)),
            Self::Acp(_) => None,
        }
    }

    /// Returns whether the agent has not received its task yet.
    #[must_use]
    pub(crate) fn is_opening(&self) -> bool {
        matches!(self, Self::Acp(acp) if acp.is_opening())
    }

    /// Returns the line that asks the agent to stop.
    pub fn cancel(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Lines => Some(line(&json!({ "type": "cancel" }))),
            Self::Claude(claude) => Some(claude.cancel()),
            Self::Codex(codex) => codex.cancel(),
            Self::Acp(acp) => acp.cancel(),
            Self::Pi(pi) => Some(pi.cancel()),
        }
    }

    /// Passes on the answers to an elicitation. `None`: there is no answer.
    pub fn answer(&mut self, id: &str, answers: Option<&[String]>) -> Vec<Step> {
        match self {
            Self::Acp(acp) => acp.answer(id, answers),
            Self::Lines | Self::Claude(_) | Self::Codex(_) | Self::Pi(_) => Vec::new(),
        }
    }

    /// Returns the line that reports a decision.
    pub fn decide(&mut self, id: &str, decision: &Decision) -> Option<Vec<u8>> {
        match self {
            Self::Lines => None,
            Self::Claude(claude) => claude.decide(id, decision),
            Self::Codex(codex) => codex.decide(id, decision),
            Self::Acp(acp) => acp.decide(id, decision),
            Self::Pi(pi) => pi.decide(id, decision),
        }
    }
}
