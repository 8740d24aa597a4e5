//! The gate's counts of the agent's use of its model.

use super::Attempt;
use crate::protocol::{FactKind, UsageText};
use adjutant_core::Cause;
use adjutant_stream::rules::Usage;

impl Attempt {
    /// Records that the agent's stream states usage which is not that of the gate.
    pub(super) fn check_gate_use(&mut self, usage: &Usage) {
        let Some(gate) = &mut self.gate else { return };
        let UsageText {
            input_tokens,
            output_tokens,
            of_session,
            ..
        } = self.ending.usage_text(usage);
        if let Some(fact) = gate.bypass_fact(input_tokens.saturating_add(output_tokens), of_session)
        {
            self.journal.record(fact);
        }
    }

    /// Records the usage before the last fact, and completes the last fact with data that only the
    /// gate has.
    pub(super) async fn report_model_use(&mut self, last: &mut FactKind) {
        let (Some(gate), FactKind::Ended { verdict, usage, .. }) = (&mut self.gate, last) else {
            return;
        };
        gate.close().await;
        let ignored = usage.as_ref().and_then(|usage| {
            gate.bypass_fact(
                usage.input_tokens.saturating_add(usage.output_tokens),
                usage.of_session,
            )
        });
        let facts = [ignored, gate.used()];
        if let Some(verdict) = verdict
            && verdict.cause.as_deref() == Some(Cause::RateLimited.word())
        {
            verdict.again_at_ms = verdict
                .again_at_ms
                .or_else(|| gate.limit().map(|until| until.0));
        }
        facts
            .into_iter()
            .flatten()
            .for_each(|fact| self.journal.record(fact));
    }
}
