//! The README's lines that connect an agent, run by the agents' own programs.

use super::user::{environment, settle};
use super::{Cli, Turnstile};
use crate::model::{Model, Turn};
use crate::readme;
use crate::support::{Ran, TestHome};

/// Runs the README's line for a CLI, and returns what the CLI then says of its servers.
fn connected(cli: Cli) -> Option<(TestHome, String)> {
    let clis = Turnstile::enter()?;
    let line = readme::block("Connect your agent", "sh").lines().find(|line| line.starts_with(cli.name())).expect("a line for each");
    let line = line.split('#').next().expect("a command").trim();
    let model = Model::plays(Vec::<Turn>::new());
    let home = TestHome::new();
    settle(home.home.dir.parent().expect("a directory"), &model);
    let ran = |line: &str| -> Ran {
        let mut command = readme::typed(&home, line);
        let path = format!("{}:{}", clis.bin.display(), readme::path());
        command.envs(environment(&clis, &model)).env("PATH", path).env("GEMINI_CLI_TRUST_WORKSPACE", "true");
        command.output().expect("a shell").into()
    };
    let added = ran(line);
    assert_eq!(added.code, 0, "{line}: {added:?}");
    let listed = ran(&format!("{} mcp list", cli.name()));
    assert_eq!(listed.code, 0, "{listed:?}");
    Some((home, format!("{}{}", listed.out, listed.err)))
}

#[test]
fn claude_connects() {
    let Some((_home, listed)) = connected(Cli::Claude) else { return };
    assert!(listed.contains("adjutant: adj mcp") && listed.contains("Connected"), "{listed}");
}

#[test]
fn gemini_connects() {
    let Some((_home, listed)) = connected(Cli::Gemini) else { return };
    assert!(listed.contains("adjutant: adj mcp") && listed.contains("Connected"), "{listed}");
}

/// Its list starts no server.
#[test]
fn codex_has_the_server() {
    let Some((_home, listed)) = connected(Cli::Codex) else { return };
    let line = listed.lines().find(|line| line.starts_with("adjutant ")).unwrap_or_else(|| panic!("{listed}"));
    assert!(line.split_ascii_whitespace().take(3).eq(["adjutant", "adj", "mcp"]) && line.contains("enabled"), "{line}");
}
