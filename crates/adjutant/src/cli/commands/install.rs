//! `adj install`: connects MCP clients to Adjutant by an entry in their files, and removes it.

use crate::cli::args::InstallArgs;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, Out, fail, fail_hint};
use crate::cli::prompt::ask;
use crate::cli::style::Style;
use crate::client::{VERSION, is_older};
use crate::clients::{
    CLIENTS, Change, FileError, Line, McpClient, NAME, OwnProgram, Plan, PlanError, Scope, client_ids, file_of, find_client, find_trace, hunk,
    plan_install, plan_undo, snippet,
};
use crate::process::{foreground, named};
use crate::text;
use crate::view::{ErrorView, codes};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

/// How long another `adj` may take to print its version.
const VERSION_LIMIT: Duration = Duration::from_secs(2);

/// What happened to one client.
struct Outcome {
    client: &'static McpClient,
    result: Result<Plan, ErrorView>,
    is_done: bool,
}

/// Connects or disconnects clients, or prints their entries.
pub async fn install(args: &InstallArgs, out: &Out) -> CommandResult {
    let program = OwnProgram::find().map_err(|error| fail(cli_codes::IO, format!("cannot find the path of this program: {error}")))?;
    if args.print {
        return print_snippets(&args.clients, &program, out);
    }
    let scope = if args.project { Scope::Project(current_dir()?) } else { Scope::User };
    let clients = chosen(args, &scope)?;
    if !args.undo && !args.is_shown && !args.is_silent {
        warn_about_program(&program, out).await?;
    }
    let mut outcomes: Vec<Outcome> = clients
        .into_iter()
        .map(|client| {
            let plan = if args.undo { plan_undo(client, &scope) } else { plan_install(client, &scope, &program) };
            Outcome { client, result: plan.map_err(|error| view_of(&error, client)), is_done: false }
        })
        .collect();
    if outcomes.is_empty() {
        return nothing_found(args, out);
    }
    let changes = outcomes.iter().filter(|one| one.plan().is_some_and(|plan| plan.change != Change::None)).count();
    if !out.json && !args.is_shown && !args.is_silent {
        for outcome in &outcomes {
            print_plan(outcome, args, out)?;
        }
    }
    if changes > 0 && !args.dry_run {
        if !args.yes && !confirmed(changes, args.undo, out)? {
            out.print_message("nothing changed")?;
            return Ok(Exit::Done);
        }
        for outcome in &mut outcomes {
            outcome.execute(out)?;
        }
    }
    report(&outcomes, args, out)
}

impl Outcome {
    fn plan(&self) -> Option<&Plan> {
        self.result.as_ref().ok()
    }

    fn execute(&mut self, out: &Out) -> Result<(), Failure> {
        let Ok(plan) = &self.result else { return Ok(()) };
        match plan.execute() {
            Ok(()) => self.is_done = true,
            Err(error) => {
                let view = view_of(&PlanError::File(error), self.client);
                if !out.json {
                    out.print_error(&view)?;
                }
                self.result = Err(view);
            }
        }
        Ok(())
    }

    fn to_json(&self, args: &InstallArgs) -> Value {
        let mut view = json!({ "client": self.client.id, "name": self.client.name });
        match &self.result {
            Err(error) => {
                view["status"] = json!("failed");
                view["error"] = json!(error);
            }
            Ok(plan) => {
                view["status"] = json!(plan.change.word());
                view["file"] = json!(plan.file.path);
                view["written"] = json!(self.is_done && plan.change != Change::None);
                view["backup"] = json!(plan.backup_kept());
                view["link_to"] = json!(plan.file.is_link().then_some(&plan.file.target));
                view["running"] = json!(named::is_running(self.client.programs));
                if args.dry_run {
                    view["diff"] = json!(diff_lines(plan));
                }
            }
        }
        view
    }
}

fn current_dir() -> Result<std::path::PathBuf, Failure> {
    std::env::current_dir().map_err(|error| fail(cli_codes::IO, format!("cannot find the current directory: {error}")))
}

/// Returns the clients on the command line, or those that are found and have a file in the scope.
fn chosen(args: &InstallArgs, scope: &Scope) -> Result<Vec<&'static McpClient>, Failure> {
    if args.clients.is_empty() {
        let has_file = |client: &&McpClient| file_of(client, scope).is_some_and(|file| !args.undo || file.exists());
        return Ok(CLIENTS.iter().filter(has_file).filter(|client| args.undo || find_trace(client).is_some()).collect());
    }
    let mut clients: Vec<&McpClient> = Vec::new();
    for id in &args.clients {
        let client = find_client(id).ok_or_else(|| fail(codes::INVALID, format!("no client {id:?}")))?;
        if clients.iter().all(|other| other.id != client.id) {
            clients.push(client);
        }
    }
    Ok(clients)
}

fn nothing_found(args: &InstallArgs, out: &Out) -> CommandResult {
    if out.json {
        out.print_json_list::<Value>(&[], 0, &[])?;
        return Ok(Exit::Done);
    }
    let message = if args.undo { "no client has an entry" } else { "no client found" };
    out.print_message(&format!("{message}; known: {}", client_ids().join(", ")))?;
    out.suggest("adj install CLIENT   or   adj install --print CLIENT")?;
    Ok(Exit::Done)
}

/// Warns if sessions would start another `adj` than this one.
async fn warn_about_program(program: &OwnProgram, out: &Out) -> Result<(), Failure> {
    if program.is_on_path() {
        return Ok(());
    }
    let exe = program.exe.display().to_string();
    let why = match &program.on_path {
        None => "adj is not on PATH".to_owned(),
        Some(other) => {
            let version = version_of(other).await;
            let age = match &version {
                Some(version) if is_older(version, VERSION) => format!("an older version ({version})"),
                Some(version) => format!("another copy ({version})"),
                None => "another program".to_owned(),
            };
            format!("adj on PATH is {}, {age}; this is {VERSION}", other.display())
        }
    };
    out.print_message(&text::line(&format!("warning: {why}; entries name {exe}")))
}

/// Returns the version of another `adj`. `None`: it is another program.
pub async fn version_of(program: &Path) -> Option<String> {
    let output = foreground::output(program, &[OsStr::new("--version")], &[], VERSION_LIMIT).await.ok()?;
    String::from_utf8(output.stdout).ok()?.trim().strip_prefix("adj ").map(str::to_owned)
}

/// Returns the error for a client, with what to do.
fn view_of(error: &PlanError, client: &McpClient) -> ErrorView {
    let id = client.id;
    let (code, hint) = match error {
        PlanError::NoFile { .. } => (codes::INVALID, format!("adj install --print {id} prints the entry")),
        PlanError::NoProjectFile { .. } => (codes::INVALID, format!("adj install {id} connects it for all projects")),
        PlanError::Format { .. } => (codes::INVALID, format!("fix the file, or add the entry that adj install --print {id} prints")),
        PlanError::Taken { .. } => (codes::CONFLICT, format!("remove or rename the entry {NAME}, then: adj install {id}")),
        PlanError::Duplicate { .. } => (codes::CONFLICT, "keep one of them: a model would see each tool twice".to_owned()),
        PlanError::File(FileError::ReadOnly { path }) => (cli_codes::IO, format!("chmod u+w {}", path.display())),
        PlanError::File(FileError::Foreign { .. }) => (cli_codes::IO, "run adj install as its owner".to_owned()),
        PlanError::File(FileError::Changed { .. }) => (codes::CONFLICT, format!("try again: adj install {id}")),
        PlanError::File(_) => (cli_codes::IO, format!("adj install --print {id} prints the entry")),
    };
    ErrorView { code: code.to_owned(), message: format!("{}: {error}; nothing was changed", client.name), hint: Some(hint) }
}

fn diff_lines(plan: &Plan) -> Vec<String> {
    let (before, after) = plan.contents();
    let (_, lines) = hunk(before, after);
    let shown = |(sign, line): (char, &str)| format!("{sign}{}", masked(line));
    lines.iter().map(|line| shown(signed(line))).collect()
}

/// Words in the names of settings that can hold credentials.
const SECRETS: [&str; 7] = ["key", "token", "secret", "password", "auth", "bearer", "credential"];

/// Hides the value of a setting that can be a credential: neighbours of the entry are shown too.
fn masked(line: &str) -> String {
    let lower = line.to_lowercase();
    if !SECRETS.iter().any(|word| lower.contains(word)) {
        return line.to_owned();
    }
    let name = line.split_inclusive([':', '=']).next().unwrap_or_default();
    format!("{name} …")
}

fn signed<'a>(line: &Line<'a>) -> (char, &'a str) {
    match line {
        Line::Same(line) => (' ', line),
        Line::Removed(line) => ('-', line),
        Line::Added(line) => ('+', line),
    }
}

/// Prints the change of one client's file.
fn print_plan(outcome: &Outcome, args: &InstallArgs, out: &Out) -> Result<(), Failure> {
    let plan = match &outcome.result {
        Ok(plan) => plan,
        Err(error) => return Ok(out.print_error(error)?),
    };
    let path = text::line(&plan.file.path.display().to_string());
    let name = outcome.client.name;
    if plan.change == Change::None {
        let state = if args.undo { "not connected" } else { "already connected" };
        return out.print_line(&format!("{} {name}: {state} ({path})", out.paint.apply(Style::Dim, "=")));
    }
    let link = if plan.file.is_link() { format!(" → {}", text::line(&plan.file.target.display().to_string())) } else { String::new() };
    let what = match &plan.change {
        Change::Delete => " (removed: it has only the entry)",
        Change::Add(_) if plan.file.text.is_none() => " (new)",
        _ => "",
    };
    out.print_line(&format!("{}{what}", out.paint.apply(Style::Strong, &format!("{name}: {path}{link}"))))?;
    let (before, after) = plan.contents();
    let (first, lines) = hunk(before, after);
    out.print_line(&out.paint.apply(Style::Dim, &format!("  @@ line {first} @@")))?;
    for line in &lines {
        let (sign, content) = signed(line);
        let style = match sign {
            '+' => Style::Good,
            '-' => Style::Bad,
            _ => Style::Plain,
        };
        let safe = text::block(&masked(content));
        out.print_line(&format!("  {}", out.paint.apply(style, &format!("{sign}{}", safe.trim_end_matches('\n')))))?;
    }
    Ok(())
}

fn confirmed(changes: usize, is_undo: bool, out: &Out) -> Result<bool, Failure> {
    let files = text::count(changes as u64, "file", "files");
    if !out.interactive {
        return Err(fail_hint(cli_codes::USAGE, format!("this changes {files}"), "confirm with --yes, or preview with --dry-run"));
    }
    let question = if is_undo { "Remove the entries" } else { "Connect them" };
    let answer = ask(&format!("{question} ({files})? [y/N] "))?;
    Ok(answer.is_some_and(|answer| matches!(answer.trim(), "y" | "Y" | "yes")))
}

/// Prints what was done, and what remains to be done in each client.
fn report(outcomes: &[Outcome], args: &InstallArgs, out: &Out) -> CommandResult {
    let failed = outcomes.iter().find_map(|one| one.result.as_ref().err());
    let exit = match failed {
        None => Exit::Done,
        // With several clients, some may have succeeded.
        Some(error) if outcomes.len() == 1 => Exit::of(&error.code),
        Some(_) => Exit::Failed,
    };
    if args.is_silent {
        return Ok(exit);
    }
    if out.json {
        let views: Vec<Value> = outcomes.iter().map(|one| one.to_json(args)).collect();
        out.print_json_list(&views, 0, &[])?;
        return Ok(exit);
    }
    for outcome in outcomes.iter().filter(|one| one.is_done) {
        let Some(plan) = outcome.plan().filter(|plan| plan.change != Change::None) else { continue };
        let name = outcome.client.name;
        let backup = plan.backup_kept().map_or_else(String::new, |path| format!(" (backup: {})", text::line(&path.display().to_string())));
        let what = if args.undo { "disconnected" } else { "connected" };
        out.print_line(&format!("{} {name} {what}{backup}", out.paint.apply(Style::Good, "✓")))?;
        if named::is_running(outcome.client.programs) {
            out.print_line(&format!("  {name} is running: restart it"))?;
        }
        if let (Some(note), false) = (outcome.client.note, args.undo) {
            out.print_line(&format!("  {note}"))?;
        }
    }
    Ok(exit)
}

/// Prints entries, with where to add them on standard error.
fn print_snippets(ids: &[String], program: &OwnProgram, out: &Out) -> CommandResult {
    let mut views = Vec::new();
    for id in ids {
        let client = find_client(id).ok_or_else(|| fail(codes::INVALID, format!("no client {id:?}")))?;
        let snippet = snippet(client, program).map_err(|error| fail(codes::INTERNAL, error.to_string()))?;
        let file = file_of(client, &Scope::User);
        if out.json {
            views.push(json!({ "client": id, "name": client.name, "file": file, "project_file": client.project_file, "entry": snippet }));
            continue;
        }
        let place = file.map_or_else(|| client.note.unwrap_or_default().to_owned(), |file| format!("add it to {}", file.display()));
        out.print_message(&format!("{}: {}", client.name, text::line(&place)))?;
        out.print_text(&snippet)?;
    }
    if out.json {
        out.print_json_list(&views, 0, &[])?;
    }
    Ok(Exit::Done)
}
