//! What is said to an agent while it lives, and how what it asks is answered: pure state machines,
//! a line in, steps out.

use super::acp::Acp;
use super::claude::Claude;
use super::codex::Codex;
use super::pi::Pi;
use super::step::{Decision, Step, line};
use crate::view::MessageView;
use serde_json::{Value, json};

/// One way of speaking with a live agent.
#[derive(Debug)]
pub enum Dialogue {
    /// Ours: one object a line, no answers.
    Lines,
    Claude(Claude),
    Codex(Box<Codex>),
    Acp(Box<Acp>),
    Pi(Pi),
}

impl Dialogue {
    /// What has to be said before anything else.
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

    /// Takes a line that its rules told to listen to.
    pub fn receive(&mut self, line: &str) -> Vec<Step> {
        let Ok(line) = serde_json::from_str::<Value>(line) else { return Vec::new() };
        match self {
            Self::Lines => Vec::new(),
            Self::Claude(claude) => claude.receive(&line),
            Self::Codex(codex) => codex.receive(&line),
            Self::Acp(acp) => acp.receive(&line),
            Self::Pi(pi) => pi.receive(&line),
        }
    }

    /// Its model has said something.
    pub fn note_model_text(&mut self) {
        if let Self::Acp(acp) = self {
            acp.note_model_text();
        }
    }

    /// The line that gives it a message, and whether writing it is all there is to know about its
    /// delivery. `None`: it takes none while it works.
    pub fn message(&mut self, message: &MessageView) -> Option<(Vec<u8>, bool)> {
        match self {
            Self::Lines => Some((line(&json!({ "type": "message", "from": message.from, "text": message.text })), true)),
            Self::Claude(claude) => Some((claude.message(message), false)),
            Self::Codex(codex) => Some((codex.message(message), false)),
            Self::Pi(pi) => Some((pi.message(message), false)),
            Self::Acp(_) => None,
        }
    }

    /// Tells whether it has not come to its task yet.
    #[must_use]
    pub fn is_opening(&self) -> bool {
        matches!(self, Self::Acp(acp) if acp.is_opening())
    }

    /// The line that asks it to stop by itself.
    pub fn cancel(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Lines => Some(line(&json!({ "type": "cancel" }))),
            Self::Claude(claude) => Some(claude.cancel()),
            Self::Codex(codex) => codex.cancel(),
            Self::Acp(acp) => acp.cancel(),
            Self::Pi(pi) => Some(pi.cancel()),
        }
    }

    /// Takes the answers to the questions of an elicitation. `None`: nobody answered.
    pub fn answer(&mut self, id: &str, answers: Option<&[String]>) -> Vec<Step> {
        match self {
            Self::Acp(acp) => acp.answer(id, answers),
            Self::Lines | Self::Claude(_) | Self::Codex(_) | Self::Pi(_) => Vec::new(),
        }
    }

    /// The line that tells it what was decided.
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
