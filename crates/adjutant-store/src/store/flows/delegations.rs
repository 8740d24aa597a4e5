//! Delegations: starting the child run, and informing the requester of its end.

use crate::store::db::params;
use crate::store::events::first_line;
use crate::store::handover::{message_id, settled_text};
use crate::store::requests::request_by_child;
use crate::store::{NewRun, Request, Run, StoreError, Topic, Tx, append_event, report_of};
use adjutant_core::cascade::Step;
use adjutant_core::run::RunEffect;
use adjutant_core::signal::Independence;
use adjutant_core::{EventKind, Outcome, Principal, RunId, RunState, Subject, shorten};

/// Maximum size of a child's result as its requester receives it, in bytes. The child's log has all
/// of it.
const RESULT_BYTES_MAX: usize = 16 * 1024;

impl Tx<'_> {
    /// Records that a run will be held by its delegation. Called before the request is settled,
    /// because a stopped run would otherwise resume at once.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn hold(&mut self, run: RunId) -> Result<(), StoreError> {
        self.prepare(
            "UPDATE runs SET holding = holding + 1, active_ms = active_ms + larger(0, ?2 - coalesce(active_since, ?2)), active_since = NULL WHERE id = ?1",
        )?
        .run(params![run.to_string(), self.steady().0])?;
        Ok(())
    }

    /// Starts the child run of an approved delegation. `held`: the requester waits for it (see
    /// [`Tx::hold`]). Returns the updated request.
    ///
    /// # Errors
    /// The new run is rejected.
    pub fn start_delegated(
        &mut self,
        request: &Request,
        new: &NewRun,
        held: bool,
    ) -> Result<Request, StoreError> {
        let child = self.dispatch(new)?;
        self.prepare("UPDATE requests SET child = ?2, child_name = ?3, held = ?4 WHERE id = ?1")?
            .run(params![
                request.id.to_string(),
                child.id.to_string(),
                child.name,
                held
            ])?;
        Ok(Request {
            child: Some((child.id, child.name)),
            held,
            ..request.clone()
        })
    }

    /// Informs the requester of a delegated run of its end. What follows for the requester is
    /// named.
    pub(super) fn inform_requester(&mut self, child: &Run) -> Result<(), StoreError> {
        let Some(request) = request_by_child(self.connection(), child.id)? else {
            return Ok(());
        };
        let RunState::Finished(outcome) = child.state else {
            return Ok(());
        };
        let (report, _) = report_of(self.connection(), child.id)?;
        let details = report.map(|report| report.details());
        let last = child
            .summary
            .as_deref()
            .or(child.reconstructed.as_deref())
            .or(child.result.as_deref());
        let result = result_text(outcome, [last, details.as_deref()].into_iter().flatten());
        self.prepare("UPDATE requests SET outcome = ?2, held = 0 WHERE id = ?1")?
            .run(params![request.id.to_string(), result])?;
        let text = format!("{} {}: {}", request.no, child.name, first_line(&result));
        let by = Principal::Run(child.id).to_string();
        let seq = append_event(
            self,
            EventKind::DelegationEnded,
            request.run,
            &request.owner.to_string(),
            Some(request.id),
            &by,
            &text,
        )?;
        self.touch(request.run, seq)?;
        self.notify(Topic::Request(request.id));
        self.notify(Topic::Answer(request.run, request.id));
        let was_held = request.held;
        let request = Request {
            held: false,
            outcome: Some(result),
            ..request
        };
        if was_held {
            return self.end_hold(&request);
        }
        let requester = self.run(request.run)?;
        let goes_on = matches!(&request.subject, Subject::Delegation(delegation) if delegation.independence == Independence::Parallel);
        if goes_on && !requester.state.is_finished() {
            self.send_message(
                &requester,
                &Principal::Run(child.id),
                message_id(self.now()),
                &settled_text(&request),
            )?;
        }
        Ok(())
    }

    /// Ends the hold of a run that waited for the child of its request, and names what follows.
    fn end_hold(&mut self, request: &Request) -> Result<(), StoreError> {
        let run = request.run;
        self.prepare(
            "UPDATE runs SET holding = holding - 1,
             active_since = CASE WHEN state IN ('running', 'stopping') AND blocking_pending = 0 AND holding = 1 THEN ?2 END WHERE id = ?1",
        )?
        .run(params![run.to_string(), self.steady().0])?;
        self.notify(Topic::Queue);
        let effect = RunEffect::CheckLimits;
        self.then(Step::Effect { run, effect });
        let request = request.id;
        self.then(Step::Deliver { request });
        let effect = RunEffect::ResumeIfSettled { settled: true };
        self.then(Step::Effect { run, effect });
        Ok(())
    }
}

/// Returns the result of a child as its requester receives it: its outcome, and what it has said.
fn result_text<'a>(outcome: Outcome, said: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<&str> = said
        .map(str::trim)
        .filter(|words| !words.is_empty())
        .collect();
    if words.is_empty() {
        return outcome.to_string();
    }
    let words = words.join("\n");
    let kept = shorten::head(&words, RESULT_BYTES_MAX);
    let more = words.len() - kept.len();
    if more == 0 {
        format!("{outcome}: {kept}")
    } else {
        format!("{outcome}: {kept}… ({more} more bytes in its log)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_result_of_a_child_is_cut_with_a_mark() {
        let said = |all: &[&str]| result_text(Outcome::Succeeded, all.iter().copied());
        assert_eq!(said(&[" ", ""]), "succeeded");
        assert_eq!(said(&["painted", " blue\n"]), "succeeded: painted\nblue");
        let long = "x".repeat(RESULT_BYTES_MAX + 5);
        let cut = said(&[&long]);
        assert!(
            cut.ends_with("x… (5 more bytes in its log)"),
            "{}",
            cut.len()
        );
    }
}
