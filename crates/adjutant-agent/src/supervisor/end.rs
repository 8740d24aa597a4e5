//! The last fact of an attempt: its exit, the verdict of its stream, its result.

use super::output::Output;
use crate::clock;
use crate::harness::failure;
use crate::preset::{Driver, End, FailurePattern, PlainText, Stream};
use crate::protocol::{FactKind, GapText, Order, UsageText, VerdictText};
use adjutant_core::budget::micros_of;
use adjutant_core::result::{ResultGap, result_gap};
use adjutant_core::{Cause, Exit, Time, limits, shorten};
use adjutant_stream::reader::Summary;
use adjutant_stream::rules::Usage;
use jiff::tz::TimeZone;
use std::collections::VecDeque;

/// Longest text of a failure, in bytes.
const STDERR_BYTES_MAX: usize = 2 * 1024;
/// Longest line of standard error that is the reason of a failure, in characters.
const ERROR_LINE_CHARS_MAX: usize = 500;

/// The properties of an agent that explain its end.
#[derive(Debug)]
pub(crate) struct Ending {
    patterns: Vec<FailurePattern>,
    /// The agent's time zone.
    zone: TimeZone,
    stream: Stream,
    /// Its protocol carries all messages of its model.
    speaks: bool,
    text: PlainText,
    has_gate: bool,
}

impl Ending {
    /// Returns usage as facts have it.
    pub(super) fn usage_text(&self, usage: &Usage) -> UsageText {
        usage_text(usage, &self.stream)
    }

    /// Returns the usage so far. `None`: the CLI states only its last call, or the gate counts.
    pub(super) fn usage_so_far(&self, usage: &Usage) -> Option<UsageText> {
        (!self.stream.usage_of_last_call && !self.has_gate).then(|| usage_text(usage, &self.stream))
    }

    #[must_use]
    pub(super) fn of(order: &Order) -> Self {
        let preset = order.preset.as_ref();
        Self {
            patterns: preset
                .map(|preset| preset.failures.clone())
                .unwrap_or_default(),
            zone: clock::zone(order.env.get("TZ").map(String::as_str)),
            has_gate: order.gate.is_some(),
            speaks: preset.is_some_and(|preset| {
                matches!(
                    preset.driver,
                    Driver::Acp | Driver::Claude | Driver::Codex | Driver::Pi
                )
            }),
            // Only the reader uses the rules.
            stream: preset
                .map(|preset| Stream {
                    rules: Vec::new(),
                    ..preset.stream.clone()
                })
                .unwrap_or_default(),
            text: preset.map(|preset| preset.text.clone()).unwrap_or_default(),
        }
    }
}

impl Ending {
    /// Returns the cause named by a text about a failed try.
    pub(crate) fn cause_of(&self, words: &str) -> Cause {
        failure::cause_of(&self.patterns, words)
    }

    /// Reduces printed text to the agent's answer.
    pub(crate) fn extract_answer(&self, printed: &mut String) {
        let answer = self.text.answer(printed);
        if answer.len() < printed.len() {
            *printed = answer.to_owned();
        }
    }
}

/// How the processes of an attempt ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessEnd {
    pub exit: Option<Exit>,
    pub swept: u32,
    pub left_open: bool,
    /// The active time until the agent's exit.
    pub active_ms: i64,
    pub by_itself: bool,
    /// The supervisor had asked it to end, because it had reported its result and stayed silent.
    pub is_ended_after_report: bool,
    /// It was to use Adjutant's tools and has never connected to them.
    pub lacks_tools: bool,
}

/// Creates an attempt's last fact. The output's result is the agent's answer. `failed` is the error
/// that the dialogue reported, if the work failed.
pub(crate) fn end_fact(
    ended: ProcessEnd,
    output: Option<Output>,
    failed: Option<String>,
    ending: &Ending,
) -> FactKind {
    // How it reacted to the signal says nothing about its work.
    let exit = if ended.is_ended_after_report {
        Some(Exit::Code(0))
    } else {
        ended.exit
    };
    let Findings {
        result,
        result_bytes,
        gap,
        output_bytes,
        error_line,
        verdict,
        usage,
        was_cut,
    } = match output {
        Some(output) => Findings::of(
            output,
            exit,
            ended.is_ended_after_report,
            failed.as_deref(),
            ending,
        ),
        None => Findings::without_output(),
    };
    let (exit_code, signal) = match exit {
        Some(Exit::Code(code)) => (Some(code), None),
        Some(Exit::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    FactKind::Ended {
        exit_code,
        signal,
        swept: ended.swept,
        output_left_open: ended.left_open || was_cut,
        active_ms: ended.active_ms,
        by_itself: ended.by_itself,
        result,
        result_bytes,
        gap,
        output_bytes,
        error_line,
        verdict,
        usage,
        lacks_tools: ended.lacks_tools,
    }
}

/// What the output says about the end.
struct Findings {
    /// The end of the answer, as far as a fact may be long.
    result: String,
    /// The length of the whole answer.
    result_bytes: u64,
    gap: Option<GapText>,
    output_bytes: u64,
    error_line: String,
    verdict: Option<VerdictText>,
    usage: Option<UsageText>,
    /// A stream was still open.
    was_cut: bool,
}

impl Findings {
    fn of(
        output: Output,
        exit: Option<Exit>,
        is_ended_after_report: bool,
        failed: Option<&str>,
        ending: &Ending,
    ) -> Self {
        let Output {
            logs: _,
            bytes: output_bytes,
            result,
            ends_within_line,
            mut summary,
            stderr_end,
            left_open: was_cut,
        } = output;
        let gap = gap(exit, &result, ends_within_line, summary.as_mut());
        let result_bytes = result.len() as u64;
        let result = shorten::tail(&result, limits::RESULT_SHOWN_BYTES_MAX).to_owned();
        let has_failed = summary.is_none() && exit.is_some_and(|exit| exit != Exit::Code(0));
        let error_line = if has_failed {
            error_line(&stderr_end)
        } else {
            String::new()
        };
        let states_failure = failed.is_some()
            || summary
                .as_ref()
                .is_some_and(|summary| summary.end == Some(End::Failure));
        let verdict = match is_ended_after_report && !states_failure {
            // What it has reported counts, although its stream has no end.
            true => Some(VerdictText {
                cause: None,
                message: String::new(),
                again_at_ms: None,
            }),
            false => verdict(exit, summary.as_ref(), failed, &result, &stderr_end, ending),
        };
        let usage = summary
            .and_then(|summary| summary.usage)
            .map(|usage| usage_text(&usage, &ending.stream));
        Self {
            result,
            result_bytes,
            gap,
            output_bytes,
            error_line,
            verdict,
            usage,
            was_cut,
        }
    }

    /// The task that reads the output has failed.
    fn without_output() -> Self {
        Self {
            result: String::new(),
            result_bytes: 0,
            gap: Some(GapText {
                word: ResultGap::Empty.word().to_owned(),
                messages: Vec::new(),
            }),
            output_bytes: 0,
            error_line: String::new(),
            verdict: None,
            usage: None,
            was_cut: true,
        }
    }
}

/// Returns the last line of standard error that says something.
fn error_line(stderr_end: &str) -> String {
    let line = stderr_end
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    shorten::to_chars(line, ERROR_LINE_CHARS_MAX).into_owned()
}

/// Returns why the last message is not a result, with the messages before it.
fn gap(
    exit: Option<Exit>,
    result: &str,
    ends_within_line: bool,
    summary: Option<&mut Summary>,
) -> Option<GapText> {
    let (is_cut, messages) = match summary {
        Some(summary) => (summary.is_cut, std::mem::take(&mut summary.messages)),
        // Without a structured stream, only a signal shows that the text is incomplete.
        None => (
            ends_within_line && matches!(exit, Some(Exit::Signal(_))),
            VecDeque::new(),
        ),
    };
    let word = result_gap(result, is_cut)?.word().to_owned();
    Some(GapText {
        word,
        messages: messages
            .into_iter()
            .filter(|message| !result.ends_with(message.as_str()))
            .collect(),
    })
}

fn verdict(
    exit: Option<Exit>,
    summary: Option<&Summary>,
    failed: Option<&str>,
    result: &str,
    stderr_end: &str,
    ending: &Ending,
) -> Option<VerdictText> {
    let failure = |otherwise, text: &str| {
        let text = shorten::tail(text, STDERR_BYTES_MAX);
        let resets_at = summary
            .and_then(|summary| summary.limit_reset_at_s)
            .map(|seconds| Time(i64::try_from(seconds).unwrap_or(0).saturating_mul(1000)));
        let failure = failure::explain(
            &ending.patterns,
            otherwise,
            text,
            resets_at,
            clock::now(),
            &ending.zone,
        );
        Some(VerdictText {
            cause: Some(failure.cause.word().to_owned()),
            message: failure.message,
            again_at_ms: failure.again_at.map(|at| at.0),
        })
    };
    if let Some(line) = ending.stream.failed_line(result) {
        return failure(Cause::Agent, line);
    }
    let Some(summary) = summary else {
        // Without a structured stream, the exit status counts, and standard error may explain it.
        let is_failure = exit != Some(Exit::Code(0)) && !ending.patterns.is_empty();
        return if is_failure {
            failure(
                Cause::Agent,
                &with_exit(
                    exit,
                    if stderr_end.is_empty() {
                        result
                    } else {
                        stderr_end
                    },
                ),
            )
        } else {
            None
        };
    };
    let error = [summary.error.as_str(), stderr_end]
        .into_iter()
        .find(|text| !text.trim().is_empty())
        .unwrap_or("");
    match (failed, summary.end) {
        (Some(why), _) => failure(Cause::Agent, why),
        // A turn without text and actions means that the model could not be used.
        (None, Some(End::Success))
            if ending.speaks && !summary.has_acted && summary.result.trim().is_empty() =>
        {
            failure(Cause::NoWord, error)
        }
        (None, Some(End::Success))
            if ending.stream.success_needs_answer && !summary.has_answered =>
        {
            failure(Cause::NoWord, error)
        }
        (None, Some(End::Success)) => Some(VerdictText {
            cause: None,
            message: String::new(),
            again_at_ms: None,
        }),
        (None, Some(End::Failure)) => failure(Cause::Agent, error),
        (None, None) if ending.stream.end_is_stated => {
            failure(Cause::NoWord, &with_exit(exit, error))
        }
        (None, None) if exit == Some(Exit::Code(0)) => None,
        (None, None) => failure(Cause::Agent, &with_exit(exit, error)),
    }
}

/// Describes how the process ended, followed by the end of its output.
fn with_exit(exit: Option<Exit>, output_end: &str) -> String {
    let how = match exit {
        Some(Exit::Code(code)) => format!("exit code {code}"),
        Some(Exit::Signal(signal)) => format!("signal {signal}"),
        None => String::new(),
    };
    let output_end = shorten::tail(output_end.trim(), STDERR_BYTES_MAX);
    match (how.is_empty(), output_end.is_empty()) {
        (false, false) => format!("{how}: {output_end}"),
        _ => format!("{how}{output_end}"),
    }
}

/// Returns usage in the form of facts. An impossible cost is unknown.
pub(super) fn usage_text(usage: &Usage, stream: &Stream) -> UsageText {
    UsageText {
        input_tokens: usage.input_tokens,
        cached_tokens: usage.cached_tokens,
        output_tokens: usage.output_tokens,
        cost_micros: usage.cost_usd.and_then(micros_of),
        of_session: stream.usage_of_session,
        cost_of_session: usage.cost_is_total || stream.usage_of_session,
        cached_in_input: stream.cached_in_input,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(stream: Stream) -> Ending {
        Ending {
            patterns: Vec::new(),
            zone: TimeZone::UTC,
            stream,
            speaks: false,
            text: PlainText::default(),
            has_gate: false,
        }
    }

    fn last_fact(
        exit: Exit,
        is_ended_after_report: bool,
        output: Option<Output>,
        failed: Option<&str>,
    ) -> FactKind {
        let ended = ProcessEnd {
            exit: Some(exit),
            swept: 0,
            left_open: false,
            active_ms: 0,
            by_itself: true,
            is_ended_after_report,
            lacks_tools: false,
        };
        let ending = ending(Stream::default());
        end_fact(ended, output, failed.map(str::to_owned), &ending)
    }

    fn output(result: &str, summary: Option<Summary>) -> Output {
        Output {
            logs: Vec::new(),
            bytes: 7,
            result: result.to_owned(),
            ends_within_line: false,
            summary,
            stderr_end: "warning\nbroken\n\n".to_owned(),
            left_open: false,
        }
    }

    #[test]
    fn agent_ended_after_its_report_has_succeeded_unless_it_says_otherwise() {
        let of = |failed: Option<&str>| {
            let summary = Summary::default();
            last_fact(
                Exit::Signal(15),
                true,
                Some(output("done", Some(summary))),
                failed,
            )
        };
        let FactKind::Ended {
            exit_code,
            signal,
            verdict,
            ..
        } = of(None)
        else {
            panic!("it is an end")
        };
        assert_eq!((exit_code, signal), (Some(0), None));
        assert_eq!(verdict.and_then(|verdict| verdict.cause), None);
        let FactKind::Ended { verdict, .. } = of(Some("no credit")) else {
            panic!("it is an end")
        };
        assert!(verdict.is_some_and(|verdict| verdict.cause.is_some()));
    }

    #[test]
    fn last_fact_without_output_says_that_it_is_missing() {
        let FactKind::Ended {
            exit_code,
            output_left_open,
            gap,
            ..
        } = last_fact(Exit::Code(0), false, None, None)
        else {
            panic!("it is an end")
        };
        assert_eq!((exit_code, output_left_open), (Some(0), true));
        assert_eq!(
            gap.map(|gap| gap.word).as_deref(),
            Some(ResultGap::Empty.word())
        );
    }

    #[test]
    fn line_of_standard_error_explains_a_failed_program_without_a_stream() {
        let line = |exit, summary: Option<Summary>| match last_fact(
            exit,
            false,
            Some(output("text", summary)),
            None,
        ) {
            FactKind::Ended { error_line, .. } => error_line,
            other => panic!("{other:?}"),
        };
        assert_eq!(line(Exit::Code(1), None), "broken");
        assert_eq!(line(Exit::Code(0), None), "");
        assert_eq!(line(Exit::Code(1), Some(Summary::default())), "");
    }

    #[test]
    fn sudden_end_names_exit_code_and_last_words() {
        let of = |end_is_stated, exit, stderr_end: &str| {
            let ending = ending(Stream {
                end_is_stated,
                ..Stream::default()
            });
            let verdict = verdict(
                Some(exit),
                Some(&Summary::default()),
                None,
                "",
                stderr_end,
                &ending,
            )
            .expect("it failed");
            (verdict.cause.unwrap_or_default(), verdict.message)
        };
        let of_cause = |cause: &str, message: &str| (cause.to_owned(), message.to_owned());
        assert_eq!(
            of(true, Exit::Code(3), "Traceback\nImportError: acp\n"),
            of_cause("no_word", "exit code 3: Traceback\nImportError: acp")
        );
        assert_eq!(
            of(true, Exit::Code(0), ""),
            of_cause("no_word", "exit code 0")
        );
        assert_eq!(
            of(false, Exit::Signal(9), "out of memory"),
            of_cause("agent_error", "signal 9: out of memory")
        );
    }
}
