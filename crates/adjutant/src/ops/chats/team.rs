//! Who else works for the same owner: what a run sees of its siblings.

use super::caller::ChatCaller;
use crate::store::{Connection, Run, StoreError, runs_newest, turn_of_run};
use crate::view::TeammateView;
use adjutant_core::RunState;
use adjutant_core::run;

/// Siblings in one list.
const TEAM_MAX: usize = 20;
/// Unfinished runs that are looked at for them, the newest.
const LOOK_MAX: u32 = 100;
const TASK_CHARS_MAX: usize = 80;

/// Reads the siblings of a caller's run that have not finished, those at work first, and whether there are more.
/// A run that answers in a chat is shown there, to those who see the chat.
pub(super) fn of(connection: &Connection, caller: &ChatCaller) -> Result<(Vec<TeammateView>, bool), StoreError> {
    let Some(own) = &caller.run else { return Ok((Vec::new(), false)) };
    let page = runs_newest(connection, Some(&own.owner), false, LOOK_MAX)?;
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
