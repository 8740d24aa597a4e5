//! `adj install`: connects MCP clients to Adjutant by an entry in their files, and removes it.

use crate::cli::args::{InstallArgs, WithSkill};
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, Out, fail, fail_hint};
use crate::cli::prompt::{Agreed, ask_with_details};
use crate::cli::style::Style;
use crate::cli::{pager, symbols};
use crate::config::text_variable;
use crate::hub_client::{VERSION, is_older};
use crate::integrations::{
    CLIENTS, Change, ClientFile, FileError, Line, McpClient, NAME, OwnProgram, Plan, PlanError,
    Scope, SkillChange, SkillPlan, client_ids, file_of, find_client, find_trace, hunk,
    plan_install, plan_skill, plan_skill_undo, plan_undo, skill_of, skill_text, snippet,
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
struct InstallOutcome {
    client: &'static McpClient,
    /// `None`: only the skill was requested.
    entry: Option<Result<Plan, ErrorView>>,
    /// `None`: the client has none, none was requested, or the entry cannot be changed.
    skill: Option<Result<SkillPlan, ErrorView>>,
    /// An earlier client whose change covers the same file.
    shares: Option<&'static McpClient>,
    is_done: bool,
}

/// Connects or disconnects clients, or prints their entries.
pub(crate) async fn install(args: &InstallArgs, out: &Out) -> CommandResult {
    let program = OwnProgram::find().map_err(|error| {
        fail(
            cli_codes::IO,
            format!("cannot find the path of this program: {error}"),
        )
    })?;
    if args.print {
        return print_by_hand(args, &program, out);
    }
    let scope = if args.project {
        Scope::Project(current_dir()?)
    } else {
        Scope::User
    };
    let clients = chosen(args, &scope)?;
    if !args.undo && !args.is_shown && !args.is_silent && args.skill != WithSkill::Only {
        warn_about_program(&program, out).await?;
    }
    let mut outcomes = plan_all(&clients, args, &scope, &program);
    if outcomes.is_empty() {
        return nothing_found(args, out);
    }
    let changes = outcomes.iter().map(InstallOutcome::changes).sum();
    let is_asked = changes > 0 && !args.dry_run && !args.yes && out.interactive;
    if !out.json && !args.is_shown && !args.is_silent {
        print_errors(&outcomes, out)?;
        if is_asked || args.is_summary {
            print_summary(&outcomes, args, out)?
        } else {
            print_plans(&outcomes, args, out).await?
        }
    }
    if changes > 0 && !args.dry_run {
        if !args.yes && !confirmed(&outcomes, changes, args, out).await? {
            out.print_message("nothing changed")?;
            return Ok(Exit::Done);
        }
        for outcome in &mut outcomes {
            outcome.execute(out)?;
        }
    }
    report(&outcomes, args, out)
}

/// Removes the entries and skills of clients, and prints what was removed and what cannot be.
/// Returns the latter.
pub(crate) fn disconnect(
    clients: &[&'static McpClient],
    program: &OwnProgram,
    out: &Out,
) -> Result<Vec<ErrorView>, Failure> {
    let args = InstallArgs {
        undo: true,
        is_silent: out.json,
        ..InstallArgs::default()
    };
    let mut outcomes = plan_all(clients, &args, &Scope::User, program);
    for outcome in &mut outcomes {
        if let (Some(error), false) = (outcome.error(), out.json) {
            out.print_error(error)?;
        }
        outcome.execute(out)?;
    }
    report(&outcomes, &args, out)?;
    Ok(outcomes
        .iter()
        .filter_map(InstallOutcome::error)
        .cloned()
        .collect())
}

/// Plans the changes of all clients. A file that two clients share is changed for the first.
fn plan_all(
    clients: &[&'static McpClient],
    args: &InstallArgs,
    scope: &Scope,
    program: &OwnProgram,
) -> Vec<InstallOutcome> {
    let mut outcomes: Vec<InstallOutcome> = Vec::new();
    for &client in clients {
        let mut shares = None;
        let mut entry = (args.skill != WithSkill::Only).then(|| {
            if args.undo {
                plan_undo(client, scope)
            } else {
                plan_install(client, scope, program)
            }
        });
        if let Some(Ok(plan)) = &mut entry {
            let is_same = |other: &&InstallOutcome| {
                other.plan().is_some_and(|other| {
                    other.change.is_change() && other.file.path == plan.file.path
                })
            };
            shares = outcomes.iter().find(is_same).map(|other| other.client);
            if shares.is_some() {
                plan.change = Change::None;
            }
        }
        let skill = (args.skill != WithSkill::No && !matches!(entry, Some(Err(_))))
            .then(|| skill_plan(client, clients, args, scope));
        let mut skill = skill.and_then(Result::transpose);
        if let Some(Ok(plan)) = &mut skill
            && outcomes
                .iter()
                .filter_map(InstallOutcome::skill_plan)
                .any(|other| other.file.path == plan.file.path)
        {
            plan.change = SkillChange::None;
        }
        let view = |error: PlanError| view_of(&error, client);
        let (entry, skill) = (
            entry.map(|plan| plan.map_err(view)),
            skill.map(|plan| plan.map_err(view)),
        );
        outcomes.push(InstallOutcome {
            client,
            entry,
            skill,
            shares,
            is_done: false,
        });
    }
    outcomes
}

fn skill_plan(
    client: &'static McpClient,
    clients: &[&'static McpClient],
    args: &InstallArgs,
    scope: &Scope,
) -> Result<Option<SkillPlan>, PlanError> {
    let is_required = args.skill == WithSkill::Only && !args.clients.is_empty();
    let plan = if args.undo {
        plan_skill_undo(client, scope, clients)
    } else {
        plan_skill(client, scope)
    }?;
    match plan {
        None if is_required => Err(PlanError::NoSkill { client }),
        Some(mut plan) if args.is_repair && plan.change == SkillChange::Add => {
            plan.change = SkillChange::None;
            Ok(Some(plan))
        }
        plan => Ok(plan),
    }
}

impl InstallOutcome {
    fn plan(&self) -> Option<&Plan> {
        self.entry.as_ref().and_then(|entry| entry.as_ref().ok())
    }

    fn skill_plan(&self) -> Option<&SkillPlan> {
        self.skill.as_ref().and_then(|skill| skill.as_ref().ok())
    }

    /// Returns how many files it changes.
    fn changes(&self) -> usize {
        usize::from(self.plan().is_some_and(|plan| plan.change.is_change()))
            + usize::from(
                self.skill_plan()
                    .is_some_and(|plan| plan.change.is_change()),
            )
    }

    fn error(&self) -> Option<&ErrorView> {
        let entry = self.entry.as_ref().and_then(|entry| entry.as_ref().err());
        entry.or_else(|| self.skill.as_ref().and_then(|skill| skill.as_ref().err()))
    }

    fn execute(&mut self, out: &Out) -> Result<(), Failure> {
        let client = self.client;
        let failed = |error| {
            let view = view_of(&PlanError::File(error), client);
            if !out.json {
                out.print_error(&view)?;
            }
            Ok::<_, Failure>(view)
        };
        if let Some(Ok(plan)) = &self.entry
            && let Err(error) = plan.execute()
        {
            self.entry = Some(Err(failed(error)?));
            return Ok(());
        }
        self.is_done = true;
        if let Some(Ok(plan)) = &self.skill
            && let Err(error) = plan.execute()
        {
            self.skill = Some(Err(failed(error)?));
        }
        Ok(())
    }

    fn to_json(&self, args: &InstallArgs) -> Value {
        let mut view = json!({ "client": self.client.id, "name": self.client.name });
        match &self.entry {
            None => {}
            Some(Err(error)) => {
                view["status"] = json!("failed");
                view["error"] = json!(error);
            }
            Some(Ok(plan)) => {
                view["status"] = json!(plan.change.word());
                view["file"] = json!(plan.file.path);
                view["written"] = json!(self.is_done && plan.change.is_change());
                view["backup"] = json!(plan.backup_kept());
                view["disabled"] = json!(plan.disabled);
                view["link_to"] = json!(plan.file.is_link().then_some(&plan.file.target));
                view["running"] = json!(named::is_running(self.client.programs));
                if args.dry_run {
                    let (before, after) = plan.contents();
                    view["diff"] = json!(diff_lines(before, after));
                }
            }
        }
        view["skill"] = match &self.skill {
            None => Value::Null,
            Some(Err(error)) => json!({ "status": "failed", "error": error }),
            Some(Ok(plan)) => {
                let written = self.is_done && plan.change.is_change();
                let mut skill = json!({ "status": plan.change.word(), "file": plan.file.path, "written": written });
                if args.dry_run {
                    let (before, after) = plan.contents();
                    skill["diff"] = json!(diff_lines(before, &after));
                }
                skill
            }
        };
        view
    }
}

fn current_dir() -> Result<std::path::PathBuf, Failure> {
    std::env::current_dir().map_err(|error| {
        fail(
            cli_codes::IO,
            format!("cannot find the current directory: {error}"),
        )
    })
}

/// Returns the clients on the command line, or those that are found and have a file in the scope.
fn chosen(args: &InstallArgs, scope: &Scope) -> Result<Vec<&'static McpClient>, Failure> {
    if args.clients.is_empty() {
        let is_there = |file: &Path| !args.undo || file.symlink_metadata().is_ok();
        let has_entry_file = |client: &McpClient| {
            args.skill != WithSkill::Only
                && file_of(client, scope).is_some_and(|file| is_there(&file))
        };
        let wanted: Vec<&McpClient> = CLIENTS
            .iter()
            .filter(|client| args.undo || find_trace(client).is_some())
            .collect();
        let mut clients: Vec<&McpClient> = wanted
            .iter()
            .copied()
            .filter(|client| has_entry_file(client))
            .collect();
        if args.skill == WithSkill::Only || args.undo && args.skill == WithSkill::Yes {
            // A directory that clients share counts once.
            for client in wanted {
                let skill = skill_of(client, scope).filter(|file| is_there(file));
                if skill.is_some() && clients.iter().all(|other| skill_of(other, scope) != skill) {
                    clients.push(client);
                }
            }
        }
        return Ok(clients);
    }
    let mut clients: Vec<&McpClient> = Vec::new();
    for id in &args.clients {
        let client =
            find_client(id).ok_or_else(|| fail(codes::INVALID, format!("no client {id:?}")))?;
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
    let message = if args.undo {
        "no client has an entry"
    } else {
        "no client found"
    };
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
                Some(version) if is_older(version, VERSION) => {
                    format!("an older version ({version})")
                }
                Some(version) => format!("another copy ({version})"),
                None => "another program".to_owned(),
            };
            format!(
                "adj on PATH is {}, {age}; this is {VERSION}",
                other.display()
            )
        }
    };
    out.print_message(&text::line(&format!("warning: {why}; entries name {exe}")))
}

/// Returns the version of another `adj`. `None`: it is another program.
pub(crate) async fn version_of(program: &Path) -> Option<String> {
    let output = foreground::output(program, &[OsStr::new("--version")], &[], VERSION_LIMIT)
        .await
        .ok()?;
    String::from_utf8(output.stdout)
        .ok()?
        .trim()
        .strip_prefix("adj ")
        .map(str::to_owned)
}

/// Returns the error for a client, with what to do.
fn view_of(error: &PlanError, client: &McpClient) -> ErrorView {
    let id = client.id;
    let (code, hint) = match error {
        PlanError::NoFile { .. } => (
            codes::INVALID,
            format!("adj install --print {id} prints the entry"),
        ),
        PlanError::NoSkill { .. } => (
            codes::INVALID,
            format!("adj install --skill no {id} adds only its entry"),
        ),
        PlanError::NoProjectFile { .. } => (
            codes::INVALID,
            format!("adj install {id} connects it for all projects"),
        ),
        PlanError::Format { .. } => (
            codes::INVALID,
            format!("fix the file, or add the entry that adj install --print {id} prints"),
        ),
        PlanError::Taken { .. } => (
            codes::CONFLICT,
            format!("remove or rename the entry {NAME}, then: adj install {id}"),
        ),
        PlanError::Duplicate { .. } => (
            codes::CONFLICT,
            "keep one of them: a model would see each tool twice".to_owned(),
        ),
        PlanError::File(FileError::ReadOnly { path }) => {
            (cli_codes::IO, format!("chmod u+w {}", path.display()))
        }
        PlanError::File(FileError::Foreign { .. }) => {
            (cli_codes::IO, "run adj install as its owner".to_owned())
        }
        PlanError::File(FileError::Changed { .. } | FileError::LeftAlone { .. }) => {
            (codes::CONFLICT, format!("try again: adj install {id}"))
        }
        PlanError::File(_) => (
            cli_codes::IO,
            format!("adj install --print {id} prints the entry"),
        ),
    };
    ErrorView {
        code: code.to_owned(),
        message: format!("{}: {error}; nothing was changed", client.name),
        hint: Some(hint),
    }
}

fn diff_lines(before: &str, after: &str) -> Vec<String> {
    let (_, lines) = hunk(before, after);
    let shown = |(sign, line): (char, &str)| format!("{sign}{}", masked(line));
    lines.iter().map(|line| shown(signed(line))).collect()
}

/// Words in the names of settings that can hold credentials.
const SECRETS: [&str; 7] = [
    "key",
    "token",
    "secret",
    "password",
    "auth",
    "bearer",
    "credential",
];

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

/// Prints why files cannot be changed.
fn print_errors(outcomes: &[InstallOutcome], out: &Out) -> Result<(), Failure> {
    for outcome in outcomes {
        let entry = outcome
            .entry
            .as_ref()
            .and_then(|entry| entry.as_ref().err());
        let skill = outcome
            .skill
            .as_ref()
            .and_then(|skill| skill.as_ref().err());
        entry
            .into_iter()
            .chain(skill)
            .try_for_each(|error| out.print_error(error))?;
    }
    Ok(())
}

/// Prints a line for each file: how many of its lines change.
fn print_summary(
    outcomes: &[InstallOutcome],
    args: &InstallArgs,
    out: &Out,
) -> Result<(), Failure> {
    for outcome in outcomes {
        let name = outcome.client.name;
        if let Some(plan) = outcome.plan() {
            if plan.change.is_change() {
                let (before, after) = plan.contents();
                out.print_line(&summary_line(name, &plan.file, before, after))?;
            } else {
                out.print_text(&unchanged_line(outcome, plan, args, out))?;
            }
        }
        if let Some(plan) = outcome.skill_plan() {
            if plan.change.is_change() {
                let (before, after) = plan.contents();
                out.print_line(&summary_line(
                    &format!("{name}, skill"),
                    &plan.file,
                    before,
                    &after,
                ))?;
            } else {
                out.print_text(&skill_text_of(outcome, plan, &mut None, out))?;
            }
        }
    }
    Ok(())
}

/// Returns the line of a file that changes, with its path below the home directory of the user.
fn summary_line(what: &str, file: &ClientFile, before: &str, after: &str) -> String {
    let (_, lines) = hunk(before, after);
    let count = |sign: char| lines.iter().filter(|line| signed(line).0 == sign).count() as u64;
    let (added, removed) = (count('+'), count('-'));
    let counts = match (added, removed) {
        (0, removed) => format!("-{}", text::count(removed, "line", "lines")),
        (added, 0) => format!("+{}", text::count(added, "line", "lines")),
        (added, removed) => format!("+{added} -{}", text::count(removed, "line", "lines")),
    };
    let is_new = if file.text.is_none() { " (new)" } else { "" };
    format!("  {what:<24}  {}  {counts}{is_new}", below_home(&file.path))
}

/// Formats a path with `~` for the user's home directory.
fn below_home(path: &Path) -> String {
    let home = text_variable("HOME").filter(|home| !home.is_empty());
    let below = home
        .as_deref()
        .and_then(|home| path.strip_prefix(home).ok());
    text::line(&below.map_or_else(
        || path.display().to_string(),
        |below| format!("~/{}", below.display()),
    ))
}

/// Prints the changes of all files, through the pager if they are longer than the terminal. The
/// text of the skill is printed once.
async fn print_plans(
    outcomes: &[InstallOutcome],
    args: &InstallArgs,
    out: &Out,
) -> Result<(), Failure> {
    let mut shown_skill = None;
    let mut all = String::new();
    for outcome in outcomes {
        if let Some(plan) = outcome.plan() {
            all.push_str(&entry_text(outcome, plan, args, out));
        }
        if let Some(plan) = outcome.skill_plan() {
            all.push_str(&skill_text_of(outcome, plan, &mut shown_skill, out));
        }
    }
    let is_long = pager::rows().is_some_and(|rows| all.lines().count() >= rows);
    pager::print(
        &symbols::shown(&all, out.columns),
        is_long && out.interactive,
        out,
    )
    .await
}

/// Describes the change of one client's file.
fn entry_text(outcome: &InstallOutcome, plan: &Plan, args: &InstallArgs, out: &Out) -> String {
    if !plan.change.is_change() {
        return unchanged_line(outcome, plan, args, out);
    }
    let what = match &plan.change {
        Change::Delete => " (removed: it has only the entry)",
        Change::Add(_) if plan.file.text.is_none() => " (new)",
        _ => "",
    };
    let (before, after) = plan.contents();
    let path = text::line(&plan.file.path.display().to_string());
    title_line(
        &format!("{}: {path}", outcome.client.name),
        &plan.file,
        what,
        out,
    ) + &hunk_text(before, after, out)
}

/// Describes why the file of a client stays as it is.
fn unchanged_line(outcome: &InstallOutcome, plan: &Plan, args: &InstallArgs, out: &Out) -> String {
    let path = text::line(&plan.file.path.display().to_string());
    let name = outcome.client.name;
    let state = match outcome.shares {
        Some(other) => format!("has the file of {}", other.name),
        None if plan.change == Change::Keep => {
            format!("the entry {NAME} is kept, because adj install did not write it as it is")
        }
        None if args.undo => "not connected".to_owned(),
        None => plan.disabled.as_ref().map_or_else(
            || "already connected".to_owned(),
            |fix| format!("connected, but its entry is disabled: {}", text::line(fix)),
        ),
    };
    format!(
        "{} {name}: {state} ({path})\n",
        out.paint.apply(Style::Dim, "=")
    )
}

/// Describes the change of a skill. Its text is shown once.
fn skill_text_of(
    outcome: &InstallOutcome,
    plan: &SkillPlan,
    shown: &mut Option<SkillChange>,
    out: &Out,
) -> String {
    let path = text::line(&plan.file.path.display().to_string());
    let name = outcome.client.name;
    let why = match plan.change {
        SkillChange::None => return String::new(),
        SkillChange::KeepForeign => "it was edited, or adj did not write it".to_owned(),
        SkillChange::KeepFor(other) => format!("{other} uses it too"),
        SkillChange::Add | SkillChange::Update | SkillChange::Remove => {
            let what = match plan.change {
                SkillChange::Add => " (new)",
                SkillChange::Remove => " (removed)",
                _ => "",
            };
            let is_shown = shown.replace(plan.change) == Some(plan.change);
            let same = if is_shown {
                "; the same text as above"
            } else {
                ""
            };
            let title = title_line(
                &format!("{name}, skill: {path}"),
                &plan.file,
                &format!("{what}{same}"),
                out,
            );
            if is_shown {
                return title;
            }
            let (before, after) = plan.contents();
            return title + &hunk_text(before, &after, out);
        }
    };
    format!(
        "{} {name}, skill: {path} is kept: {why}\n",
        out.paint.apply(Style::Dim, "=")
    )
}

fn title_line(title: &str, file: &ClientFile, what: &str, out: &Out) -> String {
    let link = if file.is_link() {
        format!(" → {}", text::line(&file.target.display().to_string()))
    } else {
        String::new()
    };
    format!(
        "{}{what}\n",
        out.paint.apply(Style::Strong, &format!("{title}{link}"))
    )
}

fn hunk_text(before: &str, after: &str, out: &Out) -> String {
    let (first, lines) = hunk(before, after);
    let mut all = out
        .paint
        .apply(Style::Dim, &format!("  @@ line {first} @@"))
        + "\n";
    for line in &lines {
        let (sign, content) = signed(line);
        let style = match sign {
            '+' => Style::Good,
            '-' => Style::Bad,
            _ => Style::Plain,
        };
        let safe = text::block(&masked(content));
        all.push_str(&format!(
            "  {}\n",
            out.paint
                .apply(style, &format!("{sign}{}", safe.trim_end_matches('\n')))
        ));
    }
    all
}

async fn confirmed(
    outcomes: &[InstallOutcome],
    changes: usize,
    args: &InstallArgs,
    out: &Out,
) -> Result<bool, Failure> {
    let files = text::count(changes as u64, "file", "files");
    if !out.interactive {
        return Err(fail_hint(
            cli_codes::USAGE,
            format!("this changes {files}"),
            "confirm with --yes, or preview with --dry-run",
        ));
    }
    let question = match (args.undo, args.skill) {
        (true, WithSkill::Yes) => "Remove the entries and skills",
        (true, WithSkill::No) => "Remove the entries",
        (true, WithSkill::Only) => "Remove the skills",
        (false, WithSkill::Only) => "Add the skills",
        (false, WithSkill::Yes | WithSkill::No) => "Connect them",
    };
    loop {
        match ask_with_details(&format!("{question} ({files})?"))? {
            Agreed::Yes => return Ok(true),
            Agreed::No => return Ok(false),
            Agreed::ShowDetails => print_plans(outcomes, args, out).await?,
        }
    }
}

/// Prints what was done, and what remains to be done in each client.
fn report(outcomes: &[InstallOutcome], args: &InstallArgs, out: &Out) -> CommandResult {
    let failed = outcomes.iter().find_map(InstallOutcome::error);
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
        let name = outcome.client.name;
        if let Some(plan) = outcome.plan().filter(|plan| plan.change.is_change()) {
            let backup = plan.backup_kept().map_or_else(String::new, |path| {
                format!(" (backup: {})", text::line(&path.display().to_string()))
            });
            let what = if args.undo {
                "disconnected"
            } else {
                "connected"
            };
            out.print_line(&format!(
                "{} {name} {what}{backup}",
                out.paint.apply(Style::Good, "✓")
            ))?;
            if let Some(fix) = &plan.disabled {
                out.print_line(&format!("  its entry is disabled: {}", text::line(fix)))?;
            }
        } else if let Some(plan) = outcome.skill_plan().filter(|plan| plan.change.is_change()) {
            out.print_line(&format!(
                "{} {name}: skill {}",
                out.paint.apply(Style::Good, "✓"),
                plan.change.word()
            ))?;
        } else {
            continue;
        }
        if named::is_running(outcome.client.programs) {
            out.print_line(&format!("  {name} is running: restart it"))?;
        }
        if let (Some(note), false) = (outcome.client.note, args.undo) {
            out.print_line(&format!("  {note}"))?;
        }
    }
    Ok(exit)
}

/// Prints entries or skills, with where to add them on standard error.
fn print_by_hand(args: &InstallArgs, program: &OwnProgram, out: &Out) -> CommandResult {
    let mut views = Vec::new();
    for id in &args.clients {
        let client =
            find_client(id).ok_or_else(|| fail(codes::INVALID, format!("no client {id:?}")))?;
        let snippet =
            snippet(client, program).map_err(|error| fail(codes::INTERNAL, error.to_string()))?;
        let (file, skill) = (
            file_of(client, &Scope::User),
            skill_of(client, &Scope::User),
        );
        if out.json {
            let skill =
                skill.map(|file| json!({ "file": file, "project_dir": client.skills.as_ref().and_then(|dirs| dirs.project), "text": skill_text() }));
            views.push(
                json!({ "client": id, "name": client.name, "file": file, "project_file": client.project_file, "entry": snippet, "skill": skill }),
            );
            continue;
        }
        let add_to = |file: &Path| text::line(&format!("add it to {}", file.display()));
        if args.skill == WithSkill::Only {
            let file = skill
                .ok_or_else(|| Failure::Error(view_of(&PlanError::NoSkill { client }, client)))?;
            out.print_message(&format!(
                "{}, skill: {}",
                client.name,
                text::line(&format!("save it as {}", file.display()))
            ))?;
            out.print_text(&skill_text())?;
            continue;
        }
        let place = file.map_or_else(
            || client.note.unwrap_or_default().to_owned(),
            |file| add_to(&file),
        );
        out.print_message(&format!("{}: {place}", client.name))?;
        out.print_text(&snippet)?;
        if skill.is_some() && args.skill == WithSkill::Yes {
            out.suggest(&format!("adj install --print --skill only {id}"))?;
        }
    }
    if out.json {
        out.print_json_list(&views, 0, &[])?;
    }
    Ok(Exit::Done)
}
