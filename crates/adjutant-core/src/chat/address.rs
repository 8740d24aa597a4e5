//! Finds the participants that a message addresses.

use crate::AgentName;

/// Longest name after an `@`, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Maximum number of names in one message that count.
const MENTIONS_MAX: usize = 20;

/// A participant that a message mentions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Addressee {
    Agent(AgentName),
    /// A participant that is not an agent, or an unknown name.
    Other,
}

/// Returns the distinct names after `@` in a text, in order. An `@` within a word (as in an e-mail
/// address), before a path (as in `@types/node`), or in code between backticks is not a mention.
#[must_use]
pub fn mentions(text: &str) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for part in outside_code(text) {
        mentions_in(part, &mut found);
    }
    found
}

/// Returns the parts of a text that are not between two backticks.
fn outside_code(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.matches('`').count() + 1;
    // With an even number of parts, the last one follows an unclosed backtick.
    text.split('`')
        .enumerate()
        .filter(move |(n, _)| n % 2 == 0 || n + 1 == parts)
        .map(|(_, part)| part)
}

fn mentions_in<'a>(text: &'a str, found: &mut Vec<&'a str>) {
    for (at, _) in text.match_indices('@') {
        let within_word = text[..at]
            .chars()
            .next_back()
            .is_some_and(|c| c.is_alphanumeric() || matches!(c, '@' | '_' | '.' | '-' | '/'));
        let rest = &text[at + 1..];
        let len = rest
            .bytes()
            .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
            .count();
        let name = rest[..len].trim_end_matches(['-', '_']);
        let is_path = rest[len..].starts_with('/');
        if !within_word
            && !is_path
            && (1..=NAME_BYTES_MAX).contains(&name.len())
            && !found.contains(&name)
            && found.len() < MENTIONS_MAX
        {
            found.push(name);
        }
    }
}

/// Returns the agents that answer a message: the mentioned ones, or all agents of the chat if it
/// mentions nobody and its author is not an agent.
#[must_use]
pub fn addressed(
    named: &[Addressee],
    agents: &[AgentName],
    said_by_agent: Option<&AgentName>,
) -> Vec<AgentName> {
    let mut answering: Vec<AgentName> = Vec::new();
    let everybody = named.is_empty() && said_by_agent.is_none();
    let from_named = named.iter().filter_map(|one| {
        if let Addressee::Agent(name) = one {
            Some(name)
        } else {
            None
        }
    });
    let candidates: Vec<&AgentName> = if everybody {
        agents.iter().collect()
    } else {
        from_named.collect()
    };
    for name in candidates {
        if Some(name) != said_by_agent && !answering.contains(name) {
            answering.push(name.clone());
        }
    }
    answering
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn agent(name: &str) -> AgentName {
        AgentName::parse(name).expect("a name")
    }

    #[test]
    fn mentions_are_whole_words() {
        assert_eq!(
            mentions("@gemini, ask (@brave-otter) and @gemini again"),
            ["gemini", "brave-otter"]
        );
        assert_eq!(
            mentions("mail a@b.example, see x/@y and @ alone @@z"),
            Vec::<&str>::new()
        );
        assert_eq!(mentions("@claude-."), ["claude"]);
        assert_eq!(
            mentions("`@one` @two ```\n@three\n``` @four ` @five, @types/node"),
            ["two", "four", "five"]
        );
    }

    #[test]
    fn mentioned_agents_answer_or_else_all() {
        let agents = [agent("gemini"), agent("claude")];
        assert_eq!(addressed(&[], &agents, None), agents);
        assert_eq!(
            addressed(&[Addressee::Agent(agent("claude"))], &agents, None),
            [agent("claude")]
        );
        assert_eq!(addressed(&[Addressee::Other], &agents, None), []);
        assert_eq!(addressed(&[], &agents, Some(&agent("gemini"))), []);
        assert_eq!(
            addressed(
                &[Addressee::Agent(agent("gemini"))],
                &agents,
                Some(&agent("gemini"))
            ),
            [],
            "an agent does not answer itself"
        );
        assert_eq!(
            addressed(
                &[Addressee::Agent(agent("claude"))],
                &agents,
                Some(&agent("gemini"))
            ),
            [agent("claude")]
        );
    }

    proptest! {
        #[test]
        fn any_text_can_be_searched_for_mentions(text in any::<String>()) {
            prop_assert!(mentions(&text).len() <= MENTIONS_MAX);
        }
    }
}
