//! The usage that a stream has stated so far.

use crate::rules::Usage;

/// The usage so far.
#[derive(Debug, Default)]
pub(super) struct StatedUsage {
    usage: Option<Usage>,
    /// The cost of the session so far, where it is stated separately.
    cost_usd: Option<f64>,
    /// Something was stated since the last report.
    is_new: bool,
}

impl StatedUsage {
    pub(super) fn add(&mut self, usage: Usage) {
        self.usage = Some(total(self.usage, usage));
        self.is_new = true;
    }

    pub(super) fn set_cost(&mut self, cost_usd: f64) {
        self.cost_usd = Some(cost_usd);
        self.is_new = true;
    }

    /// Returns the usage so far if something was stated since the last call.
    pub(super) fn take_new(&mut self) -> Option<Usage> {
        std::mem::take(&mut self.is_new)
            .then(|| self.total())
            .flatten()
    }

    /// Returns the usage so far, with a cost that was stated separately.
    pub(super) fn total(&self) -> Option<Usage> {
        match self.cost_usd {
            Some(cost) if self.usage.is_none_or(|usage| usage.cost_usd.is_none()) => Some(Usage {
                cost_usd: Some(cost),
                cost_is_total: true,
                ..self.usage.unwrap_or_default()
            }),
            _ => self.usage,
        }
    }
}

/// Adds usage to what was used before, or replaces it: a CLI states its usage either for each call
/// or in total. A total cost replaces the one before even if tokens are added.
fn total(before: Option<Usage>, usage: Usage) -> Usage {
    let before = before.filter(|_| usage.add).unwrap_or_default();
    let cost_before = before.cost_usd.filter(|_| !usage.cost_is_total);
    Usage {
        input_tokens: before.input_tokens.saturating_add(usage.input_tokens),
        cached_tokens: before.cached_tokens.saturating_add(usage.cached_tokens),
        output_tokens: before.output_tokens.saturating_add(usage.output_tokens),
        cost_usd: match (cost_before, usage.cost_usd) {
            (Some(before), Some(cost)) => Some(before + cost),
            (before, cost) => cost.or(before),
        },
        add: usage.add,
        cost_is_total: usage.cost_is_total,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(input_tokens: u64, cost_usd: Option<f64>, add: bool, cost_is_total: bool) -> Usage {
        Usage {
            input_tokens,
            cost_usd,
            add,
            cost_is_total,
            ..Usage::default()
        }
    }

    #[test]
    fn usage_is_added_or_replaced_as_the_cli_states_it() {
        let before = Some(used(100, Some(1.0), true, false));
        let sum = |usage: Usage| {
            let total = total(before, usage);
            (total.input_tokens, total.cost_usd)
        };
        assert_eq!(sum(used(5, Some(0.5), true, false)), (105, Some(1.5)));
        // A call without a cost keeps that of the calls before.
        assert_eq!(sum(used(5, None, true, false)), (105, Some(1.0)));
        assert_eq!(sum(used(5, Some(0.5), true, true)), (105, Some(0.5)));
        assert_eq!(sum(used(5, Some(0.5), false, false)), (5, Some(0.5)));
        assert_eq!(sum(used(5, None, false, false)), (5, None));
        assert_eq!(total(None, used(7, None, true, false)).input_tokens, 7);
    }

    #[test]
    fn usage_never_overflows() {
        let before = Some(used(u64::MAX, None, true, false));
        let total = total(before, used(1, None, true, false));
        assert_eq!(total.input_tokens, u64::MAX);
    }
}
