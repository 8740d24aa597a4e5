//! Statistics of runs.

use super::{OpError, lookup};
use crate::clock::{self, rfc3339};
use crate::config::Home;
use crate::store::{
    Connection, Run, RunStats, StatsQuery, Store, StoreError, run_stats, tree_totals,
};
use crate::view::{AnswersView, GetStats, StatsRowView, StatsView, TimesView, TreeStatsView};
use adjutant_core::stats::{Distribution, Tally, TreeStats};
use adjutant_core::{Action, Denied, Principal};
use std::time::{Duration, Instant};

/// Reading takes at most this long.
const DEADLINE: Duration = Duration::from_secs(20);

/// Returns statistics of the runs that the caller may see.
///
/// # Errors
/// The caller may not list runs, or the grouping is unknown.
pub async fn stats(
    store: &Store,
    home: &Home,
    who: &Principal,
    call: GetStats,
) -> Result<StatsView, OpError> {
    lookup::check(who, Action::ListRuns)?;
    let by = match &call.by {
        None => None,
        Some(word) => Some(
            word.known()
                .ok_or_else(|| Denied::invalid("by", "use agent, pool, project or parent"))?,
        ),
    };
    let now = clock::now();
    let since = call.since_s.map(|seconds| {
        now.plus_ms(
            i64::try_from(seconds)
                .unwrap_or(i64::MAX / 1_000)
                .saturating_mul(-1_000),
        )
    });
    let (store, who, workspaces) = (
        store.clone(),
        who.clone(),
        home.workspaces_dir().display().to_string(),
    );
    let read = move || {
        let owner = Some(&who).filter(|who| **who != Principal::Person);
        let query = StatsQuery {
            owner,
            since,
            by,
            workspaces: &workspaces,
            now,
        };
        store.read_until(Instant::now() + DEADLINE, |connection| {
            run_stats(connection, &query)
        })
    };
    let RunStats { stats, kept_since } = tokio::task::spawn_blocking(read)
        .await
        .map_err(|error| OpError::Io(error.to_string()))??;
    let (groups, others) = stats.groups();
    Ok(StatsView {
        since: since.map(rfc3339),
        kept_since: kept_since.map(rfc3339),
        by: by.map(Into::into),
        total: row(None, &stats.total),
        groups: groups
            .into_iter()
            .map(|(name, tally)| row(Some(name), tally))
            .collect(),
        others: others.map(|others| Box::new(row(None, others))),
    })
}

fn row(name: Option<&str>, tally: &Tally) -> StatsRowView {
    let Tally {
        runs,
        queued,
        unfinished,
        succeeded,
        failed,
        cancelled,
        spawn_failed,
        lost,
        retried,
        merged,
        verified,
        accepted,
        used_chat,
        queue_ms,
        waiting_ms,
        active_ms,
        answers,
        cost_micros,
        input_tokens,
        output_tokens,
    } = tally;
    StatsRowView {
        name: name.map(str::to_owned),
        runs: *runs,
        queued: *queued,
        unfinished: *unfinished,
        succeeded: *succeeded,
        failed: *failed,
        cancelled: *cancelled,
        spawn_failed: *spawn_failed,
        lost: *lost,
        retried: *retried,
        merged: *merged,
        verified: *verified,
        accepted: *accepted,
        used_chat: *used_chat,
        queue: times(queue_ms),
        waiting: times(waiting_ms),
        active: times(active_ms),
        answers: answers
            .iter()
            .filter_map(|(by, of)| {
                times(of).map(|times| AnswersView {
                    by: (*by).into(),
                    times,
                })
            })
            .collect(),
        cost_micros: cost_micros.known(),
        cost_unknown_runs: cost_micros.unknown,
        input_tokens: input_tokens.known(),
        output_tokens: output_tokens.known(),
        tokens_unknown_runs: input_tokens.unknown,
    }
}

fn times(of: &Distribution) -> Option<TimesView> {
    Some(TimesView {
        count: of.count(),
        p50_ms: of.quantile_ms(50)?,
        p95_ms: of.quantile_ms(95)?,
    })
}

/// Returns the time and cost of the tree of a finished run. `None`: one of its runs has not
/// finished.
pub(super) fn tree_stats(
    connection: &Connection,
    run: &Run,
) -> Result<Option<TreeStatsView>, StoreError> {
    if !run.state.is_finished() {
        return Ok(None);
    }
    let view = |stats: TreeStats| {
        let TreeStats {
            runs,
            elapsed_ms,
            sequential_ms,
            cost_micros,
            cost_unknown,
        } = stats;
        TreeStatsView {
            runs,
            elapsed_ms,
            sequential_ms,
            cost_micros,
            cost_unknown_runs: cost_unknown,
        }
    };
    Ok(tree_totals(connection, run.root)?.stats().map(view))
}
