//! Resolves runs and requests that a caller names. The caller cannot distinguish foreign ones from
//! unknown ones.

use crate::clock::rfc3339;
use crate::store::{
    Connection, Request, Run, StoreError, era_that_lost, eras, newest_run_names, request_by_id,
    request_by_no, requests_of, run_by_id, run_by_ref,
};
use adjutant_core::name::misspelled_run;
use adjutant_core::principal::{Verdict, may};
use adjutant_core::{Action, Denied, Principal, Relation, RequestId, RequestNo, RunId, shorten};

/// How many of the newest names are compared with one that does not exist.
const NAMES_COMPARED_MAX: i64 = 1000;

/// Refuses an action that the principal may never do.
pub(super) fn check(who: &Principal, action: Action) -> Result<(), Denied> {
    // If an action is not allowed with the closest relation, it is not allowed for any object.
    let best = if matches!(who, Principal::Run(_)) {
        Relation::Itself
    } else {
        Relation::Owner
    };
    match may(who, action, best) {
        Verdict::NotAllowed => Err(Denied::NotAllowed {
            who: phrase(who),
            action: action.phrase(),
        }),
        Verdict::Yes | Verdict::NotFound => Ok(()),
    }
}

fn phrase(who: &Principal) -> &'static str {
    match who {
        Principal::Person => "a person",
        Principal::Client(_) => "a client",
        Principal::Run(_) => "a run",
    }
}

fn relation(who: &Principal, run: RunId, owner: &Principal) -> Relation {
    match who {
        Principal::Run(id) if *id == run => Relation::Itself,
        Principal::Client(_) if owner == who => Relation::Owner,
        Principal::Person | Principal::Client(_) | Principal::Run(_) => Relation::Foreign,
    }
}

/// Resolves a run for an action; a worker may leave `given` empty to mean itself.
pub(super) fn run(
    connection: &Connection,
    who: &Principal,
    action: Action,
    given: &str,
) -> Result<Run, StoreError> {
    check(who, action)?;
    let run = match who {
        Principal::Person => named_run(connection, given, None)?,
        Principal::Client(_) => named_run(connection, given, Some(who))?,
        Principal::Run(id) => {
            let itself =
                run_by_id(connection, *id)?.ok_or_else(|| Denied::not_found("run", given))?;
            if given.is_empty() || given == itself.id.to_string() || given == itself.name {
                itself
            } else {
                // Besides itself, a run sees only its children.
                let not_found = || StoreError::from(Denied::not_found("run", given));
                let found =
                    StoreError::none_if_denied(run_by_ref(connection, given, Some(&itself.owner)))?;
                found
                    .filter(|run| run.parent == Some(itself.id))
                    .ok_or_else(not_found)?
            }
        }
    };
    let relation = match who {
        Principal::Run(id) if run.parent == Some(*id) => Relation::Child,
        who => relation(who, run.id, &run.owner),
    };
    match may(who, action, relation) {
        Verdict::Yes => Ok(run),
        Verdict::NotAllowed => Err(Denied::NotAllowed {
            who: phrase(who),
            action: action.phrase(),
        }
        .into()),
        Verdict::NotFound => Err(Denied::not_found("run", given).into()),
    }
}

/// Finds a run among those of `owner`, or among all. If there is none, the refusal names a run with
/// a similar name.
fn named_run(
    connection: &Connection,
    given: &str,
    owner: Option<&Principal>,
) -> Result<Run, StoreError> {
    let refused = match run_by_ref(connection, given, owner) {
        Err(refused @ StoreError::Denied(Denied::NotFound { .. })) => refused,
        found => return found,
    };
    let names = newest_run_names(connection, owner, NAMES_COMPARED_MAX)?;
    Err(misspelled_run(given, &names)
        .map_or(refused, |meant| Denied::misspelled(given, meant).into()))
}

/// Resolves a request for an action, by id or short number.
pub(super) fn request(
    connection: &Connection,
    who: &Principal,
    action: Action,
    given: &str,
) -> Result<Request, StoreError> {
    check(who, action)?;
    let not_found = || StoreError::from(Denied::not_found("question", given));
    let request = if let Ok(id) = RequestId::parse(given) {
        request_by_id(connection, id)?
    } else if let Ok(no) = RequestNo::parse(given) {
        let found = request_by_no(connection, no)?;
        if found.is_none()
            && let Some(era) = era_that_lost(&eras(connection)?, "requests", no.0)
        {
            return Err(Denied::Lost {
                what: "question",
                given: no.to_string(),
                at: rfc3339(era.began_at),
            }
            .into());
        }
        found
    } else {
        None
    };
    let request = request.ok_or_else(not_found)?;
    match may(who, action, relation(who, request.run, &request.owner)) {
        Verdict::Yes => Ok(request),
        Verdict::NotAllowed => Err(Denied::NotAllowed {
            who: phrase(who),
            action: action.phrase(),
        }
        .into()),
        Verdict::NotFound => Err(not_found()),
    }
}

/// Returns the only open request of a run.
pub(super) fn only_request(connection: &Connection, run: &Run) -> Result<Request, StoreError> {
    let mut open = requests_of(connection, run.id, false, 6)?;
    match open.len() {
        0 if run.state.is_finished() => {
            let adjutant_core::RunState::Finished(outcome) = run.state else {
                return Err(Denied::NoOpenRequest {
                    run: run.name.clone(),
                }
                .into());
            };
            Err(Denied::RunFinished {
                run: run.name.clone(),
                outcome,
            }
            .into())
        }
        0 => Err(Denied::NoOpenRequest {
            run: run.name.clone(),
        }
        .into()),
        1 => Ok(open.remove(0)),
        _ => {
            let list: Vec<_> = open
                .iter()
                .map(|request| {
                    format!(
                        "{} ({})",
                        request.no,
                        request
                            .subject
                            .line(&shorten::to_chars(&request.question, 60))
                    )
                })
                .collect();
            Err(Denied::Ambiguous {
                given: run.name.clone(),
                candidates: list.join(", "),
            }
            .into())
        }
    }
}
