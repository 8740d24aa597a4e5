//! Each CLI without Adjutant: it starts, accepts the scripted model, and follows it. If one of
//! these tests fails, the CLI or the model has changed, not Adjutant.

use super::user::{environment, settle};
use super::{Cli, Turnstile};
use crate::model::{Dialect, Model, Turn};
use serde_json::json;
use std::io::Write;
use std::process::{Command, Stdio};

const PROMPT: &str = "write it down";

fn arguments(cli: Cli) -> &'static [&'static str] {
    match cli {
        Cli::Claude => &[
            "-p",
            "--output-format",
            "stream-json",
            "--input-format",
            "stream-json",
            "--verbose",
            "--permission-mode",
            "acceptEdits",
        ],
        Cli::Codex => &[
            "exec",
            "--json",
            "--skip-git-repo-check",
            "-s",
            "workspace-write",
            "-",
        ],
        Cli::Gemini => &[
            "-o",
            "stream-json",
            "--approval-mode",
            "yolo",
            "--skip-trust",
        ],
        Cli::Goose => &[
            "run",
            "-q",
            "--output-format",
            "stream-json",
            "--no-profile",
            "--with-builtin",
            "developer",
            "-i",
            "-",
        ],
        Cli::Opencode | Cli::Kilo => &["run", "--format", "json"],
        Cli::Cline => &["--json", PROMPT],
        Cli::Copilot => &["-p", PROMPT, "--allow-all-tools"],
        Cli::Pi => &["-p", "--mode", "json"],
        Cli::Kimi => &["-p", PROMPT],
        Cli::Aider => &["--yes-always", "--no-git", "--message", PROMPT],
        Cli::Droid => &["exec", "--auto", "high"],
        Cli::Amp => &["-x"],
        Cli::Qwen => &["-o", "stream-json", "--approval-mode", "yolo"],
    }
}

fn input(cli: Cli) -> String {
    match cli {
        Cli::Claude => format!(
            "{}\n",
            json!({ "type": "user", "message": { "role": "user", "content": PROMPT } })
        ),
        Cli::Codex
        | Cli::Gemini
        | Cli::Goose
        | Cli::Opencode
        | Cli::Kilo
        | Cli::Cline
        | Cli::Qwen
        | Cli::Copilot
        | Cli::Pi
        | Cli::Kimi
        | Cli::Aider
        | Cli::Droid
        | Cli::Amp => PROMPT.to_owned(),
    }
}

fn does_what_the_model_says(cli: Cli, dialect: Dialect) {
    let Some(clis) = Turnstile::enter() else {
        return;
    };
    let model = Model::plays([
        Turn::write("made.txt", "by the model\n"),
        Turn::say("it is written"),
    ]);
    let home = tempfile::Builder::new()
        .prefix("adj-bare-")
        .tempdir()
        .expect("a temporary directory");
    let work = home.path().join("work");
    std::fs::create_dir(&work).expect("a working directory");
    settle(home.path(), &model);

    let mut command = Command::new(clis.bin.join(cli.name()));
    command
        .args(arguments(cli))
        .env_clear()
        .envs(environment(&clis, &model))
        .env("HOME", home.path())
        .env("TMPDIR", home.path())
        .current_dir(&work);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the CLI starts");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(input(cli).as_bytes())
        .expect("it reads its prompt");
    let ended = child.wait_with_output().expect("the CLI ends");
    let (told, failed) = (
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr),
    );

    assert!(ended.status.success(), "{}: {told}\n{failed}", ended.status);
    let made = std::fs::read_to_string(work.join("made.txt"));
    assert_eq!(
        made.unwrap_or_default(),
        "by the model\n",
        "{told}\n{failed}"
    );
    let seen = model.seen();
    assert_eq!(
        (seen.len(), seen[0].dialect),
        (2, dialect),
        "{told}\n{failed}\n{:?}",
        model.aside()
    );
    assert_eq!(seen[1].results.len(), 1, "the model gets the result");
}

#[test]
fn claude_follows_the_model() {
    does_what_the_model_says(Cli::Claude, Dialect::Messages);
}

#[test]
fn codex_follows_the_model() {
    does_what_the_model_says(Cli::Codex, Dialect::Responses);
}

#[test]
fn gemini_follows_the_model() {
    does_what_the_model_says(Cli::Gemini, Dialect::Gemini);
}

#[test]
fn goose_follows_the_model() {
    does_what_the_model_says(Cli::Goose, Dialect::Chat);
}
