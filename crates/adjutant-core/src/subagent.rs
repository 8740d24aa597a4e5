//! Sub-agents that a run's CLI starts by itself and reports in its stream.

/// Maximum number of sub-agents that are kept for one attempt.
pub const KEPT_MAX: usize = 20;
/// Longest text of one that is kept, in characters.
pub(crate) const TEXT_CHARS_MAX: usize = 120;

/// A sub-agent. Fields that the stream has not reported are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subagent {
    /// The CLI's id of the sub-agent.
    pub id: String,
    /// The kind of agent.
    pub kind: Option<String>,
    /// The description of its task.
    pub about: Option<String>,
    /// The state in the CLI's words: `running`, `completed`, …
    pub state: Option<String>,
    /// Tokens used so far.
    pub tokens: Option<u64>,
}

impl Subagent {
    /// Returns whether the sub-agent was running when it was last reported.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state.as_deref() == Some(RUNNING)
    }
}

/// The initial state of a sub-agent.
pub const RUNNING: &str = "running";

/// The sub-agents of one attempt, the oldest first.
#[derive(Debug, Default)]
pub struct Subagents {
    kept: Vec<Subagent>,
    /// Number of sub-agents that are no longer kept.
    dropped: u64,
    has_changed: bool,
}

impl Subagents {
    /// Merges a report of a sub-agent. A report of an unknown one is ignored unless it starts the
    /// sub-agent.
    pub fn merge(&mut self, reported: Subagent, begins: bool) {
        let at = self.kept.iter().position(|known| known.id == reported.id);
        let at = match at {
            Some(at) => at,
            None if begins && !reported.id.is_empty() => {
                self.make_room();
                self.kept.push(Subagent {
                    id: reported.id.chars().take(TEXT_CHARS_MAX).collect(),
                    ..Subagent::default()
                });
                self.kept.len() - 1
            }
            None => return,
        };
        let known = &mut self.kept[at];
        let before = known.clone();
        let one_line = |text: String| {
            let words = text
                .split(|c: char| c.is_whitespace() || c.is_control())
                .filter(|word| !word.is_empty());
            words
                .collect::<Vec<_>>()
                .join(" ")
                .chars()
                .take(TEXT_CHARS_MAX)
                .collect::<String>()
        };
        for (kept, new) in [
            (&mut known.kind, reported.kind),
            (&mut known.about, reported.about),
            (&mut known.state, reported.state),
        ] {
            if let Some(text) = new.map(one_line).filter(|text| !text.is_empty()) {
                *kept = Some(text);
            }
        }
        known.tokens = reported.tokens.or(known.tokens);
        self.has_changed |= *known != before || begins && before.state.is_none();
    }

    /// Drops the oldest sub-agent that has ended, or the oldest one.
    fn make_room(&mut self) {
        if self.kept.len() == KEPT_MAX {
            let oldest = self
                .kept
                .iter()
                .position(|known| !known.is_running())
                .unwrap_or(0);
            self.kept.remove(oldest);
            self.dropped += 1;
        }
    }

    /// Finds a sub-agent by its id.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&Subagent> {
        self.kept.iter().find(|known| known.id == id)
    }

    /// Returns all sub-agents and the number of dropped ones, if something has changed since the
    /// last call.
    pub fn take_changed(&mut self) -> Option<(Vec<Subagent>, u64)> {
        std::mem::take(&mut self.has_changed).then(|| (self.kept.clone(), self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(id: usize, state: Option<&str>) -> Subagent {
        Subagent {
            id: id.to_string(),
            state: state.map(str::to_owned),
            ..Subagent::default()
        }
    }

    #[test]
    fn reports_are_merged() {
        let mut all = Subagents::default();
        all.merge(reported(1, Some("completed")), false);
        assert_eq!(all.take_changed(), None, "it was never started");
        all.merge(
            Subagent {
                about: Some("count\n\u{1b} files".to_owned()),
                ..reported(1, Some(RUNNING))
            },
            true,
        );
        all.merge(
            Subagent {
                tokens: Some(7),
                ..reported(1, None)
            },
            false,
        );
        let known = Subagent {
            about: Some("count files".to_owned()),
            tokens: Some(7),
            ..reported(1, Some(RUNNING))
        };
        assert_eq!(
            (all.take_changed(), all.take_changed()),
            (Some((vec![known], 0)), None)
        );
    }

    #[test]
    fn number_is_bounded_and_ended_ones_are_removed_first() {
        let mut all = Subagents::default();
        (0..KEPT_MAX).for_each(|id| all.merge(reported(id, Some(RUNNING)), true));
        all.merge(reported(3, Some("completed")), false);
        all.merge(reported(100, Some(RUNNING)), true);
        all.merge(reported(101, Some(RUNNING)), true);
        let (kept, dropped) = all.take_changed().expect("something has changed");
        assert_eq!((kept.len(), dropped), (KEPT_MAX, 2));
        assert!(kept.iter().all(|known| known.id != "3" && known.id != "0"));
    }
}
