//! The stored form of a request.

use super::request::{Group, Request};
use crate::store::StoreError;
use crate::store::db::{self, Connection, OptionalExtension, Row};
use crate::store::subject::{self, DecisionRow};
use adjutant_core::{
    Answer, AnsweredBy, AttemptNo, Principal, RequestId, RequestNo, RequestState, RunId,
    SteadyTime, Subject, Time,
};

/// The columns of a request. `$place` and `$size`: those of its group, `$clarification`: that of its first question.
macro_rules! columns {
    ($place:literal, $size:literal, $clarification:literal) => {
        concat!(
            "SELECT q.no, q.id, q.run, r.name, r.owner, q.question, q.context, q.options, q.fallback, q.blocking, q.patience_ms, q.status,
  q.answer, q.answered_by, q.asked_at, q.expires_at, q.answered_at, q.retrieved_at, q.ended_at, q.by_block,
  q.matter, q.verdict, q.changes, q.told, q.child, q.held, q.group_no, q.child_name, q.outcome, ",
            $place,
            ", ",
            $size,
            ", q.own_id, ",
            $clarification,
            ", q.waits_since, q.escalated"
        )
    };
}

pub(super) const COLUMNS: &str = columns!(
    "(SELECT count(*) FROM requests g WHERE g.group_no = q.group_no AND g.no <= q.no)",
    "(SELECT count(*) FROM requests g WHERE g.group_no = q.group_no)",
    "(SELECT f.clarification FROM requests f WHERE f.no = coalesce(q.group_no, q.no))"
);
/// For a request without a group. The queries of a group cost a server as much as the rest, even if they find nothing.
const COLUMNS_ALONE: &str = columns!("1", "1", "q.clarification");

pub(super) const FROM: &str = "FROM requests q JOIN runs r ON r.id = q.run";
// Explicit indexes, because the planner does not know that open requests are few while settled ones may be many.
pub(super) const FROM_OPEN_OF_RUN: &str =
    "FROM requests q INDEXED BY requests_pending CROSS JOIN runs r ON r.id = q.run";
pub(super) const FROM_OPEN: &str =
    "FROM requests q INDEXED BY requests_inbox CROSS JOIN runs r ON r.id = q.run";

pub(super) fn read(row: &Row<'_>) -> db::Result<Result<Request, StoreError>> {
    struct Raw {
        id: String,
        run: String,
        owner: String,
        options: String,
        status: String,
        answer: Option<String>,
        by: Option<String>,
        default: Option<String>,
        subject: Option<String>,
        verdict: Option<String>,
        changes: Option<String>,
        child: Option<(String, String)>,
        clarification: Option<String>,
    }
    let raw = Raw {
        id: row.get(1)?,
        run: row.get(2)?,
        owner: row.get(4)?,
        options: row.get(7)?,
        status: row.get(11)?,
        answer: row.get(12)?,
        by: row.get(13)?,
        default: row.get(8)?,
        subject: row.get(20)?,
        verdict: row.get(21)?,
        changes: row.get(22)?,
        child: row
            .get::<Option<String>>(24)?
            .zip(row.get::<Option<String>>(27)?),
        clarification: row.get(32)?,
    };
    let own_id = row.get(31)?;
    let no = RequestNo(row.get(0)?);
    let time = |index| row.get::<Option<i64>>(index).map(|ms| ms.map(Time));
    let (answered_at, retrieved_at, ended_at) = (time(16)?, time(17)?, time(18)?);
    let (run_name, question, context): (_, String, _) = (row.get(3)?, row.get(5)?, row.get(6)?);
    let (blocking, patience_ms, by_block) = (row.get(9)?, row.get(10)?, row.get(19)?);
    let outcome = row.get(28)?;
    let (delivered_to, held) = (row.get::<Option<u32>>(23)?.map(AttemptNo), row.get(25)?);
    let (place, size) = (row.get(29)?, row.get(30)?);
    let group = row.get::<Option<i64>>(26)?.map(|first| Group {
        first: RequestNo(first),
        place,
        size,
    });
    let (asked_at, expires_at) = (Time(row.get(14)?), SteadyTime(row.get(15)?));
    let (waits_since, escalated) = (
        row.get::<Option<i64>>(33)?.map(SteadyTime),
        row.get::<Option<String>>(34)?,
    );
    let decode = || {
        let answer = match (raw.answer, raw.by, answered_at) {
            (Some(answer), Some(by), Some(at)) => {
                let by = AnsweredBy::parse(&by)?;
                let decision = DecisionRow {
                    answer,
                    verdict: raw.verdict,
                    changes: raw.changes,
                }
                .decode()?;
                Some(Answer { decision, by, at })
            }
            _ => None,
        };
        let state = match (raw.status.as_str(), answer, retrieved_at, ended_at) {
            ("pending", None, None, None) => RequestState::Pending,
            ("answered", Some(answer), None, None) => RequestState::Answered(answer),
            ("retrieved", Some(answer), Some(at), None) => RequestState::Retrieved { answer, at },
            ("expired", None, None, Some(at)) => RequestState::Expired { at },
            ("withdrawn", None, None, Some(at)) => RequestState::Withdrawn { at },
            _ => return None,
        };
        let subject = subject::read(&question, raw.subject.as_deref())?;
        // Versions before 0.2 also stored a default for approvals, which is ignored.
        let default = raw.default.filter(|_| subject == Subject::Question);
        let clarification = match raw.clarification {
            None => None,
            Some(written) => Some(subject::read_clarification(&written)?),
        };
        let child = match raw.child {
            None => None,
            Some((child, name)) => Some((RunId::parse(&child).ok()?, name)),
        };
        Some(Request {
            id: RequestId::parse(&raw.id).ok()?,
            no,
            run: RunId::parse(&raw.run).ok()?,
            run_name,
            owner: Principal::parse(&raw.owner)?,
            subject,
            question,
            own_id,
            context,
            clarification,
            options: serde_json::from_str(&raw.options).ok()?,
            default,
            blocking,
            by_block,
            group,
            delivered_to,
            child,
            outcome,
            held,
            patience_ms,
            state,
            asked_at,
            expires_at,
            waits_since,
            escalated: match escalated {
                None => Vec::new(),
                Some(written) => read_escalated(&written)?,
            },
        })
    };
    Ok(decode().ok_or_else(|| StoreError::Corrupt(format!("request {no}"))))
}

/// Serializes the people to whom a request was escalated.
pub(super) fn write_escalated(people: &[(String, Time)]) -> Result<String, serde_json::Error> {
    serde_json::to_string(
        &people
            .iter()
            .map(|(name, at)| (name, at.0))
            .collect::<Vec<_>>(),
    )
}

pub(super) fn read_escalated(written: &str) -> Option<Vec<(String, Time)>> {
    let people: Vec<(String, i64)> = serde_json::from_str(written).ok()?;
    Some(
        people
            .into_iter()
            .map(|(name, at)| (name, Time(at)))
            .collect(),
    )
}

pub(super) fn one(
    connection: &Connection,
    condition: &str,
    value: &dyn db::ToValue,
) -> Result<Option<Request>, StoreError> {
    let find = |columns: &str| -> Result<Option<Request>, StoreError> {
        connection
            .prepare_cached(&format!("{columns} {FROM} WHERE {condition}"))?
            .query_row([value], read)
            .optional()?
            .transpose()
    };
    match find(COLUMNS_ALONE)? {
        Some(request) if request.group.is_some() => find(COLUMNS),
        found => Ok(found),
    }
}
