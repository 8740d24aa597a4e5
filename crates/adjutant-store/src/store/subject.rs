//! Serialized forms of a request's subject, and of the changes to a delegation.

use adjutant_core::policy::{Operation, StatedPath};
use adjutant_core::signal::{Clarification, Delegation, Independence, Priority};
use adjutant_core::{Budget, Changes, Decision, Subject};
use serde::{Deserialize, Serialize};

/// The serialized subject of a request. A question has none; its text is in the columns.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum SubjectRow {
    Approval {
        preview: Option<String>,
        risk: Option<String>,
        operation: Box<OperationRow>,
    },
    Delegation {
        agent: Option<String>,
        directory: Option<String>,
        reason: Option<String>,
        independence: String,
        priority: String,
        context_required: Option<String>,
        coordination: Option<String>,
        estimate: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<String>,
    },
}

/// A serialized operation.
#[derive(Serialize, Deserialize)]
struct OperationRow {
    tool: String,
    command: Option<String>,
    paths: Vec<(String, Option<String>)>,
    urls: Vec<String>,
    directory: Option<(String, Option<String>)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    possible_directories: Vec<String>,
    run_directory: Option<String>,
    is_complete: bool,
    digest: Option<String>,
}

impl From<Operation> for OperationRow {
    fn from(operation: Operation) -> Self {
        let Operation {
            tool,
            command,
            paths,
            urls,
            directory,
            possible_directories,
            run_directory,
            is_complete,
            digest,
        } = operation;
        let pair = |StatedPath { stated, real }: StatedPath| (stated, real);
        let (paths, directory) = (paths.into_iter().map(pair).collect(), directory.map(pair));
        Self {
            tool,
            command,
            paths,
            urls,
            directory,
            possible_directories,
            run_directory,
            is_complete,
            digest,
        }
    }
}

impl From<OperationRow> for Operation {
    fn from(row: OperationRow) -> Self {
        let OperationRow {
            tool,
            command,
            paths,
            urls,
            directory,
            possible_directories,
            run_directory,
            is_complete,
            digest,
        } = row;
        let path = |(stated, real)| StatedPath { stated, real };
        let (paths, directory) = (paths.into_iter().map(path).collect(), directory.map(path));
        Self {
            tool,
            command,
            paths,
            urls,
            directory,
            possible_directories,
            run_directory,
            is_complete,
            digest,
        }
    }
}

/// Serializes a subject. `None` for a question.
pub(super) fn write(subject: &Subject) -> Result<Option<String>, serde_json::Error> {
    let row = match subject.clone() {
        Subject::Question => return Ok(None),
        Subject::Approval {
            preview,
            risk,
            operation,
        } => SubjectRow::Approval {
            preview,
            risk,
            operation: Box::new(OperationRow::from(*operation)),
        },
        Subject::Delegation(delegation) => {
            let Delegation {
                task: _,
                agent,
                directory,
                reason,
                independence,
                priority,
                context_required,
                coordination,
                estimate,
                budget,
            } = delegation;
            let budget = (!budget.is_empty()).then(|| budget.to_string());
            let (independence, priority) =
                (independence.word().to_owned(), priority.word().to_owned());
            SubjectRow::Delegation {
                agent,
                directory,
                reason,
                independence,
                priority,
                context_required,
                coordination,
                estimate,
                budget,
            }
        }
    };
    serde_json::to_string(&row).map(Some)
}

/// Parses a subject. `text` is the request's question, action or task.
pub(super) fn read(text: &str, written: Option<&str>) -> Option<Subject> {
    let Some(written) = written else {
        return Some(Subject::Question);
    };
    Some(match serde_json::from_str(written).ok()? {
        SubjectRow::Approval {
            preview,
            risk,
            operation,
        } => Subject::Approval {
            preview,
            risk,
            operation: Box::new(Operation::from(*operation)),
        },
        SubjectRow::Delegation {
            agent,
            directory,
            reason,
            independence,
            priority,
            context_required,
            coordination,
            estimate,
            budget,
        } => {
            let (independence, priority) = (
                Independence::from_word(&independence)?,
                Priority::from_word(&priority)?,
            );
            let task = text.to_owned();
            let budget =
                budget.map_or(Some(Budget::default()), |text| Budget::parse(&text).ok())?;
            Subject::Delegation(Delegation {
                task,
                agent,
                directory,
                reason,
                independence,
                priority,
                context_required,
                coordination,
                estimate,
                budget,
            })
        }
    })
}

/// A serialized clarification.
#[derive(Serialize, Deserialize)]
struct ClarificationRow {
    reason: Option<String>,
    blocked_at: Option<String>,
    can_resume_with: Option<String>,
    current_state: Option<String>,
}

/// Serializes a clarification.
pub(super) fn write_clarification(
    clarification: &Clarification,
) -> Result<String, serde_json::Error> {
    let Clarification {
        reason,
        blocked_at,
        resume_with,
        state,
    } = clarification.clone();
    serde_json::to_string(&ClarificationRow {
        reason,
        blocked_at,
        can_resume_with: resume_with,
        current_state: state,
    })
}

/// Parses a clarification.
pub(super) fn read_clarification(written: &str) -> Option<Clarification> {
    let ClarificationRow {
        reason,
        blocked_at,
        can_resume_with,
        current_state,
    } = serde_json::from_str(written).ok()?;
    Some(Clarification {
        reason,
        blocked_at,
        resume_with: can_resume_with,
        state: current_state,
    })
}

/// The serialized changes to a delegation.
#[derive(Serialize, Deserialize)]
struct ChangesRow {
    prompt: Option<String>,
    agent: Option<String>,
    directory: Option<String>,
    priority: Option<String>,
}

/// A decision as the columns `answer`, `verdict` and `changes`.
#[derive(Debug, Default)]
pub(super) struct DecisionRow {
    pub answer: String,
    pub verdict: Option<String>,
    pub changes: Option<String>,
}

impl DecisionRow {
    pub(super) fn of(decision: &Decision) -> Result<Self, serde_json::Error> {
        let verdict = decision.kind().map(|kind| kind.word().to_owned());
        Ok(match decision.clone() {
            Decision::Text(answer) | Decision::Denied { reason: answer } => Self {
                answer,
                verdict,
                changes: None,
            },
            Decision::Approved { note, changes } => {
                let Changes {
                    prompt,
                    agent,
                    directory,
                    priority,
                } = &changes;
                let row = ChangesRow {
                    prompt: prompt.clone(),
                    agent: agent.clone(),
                    directory: directory.clone(),
                    priority: priority.map(|priority| priority.word().to_owned()),
                };
                let changes = if changes.is_empty() {
                    None
                } else {
                    Some(serde_json::to_string(&row)?)
                };
                Self {
                    answer: note.unwrap_or_default(),
                    verdict,
                    changes,
                }
            }
        })
    }

    pub(super) fn decode(self) -> Option<Decision> {
        let Self {
            answer,
            verdict,
            changes,
        } = self;
        Some(match verdict.as_deref() {
            None => Decision::Text(answer),
            Some("denied") => Decision::Denied { reason: answer },
            Some("approved") => {
                let changes = match changes {
                    None => Changes::default(),
                    Some(text) => {
                        let ChangesRow {
                            prompt,
                            agent,
                            directory,
                            priority,
                        } = serde_json::from_str(&text).ok()?;
                        let priority = match priority {
                            None => None,
                            Some(word) => Some(Priority::from_word(&word)?),
                        };
                        Changes {
                            prompt,
                            agent,
                            directory,
                            priority,
                        }
                    }
                };
                Decision::Approved {
                    note: Some(answer).filter(|note| !note.is_empty()),
                    changes,
                }
            }
            Some(_) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_and_decision_round_trips() {
        let delegation = Delegation {
            task: "Refactor".to_owned(),
            agent: Some("echo".to_owned()),
            directory: None,
            reason: Some("large".to_owned()),
            independence: Independence::Optional,
            priority: Priority::P0,
            context_required: None,
            coordination: Some("apart".to_owned()),
            estimate: None,
            budget: Budget::parse("cost=1.5").expect("a budget"),
        };
        let path = |real: Option<&str>| StatedPath {
            stated: "a".to_owned(),
            real: real.map(str::to_owned),
        };
        let operation = Operation {
            tool: "Bash".to_owned(),
            command: Some("ls".to_owned()),
            paths: vec![path(None), path(Some("/a"))],
            urls: vec!["https://x.org".to_owned()],
            directory: Some(path(Some("/b"))),
            possible_directories: vec!["/c".to_owned()],
            run_directory: Some("/w".to_owned()),
            is_complete: true,
            digest: Some("0f".to_owned()),
        };
        let approval = Subject::Approval {
            preview: Some("- a\n+ b".to_owned()),
            risk: None,
            operation: Box::new(operation),
        };
        for subject in [Subject::Question, approval, Subject::Delegation(delegation)] {
            let written = write(&subject).expect("it can be serialized");
            assert_eq!(read("Refactor", written.as_deref()), Some(subject));
        }
        let clarification = Clarification {
            reason: Some("why".to_owned()),
            state: Some("a\nb".to_owned()),
            ..Clarification::default()
        };
        assert_eq!(
            read_clarification(&write_clarification(&clarification).expect("it can be serialized")),
            Some(clarification)
        );
        let changes = Changes {
            prompt: Some("other".to_owned()),
            priority: Some(Priority::P2),
            ..Changes::default()
        };
        let all = [
            Decision::Text(String::new()),
            Decision::approved(),
            Decision::Approved {
                note: Some("once".to_owned()),
                changes,
            },
            Decision::Denied {
                reason: "no".to_owned(),
            },
        ];
        for decision in all {
            assert_eq!(
                DecisionRow::of(&decision)
                    .expect("it can be serialized")
                    .decode(),
                Some(decision)
            );
        }
    }
}
