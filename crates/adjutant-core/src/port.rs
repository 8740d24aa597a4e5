//! Ports that a run may use, so that servers of concurrent runs do not collide.

/// The first port of all ranges, and the first one above them: below those that Linux gives to
/// outgoing connections.
pub const PORTS_FIRST: u16 = 20_000;
pub const PORTS_END: u16 = 32_000;
/// Maximum number of ports of one run.
pub const PORT_COUNT_MAX: u16 = 1_000;
/// The ports of a run by default.
pub const PORT_COUNT_DEFAULT: u16 = 20;

/// Consecutive ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    pub base: u16,
    /// At least 1.
    pub count: u16,
}

impl PortRange {
    /// Lists the ports.
    pub fn ports(self) -> impl Iterator<Item = u16> {
        (0..self.count).map(move |n| self.base.saturating_add(n))
    }

    /// Returns whether both ranges have a port in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.base < other.end() && other.base < self.end()
    }

    fn end(self) -> u16 {
        self.base.saturating_add(self.count)
    }
}

/// Returns the first range of `count` ports that overlaps none of `taken`: at or above `from`, then
/// below it. `None`: there is none.
#[must_use]
pub fn free_range(taken: &[PortRange], count: u16, from: u16) -> Option<PortRange> {
    let from = from.clamp(PORTS_FIRST, PORTS_END);
    free_between(taken, count, from, PORTS_END)
        .or_else(|| free_between(taken, count, PORTS_FIRST, PORTS_END))
}

fn free_between(taken: &[PortRange], count: u16, first: u16, end: u16) -> Option<PortRange> {
    let mut base = first;
    loop {
        let range = PortRange { base, count };
        if count == 0
            || base
                .checked_add(count)
                .is_none_or(|range_end| range_end > end)
        {
            return None;
        }
        match taken
            .iter()
            .filter(|taken| taken.overlaps(range))
            .map(|taken| taken.end())
            .max()
        {
            Some(next) => base = next,
            None => return Some(range),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_never_overlap(counts in prop::collection::vec(1_u16..=PORT_COUNT_MAX, 1..40), from in any::<u16>()) {
            let mut taken: Vec<PortRange> = Vec::new();
            for count in counts {
                let Some(range) = free_range(&taken, count, from) else {
                    // Then no gap is large enough.
                    let is_free = |base| !taken.iter().any(|taken| taken.overlaps(PortRange { base, count }));
                    prop_assert!((PORTS_FIRST..=PORTS_END - count).all(|base| !is_free(base)));
                    continue;
                };
                prop_assert!(range.count == count && range.base >= PORTS_FIRST && range.end() <= PORTS_END);
                prop_assert!(!taken.iter().any(|taken| taken.overlaps(range)));
                taken.push(range);
            }
        }
    }

    #[test]
    fn ports_below_the_start_are_used_last() {
        let range = |base| PortRange { base, count: 20 };
        assert_eq!(free_range(&[], 20, 25_000), Some(range(25_000)));
        assert_eq!(
            free_range(&[range(25_010)], 20, 25_000),
            Some(range(25_030))
        );
        assert_eq!(
            free_range(&[], 20, PORTS_END - 19),
            Some(range(PORTS_FIRST))
        );
        assert_eq!(free_range(&[], 0, PORTS_FIRST), None);
        assert_eq!(range(20_000).ports().last(), Some(20_019));
    }
}
