//! Decisions about requests, and which kinds of requests they are valid for.

use crate::signal::Priority;
use crate::{Denied, RequestKind, shorten, words};

/// The decision about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The answer to a question.
    Text(String),
    /// An approval or a delegation is approved.
    Approved {
        /// A note, for instance the chosen option.
        note: Option<String>,
        /// Changes to the request; of a delegation only.
        changes: Changes,
    },
    /// An approval or a delegation is denied.
    Denied { reason: String },
}

/// Maximum number of options that a refusal lists, and of characters of each.
const OPTIONS_NAMED_MAX: usize = 10;
const OPTION_CHARS_MAX: usize = 60;

/// Resolves an answer to a request with options: the option with this text or this number, or the
/// text itself. If all options are numbers, another number is also taken as text, unless it could
/// be meant as the number of an option.
///
/// # Errors
/// The answer is a number without an option, and the options are not all numbers; or it has two
/// meanings.
pub fn chosen(field: &'static str, options: &[String], given: &str) -> Result<String, Denied> {
    let word = given.trim();
    if options.is_empty() {
        return Ok(given.to_owned());
    }
    if options.iter().any(|option| option == word) {
        return Ok(word.to_owned());
    }
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    if !is_number(word) {
        return Ok(given.to_owned());
    }
    let all_numbers = options.iter().all(|option| is_number(option.trim()));
    let by_number = word
        .parse::<usize>()
        .ok()
        .and_then(|number| options.get(number.checked_sub(1)?));
    // An answer is final, so what it means is not guessed.
    match by_number {
        Some(option) if all_numbers => {
            let option = shorten::to_chars(option, OPTION_CHARS_MAX);
            let problem = format!(
                "{word} is not one of the options, but the number of option {option}: answer {option}, or in words (\"make it {word}\")"
            );
            return Err(Denied::invalid(field, problem));
        }
        None if all_numbers => return Ok(word.to_owned()),
        _ => {}
    }
    by_number.cloned().ok_or_else(|| {
        let named = options.iter().zip(1..).take(OPTIONS_NAMED_MAX);
        let named: Vec<String> = named
            .map(|(option, number)| {
                format!("{number}) {}", shorten::to_chars(option, OPTION_CHARS_MAX))
            })
            .collect();
        let more = if options.len() > OPTIONS_NAMED_MAX {
            ", …"
        } else {
            ""
        };
        let number = shorten::to_chars(word, OPTION_CHARS_MAX);
        Denied::invalid(
            field,
            format!(
                "no option {number}; the options are {}{more}; answer in words for anything else",
                named.join(", ")
            ),
        )
    })
}

/// Changes of the approver to a delegated task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    pub prompt: Option<String>,
    pub agent: Option<String>,
    pub directory: Option<String>,
    pub priority: Option<Priority>,
}

impl Changes {
    /// Returns whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A [`Decision`] about an approval or a delegation, without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DecisionKind {
    Approved,
    Denied,
}

words!(DecisionKind { Approved = "approved", Denied = "denied" });

impl Decision {
    /// Returns an approval without a note and changes.
    #[must_use]
    pub fn approved() -> Self {
        Self::Approved {
            note: None,
            changes: Changes::default(),
        }
    }

    /// Returns the decision as one text for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Approved {
                note: Some(note), ..
            } => format!("approved: {note}"),
            Self::Approved { note: None, .. } => "approved".to_owned(),
            Self::Denied { reason } => format!("denied: {reason}"),
        }
    }

    /// Returns the decision without its data, or `None` for an answer.
    #[must_use]
    pub fn kind(&self) -> Option<DecisionKind> {
        match self {
            Self::Text(_) => None,
            Self::Approved { .. } => Some(DecisionKind::Approved),
            Self::Denied { .. } => Some(DecisionKind::Denied),
        }
    }

    /// Checks that the decision is valid for this kind of request.
    ///
    /// # Errors
    /// `Unfitting` for another kind; `Invalid` for a denial without a reason, and for changes to an
    /// approval, which covers exactly what was shown.
    pub(crate) fn check_fits(&self, kind: RequestKind) -> Result<(), Denied> {
        match (self, kind) {
            (Self::Text(_), RequestKind::Question) => Ok(()),
            (Self::Text(_), _) => Err(Denied::Unfitting {
                kind,
                wanted: "answered in words",
            }),
            (Self::Approved { .. }, RequestKind::Question) => Err(Denied::Unfitting {
                kind,
                wanted: "approved",
            }),
            (Self::Denied { .. }, RequestKind::Question) => Err(Denied::Unfitting {
                kind,
                wanted: "denied",
            }),
            (Self::Approved { changes, .. }, RequestKind::Approval) if !changes.is_empty() => {
                Err(Denied::invalid(
                    "changes",
                    "an approval covers exactly what was shown: deny it and say what to change",
                ))
            }
            (Self::Denied { reason }, _) if reason.trim().is_empty() => Err(Denied::invalid(
                "reason",
                "is empty: give a reason, so that the run can choose another way",
            )),
            (
                Self::Approved { .. } | Self::Denied { .. },
                RequestKind::Approval | RequestKind::Delegation,
            ) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_selects_an_option_or_is_refused() {
        let chosen = |options: &[&str], given| {
            chosen(
                "answer",
                &options.iter().map(|&o| o.to_owned()).collect::<Vec<_>>(),
                given,
            )
        };
        assert_eq!(
            chosen(&["per user", "per key"], " 2 ").as_deref(),
            Ok("per key")
        );
        assert_eq!(chosen(&["2", "1"], "1").as_deref(), Ok("1"), "spelled out");
        let ambiguous = chosen(&["1", "2", "4", "8"], "3")
            .expect_err("option 3 is 4")
            .to_string();
        assert!(
            ambiguous.contains("the number of option 4: answer 4, or in words (\"make it 3\")"),
            "{ambiguous}"
        );
        assert_eq!(chosen(&["10", "20", "30"], "20").as_deref(), Ok("20"));
        assert!(chosen(&["10", "20", "30"], "2").is_err());
        assert_eq!(
            chosen(&["1", "2", "4", "8"], "make it 3").as_deref(),
            Ok("make it 3")
        );
        assert_eq!(
            chosen(&["1", "2", "4", "8"], "16").as_deref(),
            Ok("16"),
            "numeric options allow other numbers"
        );
        assert_eq!(chosen(&["a", "b"], "3 of them").as_deref(), Ok("3 of them"));
        assert_eq!(
            chosen(&[], " 1 ").as_deref(),
            Ok(" 1 "),
            "there are no options"
        );
        for wrong in ["3", "0", "99999999999999999999999"] {
            let refused = chosen(&["red", "green"], wrong)
                .expect_err("no such option")
                .to_string();
            assert!(refused.contains("1) red, 2) green"), "{refused}");
        }
    }

    #[test]
    fn each_kind_accepts_its_own_decisions_only() {
        use RequestKind as K;
        let yes = Decision::approved();
        let no = Decision::Denied {
            reason: "later".to_owned(),
        };
        let words = Decision::Text("yes".to_owned());
        for (kind, fitting, unfitting) in [
            (K::Question, vec![&words], vec![&yes, &no]),
            (K::Approval, vec![&yes, &no], vec![&words]),
            (K::Delegation, vec![&yes, &no], vec![&words]),
        ] {
            assert!(
                fitting
                    .iter()
                    .all(|decision| decision.check_fits(kind).is_ok()),
                "{kind:?}"
            );
            assert!(
                unfitting.iter().all(|decision| matches!(
                    decision.check_fits(kind),
                    Err(Denied::Unfitting { .. })
                )),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn denial_needs_a_reason_and_approval_has_no_changes() {
        let silent = Decision::Denied {
            reason: " \n".to_owned(),
        };
        assert!(matches!(
            silent.check_fits(RequestKind::Approval),
            Err(Denied::Invalid {
                field: "reason",
                ..
            })
        ));
        let changed = Decision::Approved {
            note: None,
            changes: Changes {
                prompt: Some("other".to_owned()),
                ..Changes::default()
            },
        };
        assert!(matches!(
            changed.check_fits(RequestKind::Approval),
            Err(Denied::Invalid {
                field: "changes",
                ..
            })
        ));
        assert_eq!(changed.check_fits(RequestKind::Delegation), Ok(()));
    }
}
