//! What each profile of permissions lets a real CLI do without approval: nothing changes in `read`,
//! only files of the directory change in `edit`, and our own tools work in both.

use super::Cli;
use super::case::Case;
use crate::model::Turn;
use serde_json::json;
use std::os::unix::fs::symlink;

/// What the model tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    /// A command that writes a file in the directory.
    Shell,
    WriteInside,
    WriteOutside,
    /// A file in the directory that leads out of it.
    WriteThroughLink,
    OurTool,
}

impl Cell {
    const ALL: [Self; 5] = [Self::Shell, Self::WriteInside, Self::WriteOutside, Self::WriteThroughLink, Self::OurTool];
}

/// What became of it when everything that was asked for was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// It was done, and nobody was asked.
    Done,
    /// An approval was asked for, and nothing was done without it.
    Asked,
    /// It was not done, and nobody was asked.
    Refused,
    /// An approval was asked for something that happened all the same.
    DoneAllTheSame,
}

fn tries(cli: Cli, permissions: &str, cell: Cell) -> Option<(Seen, String)> {
    let case = Case::new(cli, [])?;
    let work = case.home.work();
    // Beside the directory that it works in, and not below a directory for temporary files where that can be had.
    let outside = tempfile::Builder::new().prefix("adj-outside-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let made = match cell {
        Cell::Shell => work.join("by-shell.txt"),
        Cell::WriteInside => work.join("inside.txt"),
        Cell::WriteOutside => outside.path().join("outside.txt"),
        Cell::WriteThroughLink => outside.path().join("linked.txt"),
        Cell::OurTool => work.join("nothing.txt"),
    };
    symlink(outside.path(), work.join("link")).expect("a link");
    let turn = match cell {
        Cell::Shell => Turn::shell("printf x > by-shell.txt"),
        Cell::WriteInside => Turn::write(&work.join("inside.txt").display().to_string(), "x\n"),
        Cell::WriteOutside => Turn::write(&made.display().to_string(), "x\n"),
        Cell::WriteThroughLink => Turn::write(&work.join("link/linked.txt").display().to_string(), "x\n"),
        Cell::OurTool => Turn::call("update_subagent_status", json!({ "status": "success", "summary": "our tool works" })),
    };
    case.model.goes_on([turn, Turn::say("That is all."), Turn::say("That is all.")]);
    case.starts(permissions);
    let asked = case.denies_everything();
    let view = case.view();
    let is_done = if cell == Cell::OurTool { view["summary"] == "our tool works" } else { made.exists() };
    let seen = match (is_done, asked.is_empty()) {
        (true, true) => Seen::Done,
        (true, false) => Seen::DoneAllTheSame,
        (false, false) => Seen::Asked,
        (false, true) => Seen::Refused,
    };
    Some((seen, format!("{cli:?} {permissions} {cell:?}: {seen:?}, asked for {asked:?}\n{}", case.story())))
}

/// What a profile promises of a cell.
fn is_promised(cli: Cli, permissions: &str, cell: Cell, seen: Seen) -> bool {
    match (cell, permissions) {
        (Cell::OurTool, _) => seen == Seen::Done,
        (Cell::WriteInside, "edit") => seen == Seen::Done,
        // Its sandbox keeps a command to the directory, so that it needs no approval there.
        (Cell::Shell, "edit") if cli == Cli::Codex => seen == Seen::Done,
        _ => matches!(seen, Seen::Asked | Seen::Refused),
    }
}

fn holds_its_profiles(cli: Cli) {
    let mut broken = Vec::new();
    for permissions in ["read", "edit"] {
        for cell in Cell::ALL {
            let Some((seen, story)) = tries(cli, permissions, cell) else { return };
            if !is_promised(cli, permissions, cell, seen) {
                broken.push(story);
            }
        }
    }
    assert!(broken.is_empty(), "{} cells are not as promised:\n{}", broken.len(), broken.join("\n\n"));
}

#[test]
fn claude_holds_its_profiles() {
    holds_its_profiles(Cli::Claude);
}

#[test]
fn codex_holds_its_profiles() {
    holds_its_profiles(Cli::Codex);
}

#[test]
fn gemini_holds_its_profiles() {
    holds_its_profiles(Cli::Gemini);
}

#[test]
fn goose_holds_its_profiles() {
    holds_its_profiles(Cli::Goose);
}

#[test]
fn opencode_holds_its_profiles() {
    holds_its_profiles(Cli::Opencode);
}

#[test]
fn qwen_holds_its_profiles() {
    holds_its_profiles(Cli::Qwen);
}

#[test]
fn kimi_holds_its_profiles() {
    holds_its_profiles(Cli::Kimi);
}

#[test]
fn copilot_holds_its_profiles() {
    holds_its_profiles(Cli::Copilot);
}

#[test]
fn pi_holds_its_profiles() {
    holds_its_profiles(Cli::Pi);
}
