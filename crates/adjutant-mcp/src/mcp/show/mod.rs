//! The results of tools: a few lines of text, and the same data as structured content. Some clients pass only the
//! text to the model, others only the structured content, so each must be complete.

mod event;
mod limits;
mod report;
mod request;
mod result;
mod run;
#[cfg(test)]
mod tests;

pub use event::{event_brief, event_line, message_line};
pub use limits::{QUESTION_CHARS, QUESTIONS_MAX, RESULT_CHARS, RESULT_CHARS_LISTED};
pub use request::{PARTS_MAX, operation, recorded_line, request_brief, request_full, request_line};
pub use result::Shown;
pub use run::{
    attention_line, outcome_of, request_lines, run_brief, run_full, run_line, run_lines,
};
