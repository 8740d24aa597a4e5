//! `adj pools`: lists pools, changes their slots, pauses and resumes them.

use crate::cli::args::{PoolsWhat, Slots};
use crate::cli::context::Context;
use crate::cli::details::person;
use crate::cli::exit::Exit;
use crate::cli::out::CommandResult;
use crate::cli::style::Style;
use crate::cli::table::{Cell, Column, painted, plain, render};
use crate::text;
use crate::view::{ChangePool, ListPools, PoolView, Word};
use adjutant_core::pool::QueueReason;

/// Lists the pools, or changes one.
pub(crate) async fn pools(what: Option<PoolsWhat>, cx: &Context) -> CommandResult {
    match what {
        None => list(cx).await,
        Some(PoolsWhat::Set { pool, slots }) => {
            let slots_as_configured = slots == Slots::Configured;
            let slots = if let Slots::Number(slots) = slots {
                Some(slots)
            } else {
                None
            };
            change(
                ChangePool {
                    pool,
                    slots,
                    slots_as_configured,
                    paused: None,
                },
                cx,
            )
            .await
        }
        Some(PoolsWhat::Pause { pool }) => {
            change(
                ChangePool {
                    pool,
                    paused: Some(true),
                    ..ChangePool::default()
                },
                cx,
            )
            .await
        }
        Some(PoolsWhat::Resume { pool }) => {
            change(
                ChangePool {
                    pool,
                    paused: Some(false),
                    ..ChangePool::default()
                },
                cx,
            )
            .await
        }
    }
}

async fn list(cx: &Context) -> CommandResult {
    let list = cx.hub.call(&ListPools {}).await?;
    if cx.out.json {
        cx.out.print_json(&list)?;
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<Cell>> = list.pools.iter().map(|pool| row(pool, cx)).collect();
    let columns = [
        Column::always("POOL"),
        Column::always("SLOTS"),
        Column::always("LIVE"),
        Column::always("QUEUED"),
        Column::always("STATE"),
        Column::always("WAITING FOR"),
        Column::optional("AGENTS", 0),
    ];
    cx.out
        .print_text(&render(&columns, &rows, cx.out.columns, cx.out.paint))?;
    for (pool, launch) in list
        .pools
        .iter()
        .filter_map(|pool| Some((pool, pool.launch.as_ref()?)))
    {
        let name = text::line(&pool.name);
        let state = text::line(&launch.text());
        cx.out.print_message(&format!(
            "{name} has {} of at most {} launched runners: {state}",
            launch.launched, launch.max
        ))?;
    }
    cx.out.print_message(&format!(
        "in all pools: {} of at most {} runs are live (live_runs_max)",
        list.live_runs, list.live_runs_max
    ))?;
    let next = match (
        list.pools
            .iter()
            .find(|pool| pool.removed && pool.queued > 0),
        list.pools.iter().find(|pool| pool.paused),
    ) {
        (Some(pool), _) => format!(
            "add [pools.{}] to the configuration, or cancel its runs (adj ps)",
            text::line(&pool.name)
        ),
        (None, Some(pool)) => format!("adj pools resume {}", text::line(&pool.name)),
        (None, None) => {
            "adj pools set POOL --slots N   or   adj run --pool POOL \"PROMPT\"".to_owned()
        }
    };
    cx.out.suggest(&next)?;
    Ok(Exit::Done)
}

fn row(pool: &PoolView, cx: &Context) -> Vec<Cell> {
    let slots = match pool.slots_configured {
        Some(configured) => format!("{} (configured: {configured})", pool.slots),
        None if pool.removed => "–".to_owned(),
        None => pool.slots.to_string(),
    };
    let live = if pool.lent > 0 {
        format!("{} ({} without a slot)", pool.live, pool.lent)
    } else {
        pool.live.to_string()
    };
    let by = || match (&pool.changed_by, &pool.changed_at) {
        (Some(by), Some(at)) => format!(" by {}, {}", person(by), cx.time(at)),
        _ => String::new(),
    };
    let (state, style) = match (pool.removed, pool.paused) {
        (true, _) => ("not configured".to_owned(), Style::Attention),
        (false, true) => (format!("paused{}", by()), Style::Attention),
        (false, false) => ("open".to_owned(), Style::Good),
    };
    let waiting: Vec<String> = pool
        .waiting
        .iter()
        .map(|one| format!("{} {}", one.runs, reason_text(&one.reason)))
        .collect();
    vec![
        painted(&pool.name, Style::Strong),
        plain(&slots),
        plain(&live),
        plain(&pool.queued.to_string()),
        painted(&state, style),
        plain(&if waiting.is_empty() {
            "–".to_owned()
        } else {
            waiting.join(", ")
        }),
        plain(&if pool.agents.is_empty() {
            "–".to_owned()
        } else {
            pool.agents.join(", ")
        }),
    ]
}

/// Returns what a queued run waits for, in a few words.
fn reason_text(reason: &Word<QueueReason>) -> &str {
    match reason {
        Word::Known(QueueReason::Turn) => "about to start",
        Word::Known(QueueReason::Slot) => "for a slot",
        Word::Known(QueueReason::LiveLimit) => "for live_runs_max",
        Word::Known(QueueReason::PoolPaused) => "until it is resumed",
        Word::Known(QueueReason::PoolRemoved) => "until it is configured",
        Word::Known(QueueReason::NoRunner) => "for a runner",
        Word::Known(QueueReason::After | QueueReason::AfterFailed) => "for other runs",
        Word::Known(QueueReason::Ports) => "for ports",
        Word::Known(QueueReason::Quota) => "for an agent's limit",
        Word::Known(QueueReason::MemoryPressure | QueueReason::FreeMemory) => "for memory",
        Word::Known(QueueReason::RunnerStorage) => "for disk space of a runner",
        Word::Known(QueueReason::CpuPressure) => "for a CPU",
        Word::Unknown(word) => word,
    }
}

async fn change(call: ChangePool, cx: &Context) -> CommandResult {
    let pool = cx.hub.call(&call).await?;
    if cx.out.json {
        cx.out.print_json(&pool)?;
        return Ok(Exit::Done);
    }
    let name = text::line(&pool.name);
    let (what, next) = match call.paused {
        Some(true) => {
            let live = if pool.live == 0 {
                String::new()
            } else {
                format!(
                    "; {} still live",
                    text::count(pool.live, "run is", "runs are")
                )
            };
            (
                format!("paused {name}{live}"),
                format!("adj pools resume {name}"),
            )
        }
        Some(false) => (format!("resumed {name}"), "adj ps".to_owned()),
        None => {
            let over = pool
                .live
                .saturating_sub(pool.lent)
                .saturating_sub(pool.slots);
            let over = if over == 0 {
                String::new()
            } else {
                format!(
                    "; {} more live than that, and continue",
                    text::count(over, "run is", "runs are")
                )
            };
            (
                format!(
                    "{name} has {}{over}",
                    text::count(pool.slots, "slot", "slots")
                ),
                "adj pools".to_owned(),
            )
        }
    };
    cx.out
        .print_line(&format!("{} {what}", cx.out.paint.apply(Style::Good, "✓")))?;
    cx.out.suggest(&next)?;
    Ok(Exit::Done)
}
