//! Performs the steps of the agent's dialogue.

use super::Attempt;
use crate::harness::step::{ChangedCall, Step};
use crate::protocol::FactKind;
use adjutant_core::shorten;
use std::time::Instant;

/// How much of a changed call is written to the log, in bytes.
const NOTED_BYTES_MAX: usize = 2 * 1024;

impl Attempt {
    pub(super) fn perform_step(&mut self, step: Step) {
        match step {
            Step::Write(bytes) => self.write(bytes),
            Step::Delivered(message_id) => self.journal.record(FactKind::Delivered { message_id }),
            Step::Permission(permission) => match self.permits.decide_at_once(&permission) {
                Some(decision) => {
                    self.permits.withdraw(&permission.id);
                    self.write_decision(&permission.id, &decision);
                }
                None => self.permits.ask(permission),
            },
            Step::Elicit(elicitation) => self.permits.elicit(elicitation),
            Step::Withdraw(id) => {
                self.permits.withdraw(&id);
            }
            Step::Changed(changed) => {
                self.note(&changed_note(&changed));
                self.permits.report_change(changed);
            }
            Step::Note(note) => self.note(&note),
            Step::Failed(why) => {
                self.failed.get_or_insert(why);
                self.close();
            }
            Step::TurnEnded => {
                let usage = self.statements.take_usage(Instant::now());
                self.journal.record_all(usage);
                self.journal.record(FactKind::TurnEnded {});
            }
            Step::Close => self.close(),
        }
    }
}

/// Returns the line for the log about a call that changed after it was allowed.
fn changed_note(ChangedCall { tool, allowed, now }: &ChangedCall) -> String {
    let short = |text| shorten::to_bytes(text, NOTED_BYTES_MAX);
    format!(
        "! changed after approval: {tool} {} (approved: {})",
        short(now),
        short(allowed)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_call_is_marked_in_the_log() {
        let note = |now: &str| {
            changed_note(&ChangedCall {
                tool: "bash".to_owned(),
                allowed: "ls".to_owned(),
                now: now.to_owned(),
            })
        };
        assert_eq!(
            note("rm"),
            "! changed after approval: bash rm (approved: ls)"
        );
        let long = note(&"x".repeat(NOTED_BYTES_MAX + 1));
        assert!(long.ends_with("x… (approved: ls)"), "{long}");
    }
}
