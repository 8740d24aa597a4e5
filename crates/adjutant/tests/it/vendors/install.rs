//! `adj install`, with the lists of servers and skills of the real CLIs.

use super::user::{environment, own_environment, settle};
use super::{Cli, Turnstile};
use crate::model::{Model, Turn};
use crate::readme::{path, typed};
use crate::support::{Ran, TestHome};
use std::path::PathBuf;

struct User {
    cli: Cli,
    clis: Turnstile,
    model: Model,
    home: TestHome,
}

impl User {
    fn run(&self, line: &str) -> Ran {
        let mut command = typed(&self.home, line);
        command.envs(environment(&self.clis, &self.model)).envs(own_environment(self.cli, &self.model));
        command.env("TMPDIR", self.home.home.dir.parent().expect("a directory"));
        command.env("PATH", format!("{}:{}", self.clis.bin.display(), path())).env("GEMINI_CLI_TRUST_WORKSPACE", "true");
        let ran: Ran = command.output().expect("a shell").into();
        assert_eq!(ran.code, 0, "{line}: {ran:?}");
        ran
    }

    fn lists(&self) -> String {
        let line = match self.cli {
            Cli::Goose => "goose info -v".to_owned(),
            cli => format!("{} mcp list", cli.name()),
        };
        let listed = self.run(&line);
        listed.out + &listed.err
    }

    /// Returns the CLI's list of skills. `None`: it prints none without a model.
    fn skills(&self) -> Option<String> {
        let line = match self.cli {
            Cli::Gemini => "gemini skills list",
            Cli::Goose => "goose skills list",
            Cli::Opencode => "opencode debug skill",
            Cli::Copilot => "copilot skill list",
            _ => return None,
        };
        let listed = self.run(line);
        Some(listed.out + &listed.err)
    }
}

/// Connects a CLI, expects the server and the skill in its own lists, and disconnects it.
fn installs(cli: Cli, file: &str) {
    let Some(clis) = Turnstile::enter() else { return };
    let model = Model::plays(Vec::<Turn>::new());
    let home = TestHome::new();
    settle(home.home.dir.parent().expect("a directory"), &model);
    let user = User { cli, clis, model, home };
    let file: PathBuf = user.home.home.dir.with_file_name(file);
    // It writes its file when it starts for the first time.
    assert!(!user.lists().contains("adjutant"), "{cli:?}");
    let before = std::fs::read_to_string(&file).ok();
    let id = cli.name();
    user.run(&format!("adj install {id} --yes"));
    let listed = user.lists();
    assert!(listed.contains("adjutant"), "{listed}");
    if let Some(skills) = user.skills() {
        assert!(skills.contains("adjutant") && !skills.contains("Skill conflict"), "{cli:?}: {skills}");
    }
    user.run(&format!("adj install {id} --undo --yes"));
    assert_eq!(std::fs::read_to_string(&file).ok(), before, "{cli:?}");
    assert!(!user.lists().contains("adjutant"), "{cli:?}");
    assert!(user.skills().is_none_or(|skills| !skills.contains("adjutant")), "{cli:?}");
}

#[test]
fn claude_lists_the_installed_server() {
    installs(Cli::Claude, ".claude.json");
}

#[test]
fn codex_lists_the_installed_server() {
    installs(Cli::Codex, ".codex/config.toml");
}

#[test]
fn gemini_lists_the_installed_server() {
    installs(Cli::Gemini, ".gemini/settings.json");
}

#[test]
fn opencode_lists_the_installed_server() {
    installs(Cli::Opencode, ".config/opencode/opencode.json");
}

#[test]
fn goose_lists_the_installed_server() {
    installs(Cli::Goose, ".config/goose/config.yaml");
}

#[test]
fn qwen_lists_the_installed_server() {
    installs(Cli::Qwen, ".qwen/settings.json");
}

#[test]
fn copilot_lists_the_installed_server() {
    installs(Cli::Copilot, ".copilot/mcp-config.json");
}
