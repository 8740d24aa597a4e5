//! The README's commands that connect an agent, run with the real CLIs.

use super::user::{environment, own_environment, settle};
use super::{Cli, Turnstile};
use crate::model::{Model, Seen, Turn};
use crate::readme;
use crate::support::{Ran, TestHome};
use std::cell::RefCell;
use std::io::Write;
use std::process::Stdio;

const PROMPT: &str = "do what the model says";
/// A model that Codex does not know. It offers it all tools at once.
pub const UNKNOWN_MODEL: &str = "test-model";

/// A CLI that the README's command has connected to Adjutant, with a scripted model.
pub struct Connected {
    cli: Cli,
    clis: Turnstile,
    model: Model,
    home: TestHome,
    /// The output of its last run.
    told: RefCell<String>,
}

impl Connected {
    /// Runs the README's command. `None`: skipped.
    pub fn by_the_readme(cli: Cli) -> Option<Self> {
        Some(Self::with(cli, Turnstile::enter()?, |line, _| line))
    }

    /// Runs the README's command, adapted to a home.
    pub fn with(cli: Cli, clis: Turnstile, changed: impl Fn(String, &TestHome) -> String) -> Self {
        let model = Model::plays(Vec::<Turn>::new());
        let home = TestHome::new();
        settle(home.home.dir.parent().expect("a directory"), &model);
        let connected = Self {
            cli,
            clis,
            model,
            home,
            told: RefCell::default(),
        };
        match cli {
            // Goose is connected for one session, by the command that starts it.
            Cli::Goose => {}
            Cli::Kimi => {
                let file = connected
                    .home
                    .home
                    .dir
                    .with_file_name(".kimi-code")
                    .join("mcp.json");
                std::fs::write(file, readme::file_of_servers()).expect("the home can be written");
            }
            cli => {
                let line = changed(line_for(cli), &connected.home);
                let added = connected.run(&line, "");
                assert_eq!(added.code, 0, "{line}: {added:?}");
            }
        }
        connected
    }

    /// Runs a shell command in the home and with the environment of a user of the CLI.
    fn run(&self, line: &str, input: &str) -> Ran {
        let mut command = readme::typed(&self.home, line);
        let path = format!("{}:{}", self.clis.bin.display(), readme::path());
        command
            .envs(environment(&self.clis, &self.model))
            .envs(own_environment(self.cli, &self.model));
        // Some CLIs leave temporary files.
        command.env("TMPDIR", self.home.home.dir.parent().expect("a directory"));
        command
            .env("PATH", path)
            .env("GEMINI_CLI_TRUST_WORKSPACE", "true");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell");
        child
            .stdin
            .take()
            .expect("a pipe")
            .write_all(input.as_bytes())
            .expect("it reads");
        child.wait_with_output().expect("it ends").into()
    }

    /// Returns the CLI's list of its servers.
    fn lists(&self) -> String {
        let listed = self.run(&format!("{} mcp list", self.cli.name()), "");
        assert_eq!(listed.code, 0, "{listed:?}");
        format!("{}{}", listed.out, listed.err)
    }

    /// Plays these turns to the CLI as a parent without a terminal, and returns the model's
    /// requests.
    pub fn plays(&self, turns: impl IntoIterator<Item = Turn>) -> Vec<Seen> {
        let (line, input) = match self.cli {
            // Offer all tools at once instead of deferring them.
            Cli::Claude => (
                "ENABLE_TOOL_SEARCH=false claude -p --allowedTools mcp__adjutant".to_owned(),
                PROMPT,
            ),
            // With known models, Codex defers tools until the model searches for them.
            Cli::Codex => (
                format!("codex exec --skip-git-repo-check -c model={UNKNOWN_MODEL} -"),
                PROMPT,
            ),
            Cli::Gemini => (
                "gemini --approval-mode yolo --skip-trust".to_owned(),
                PROMPT,
            ),
            Cli::Goose => {
                let of_the_readme = line_for(Cli::Goose);
                (
                    format!(
                        "{} -q --no-profile -i -",
                        of_the_readme.replacen("goose session", "goose run", 1)
                    ),
                    PROMPT,
                )
            }
            Cli::Opencode => (format!("opencode run '{PROMPT}'"), ""),
            Cli::Copilot => (format!("copilot -p '{PROMPT}' --allow-all-tools"), ""),
            Cli::Qwen => ("qwen --approval-mode yolo".to_owned(), PROMPT),
            Cli::Kimi => (format!("kimi -p '{PROMPT}'"), ""),
            Cli::Pi | Cli::Aider => panic!("it has no MCP client"),
            Cli::Droid | Cli::Kilo | Cli::Cline | Cli::Amp => {
                panic!("no line of the README is for it")
            }
        };
        self.types(&line, input, turns)
    }

    /// Runs a command that starts the CLI, plays these turns to it, and returns the model's
    /// requests.
    pub fn types(
        &self,
        line: &str,
        input: &str,
        turns: impl IntoIterator<Item = Turn>,
    ) -> Vec<Seen> {
        self.model.add_turns(turns);
        let ran = self.run(line, input);
        *self.told.borrow_mut() = format!("{line}: {ran:?}");
        self.model.seen()
    }

    /// Returns the output of the CLI's last run.
    pub fn told(&self) -> String {
        format!(
            "{}\nthe model saw: {:#?}",
            self.told.borrow(),
            self.model
                .seen()
                .iter()
                .map(|seen| (&seen.tools, &seen.results))
                .collect::<Vec<_>>()
        )
    }
}

/// Returns the README's command for a CLI.
fn line_for(cli: Cli) -> String {
    let line = readme::block("Connect your agent", "sh")
        .lines()
        .find(|line| line.starts_with(cli.name()))
        .expect("a line for each");
    line.split("  # ")
        .next()
        .expect("a command")
        .trim()
        .to_owned()
}

#[test]
fn claude_connects() {
    let Some(connected) = Connected::by_the_readme(Cli::Claude) else {
        return;
    };
    let listed = connected.lists();
    assert!(
        listed.contains("adjutant: adj mcp") && listed.contains("Connected"),
        "{listed}"
    );
}

#[test]
fn gemini_connects() {
    let Some(connected) = Connected::by_the_readme(Cli::Gemini) else {
        return;
    };
    let listed = connected.lists();
    assert!(
        listed.contains("adjutant: adj mcp") && listed.contains("Connected"),
        "{listed}"
    );
}

/// The list of Codex starts no server.
#[test]
fn codex_has_the_server() {
    let Some(connected) = Connected::by_the_readme(Cli::Codex) else {
        return;
    };
    let listed = connected.lists();
    let line = listed
        .lines()
        .find(|line| line.starts_with("adjutant "))
        .unwrap_or_else(|| panic!("{listed}"));
    assert!(
        line.split_ascii_whitespace()
            .take(3)
            .eq(["adjutant", "adj", "mcp"])
            && line.contains("enabled"),
        "{line}"
    );
}
