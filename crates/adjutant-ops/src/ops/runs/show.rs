//! Listing runs and showing one.

use crate::clock;
use crate::config::Home;
use crate::ops::pools::HubPools;
use crate::ops::repository_policies::not_in_effect;
use crate::ops::requests::deliver_queued_messages;
use crate::ops::runner_launches::Launches;
use crate::ops::runner_sessions::Sessions;
use crate::ops::settings::Settings;
use crate::ops::stats::tree_stats;
use crate::ops::trees::Trees;
use crate::ops::workspaces::Workspaces;
use crate::ops::{Caller, OpError, Ops, lookup, render};
use crate::store::{
    MORE_COUNTED_MAX, Store, beside, newest_follower, newest_of, runs_before, runs_newest,
    signals_of, unread_of,
};
use crate::view::{GetRun, ListRuns, RunList, RunView};
use adjutant_core::{Action, Principal};
use std::sync::Arc;

/// Default number of runs in a list.
const LIST_DEFAULT: u32 = 200;
const LIST_MAX: u32 = 10_000;
/// Maximum number of answered, unread requests that a run sees of itself.
const UNREAD_SHOWN_MAX: u32 = 20;
/// Maximum number of signal events shown with a run, the newest.
const SIGNALS_SHOWN_MAX: u32 = 10;
/// Maximum number of settled requests shown with a run, the newest.
const SETTLED_SHOWN_MAX: u32 = 20;

/// Lists runs, and shows one.
#[derive(Debug, Clone)]
pub struct RunReader {
    store: Store,
    home: Arc<Home>,
    settings: Settings,
    trees: Trees,
    workspaces: Workspaces,
    pools: HubPools,
    sessions: Sessions,
    launches: Launches,
}

impl RunReader {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            home: Arc::clone(&ops.home),
            settings: ops.settings.clone(),
            trees: ops.trees.clone(),
            workspaces: Workspaces::of(ops),
            pools: HubPools::of(ops),
            sessions: ops.sessions.clone(),
            launches: ops.launches.clone(),
        }
    }

    /// Lists runs that the caller may see, unfinished ones first, or in the order of their
    /// dispatch.
    ///
    /// # Errors
    /// The caller may not list, or `before` is unknown or foreign.
    pub fn list_runs(&self, who: &Principal, call: &ListRuns) -> Result<RunList, OpError> {
        lookup::check(who, Action::ListRuns)?;
        let owner = if *who == Principal::Person {
            None
        } else {
            Some(who)
        };
        let limit = call.limit.unwrap_or(LIST_DEFAULT).clamp(1, LIST_MAX);
        let config = self.settings.config_or_builtin();
        let settings = self.pools.configured(&config);
        Ok(self.store.read(|connection| {
            let page = match call.before.as_deref() {
                None => runs_newest(connection, owner, call.all, limit)?,
                Some("") => runs_before(connection, owner, call.all, None, limit)?,
                Some(run) => runs_before(
                    connection,
                    owner,
                    call.all,
                    Some(&lookup::run(connection, who, Action::See, run)?),
                    limit,
                )?,
            };
            let pools = settings.in_effect(connection)?;
            let mut runs =
                render::RunViews::new(connection, &self.home).list(&pools, &page.runs)?;
            for view in &mut runs {
                self.launches.add_to(&config, view);
                self.sessions.add_unwritable(view);
            }
            Ok(RunList {
                runs,
                more: page.more,
                more_at_least: page.more >= MORE_COUNTED_MAX.into(),
                clock: clock::warning(),
            })
        })?)
    }

    /// Returns one run. A run that asks for itself also gets its messages and its answered, unread
    /// requests.
    ///
    /// # Errors
    /// Unknown or foreign.
    pub async fn get_run(
        &self,
        Caller { who, key }: &Caller,
        call: &GetRun,
    ) -> Result<RunView, OpError> {
        let config = self.settings.config_or_builtin();
        let settings = self.pools.configured(&config);
        let (run, mut view) = self.store.read(|connection| {
            let run = lookup::run(connection, who, Action::See, &call.run)?;
            let run = if call.newest {
                newest_follower(connection, run)?
            } else {
                run
            };
            let mut views = render::RunViews::new(connection, &self.home);
            let mut view = views.run(&run)?;
            if view
                .changes
                .changed_files
                .as_ref()
                .is_some_and(|files| !files.is_empty())
            {
                view.changes.changed_beside = beside(connection, &run)?;
            }
            views.add_queue(&settings.in_effect(connection)?, &run, &mut view)?;
            self.launches.add_to(&config, &mut view);
            self.sessions.add_unwritable(&mut view);
            view.cost.tree = tree_stats(connection, &run)?;
            view.terms.policies_not_in_effect = not_in_effect(connection, run.id)?;
            let settled = newest_of(connection, run.id, false, SETTLED_SHOWN_MAX + 1)?;
            let left_out = settled.len().saturating_sub(SETTLED_SHOWN_MAX as usize);
            render::add_room(
                connection,
                &config,
                self.store.queued_runs(),
                &mut view.requests.pending,
            )?;
            view.activity.signals = signals_of(connection, run.id, SIGNALS_SHOWN_MAX)?
                .iter()
                .map(render::event)
                .collect();
            view.requests.settled_more = left_out > 0;
            view.requests.settled = render::requests(&settled[left_out..]);
            if *who == Principal::Run(run.id) && run.unread > 0 {
                view.requests.pending.extend(render::requests(&unread_of(
                    connection,
                    run.id,
                    UNREAD_SHOWN_MAX,
                )?));
                view.requests
                    .pending
                    .sort_by_key(|request| request.times.asked_at.clone());
            }
            Ok((run, view))
        })?;
        if call.snapshots {
            (view.changes.snapshots, view.changes.gone) = self.trees.snapshots_of(&run).await;
            if let Some(workspace) = &mut view.place.workspace {
                workspace.behind = self.workspaces.behind_of(run.id).await;
            }
            view.changes.committed_copies = self.trees.committed_copies(&run).await;
        }
        if *who == Principal::Run(run.id) {
            view.requests.messages =
                deliver_queued_messages(&self.store, run.id, key.as_ref()).await?;
        }
        Ok(view)
    }
}
