//! The siblings of a run: other runs of the same owner.

use super::caller::ChatCaller;
use crate::store::{Connection, Run, StoreError, runs_newest, turn_of_run};
use crate::view::TeammateView;
use adjutant_core::{RunState, run};

/// Maximum number of siblings in a list.
const TEAM_MAX: usize = 20;
/// Number of newest unfinished runs that are searched for siblings.
const SEARCHED_RUNS_MAX: u32 = 100;
const TASK_CHARS_MAX: usize = 80;

/// Returns the unfinished siblings of a caller's run, running ones first, and whether there are
/// more. Runs that answer in chats are left out: they are shown in their chat.
pub(super) fn of(
    connection: &Connection,
    caller: &ChatCaller,
) -> Result<(Vec<TeammateView>, bool), StoreError> {
    let Some(own) = &caller.run else {
        return Ok((Vec::new(), false));
    };
    let page = runs_newest(connection, Some(&own.owner), false, SEARCHED_RUNS_MAX)?;
    let mut siblings = Vec::new();
    for run in page.runs {
        if run.id != own.id && turn_of_run(connection, run.id)?.is_none() {
            siblings.push(run);
        }
    }
    siblings.sort_by_key(|run| !matches!(run.state, RunState::Running));
    let more = page.more > 0 || siblings.len() > TEAM_MAX;
    Ok((siblings.iter().take(TEAM_MAX).map(teammate).collect(), more))
}

fn teammate(run: &Run) -> TeammateView {
    TeammateView {
        run_id: run.id.to_string(),
        name: run.name.clone(),
        agent: run.agent.clone(),
        status: run::status(run.state, run.open_requests(), run.claim).into(),
        task: run.task.chars().take(TASK_CHARS_MAX).collect(),
    }
}
