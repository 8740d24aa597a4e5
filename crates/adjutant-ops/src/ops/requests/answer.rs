//! Answering requests.

use crate::clock;
use crate::config::Home;
use crate::ops::answer_links::{AnswerLink, LinkAnswer};
use crate::ops::checks::check_size;
use crate::ops::requests::delegations::{Child, child_of};
use crate::ops::requests::receipts::request_of_receipt;
use crate::ops::requests::rules::grant_same;
use crate::ops::settings::Settings;
use crate::ops::workspaces::Workspaces;
use crate::ops::{Caller, OpError, Ops, lookup, render};
use crate::store::{
    Connection, Request, Store, StoreError, Topic, Tx, WakeUps, request_by_id, run_by_id,
};
use crate::view::{AnswerOne, AnswerRequests, Answered, ChangesView, DecisionWord, RunView};
use adjutant_core::policy::GrantTerms;
use adjutant_core::request::LinkName;
use adjutant_core::run::Retention;
use adjutant_core::{
    Action, Changes, Decision, Denied, Principal, RequestEvent, RequestState, RunId, Subject,
    chosen, limits,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Longest time of a grant, in seconds.
const GRANT_S_MAX: u64 = 30 * 24 * 60 * 60;
/// Maximum number of answers in one call.
const ANSWERS_MAX: usize = 100;

/// Answers requests.
#[derive(Debug, Clone)]
pub struct AnswerCall {
    store: Store,
    home: Arc<Home>,
    settings: Settings,
    workspaces: Workspaces,
}

impl AnswerCall {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            home: Arc::clone(&ops.home),
            settings: ops.settings.clone(),
            workspaces: Workspaces::of(ops),
        }
    }

    /// Answers requests. If one is refused, none is answered.
    ///
    /// # Errors
    /// A request is unknown, foreign, already settled, ambiguous or the caller's own.
    pub async fn answer(&self, caller: Caller, call: AnswerRequests) -> Result<Answered, OpError> {
        self.settle(caller, call, None).await
    }

    /// Answers the request of a link, in the name of its person.
    ///
    /// # Errors
    /// There is no such option, the answer is invalid, or the request is answered, withdrawn,
    /// expired, removed or another text.
    pub async fn answer_by_link(
        &self,
        link: &AnswerLink,
        answer: LinkAnswer,
    ) -> Result<(), OpError> {
        let Some(request) = self
            .store
            .read(|connection| request_by_id(connection, link.request))?
        else {
            return Err(Denied::not_found("question", &link.request.to_string()).into());
        };
        let answers = vec![link.answered(&request, answer, clock::steady())?];
        let caller = Caller {
            who: Principal::Person,
            key: None,
        };
        self.settle(caller, AnswerRequests { answers }, Some(link.name.clone()))
            .await
            .map(|_| ())
    }

    /// Like [`Self::answer`]. `via`: the person who answers with a link.
    async fn settle(
        &self,
        caller: Caller,
        call: AnswerRequests,
        via: Option<LinkName>,
    ) -> Result<Answered, OpError> {
        lookup::check(&caller.who, Action::Answer)?;
        let answers = self.parse_answers(&caller.who, call.answers, via).await?;
        let named: Vec<String> = answers
            .iter()
            .filter_map(|(_, given)| given.one.message_id.clone())
            .collect();
        let settlement = Settlement {
            answers,
            home: Arc::clone(&self.home),
            wake_ups: Arc::clone(self.store.wake_ups()),
            retention: self.settings.retention(),
        };
        let home = Arc::clone(&self.home);
        let (requests, runs) = caller
            .write_with_receipt(
                &self.store,
                move |connection, who| announce_requests(connection, who, &named),
                move |tx, who| settlement.commit(tx, who),
                settled_ids,
                move |tx, ids| settled_again(tx, &home, &ids),
            )
            .await?;
        Ok(Answered {
            requests: render::requests(&requests),
            runs: runs?,
        })
    }

    /// Parses the answers of a call.
    async fn parse_answers(
        &self,
        who: &Principal,
        all: Vec<AnswerOne>,
        via: Option<LinkName>,
    ) -> Result<Vec<(Option<String>, ParsedAnswer)>, OpError> {
        if all.is_empty() || all.len() > ANSWERS_MAX {
            return Err(Denied::invalid("answers", format!("give 1 to {ANSWERS_MAX}")).into());
        }
        let several = all.len() > 1;
        let mut answers = Vec::with_capacity(all.len());
        for one in all {
            let which = if several {
                one.message_id.clone().or_else(|| one.run.clone())
            } else {
                None
            };
            let given =
                self.parse_answer(who, one, via.clone())
                    .await
                    .map_err(|error| match error {
                        OpError::Store(why) => one_of(which.as_deref(), why).into(),
                        error => error,
                    })?;
            answers.push((which, given));
        }
        Ok(answers)
    }

    /// Parses one answer, outside the transaction.
    async fn parse_answer(
        &self,
        who: &Principal,
        one: AnswerOne,
        via: Option<LinkName>,
    ) -> Result<ParsedAnswer, OpError> {
        let decision = parse_decision(&one)?;
        let grant = requested_grant(&one)?;
        let child = child_of(
            &self.store,
            &self.settings,
            &self.workspaces,
            who,
            &one,
            &decision,
        )
        .await?;
        Ok(ParsedAnswer {
            decision,
            child,
            grant,
            one,
            via,
        })
    }
}

/// The answers of one call. All are accepted, or none.
struct Settlement {
    /// Each with what the caller calls its request, if there are several.
    answers: Vec<(Option<String>, ParsedAnswer)>,
    home: Arc<Home>,
    wake_ups: Arc<WakeUps>,
    retention: Retention,
}

impl Settlement {
    fn commit(self, tx: &mut Tx<'_>, who: &Principal) -> Result<Settled, StoreError> {
        let grants_any = self.answers.iter().any(|(_, given)| given.grant.is_some());
        if self.answers.len() > 1 || grants_any {
            tx.may_refuse_late()?;
        }
        let mut requests = Vec::with_capacity(self.answers.len());
        let mut grants = Vec::new();
        for (which, given) in self.answers {
            let terms = given.grant;
            let request = given
                .apply(tx, who, &self.wake_ups, &requests)
                .map_err(|why| one_of(which.as_deref(), why))?;
            tx.deliver_outcome(&request, self.retention)?;
            grants.extend(terms.map(|terms| (which, request.clone(), terms)));
            requests.push(request);
        }
        for (which, request, RequestedGrant { for_ms, uses_max }) in grants {
            let terms = GrantTerms {
                expires_at: for_ms.map(|ms| tx.steady().plus_ms(ms)),
                uses_max,
            };
            for same in
                grant_same(tx, who, &request, terms).map_err(|why| one_of(which.as_deref(), why))?
            {
                tx.deliver_outcome(&same, self.retention)?;
                requests.push(same);
            }
        }
        Ok(with_runs(tx, &self.home, requests))
    }
}

/// Announces the reads of the requests that a call names.
fn announce_requests(connection: &Connection, who: &Principal, named: &[String]) {
    for id in named {
        connection.announce(|connection| lookup::request(connection, who, Action::Answer, id));
    }
}

/// Returns the receipt of a call: the ids of the requests that it has answered.
fn settled_ids((requests, _): &Settled) -> Vec<String> {
    requests
        .iter()
        .map(|request| request.id.to_string())
        .collect()
}

/// Builds the reply of a repeated call from its receipt.
fn settled_again(tx: &Tx<'_>, home: &Home, ids: &[String]) -> Result<Settled, StoreError> {
    let requests = ids
        .iter()
        .map(|id| Ok(as_answered(request_of_receipt(tx, id)?)))
        .collect::<Result<Vec<_>, StoreError>>()?;
    Ok(with_runs(tx, home, requests))
}

/// A parsed answer, with the child run that it would start.
#[derive(Debug)]
struct ParsedAnswer {
    decision: Decision,
    child: Option<Child>,
    grant: Option<RequestedGrant>,
    one: AnswerOne,
    /// The person who answers with a link.
    via: Option<LinkName>,
}

/// The terms of a grant that is given with an approval.
#[derive(Debug, Clone, Copy)]
struct RequestedGrant {
    for_ms: Option<i64>,
    uses_max: Option<u64>,
}

/// Parses whether an answer gives a grant.
fn requested_grant(one: &AnswerOne) -> Result<Option<RequestedGrant>, Denied> {
    let AnswerOne {
        same,
        for_s,
        uses,
        decision,
        ..
    } = one;
    if !same && for_s.is_none() && uses.is_none() {
        return Ok(None);
    }
    if *decision != Some(DecisionWord::Approve) {
        return Err(Denied::invalid("same", "needs decision approve"));
    }
    if for_s.is_some_and(|seconds| !(1..=GRANT_S_MAX).contains(&seconds)) {
        return Err(Denied::invalid("for_s", format!("use 1 to {GRANT_S_MAX}")));
    }
    if *uses == Some(0) {
        return Err(Denied::invalid("uses", "at least 1"));
    }
    let for_ms = for_s.map(|seconds| {
        i64::try_from(seconds)
            .unwrap_or(i64::MAX)
            .saturating_mul(1000)
    });
    Ok(Some(RequestedGrant {
        for_ms,
        uses_max: *uses,
    }))
}

impl ParsedAnswer {
    /// Answers the request. `before`: requests that the same call has already answered.
    fn apply(
        self,
        tx: &mut Tx<'_>,
        who: &Principal,
        wake_ups: &WakeUps,
        before: &[Request],
    ) -> Result<Request, StoreError> {
        let Self {
            decision,
            child,
            grant: _,
            one,
            via,
        } = self;
        let request = named_request(tx.connection(), who, &one)?;
        check_answerable(&request, one.content_hash.as_deref(), before)?;
        // A late answer is refused as late before its content is checked.
        let decision = if request.state == RequestState::Pending {
            resolve_options(&request, decision)?
        } else {
            decision
        };
        if request.by_block {
            tx.may_refuse_late()?;
        }
        announce_view(tx.connection(), request.run);
        let given = match via {
            None => RequestEvent::Answer {
                by: who.clone(),
                decision: decision.clone(),
            },
            Some(name) => RequestEvent::AnswerByLink {
                name,
                decision: decision.clone(),
            },
        };
        Ok(match &request.subject {
            Subject::Delegation(_) => {
                tx.may_refuse_late()?;
                crate::ops::requests::delegations::decide(tx, &request, &decision, given, child)?
            }
            // An approval can be revoked until it is read, so only the run itself reads it.
            Subject::Question
                if wake_ups.has_subscriber(&Topic::Answer(request.run, request.id)) =>
            {
                as_answered(tx.answer_waiting_call(&request, given)?)
            }
            Subject::Question | Subject::Approval { .. } => tx.advance_request(&request, given)?,
        })
    }
}

/// Finds the request that an answer names: by its own id, or as the only one of a run.
fn named_request(
    connection: &Connection,
    who: &Principal,
    one: &AnswerOne,
) -> Result<Request, StoreError> {
    let run = |run: &str| lookup::run(connection, who, Action::Answer, run);
    match (&one.message_id, &one.run) {
        (Some(id), within) => {
            let request = lookup::request(connection, who, Action::Answer, id)?;
            if let Some(within) = within
                && run(within)?.id != request.run
            {
                return Err(Denied::not_found("question", id).into());
            }
            Ok(request)
        }
        (None, Some(of)) => lookup::only_request(connection, &run(of)?),
        (None, None) => Err(Denied::invalid("message_id", "name the question or the run").into()),
    }
}

/// Refuses a second answer in the same call, and one to other content than the caller has seen.
fn check_answerable(
    request: &Request,
    shown: Option<&str>,
    before: &[Request],
) -> Result<(), Denied> {
    if before.iter().any(|answered| answered.id == request.id) {
        return Err(Denied::invalid(
            "answers",
            format!(
                "{} is answered twice: give one answer per question",
                request.no
            ),
        ));
    }
    if shown.is_some_and(|shown| shown != render::content_hash(request)) {
        return Err(Denied::NotAsShown);
    }
    Ok(())
}

/// Adds the number of the refused answer, if there are several.
fn one_of(which: Option<&str>, error: StoreError) -> StoreError {
    match (error, which) {
        (StoreError::Denied(why), Some(which)) => Denied::one_of(which, why).into(),
        (error, _) => error,
    }
}

/// The answered requests, and their runs as the transaction leaves them. A failure to show the runs
/// undoes no answer.
type Settled = (Vec<Request>, Result<Vec<RunView>, StoreError>);

/// Announces the reads of [`with_runs`].
fn announce_view(connection: &Connection, run: RunId) {
    connection.announce(|connection| run_by_id(connection, run));
    render::announce_run(connection, run);
}

/// Adds the runs of answered requests. The transaction already has their rows; a later read would
/// fetch them again.
fn with_runs(tx: &Tx<'_>, home: &Home, requests: Vec<Request>) -> Settled {
    let concerned: BTreeMap<&str, RunId> = requests
        .iter()
        .map(|request| (request.run_name.as_str(), request.run))
        .collect();
    let view = |run| {
        run_by_id(tx.connection(), run)?
            .map(|run| render::run(tx.connection(), home, &run))
            .transpose()
    };
    let runs = concerned
        .into_values()
        .filter_map(|run| view(run).transpose())
        .collect();
    (requests, runs)
}

/// Returns a request as it was when answered, even if the answer was read since.
fn as_answered(request: Request) -> Request {
    let state = match request.state {
        RequestState::Retrieved { answer, .. } => RequestState::Answered(answer),
        state => state,
    };
    Request { state, ..request }
}

/// Replaces option numbers by the options.
fn resolve_options(request: &Request, decision: Decision) -> Result<Decision, Denied> {
    Ok(match decision {
        Decision::Text(text) => Decision::Text(chosen("answer", &request.options, &text)?),
        Decision::Approved {
            note: Some(note),
            changes,
        } => Decision::Approved {
            note: Some(chosen("reason", &request.options, &note)?),
            changes,
        },
        other @ (Decision::Approved { note: None, .. } | Decision::Denied { .. }) => other,
    })
}

/// Parses a decision.
fn parse_decision(one: &AnswerOne) -> Result<Decision, Denied> {
    check_size("answer", &one.answer, limits::TEXT_BYTES_MAX)?;
    let reason = one
        .reason
        .clone()
        .or_else(|| Some(one.answer.clone()))
        .filter(|text| !text.trim().is_empty());
    check_size(
        "reason",
        reason.as_deref().unwrap_or(""),
        limits::TEXT_BYTES_MAX,
    )?;
    let unchanged = one
        .changes
        .as_ref()
        .is_none_or(|changes| *changes == ChangesView::default());
    match one.decision {
        None if one.reason.is_some() => Err(Denied::invalid(
            "decision",
            "is missing: reason needs approve or deny",
        )),
        None | Some(DecisionWord::Deny) if !unchanged => {
            Err(Denied::invalid("changes", "need decision approve"))
        }
        None if one.answer.trim().is_empty() => {
            Err(Denied::invalid("answer", "is empty: give an answer"))
        }
        None => Ok(Decision::Text(one.answer.clone())),
        Some(DecisionWord::Deny) => Ok(Decision::Denied {
            reason: reason.unwrap_or_default(),
        }),
        Some(DecisionWord::Approve) => {
            let ChangesView {
                prompt,
                agent,
                cwd,
                priority,
            } = one.changes.clone().unwrap_or_default();
            let priority = match priority {
                None => None,
                Some(word) => Some(
                    word.known()
                        .ok_or_else(|| Denied::invalid("priority", "use P0, P1 or P2"))?,
                ),
            };
            Ok(Decision::Approved {
                note: reason,
                changes: Changes {
                    prompt,
                    agent,
                    directory: cwd,
                    priority,
                },
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(decision: Option<DecisionWord>, answer: &str) -> Result<Decision, Denied> {
        parse_decision(&AnswerOne {
            decision,
            answer: answer.to_owned(),
            ..AnswerOne::default()
        })
    }

    #[test]
    fn answer_without_a_decision_is_a_text_and_not_empty() {
        assert_eq!(decided(None, "blue"), Ok(Decision::Text("blue".to_owned())));
        assert!(decided(None, " ").is_err());
        let denied = decided(Some(DecisionWord::Deny), "too risky");
        let reason = "too risky".to_owned();
        assert_eq!(denied, Ok(Decision::Denied { reason }));
    }

    #[test]
    fn grant_needs_an_approval_and_terms_that_allow_something() {
        let grant = |decision, for_s, uses| {
            requested_grant(&AnswerOne {
                decision: Some(decision),
                for_s,
                uses,
                ..AnswerOne::default()
            })
            .map(|grant| grant.map(|terms| (terms.for_ms, terms.uses_max)))
        };
        let approve = DecisionWord::Approve;
        assert_eq!(grant(approve, None, None), Ok(None));
        assert_eq!(
            grant(approve, Some(60), Some(3)),
            Ok(Some((Some(60_000), Some(3))))
        );
        assert!(grant(DecisionWord::Deny, Some(60), None).is_err());
        assert!(grant(approve, Some(GRANT_S_MAX + 1), None).is_err());
        assert!(grant(approve, None, Some(0)).is_err());
    }
}
