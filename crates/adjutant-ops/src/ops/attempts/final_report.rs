//! The last fact of a supervisor: how an attempt ended.

use crate::ops::attempts::end::AgentEnd;
use crate::protocol::{FactKind, GapText, UsageText};
use crate::store::EndRow;
use adjutant_core::Exit;

/// What the last fact of an attempt says.
#[derive(Debug)]
pub(super) struct FinalReport {
    pub(super) row: EndRow,
    /// Why its last message is not a result.
    pub(super) gap: Option<GapText>,
    pub(super) usage: Option<UsageText>,
    pub(super) agent: AgentEnd,
}

impl FinalReport {
    /// Reads the last fact of an attempt. `None`: it is another fact.
    pub(super) fn of(fact: FactKind) -> Option<Self> {
        let FactKind::Ended {
            exit_code,
            signal,
            swept,
            output_left_open,
            active_ms,
            by_itself,
            result,
            result_bytes,
            gap,
            output_bytes: _,
            error_line,
            verdict,
            usage,
            lacks_tools,
        } = fact
        else {
            return None;
        };
        let exit = match (exit_code, signal) {
            (Some(code), _) => Exit::Code(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::Code(-1),
        };
        // An older supervisor does not report the length of the message.
        let result_bytes = result_bytes.max(result.len() as u64);
        Some(Self {
            row: EndRow {
                exit,
                swept,
                output_left_open,
                active_ms,
                by_itself,
                result,
                result_bytes,
            },
            gap,
            usage,
            agent: AgentEnd {
                exit,
                by_itself,
                verdict,
                error_line,
                lacks_tools,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the report of an older supervisor, which states only what it must.
    fn report(exit_code: Option<i32>, signal: Option<i32>) -> FinalReport {
        let fact = serde_json::json!({
            "fact": "ended", "exit_code": exit_code, "signal": signal, "swept": 0, "output_left_open": false,
            "active_ms": 7, "result": "done", "output_bytes": 9,
        });
        let fact = serde_json::from_value(fact).expect("a fact");
        FinalReport::of(fact).expect("the last fact")
    }

    #[test]
    fn exit_code_counts_before_signal() {
        assert_eq!(report(Some(3), None).agent.exit, Exit::Code(3));
        assert_eq!(report(Some(3), Some(9)).agent.exit, Exit::Code(3));
        assert_eq!(report(None, Some(9)).agent.exit, Exit::Signal(9));
        assert_eq!(
            report(None, None).agent.exit,
            Exit::Code(-1),
            "never a success"
        );
    }

    #[test]
    fn length_of_a_message_is_never_less_than_the_message() {
        assert_eq!(report(Some(0), None).row.result_bytes, 4);
    }

    #[test]
    fn only_the_last_fact_is_a_final_report() {
        assert!(FinalReport::of(FactKind::TurnEnded {}).is_none());
    }
}
