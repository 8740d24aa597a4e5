//! `adj update`: what of this installation is not current, and how to update it. It contacts no
//! server.

use super::install::version_of;
use crate::cli::args::UpdateArgs;
use crate::cli::context::home;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, Out, fail};
use crate::cli::style::Style;
use crate::hub_client::{Client, VERSION, is_older};
use crate::integrations::{Installation, OwnProgram, all_on_path};
use crate::text;
use crate::view::{GetHub, codes};
use serde_json::json;
use std::path::{Path, PathBuf};

/// What the printed report and JSON say about the limits of this check.
const LIMITS: &str = "adj contacts no server, so it does not know whether a newer version exists";

/// An `adj` on `PATH`.
struct Copy {
    path: PathBuf,
    /// `None`: it is another program, or did not answer.
    version: Option<String>,
    is_this: bool,
}

impl Copy {
    /// Returns whether this copy is not the version that runs now.
    fn differs(&self) -> bool {
        !self.is_this && self.version.as_deref() != Some(VERSION)
    }
}

/// Compares this program with the running hub and with the others on `PATH`, and prints the
/// commands that update it.
pub(crate) async fn update(_args: &UpdateArgs, out: &Out) -> CommandResult {
    let program = OwnProgram::find().map_err(|error| {
        fail(
            cli_codes::IO,
            format!("cannot find the path of this program: {error}"),
        )
    })?;
    let exe = program
        .exe
        .canonicalize()
        .unwrap_or_else(|_| program.exe.clone());
    let installation = Installation::of(&exe);
    let hub = hub_version().await?;
    let copies = copies(&exe).await;
    let hub_differs = hub.as_deref().is_some_and(|hub| hub != VERSION);
    let is_current = !hub_differs && copies.iter().all(|copy| !copy.differs());
    if out.json {
        let copy = |copy: &Copy| json!({ "path": copy.path, "version": copy.version, "this": copy.is_this });
        out.print_json(&json!({
            "version": VERSION,
            "path": exe,
            "installed_by": installation.word(),
            "hub": hub,
            "on_path": copies.iter().map(copy).collect::<Vec<_>>(),
            "consistent": is_current,
            "update": installation.update(&exe),
            "limits": LIMITS,
        }))?;
    } else {
        print_row(
            "✓",
            Style::Good,
            "program",
            &format!(
                "adj {VERSION} at {}, {}",
                exe.display(),
                installation.description()
            ),
            out,
        )?;
        print_hub(hub.as_deref(), out)?;
        print_copies(&copies, out)?;
        out.print_line("")?;
        out.print_line(&out.paint.apply(Style::Strong, "To update it"))?;
        for command in installation.update(&exe) {
            out.print_line(&format!("  {}", text::line(&command)))?;
        }
        out.print_message(LIMITS)?;
    }
    Ok(if is_current { Exit::Done } else { Exit::Failed })
}

/// Returns the version of the running hub, if one is running.
async fn hub_version() -> Result<Option<String>, Failure> {
    match Client::running_hub(&home()?).call(&GetHub {}).await {
        Ok(hub) => Ok(Some(hub.version)),
        Err(error) if error.code == codes::UNREACHABLE => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn copies(exe: &Path) -> Vec<Copy> {
    let mut copies = Vec::new();
    for path in all_on_path() {
        let is_this = path.canonicalize().is_ok_and(|real| real == exe);
        let version = if is_this {
            Some(VERSION.to_owned())
        } else {
            version_of(&path).await
        };
        copies.push(Copy {
            path,
            version,
            is_this,
        });
    }
    copies
}

fn print_hub(hub: Option<&str>, out: &Out) -> Result<(), Failure> {
    match hub {
        None => print_row(
            "✓",
            Style::Good,
            "hub",
            "not running; the next command starts this version",
            out,
        ),
        Some(VERSION) => print_row("✓", Style::Good, "hub", &format!("runs {VERSION}"), out),
        Some(hub) => print_row(
            "!",
            Style::Attention,
            "hub",
            &format!("runs {hub}, and this is {VERSION}; to restart it: adj stop"),
            out,
        ),
    }
}

fn print_copies(copies: &[Copy], out: &Out) -> Result<(), Failure> {
    if copies.is_empty() {
        return print_row(
            "!",
            Style::Attention,
            "PATH",
            "has no adj, so agents and shells do not find it",
            out,
        );
    }
    for (at, copy) in copies.iter().enumerate() {
        let path = copy.path.display();
        let first = if at == 0 { "the first" } else { "a later one" };
        let (glyph, style, state) = match &copy.version {
            _ if copy.is_this => ("✓", Style::Good, format!("{path}: this one")),
            None => (
                "!",
                Style::Attention,
                format!("{path}: {first}, is another program"),
            ),
            Some(version) if is_older(version, VERSION) => (
                "!",
                Style::Attention,
                format!("{path}: {first}, is the older {version}; remove it"),
            ),
            Some(version) if version == VERSION => (
                "✓",
                Style::Good,
                format!("{path}: another copy of {version}"),
            ),
            Some(version) => (
                "!",
                Style::Attention,
                format!("{path}: {first}, is {version}"),
            ),
        };
        print_row(glyph, style, "PATH", &state, out)?;
    }
    Ok(())
}

fn print_row(glyph: &str, style: Style, name: &str, state: &str, out: &Out) -> Result<(), Failure> {
    out.print_line(&format!(
        "{} {name:<8} {}",
        out.paint.apply(style, glyph),
        text::line(state)
    ))
}
