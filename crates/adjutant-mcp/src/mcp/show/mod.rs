//! The results of tools: a few lines of text, and the same data as structured content. Some clients
//! pass only the text to the model, others only the structured content, so each must be complete.

mod event;
mod fields;
mod limits;
mod report;
mod request;
mod result;
mod run;
#[cfg(test)]
mod tests;

pub(crate) use event::{event_brief, event_line, message_line};
pub(crate) use limits::{QUESTION_CHARS, QUESTIONS_MAX, RESULT_CHARS, RESULT_CHARS_LISTED};
pub(super) use request::{PARTS_MAX, operation};
pub(crate) use request::{recorded_line, request_brief, request_full, request_line};
pub(super) use result::Shown;
pub(crate) use run::{
    attention_line, outcome_of, request_lines, run_brief, run_full, run_line, run_lines,
};
