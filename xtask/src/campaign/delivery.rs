//! Checks that each run received its answers and decisions, and acted on them, exactly once.

use super::plan::{Decisions, Kind, Plan, child_word, details};
use crate::lab::Result;
use adjutant_api::view::{RequestView, RunView, Word};
use adjutant_core::{OutcomeKind, RequestStateKind};

/// A run at its end.
pub struct Ended<'a> {
    pub key: &'a str,
    pub plan: Plan,
    pub view: &'a RunView,
    pub requests: &'a [RequestView],
    pub child: Option<&'a RunView>,
    /// The number of times that it continued after its wait.
    pub after: usize,
    /// The resolution with which it was resumed.
    pub resolution: Option<&'a str>,
}

/// Returns the errors in the deliveries to a run. Only a successful run must have received
/// everything. No run may receive anything twice.
pub fn delivery_problems(run: &Ended<'_>) -> Result<Vec<String>> {
    let Ended {
        key,
        plan,
        view,
        requests,
        child,
        after,
        resolution,
    } = *run;
    let mut problems = Vec::new();
    let log = match std::fs::read_to_string(&view.place.log_path) {
        Ok(log) => log,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("{}: {error}", view.place.log_path).into()),
    };
    let stops_beside = matches!(plan.kind, Kind::StopAsk | Kind::StopDelegate);
    let succeeded = view.has_outcome(OutcomeKind::Succeeded);
    let mut once = |what: &str| {
        let received = log.lines().filter(|line| *line == what).count();
        if received > 1 || (succeeded && received != 1) {
            problems.push(format!("{what:?} was received {received} times"));
        }
    };
    for request in requests {
        let words = request.reply.reason.as_deref().unwrap_or_default();
        let Some(answer) = &request.reply.answer else {
            continue;
        };
        match (
            request.kind.as_str(),
            plan.by_block || stops_beside,
            request.reply.decision.as_ref().map(Word::as_str),
        ) {
            ("question", true, _) => once(&format!("A: {answer}")),
            ("approval", true, Some("approved")) => {
                once("## APPROVAL GRANTED");
                once(&format!("Note: {words}"));
            }
            ("approval", true, _) => {
                once("## APPROVAL DENIED");
                once(&format!("Reason: {words}"));
            }
            ("delegation", true, Some("approved")) => {
                once("## DELEGATION APPROVED");
                once(&format!(
                    "Result: {}",
                    request.delegated.child_result.as_deref().unwrap_or("none")
                ));
            }
            ("delegation", true, _) => {
                once("## DELEGATION DENIED");
                once(&format!("Reason: {words}"));
            }
            ("delegation", false, decision) => {
                once(&format!("answer: {answer}"));
                if decision == Some("approved") {
                    once(&format!(
                        "child: {}",
                        request.delegated.child_result.as_deref().unwrap_or("none")
                    ));
                }
            }
            _ => once(&format!("answer: {answer}")),
        }
    }
    if let Some(resolution) = resolution {
        once(&format!("Resolution: {resolution}"));
        once(&format!("Issue: {}", details(key)));
    }
    // A request in an earlier block can be settled and resume the run before it announces its stop.
    if stops_beside && (plan.stops_first || !plan.by_block) {
        once(&format!("Issue: {}", details(key)));
    }
    let behind = usize::from(matches!(
        plan.kind,
        Kind::Stop
            | Kind::Park
            | Kind::Approve
            | Kind::Delegate
            | Kind::StopAsk
            | Kind::StopDelegate
    ));
    if after > behind || (succeeded && after != behind) {
        problems.push(format!("continued {after} times"));
    }
    let asked = match plan.kind {
        Kind::Ask => 2,
        Kind::Cancel | Kind::Stop => 0,
        Kind::Approve if plan.decisions == Decisions::Revoke => 2,
        Kind::Park | Kind::Approve | Kind::Delegate | Kind::StopAsk | Kind::StopDelegate => 1,
    };
    if requests.len() > asked || (succeeded && requests.len() != asked) {
        problems.push(format!(
            "asked {asked} times, {} requests are stored",
            requests.len()
        ));
    }
    if succeeded
        && let Some(open) = requests
            .iter()
            .find(|request| request.status != RequestStateKind::Retrieved)
    {
        problems.push(format!(
            "succeeded, and {} is {}",
            open.message_id, open.status
        ));
    }
    if succeeded && plan.kind == Kind::Stop && resolution.is_none() {
        problems.push("succeeded and was never resumed".to_string());
    }
    // Check the writes that were acknowledged to the run itself.
    if plan.kind == Kind::Stop && log.lines().any(|line| line.starts_with("result: ")) {
        let left = view
            .activity
            .checkpoint
            .as_ref()
            .map(|left| left.details.as_str());
        if left != Some(details(key).as_str()) {
            problems.push(format!(
                "its checkpoint was acknowledged, but it has {left:?}"
            ));
        }
    }
    if let Some(child) = child.filter(|child| child.has_outcome(OutcomeKind::Succeeded)) {
        let handed = requests
            .iter()
            .find_map(|request| request.delegated.child_result.as_deref());
        if handed != Some(format!("succeeded: {}", child_word(key)).as_str()) {
            problems.push(format!(
                "its child {} succeeded, but it received {handed:?}",
                child.identity.run_id
            ));
        }
    }
    Ok(problems)
}
