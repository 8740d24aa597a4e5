//! Reading a run's log.

use super::next_step::WAIT_AGAIN;
use crate::mcp::caller::McpCaller;
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::McpSession;
use crate::mcp::show::Shown;
use crate::mcp::text::{barred, line};
use crate::view::{LogPage, ReadLogs};
use serde::Deserialize;
use serde_json::json;

const LOG_CHARS_DEFAULT: u64 = 6_000;

const LOG_CHARS_MAX: u64 = 40_000;

/// The arguments of `get_subagent_logs`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct GetSubagentLogsArgs {
    run_id: String,
    after: Option<u64>,
    grep: Option<String>,
    max_chars: Option<u64>,
}

pub(in crate::mcp) async fn get_subagent_logs(
    session: &McpSession,
    _caller: &McpCaller,
    args: GetSubagentLogsArgs,
) -> ToolResult {
    // In the original protocol a log is shown whole.
    let default = if session.compat() {
        LOG_CHARS_MAX
    } else {
        LOG_CHARS_DEFAULT
    };
    let max = args.max_chars.unwrap_or(default).clamp(1, LOG_CHARS_MAX);
    let read = ReadLogs {
        run: args.run_id,
        after: args.after,
        max_bytes: Some(max),
        grep: args.grep,
        ..ReadLogs::default()
    };
    let page = session.client().call(&read).await?;
    let at_end = page.next >= page.total;
    reply(log_shown(&page).next(match (at_end, page.ended) {
        (false, _) => format!(
            "get_subagent_logs run_id={} after={} for more",
            line(&page.name, 60),
            page.next
        ),
        (true, false) => format!("{WAIT_AGAIN}; for later output, after={}", page.next),
        (true, true) if page.from > 0 => "that is the end; after=0 begins at the start".to_owned(),
        (true, true) => "that is all of it".to_owned(),
    }))
}

/// Shows a page of a log.
pub(in crate::mcp) fn log_shown(page: &LogPage) -> Shown {
    let state = match (page.next >= page.total, page.ended) {
        (false, _) => "with more behind",
        (true, false) => "still growing",
        (true, true) => "complete",
    };
    Shown::new(json!({
        "run_id": page.run_id,
        "name": page.name,
        "text": page.text,
        "from": page.from,
        "next_after": page.next,
        "total": page.total,
        "omitted": page.omitted,
        "ended": page.ended,
        "path": page.path,
        "paths": page.paths,
        "missing": page.missing,
    }))
    .line(format!(
        "log of {}, bytes {} to {} of {}, {state}",
        line(&page.name, 60),
        page.from,
        page.next,
        page.total
    ))
    .lines((page.omitted > 0).then(|| {
        format!(
            "{} bytes within were dropped: the log is limited",
            page.omitted
        )
    }))
    .lines(
        page.missing
            .iter()
            .map(|missing| line(&missing.to_string(), 300)),
    )
    .lines(
        (!page.paths.is_empty())
            .then(|| format!("whole log: {}", line(&page.paths.join(", "), 4_096))),
    )
    .quotation(barred(&page.text))
}
