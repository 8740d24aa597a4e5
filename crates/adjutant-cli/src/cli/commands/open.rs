//! `adj open`: opens the user's editor, or a shell, in a run's directory.

use crate::cli::args::OpenArgs;
use crate::cli::argv;
use crate::cli::context::Context;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, fail, fail_hint};
use crate::config::text_variable;
use crate::process::foreground;
use crate::text;
use crate::view::{GetRun, codes};
use adjutant_core::WorkspaceState;
use std::io::IsTerminal;
use std::path::Path;

/// The shell if none is set.
const DEFAULT_SHELL: &str = "/bin/sh";

/// Opens the directory of a run. Without a terminal, it prints the path.
pub(crate) async fn open(args: &OpenArgs, cx: &Context) -> CommandResult {
    let run = cx
        .hub
        .call(&GetRun {
            run: args.run.clone(),
            ..GetRun::default()
        })
        .await?;
    let name = text::line(&run.identity.name);
    let workspace = run.place.workspace.as_ref();
    if workspace.is_some_and(|workspace| workspace.state == WorkspaceState::Discarded) {
        let hint = format!("bring its changes back as a branch: adj merge {name} --branch NAME");
        return Err(fail_hint(
            codes::CONFLICT,
            format!("the workspace of {name} is removed"),
            hint,
        ));
    }
    let dir = Path::new(workspace.map_or(&run.place.cwd, |workspace| &workspace.path));
    if !dir.is_dir() {
        let hint = format!("see its state: adj show {name}");
        return Err(fail_hint(
            codes::CONFLICT,
            format!(
                "{} does not exist, or not yet",
                text::line(&dir.display().to_string())
            ),
            hint,
        ));
    }
    if cx.out.json {
        cx.out.print_json(
            &serde_json::json!({"run_id": run.identity.run_id, "run_name": run.identity.name, "path": dir}),
        )?;
        return Ok(Exit::Done);
    }
    if !std::io::stdin().is_terminal() || !cx.out.terminal {
        cx.out
            .print_data(&(text::line(&dir.display().to_string()) + "\n"))?;
        return Ok(Exit::Done);
    }
    let variable = if args.shell { "SHELL" } else { "VISUAL" };
    let named = text_variable(variable).or_else(|| text_variable("EDITOR").filter(|_| !args.shell));
    let command = match named {
        Some(named) => argv::split(&named).ok_or_else(|| {
            fail(
                cli_codes::USAGE,
                format!("{} is not a command", text::line(&named)),
            )
        })?,
        None if args.shell => vec![DEFAULT_SHELL.to_owned()],
        None => {
            let hint = format!("set EDITOR, or open a shell: adj open --shell {name}");
            return Err(fail_hint(
                cli_codes::USAGE,
                "no editor is set (VISUAL, EDITOR)",
                hint,
            ));
        }
    };
    let (program, own_args) = command
        .split_first()
        .ok_or_else(|| fail(cli_codes::USAGE, "the command is empty"))?;
    let mut argv = own_args.to_vec();
    if !args.shell {
        argv.push(".".to_owned());
    }
    match foreground::run_attached(program, &argv, dir).await {
        Ok(status) if status.success() => Ok(Exit::Done),
        Ok(_) => Ok(Exit::Failed),
        Err(error) => Err(fail(
            cli_codes::IO,
            format!("{} cannot be started: {error}", text::line(program)),
        )),
    }
}
