//! Starts an attempt's processes inside a fence.

mod hidden;
mod places;
mod plan;
mod secrets;
mod state;
mod writable;

use crate::process::Spawn;
use crate::process::containment::{self, ContainedWorker, RequestedLevel, StartError};
use crate::process::fence::{FencePlan, LANDLOCK, MOUNT_NAMESPACE};
use crate::protocol::{FenceOrder, FenceText, Order};
use adjutant_core::{Fence, Isolation};
use places::PlanError;
use plan::{TEMPORARY, landlock_plan, plan};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Starts a process of an attempt, inside a fence if the order requires one.
///
/// # Errors
/// Nothing runs then.
pub(super) fn start(
    order: &Order,
    mut spawn: Spawn<'_>,
) -> Result<(ContainedWorker, Option<FenceText>), StartError> {
    let contained = RequestedLevel::from_word(&order.containment);
    let Some(fence) = &order.fence else {
        return Ok((containment::start(spawn, contained)?, None));
    };
    let fenced = match contained {
        RequestedLevel::Subreaper => Err(StartError::Fence(
            "it needs a PID namespace, and the configuration says containment = \"subreaper\""
                .to_owned(),
        )),
        RequestedLevel::Auto | RequestedLevel::PidNamespace => {
            plan(order, fence, spawn.program, spawn.cwd)
                .map_err(no_fence)
                .and_then(|plan| {
                    let env = spawn.env.clone();
                    keep_temporary_files_inside(&mut spawn, &plan);
                    let started = containment::start_fenced(&spawn, &plan);
                    spawn.env = env;
                    Ok((started?, text_of(&plan)))
                })
        }
    };
    match fenced {
        Ok((contained, text)) => Ok((contained, Some(text))),
        Err(StartError::Fence(why))
            if Fence::from_word(&fence.wanted) == Some(Fence::BestEffort)
                && has_no_mount_fence(order, contained) =>
        {
            start_with_landlock_or_none(order, fence, spawn, contained, why)
        }
        Err(failed) => Err(failed),
    }
}

/// Starts a process behind Landlock rules, or without a fence if the kernel lacks Landlock or the
/// directory cannot be fenced.
fn start_with_landlock_or_none(
    order: &Order,
    fence: &FenceOrder,
    mut spawn: Spawn<'_>,
    contained: RequestedLevel,
    why: String,
) -> Result<(ContainedWorker, Option<FenceText>), StartError> {
    let why = match containment::landlock_available() {
        Ok(()) if is_unfit(order) => why,
        Ok(()) => {
            let plan = plan(order, fence, spawn.program, spawn.cwd)
                .map(landlock_plan)
                .map_err(no_fence)?;
            keep_temporary_files_inside(&mut spawn, &plan);
            let (started, gaps) = containment::start_with_landlock(&spawn, &plan, contained)?;
            return Ok((
                started,
                Some(FenceText {
                    enforced: LANDLOCK.to_owned(),
                    gaps,
                    why: Some(why),
                    writable: describe(&plan),
                }),
            ));
        }
        Err(no_rules) => format!("{why}; and {no_rules}"),
    };
    tracing::warn!(%why, "the run is not fenced");
    let text = FenceText {
        enforced: "none".to_owned(),
        why: Some(why),
        ..FenceText::default()
    };
    Ok((containment::start(spawn, contained)?, Some(text)))
}

fn no_fence(why: PlanError) -> StartError {
    StartError::Fence(why.to_string())
}

/// Returns whether this machine cannot enforce a fence. Reasons that the run's own processes can
/// cause do not count.
fn has_no_mount_fence(order: &Order, contained: RequestedLevel) -> bool {
    contained == RequestedLevel::Subreaper
        || is_unfit(order)
        || containment::mount_fence_available().is_err()
}

/// Returns whether the directory of a run cannot be fenced.
fn is_unfit(order: &Order) -> bool {
    let is_worktree = order
        .workspace
        .as_ref()
        .is_some_and(|own| Isolation::from_word(&own.isolation) == Some(Isolation::Worktree));
    is_worktree
        || order
            .env
            .get("HOME")
            .is_some_and(|user_home| Path::new(user_home).starts_with(&order.cwd))
}

/// Returns the directory below which no link to a path may be followed: the user's home if the path
/// is below it. `None`: the agent is not fenced.
pub(crate) fn link_free_base(order: &Order, path: &Path) -> Option<PathBuf> {
    order.fence.as_ref()?;
    let user_home = order
        .env
        .get("HOME")
        .map(PathBuf::from)
        .filter(|user_home| user_home.is_absolute() && path.starts_with(user_home));
    Some(user_home.unwrap_or_else(|| PathBuf::from("/")))
}

fn text_of(plan: &FencePlan) -> FenceText {
    FenceText {
        enforced: MOUNT_NAMESPACE.to_owned(),
        gaps: Vec::new(),
        why: None,
        writable: describe(plan),
    }
}

fn describe(plan: &FencePlan) -> Vec<String> {
    plan.writable
        .iter()
        .map(|path| path.display().to_string())
        .collect()
}

/// Points variables for temporary files that name a directory outside to the run's own.
fn keep_temporary_files_inside(spawn: &mut Spawn<'_>, plan: &FencePlan) {
    let is_inside = |path: &OsStr| {
        let path = Path::new(path);
        plan.private.iter().any(|private| private.at == path)
            || plan.writable.iter().any(|dir| path.starts_with(dir))
    };
    let own = plan
        .temporary
        .clone()
        .map_or_else(|| TEMPORARY[0].0.into(), PathBuf::into_os_string);
    for (name, value) in &mut spawn.env {
        if ["TMPDIR", "TMP", "TEMP"]
            .iter()
            .any(|variable| *name == **variable)
            && !is_inside(value)
        {
            value.clone_from(&own);
        }
    }
    if plan.temporary.is_some() && !spawn.env.iter().any(|(name, _)| name == "TMPDIR") {
        spawn.env.push(("TMPDIR".into(), own));
    }
}
