//! The general help: commands in groups, and topics that are sections of the documentation.

use super::args::Cli;
use super::exit::cli_codes;
use super::out::{Failure, fail_hint};
use crate::text;
use clap::CommandFactory;

/// The commands in groups, in the order of a first use.
const GROUPS: [(&str, &[&str]); 7] = [
    (
        "Start and follow",
        &[
            "run", "ps", "top", "show", "logs", "wait", "search", "events",
        ],
    ),
    (
        "Answer and talk",
        &[
            "inbox", "next", "reply", "approve", "deny", "send", "chat", "board",
        ],
    ),
    (
        "Changes of a run",
        &["diff", "open", "comment", "merge", "discard", "undo"],
    ),
    (
        "Stop, continue, remove",
        &["pause", "resume", "retry", "cancel", "adopt", "rm", "clean"],
    ),
    (
        "Agents and limits",
        &["agents", "pools", "budget", "policy", "grants", "stats"],
    ),
    (
        "Connect",
        &[
            "install", "mcp", "ui", "serve", "token", "peer", "runner", "webhooks",
        ],
    ),
    (
        "Set up",
        &[
            "init",
            "demo",
            "doctor",
            "config",
            "store",
            "stop",
            "update",
            "uninstall",
            "completions",
            "help",
        ],
    ),
];

/// Maximum width of the help, in columns.
pub(crate) const COLUMNS_MAX: usize = 100;
const INDENT: usize = 2;

/// Returns the general help, at most so many columns wide.
#[must_use]
pub(super) fn help(columns: usize) -> String {
    let mut command = Cli::command();
    let groups = grouped(&command, columns.min(COLUMNS_MAX));
    command = command
        .mut_subcommands(|below| below.hide(true))
        .override_usage("adj [OPTIONS] [COMMAND]")
        .term_width(columns.min(COLUMNS_MAX))
        .help_template(
            "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}{all-args}{after-help}",
        )
        .before_help(groups);
    command.render_help().to_string()
}

fn grouped(command: &clap::Command, columns: usize) -> String {
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    let width = names.map(|name| name.len()).max().unwrap_or(0) + INDENT;
    let mut out = String::new();
    for (title, names) in GROUPS {
        out += &format!("{title}:\n");
        for name in names {
            let Some(below) = command.find_subcommand(name) else {
                continue;
            };
            let about = below
                .get_about()
                .map(ToString::to_string)
                .unwrap_or_default();
            let aliases: Vec<&str> = below.get_visible_aliases().collect();
            let about = if aliases.is_empty() {
                about
            } else {
                format!("{about} [alias: {}]", aliases.join(", "))
            };
            let mut lines = text::wrap(&about, columns.saturating_sub(width + INDENT)).into_iter();
            out += &format!(
                "{:INDENT$}{name:<width$}{}\n",
                "",
                lines.next().unwrap_or_default()
            );
            out.extend(
                lines.map(|line| format!("{:indent$}{line}\n", "", indent = width + INDENT)),
            );
        }
        out.push('\n');
    }
    out.trim_end().to_owned()
}

/// A topic of `adj help`: a page of the documentation, or one section of it.
struct Topic {
    name: &'static str,
    about: &'static str,
    page: &'static str,
    /// The heading of the section. `None`: the whole page.
    section: Option<&'static str>,
}

const AGENTS: &str = include_str!("../../../../docs/agents.md");
const CONFIGURATION: &str = include_str!("../../../../docs/configuration.md");

const TOPICS: [Topic; 13] = [
    topic(
        "budgets",
        "limits of money, tokens and time",
        include_str!("../../../../docs/budgets.md"),
        None,
    ),
    topic(
        "chats",
        "chats between people, runs and agents",
        include_str!("../../../../docs/chats.md"),
        None,
    ),
    topic(
        "configuration",
        "every setting of config.toml",
        CONFIGURATION,
        None,
    ),
    topic(
        "dashboard",
        "the dashboard in the browser",
        include_str!("../../../../docs/dashboard.md"),
        None,
    ),
    topic(
        "echo",
        "the script language of the agent echo",
        AGENTS,
        Some("## `echo`: the scripted agent"),
    ),
    topic(
        "environment",
        "the environment variables",
        CONFIGURATION,
        Some("## Environment variables"),
    ),
    topic(
        "fence",
        "what the kernel lets an agent write",
        include_str!("../../../../docs/fence.md"),
        None,
    ),
    topic(
        "gate",
        "the proxy that counts usage and holds the key",
        include_str!("../../../../docs/gate.md"),
        None,
    ),
    topic(
        "guarantees",
        "what survives which failure",
        include_str!("../../../../docs/guarantees.md"),
        None,
    ),
    topic(
        "notifications",
        "webhooks: events and messages sent to other services",
        include_str!("../../../../docs/webhooks.md"),
        None,
    ),
    topic(
        "policies",
        "policies, grants, escalation",
        include_str!("../../../../docs/policies.md"),
        None,
    ),
    topic(
        "presets",
        "agents: presets, your own, permissions, keys",
        AGENTS,
        None,
    ),
    topic(
        "workspaces",
        "snapshots, clones, merges",
        include_str!("../../../../docs/workspaces.md"),
        None,
    ),
];

const fn topic(
    name: &'static str,
    about: &'static str,
    page: &'static str,
    section: Option<&'static str>,
) -> Topic {
    Topic {
        name,
        about,
        page,
        section,
    }
}

/// Lists the topics.
#[must_use]
pub(super) fn topics() -> String {
    let mut out = "Topics, printed by adj help TOPIC:\n\n".to_owned();
    let own = [(
        "exit-codes",
        "the exit codes, and the error codes that lead to them",
    )];
    for (name, about) in own
        .into_iter()
        .chain(TOPICS.iter().map(|topic| (topic.name, topic.about)))
    {
        out += &format!("  {name:<15}{about}\n");
    }
    out
}

/// Returns the names of the topics, with what each is about.
pub(crate) fn topic_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    TOPICS.iter().map(|topic| (topic.name, topic.about))
}

/// Pages of the documentation that are topics.
const PAGES: [(&str, &str); 11] = [
    ("agents.md", "presets"),
    ("budgets.md", "budgets"),
    ("chats.md", "chats"),
    ("configuration.md", "configuration"),
    ("dashboard.md", "dashboard"),
    ("fence.md", "fence"),
    ("gate.md", "gate"),
    ("guarantees.md", "guarantees"),
    ("policies.md", "policies"),
    ("webhooks.md", "notifications"),
    ("workspaces.md", "workspaces"),
];

/// Returns the topic that a page of the documentation is.
#[must_use]
pub(crate) fn topic_of_page(page: &str) -> Option<&'static str> {
    PAGES
        .iter()
        .find(|(name, _)| *name == page)
        .map(|(_, topic)| *topic)
}

/// Returns the text of a topic, in Markdown.
#[must_use]
pub(crate) fn topic_text(name: &str) -> Option<String> {
    let topic = TOPICS.iter().find(|topic| topic.name == name)?;
    Some(topic.section.map_or_else(
        || topic.page.to_owned(),
        |heading| section(topic.page, heading),
    ))
}

/// Returns a section of a page, until the next heading of its level or above. Empty if there is
/// none.
fn section(page: &str, heading: &str) -> String {
    let level = heading.bytes().take_while(|b| *b == b'#').count();
    let ends = |line: &str| {
        let hashes = line.bytes().take_while(|b| *b == b'#').count();
        (1..=level).contains(&hashes) && line[hashes..].starts_with(' ')
    };
    let mut lines = page.lines().skip_while(|line| *line != heading);
    let head = lines.next().unwrap_or_default();
    std::iter::once(head)
        .chain(lines.take_while(|line| !ends(line)))
        .collect::<Vec<_>>()
        .join("\n")
        .trim_end()
        .to_owned()
        + "\n"
}

/// The refusal of an unknown topic.
pub(crate) fn unknown_topic(word: &str) -> Failure {
    fail_hint(
        cli_codes::USAGE,
        format!("no help for {word:?}"),
        "adj help lists the commands; adj help topics lists the topics",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::collections::BTreeSet;

    #[test]
    fn every_visible_command_is_in_one_group() {
        let command = Cli::command();
        let visible: BTreeSet<&str> = command
            .get_subcommands()
            .filter(|below| !below.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        assert_eq!(
            grouped.len(),
            grouped.iter().collect::<BTreeSet<_>>().len(),
            "each once"
        );
        assert_eq!(grouped.into_iter().collect::<BTreeSet<_>>(), visible);
    }

    #[test]
    fn general_help_fits_the_width_and_lists_every_command() {
        for columns in [60, 80, 200] {
            let help = help(columns);
            assert!(
                help.lines()
                    .all(|line| text::width(line) <= columns.min(COLUMNS_MAX)),
                "{help}"
            );
            assert!(
                help.contains("\nStart and follow:\n  run ")
                    && help.contains("Global options:")
                    && help.contains("[alias: ls]"),
                "{help}"
            );
        }
    }

    #[test]
    fn every_example_can_be_parsed() {
        let mut command = Cli::command();
        command.build();
        let mut examples = 0;
        for below in command.get_subcommands() {
            let help = below
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            for line in help.lines().filter_map(|line| line.strip_prefix("  ")) {
                let typed = line.rsplit(" | ").next().unwrap_or_default();
                let words = crate::cli::argv::split(typed).expect("words");
                assert_eq!(
                    words.get(1).map(String::as_str),
                    Some(below.get_name()),
                    "{line}"
                );
                assert!(
                    Cli::try_parse_from(&words).is_ok(),
                    "{line}: {:?}",
                    Cli::try_parse_from(&words)
                );
                examples += 1;
            }
        }
        assert!(examples > 15, "{examples}");
    }

    #[test]
    fn every_topic_has_a_text() {
        for topic in &TOPICS {
            let text = topic_text(topic.name).expect("a topic");
            assert!(
                text.starts_with(topic.section.unwrap_or("# ")) && text.lines().count() > 3,
                "{}",
                topic.name
            );
            assert!(topics().contains(topic.about));
        }
        assert!(PAGES.iter().all(|(_, topic)| topic_text(topic).is_some()));
        assert!(
            !topic_text("echo").expect("a topic").contains("\n## "),
            "one section"
        );
        let command = Cli::command();
        assert!(
            TOPICS
                .iter()
                .all(|topic| command.find_subcommand(topic.name).is_none()),
            "a command of this name hides the topic"
        );
    }
}
