//! Decisions: what is said to a request, and which decision fits which kind of request.

use crate::signal::Priority;
use crate::{Denied, RequestKind, words};

/// The one thing that is decided about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The answer to a question, in words.
    Text(String),
    /// Yes, to an approval or a delegation.
    Approved {
        /// What was said along with it, for instance which of the options.
        note: Option<String>,
        /// What is to be done differently from what was asked; of a delegation only.
        changes: Changes,
    },
    /// No, to an approval or a delegation.
    Denied { reason: String },
}

/// Most options that a refusal names, and of each so many characters.
const OPTIONS_NAMED_MAX: usize = 10;
const OPTION_CHARS_MAX: usize = 60;

/// Returns what was meant by an answer to something with options: an option spelled out as it is, the
/// option with that number, or other words as they are. Where all options are numbers themselves, another
/// number is an answer in words, too.
///
/// # Errors
/// A number that no option has, beside options in words: nobody means that as an answer.
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
    let by_number = word.parse::<usize>().ok().and_then(|number| options.get(number.checked_sub(1)?));
    if by_number.is_none() && options.iter().all(|option| is_number(option.trim())) {
        return Ok(word.to_owned());
    }
    by_number.cloned().ok_or_else(|| {
        let named = options.iter().zip(1..).take(OPTIONS_NAMED_MAX);
        let named: Vec<String> =
            named.map(|(option, number)| format!("{number}) {}", option.chars().take(OPTION_CHARS_MAX).collect::<String>())).collect();
        let more = if options.len() > OPTIONS_NAMED_MAX { ", …" } else { "" };
        let number: String = word.chars().take(OPTION_CHARS_MAX).collect();
        Denied::invalid(field, format!("no option {number}; the options are {}{more}; answer in words for anything else", named.join(", ")))
    })
}

/// How a delegated task is to be done otherwise than it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    pub prompt: Option<String>,
    pub agent: Option<String>,
    pub directory: Option<String>,
    pub priority: Option<Priority>,
}

impl Changes {
    /// Tells whether everything stays as it was asked for.
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
    /// Makes a plain yes.
    #[must_use]
    pub fn approved() -> Self {
        Self::Approved { note: None, changes: Changes::default() }
    }

    /// Returns the decision as one text for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Approved { note: Some(note), .. } => format!("approved: {note}"),
            Self::Approved { note: None, .. } => "approved".to_owned(),
            Self::Denied { reason } => format!("denied: {reason}"),
        }
    }

    /// Returns the decision without its data; `None` for an answer in words.
    #[must_use]
    pub fn kind(&self) -> Option<DecisionKind> {
        match self {
            Self::Text(_) => None,
            Self::Approved { .. } => Some(DecisionKind::Approved),
            Self::Denied { .. } => Some(DecisionKind::Denied),
        }
    }

    /// Checks that this can be said to a request of that kind.
    ///
    /// # Errors
    /// `Unfitting` for what cannot, `Invalid` for a no without a reason and for a changed approval:
    /// an approval is bound to what was shown.
    pub fn fits(&self, kind: RequestKind) -> Result<(), Denied> {
        match (self, kind) {
            (Self::Text(_), RequestKind::Question) => Ok(()),
            (Self::Text(_), _) => Err(Denied::Unfitting { kind, wanted: "answered in words" }),
            (Self::Approved { .. }, RequestKind::Question) => Err(Denied::Unfitting { kind, wanted: "approved" }),
            (Self::Denied { .. }, RequestKind::Question) => Err(Denied::Unfitting { kind, wanted: "denied" }),
            (Self::Approved { changes, .. }, RequestKind::Approval) if !changes.is_empty() => {
                Err(Denied::invalid("changes", "an approval covers exactly what was shown: deny it and say what to change"))
            }
            (Self::Denied { reason }, _) if reason.trim().is_empty() => {
                Err(Denied::invalid("reason", "is empty: give a reason, so that the run can choose another way"))
            }
            (Self::Approved { .. } | Self::Denied { .. }, RequestKind::Approval | RequestKind::Delegation) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_means_an_option_or_is_refused() {
        let chosen = |options: &[&str], given| chosen("answer", &options.iter().map(|&o| o.to_owned()).collect::<Vec<_>>(), given);
        assert_eq!(chosen(&["per user", "per key"], " 2 ").as_deref(), Ok("per key"));
        assert_eq!(chosen(&["2", "1"], "1").as_deref(), Ok("1"), "spelled out");
        assert_eq!(chosen(&["1", "2", "4", "8"], "3").as_deref(), Ok("4"), "no option is spelled so");
        assert_eq!(chosen(&["1", "2", "4", "8"], "16").as_deref(), Ok("16"), "a number among numbers is an answer");
        assert_eq!(chosen(&["a", "b"], "3 of them").as_deref(), Ok("3 of them"));
        assert_eq!(chosen(&[], " 1 ").as_deref(), Ok(" 1 "), "there is nothing to choose");
        for wrong in ["3", "0", "99999999999999999999999"] {
            let refused = chosen(&["red", "green"], wrong).expect_err("no such option").to_string();
            assert!(refused.contains("1) red, 2) green"), "{refused}");
        }
    }

    #[test]
    fn each_kind_takes_its_own_decisions_only() {
        use RequestKind as K;
        let yes = Decision::approved();
        let no = Decision::Denied { reason: "later".to_owned() };
        let words = Decision::Text("yes".to_owned());
        for (kind, fitting, unfitting) in [
            (K::Question, vec![&words], vec![&yes, &no]),
            (K::Approval, vec![&yes, &no], vec![&words]),
            (K::Delegation, vec![&yes, &no], vec![&words]),
        ] {
            assert!(fitting.iter().all(|decision| decision.fits(kind).is_ok()), "{kind:?}");
            assert!(unfitting.iter().all(|decision| matches!(decision.fits(kind), Err(Denied::Unfitting { .. }))), "{kind:?}");
        }
    }

    #[test]
    fn a_no_needs_a_reason_and_an_approval_is_never_changed() {
        let silent = Decision::Denied { reason: " \n".to_owned() };
        assert!(matches!(silent.fits(RequestKind::Approval), Err(Denied::Invalid { field: "reason", .. })));
        let changed = Decision::Approved { note: None, changes: Changes { prompt: Some("other".to_owned()), ..Changes::default() } };
        assert!(matches!(changed.fits(RequestKind::Approval), Err(Denied::Invalid { field: "changes", .. })));
        assert_eq!(changed.fits(RequestKind::Delegation), Ok(()));
    }
}
