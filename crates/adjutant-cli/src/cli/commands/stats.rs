//! `adj stats`: statistics of runs.

use crate::cli::args::StatsArgs;
use crate::cli::context::Context;
use crate::cli::details::person;
use crate::cli::exit::Exit;
use crate::cli::out::CommandResult;
use crate::cli::style::Style;
use crate::cli::table::{Cell, Column, painted, plain, render_all};
use crate::present::cost;
use crate::text;
use crate::view::{GetStats, StatsRowView, StatsView, TimesView};
use adjutant_core::stats::StatsBy;
use adjutant_core::units::duration;
use std::time::Duration;

const NOTHING: &str = "–";

/// Shows statistics of runs.
pub(crate) async fn stats(args: &StatsArgs, cx: &Context) -> CommandResult {
    let call = GetStats {
        since_s: args.since.map(|since| since.as_secs()),
        by: args.by.map(Into::into),
    };
    let stats = cx.hub.call(&call).await?;
    if cx.out.json {
        cx.out.print_json(&stats)?;
        return Ok(Exit::Done);
    }
    match args.by {
        None => {
            for (label, value) in fields(&stats.total) {
                cx.out.print_line(&format!(
                    "{} {value}",
                    cx.out.paint.apply(Style::Dim, &format!("{label:<9}"))
                ))?;
            }
        }
        Some(by) => cx.out.print_text(&table(by, &stats, cx))?,
    }
    let counted = match (&stats.since, &stats.kept_since) {
        (_, None) => "there are no runs yet".to_owned(),
        (Some(since), Some(kept)) if since > kept => {
            format!("counted: runs dispatched since {}", cx.time(since))
        }
        (_, Some(kept)) => {
            let ago = if cx.out.terminal { " ago" } else { "" };
            format!(
                "counted: every run that is kept, the oldest from {}{ago} (finished_retention, adj clean)",
                cx.time(kept)
            )
        }
    };
    cx.out.print_message(&counted)?;
    if args.by.is_none() {
        cx.out
            .suggest("adj stats --by agent   or   adj stats --since 7d --by project")?;
    }
    Ok(Exit::Done)
}

fn shown(ms: u64) -> String {
    duration::of(Duration::from_millis(ms))
}

fn times(of: Option<&TimesView>) -> String {
    of.map_or_else(
        || NOTHING.to_owned(),
        |of| format!("{} / {}", shown(of.p50_ms), shown(of.p95_ms)),
    )
}

fn times_in_words(of: Option<&TimesView>) -> String {
    of.map_or_else(
        || NOTHING.to_owned(),
        |of| {
            format!(
                "median {}, p95 {} ({})",
                shown(of.p50_ms),
                shown(of.p95_ms),
                of.count
            )
        },
    )
}

fn outcomes(row: &StatsRowView) -> String {
    let all = [
        (row.succeeded, "succeeded"),
        (row.failed, "failed"),
        (row.cancelled, "cancelled"),
        (row.spawn_failed, "not started"),
        (row.lost, "lost"),
        (row.unfinished, "not finished"),
        (row.queued, "queued"),
    ];
    let named: Vec<String> = all
        .iter()
        .filter(|(runs, _)| *runs > 0)
        .map(|(runs, word)| format!("{runs} {word}"))
        .collect();
    named.join(", ")
}

fn tokens(row: &StatsRowView) -> String {
    let unknown = if row.tokens_unknown_runs > 0 {
        format!(" and {} unknown", row.tokens_unknown_runs)
    } else {
        String::new()
    };
    match (row.input_tokens, row.output_tokens) {
        (Some(input), Some(output)) => format!("{input} in, {output} out{unknown}"),
        _ if row.tokens_unknown_runs == 0 => NOTHING.to_owned(),
        _ => "unknown".to_owned(),
    }
}

fn cost_of(row: &StatsRowView) -> String {
    // Without a started run, there is no cost.
    if row.cost_micros.is_none() && row.cost_unknown_runs == 0 {
        NOTHING.to_owned()
    } else {
        cost(row.cost_micros, row.cost_unknown_runs)
    }
}

fn share(part: u64, all: u64) -> String {
    let percent = (part * 100).checked_div(all).unwrap_or(0);
    format!("{percent} %")
}

fn fields(row: &StatsRowView) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        (
            "runs",
            if row.runs == 0 {
                "0".to_owned()
            } else {
                format!("{}: {}", row.runs, outcomes(row))
            },
        ),
        (
            "redone",
            format!("{} (retried as another run)", row.retried),
        ),
        (
            "accepted",
            format!(
                "{} ({} merged, {} verified by an acceptance command)",
                row.accepted, row.merged, row.verified
            ),
        ),
        ("queue", times_in_words(row.queue.as_ref())),
        ("active", times_in_words(row.active.as_ref())),
        ("waiting", times_in_words(row.waiting.as_ref())),
    ];
    for (n, answers) in row.answers.iter().enumerate() {
        let by = text::line(answers.by.as_str());
        fields.push((
            if n == 0 { "answers" } else { "" },
            format!("by {by}: {}", times_in_words(Some(&answers.times))),
        ));
    }
    fields.push(("cost", cost_of(row)));
    fields.push(("tokens", tokens(row)));
    fields.push((
        "chats",
        format!(
            "{} of {} ({})",
            row.used_chat,
            text::count(row.runs, "run", "runs"),
            share(row.used_chat, row.runs)
        ),
    ));
    fields
}

fn table(by: StatsBy, stats: &StatsView, cx: &Context) -> String {
    let head = match by {
        StatsBy::Agent => "AGENT",
        StatsBy::Pool => "POOL",
        StatsBy::Project => "PROJECT",
        StatsBy::Parent => "PARENT",
    };
    let columns = [
        head,
        "RUNS",
        "OPEN",
        "SUCCEEDED",
        "REDONE",
        "ACCEPTED",
        "CHATS",
        "QUEUE P50 / P95",
        "WAITING P50 / P95",
        "ACTIVE P50 / P95",
        "COST",
        "TOKENS",
    ]
    .map(Column::always);
    let name = |row: &StatsRowView| {
        row.name
            .as_deref()
            .map(|name| person(name).to_owned())
            .unwrap_or_default()
    };
    let mut rows: Vec<Vec<Cell>> = stats
        .groups
        .iter()
        .map(|row| cells(&name(row), row))
        .collect();
    rows.extend(
        stats
            .others
            .as_deref()
            .map(|others| cells("others", others)),
    );
    rows.push(cells("all", &stats.total));
    render_all(&columns, &rows, cx.out.columns, cx.out.paint)
}

fn cells(name: &str, row: &StatsRowView) -> Vec<Cell> {
    // Of those that have ended: the others may still succeed.
    let open = row.queued + row.unfinished;
    let succeeded = format!(
        "{} ({})",
        row.succeeded,
        share(row.succeeded, row.runs.saturating_sub(open))
    );
    vec![
        painted(name, Style::Strong),
        plain(&row.runs.to_string()),
        plain(&open.to_string()),
        plain(&succeeded),
        plain(&row.retried.to_string()),
        plain(&row.accepted.to_string()),
        plain(&share(row.used_chat, row.runs)),
        plain(&times(row.queue.as_ref())),
        plain(&times(row.waiting.as_ref())),
        plain(&times(row.active.as_ref())),
        plain(&cost_of(row)),
        plain(&tokens(row)),
    ]
}
