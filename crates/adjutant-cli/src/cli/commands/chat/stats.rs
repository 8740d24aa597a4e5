//! `adj chat stats`.

use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::out::CommandResult;
use crate::cli::style::Style;
use crate::text;
use crate::view::{ChatStats, GetChatStats, ParticipantStats, TurnStats};
use adjutant_core::units::{duration, size};
use std::time::Duration;

pub(super) async fn stats(chat: Option<i64>, cx: &Context) -> CommandResult {
    let stats = cx.hub.call(&GetChatStats { chat_id: chat }).await?;
    if cx.out.json {
        cx.out.print_json(&stats)?;
        return Ok(Exit::Done);
    }
    for (label, value) in lines(&stats, chat.is_none()) {
        cx.out.print_line(&format!(
            "{} {value}",
            cx.out.paint.apply(Style::Dim, &format!("{label:<12}"))
        ))?;
    }
    for (n, participant) in stats.by_participant.iter().enumerate() {
        let label = if n == 0 { "by" } else { "" };
        let line = format!("{label:<12} {}", text::line(&participant_text(participant)));
        cx.out.print_text(&cx.out.fold(&line, &line))?;
    }
    Ok(Exit::Done)
}

/// Returns the lines of a chat, or of all chats on average. Calls are those of the hub.
fn lines(stats: &ChatStats, is_of_all: bool) -> Vec<(&'static str, String)> {
    let ms = |time: Option<i64>| time.map_or_else(|| "–".to_owned(), duration::text);
    let us = |time: Option<u64>| {
        time.map_or_else(
            || "–".to_owned(),
            |us| duration::of(Duration::from_micros(us)),
        )
    };
    let memory = stats
        .hub_memory_bytes
        .map_or_else(|| "–".to_owned(), size::text);
    vec![
        ("chats", stats.chats.to_string()),
        (
            "messages",
            format!(
                "{} ({:.1} per chat)",
                stats.messages, stats.messages_per_chat
            ),
        ),
        ("participants", stats.participants.to_string()),
        (
            "duration",
            format!(
                "{}{}",
                seconds(stats.duration_s),
                if is_of_all { " on average" } else { "" }
            ),
        ),
        (
            "answers",
            format!(
                "{} answered, {} failed, {} cancelled, {} open",
                stats.answered, stats.failed, stats.cancelled, stats.open
            ),
        ),
        (
            "answer time",
            format!(
                "p50 {}, p95 {}",
                ms(stats.answer_ms_p50),
                ms(stats.answer_ms_p95)
            ),
        ),
        (
            "calls",
            format!(
                "{} since the hub started, {} failed, {} refused",
                stats.calls, stats.calls_failed, stats.calls_refused
            ),
        ),
        (
            "call time",
            format!(
                "p50 {}, p95 {}, longest {}",
                us(stats.call_us_p50),
                us(stats.call_us_p95),
                us(stats.call_us_max)
            ),
        ),
        (
            "hub",
            format!(
                "up {}, memory {memory}",
                duration::of(Duration::from_secs(stats.up_s))
            ),
        ),
    ]
}

fn seconds(seconds: i64) -> String {
    duration::text(seconds.saturating_mul(1_000))
}

/// Describes what a participant has contributed in one line.
fn participant_text(of: &ParticipantStats) -> String {
    let messages = text::count(
        u64::try_from(of.messages).unwrap_or(0),
        "message",
        "messages",
    );
    let turns = of.turns.as_ref().map_or_else(String::new, |turns| {
        let TurnStats {
            answered,
            failed,
            cancelled,
            open,
            answer_ms_p50,
        } = turns;
        let others = [
            (*failed, "failed"),
            (*cancelled, "cancelled"),
            (*open, "open"),
        ];
        let others: String = others
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!(", {count} {word}"))
            .collect();
        let time = answer_ms_p50.map_or_else(String::new, |ms| {
            format!(" (median {})", duration::text(ms))
        });
        format!("; {answered} answered{time}{others}")
    });
    format!("{}: {messages}{turns}", of.name)
}
