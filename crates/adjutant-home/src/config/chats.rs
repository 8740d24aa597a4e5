//! The `[chats]` part of the configuration.

use super::values::UnusableValues;
use adjutant_core::chat::{
    Budget, INSTRUCTIONS_BYTES_MAX, TURNS_MAX_DEFAULT, WINDOW_CHARS_DEFAULT,
};
use adjutant_core::{AgentName, Denied};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The configuration of chats.
#[derive(Debug, Clone)]
pub struct Chats {
    /// The amount of message text in the prompt of an answering agent.
    pub window: Budget,
    /// How many turns in a row agents may answer agents.
    pub turns_max: u32,
    /// The agent that answers under the original protocol, if a chat names none.
    pub default_responder: Option<AgentName>,
    /// Automatically summarise messages that do not fit into the window.
    pub summarise_left_out: bool,
    /// The agent that summarises chats.
    pub summariser: Option<AgentName>,
    /// Also summarise a chat when it is archived.
    pub summarise_on_archive: bool,
    templates: BTreeMap<String, Template>,
}

/// A template for chats.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    #[serde(default)]
    pub participants: Vec<String>,
    pub instructions: Option<String>,
    #[serde(default)]
    pub private: bool,
    pub window: Option<Window>,
    pub turns_max: Option<u32>,
}

/// A window in the file: `{ chars = 30000 }` or `{ tokens = 8000 }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    Chars(u64),
    Tokens(u64),
}

impl From<Window> for Budget {
    fn from(window: Window) -> Self {
        match window {
            Window::Chars(chars) => Self::Chars(chars),
            Window::Tokens(tokens) => Self::Tokens(tokens),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileChats {
    window: Option<Window>,
    turns_max: Option<u32>,
    #[serde(default)]
    summarise_left_out: bool,
    default_responder: Option<String>,
    summariser: Option<String>,
    #[serde(default)]
    summarise_on_archive: bool,
    #[serde(default)]
    templates: BTreeMap<String, Template>,
}

const NO_TURNS: &str = "at least 1: with 0 no agent would answer";

const BUILT_IN: [(&str, &str); 3] = [
    (
        "review",
        "This is a review. Judge what is proposed on its merits: correctness first, then clarity, tests, security. Name the file and line you mean, say how sure you are, and \
         separate what must change from what could. Begin a message that settles a point with \"Decision:\".",
    ),
    (
        "debugging",
        "This is a hunt for a defect. State what was observed before what is believed. For each hypothesis say which observation would refute it, and what to try next. \
         Begin the message that names the cause with \"Conclusion:\".",
    ),
    (
        "planning",
        "This is planning. Break the work into steps that can be done and checked one by one, say what each depends on and what could go wrong. \
         Begin a message that settles a point with \"Decision:\".",
    ),
];

fn is_empty(window: Window) -> bool {
    Budget::from(window).limit() == 0
}

/// Adds the built-in templates with other names to those of the file. Invalid ones are reported.
fn all_templates(
    declared: BTreeMap<String, Template>,
    unusable: &mut UnusableValues,
) -> BTreeMap<String, Template> {
    for (name, template) in &declared {
        check_template(name, template, unusable);
    }
    let built_in = BUILT_IN.iter().map(|(name, instructions)| {
        let template = Template {
            instructions: Some((*instructions).to_owned()),
            ..Template::default()
        };
        ((*name).to_owned(), template)
    });
    built_in.chain(declared).collect()
}

fn check_template(name: &str, template: &Template, unusable: &mut UnusableValues) {
    let field = |key: &str| format!("chats.templates.{name}.{key}");
    let instructions = template.instructions.as_ref();
    if instructions.is_some_and(|text| text.len() > INSTRUCTIONS_BYTES_MAX) {
        unusable.report(
            field("instructions"),
            format!("at most {INSTRUCTIONS_BYTES_MAX} bytes"),
        );
    }
    if template.window.is_some_and(is_empty) {
        unusable.report(field("window"), "at least 1");
    }
    if template.turns_max == Some(0) {
        unusable.report(field("turns_max"), NO_TURNS);
    }
}

impl Chats {
    /// Reads this part of the file, and adds the built-in templates with other names.
    pub(super) fn of(
        file: FileChats,
        agents: &dyn Fn(&str) -> Option<AgentName>,
        unusable: &mut UnusableValues,
    ) -> Self {
        let FileChats {
            window,
            turns_max,
            summarise_left_out,
            default_responder,
            summariser,
            summarise_on_archive,
            templates,
        } = file;
        if summarise_left_out && summariser.is_none() {
            unusable.report("chats.summarise_left_out", "needs chats.summariser");
        }
        let templates = all_templates(templates, unusable);
        if summarise_on_archive && summariser.is_none() {
            unusable.report(
                "chats.summarise_on_archive",
                "name the agent in chats.summariser",
            );
        }
        if turns_max == Some(0) {
            unusable.report("chats.turns_max", NO_TURNS);
        }
        if window.is_some_and(is_empty) {
            unusable.report("chats.window", "at least 1");
        }
        let mut agent = |field: &str, name: Option<String>| {
            let name = name?;
            let agent = agents(&name);
            if agent.is_none() {
                unusable.report(
                    format!("chats.{field}"),
                    format!("no agent {name:?} is declared"),
                );
            }
            agent
        };
        Self {
            window: window.map_or(Budget::Chars(WINDOW_CHARS_DEFAULT), Into::into),
            summarise_left_out,
            turns_max: turns_max.unwrap_or(TURNS_MAX_DEFAULT),
            default_responder: agent("default_responder", default_responder),
            summariser: agent("summariser", summariser),
            summarise_on_archive,
            templates,
        }
    }

    /// Lists the templates by name.
    pub fn templates(&self) -> impl Iterator<Item = (&str, &Template)> {
        self.templates
            .iter()
            .map(|(name, template)| (name.as_str(), template))
    }

    /// Finds a template.
    ///
    /// # Errors
    /// There is no template with this name. The error lists the known ones.
    pub fn template(&self, name: &str) -> Result<&Template, Denied> {
        self.templates.get(name).ok_or_else(|| {
            let known = self
                .templates
                .keys()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", ");
            Denied::invalid(
                "template",
                format!("no such template; the templates are {known}"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Chats, UnusableValues) {
        let file: FileChats = toml::from_str(text).expect("TOML");
        let mut unusable = UnusableValues::default();
        let agents = |name: &str| AgentName::parse(name).ok().filter(|_| name == "echo");
        let chats = Chats::of(file, &agents, &mut unusable);
        (chats, unusable)
    }

    #[test]
    fn declared_template_replaces_the_built_in_one() {
        let (chats, unusable) =
            read("[templates.review]\nprivate = true\n[templates.own]\nturns_max = 2\n");
        assert!(unusable.fields().is_empty(), "{unusable:?}");
        let names: Vec<&str> = chats.templates().map(|(name, _)| name).collect();
        assert_eq!(names, ["debugging", "own", "planning", "review"]);
        let review = chats.template("review").expect("a template");
        assert!(review.private && review.instructions.is_none());
    }

    #[test]
    fn unusable_chats_are_reported() {
        let long = "x".repeat(INSTRUCTIONS_BYTES_MAX + 1);
        let long = format!("[templates.x]\ninstructions = \"{long}\"");
        for (text, field) in [
            ("summarise_left_out = true", "chats.summarise_left_out"),
            ("summarise_on_archive = true", "chats.summarise_on_archive"),
            ("turns_max = 0", "chats.turns_max"),
            ("window = { tokens = 0 }", "chats.window"),
            ("summariser = \"nobody\"", "chats.summariser"),
            ("default_responder = \"nobody\"", "chats.default_responder"),
            (
                "[templates.x]\nturns_max = 0",
                "chats.templates.x.turns_max",
            ),
            (
                "[templates.x]\nwindow = { chars = 0 }",
                "chats.templates.x.window",
            ),
            (long.as_str(), "chats.templates.x.instructions"),
        ] {
            assert_eq!(read(text).1.fields(), [field]);
        }
        let (chats, unusable) = read("summarise_left_out = true\nsummariser = \"echo\"\n");
        assert!(unusable.fields().is_empty() && chats.summariser.is_some());
    }
}
