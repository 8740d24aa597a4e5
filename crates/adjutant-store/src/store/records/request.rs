//! One request, with the columns that it is read from.

use crate::store::db::{self, Columns, row};
use crate::store::subject::{self, DecisionRow};
use adjutant_core::request::RequestTerms;
use adjutant_core::signal::Clarification;
use adjutant_core::{
    Answer, AnsweredBy, AttemptNo, Principal, RequestId, RequestNo, RequestState, RunId,
    SteadyTime, Subject, Time,
};

row! {
    /// One stored request.
    #[derive(Debug, Clone)]
    pub struct Request as q, named "request Q{}" {
        pub no: RequestNo,
        pub id: RequestId,
        pub run: RunId,
        pub run_name: String = "r.name",
        /// The owner of the run, who may answer.
        pub owner: Principal = "r.owner",
        /// The question, the action, or the task.
        pub question: String [AskedRow] as AskedRow::decode {
            pub subject: Subject,
        },
        /// The run's own name for the question.
        pub own_id: Option<String>,
        pub context: Option<String>,
        /// The fields that the run stated with a group of questions.
        pub clarification: Option<Clarification> [ClarifiedRow] as ClarifiedRow::decode,
        pub options: Vec<String> as options,
        /// For a question: the answer if none arrives before the deadline.
        pub default: Option<String> = "q.fallback",
        pub blocking: bool,
        /// The request was made by a signal block in the run's output, so no call of the run waits
        /// for the answer.
        pub by_block: bool,
        pub group: Option<Group> [GroupRow] as GroupRow::decode,
        /// The attempt that received the answer with its prompt.
        pub delivered_to: Option<AttemptNo> = "q.told",
        /// The run that a delegation started, with its name.
        pub child: Option<(RunId, String)> [ChildRow] as ChildRow::decode,
        /// How the child run ended, as text.
        pub outcome: Option<String>,
        /// Whether the asking run is held until the child run ends.
        pub held: bool,
        pub patience_ms: i64,
        pub state: RequestState [StatusRow] as StatusRow::decode,
        pub asked_at: Time,
        pub expires_at: SteadyTime,
        /// The people to whom it was escalated, and when.
        pub escalated: Vec<(String, Time)> as escalated,
    }
}

row! {
    /// The columns of what was asked.
    struct AskedRow as q {
        question: String,
        matter: Option<String>,
    }
}

impl AskedRow {
    fn decode(self) -> db::Result<(String, Subject)> {
        let Self { question, matter } = self;
        let subject = subject::read(&question, matter.as_deref());
        let subject = subject.ok_or_else(|| db::Error::unreadable("a subject"))?;
        Ok((question, subject))
    }
}

row! {
    /// The clarification of the first question of the group.
    pub(in crate::store) struct ClarifiedRow {
        written: Option<String> =
            "(SELECT f.clarification FROM requests f WHERE f.no = coalesce(q.group_no, q.no))",
    }
}

impl ClarifiedRow {
    fn decode(self) -> db::Result<Option<Clarification>> {
        let read = |written: String| {
            subject::read_clarification(&written)
                .ok_or_else(|| db::Error::unreadable("a clarification"))
        };
        self.written.map(read).transpose()
    }
}

row! {
    /// The columns of a question's position in its group.
    pub(in crate::store) struct GroupRow as q {
        group_no: Option<RequestNo>,
        place: u32 = "(SELECT count(*) FROM requests g WHERE g.group_no = q.group_no AND g.no <= q.no)",
        size: u32 = "(SELECT count(*) FROM requests g WHERE g.group_no = q.group_no)",
    }
}

impl GroupRow {
    fn decode(self) -> db::Result<Option<Group>> {
        let Self {
            group_no,
            place,
            size,
        } = self;
        Ok(group_no.map(|first| Group { first, place, size }))
    }
}

row! {
    /// The columns of the run that a delegation started.
    struct ChildRow as q {
        child: Option<RunId>,
        child_name: Option<String>,
    }
}

impl ChildRow {
    fn decode(self) -> db::Result<Option<(RunId, String)>> {
        Ok(self.child.zip(self.child_name))
    }
}

row! {
    /// The columns of a request's state.
    struct StatusRow as q {
        status: String,
        answer: Option<String>,
        answered_by: Option<AnsweredBy>,
        answered_at: Option<Time>,
        retrieved_at: Option<Time>,
        ended_at: Option<Time>,
        verdict: Option<String>,
        changes: Option<String>,
    }
}

impl StatusRow {
    fn decode(self) -> db::Result<RequestState> {
        let status = self.status.clone();
        self.state()
            .ok_or_else(|| db::Error::unreadable(format!("state {status}")))
    }

    fn state(self) -> Option<RequestState> {
        let Self {
            status,
            answer,
            answered_by,
            answered_at,
            retrieved_at,
            ended_at,
            verdict,
            changes,
        } = self;
        let answer = match (answer, answered_by, answered_at) {
            (Some(answer), Some(by), Some(at)) => {
                let decision = DecisionRow {
                    answer,
                    verdict,
                    changes,
                }
                .decode()?;
                Some(Answer { decision, by, at })
            }
            _ => None,
        };
        Some(match (status.as_str(), answer, retrieved_at, ended_at) {
            ("pending", None, None, None) => RequestState::Pending,
            ("answered", Some(answer), None, None) => RequestState::Answered(answer),
            ("retrieved", Some(answer), Some(at), None) => RequestState::Retrieved { answer, at },
            ("expired", None, None, Some(at)) => RequestState::Expired { at },
            ("withdrawn", None, None, Some(at)) => RequestState::Withdrawn { at },
            _ => return None,
        })
    }
}

fn options(columns: &mut Columns<'_>) -> db::Result<Vec<String>> {
    let written: String = columns.value()?;
    serde_json::from_str(&written).map_err(|error| db::Error::unreadable_json("options", error))
}

/// Reads the people to whom a request was escalated.
pub(in crate::store) fn escalated(columns: &mut Columns<'_>) -> db::Result<Vec<(String, Time)>> {
    let Some(written) = columns.value::<Option<String>>()? else {
        return Ok(Vec::new());
    };
    let people: Vec<(String, i64)> = serde_json::from_str(&written)
        .map_err(|error| db::Error::unreadable_json("to whom it was escalated", error))?;
    Ok(people
        .into_iter()
        .map(|(name, at)| (name, Time(at)))
        .collect())
}

/// The position of a question in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// The number of the first question, which identifies the group.
    pub first: RequestNo,
    /// From 1.
    pub place: u32,
    pub size: u32,
}

impl Request {
    pub(in crate::store) fn terms(&self) -> RequestTerms {
        RequestTerms {
            asker: self.run,
            kind: self.subject.kind(),
            expires_at: self.expires_at,
            default: self.default.clone(),
            is_delivered: self.delivered_to.is_some(),
            held: self.held,
        }
    }

    /// Returns whether the run can continue with the outcome.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state.is_settled() && !self.held
    }
}
