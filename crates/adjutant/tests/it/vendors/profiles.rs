//! The matrix of actions, permission profiles and real CLIs: what each profile lets a CLI do
//! without approval, compared with the promise of its preset.
//!
//! The model tries one action after the other in one run. Every request is denied; if a CLI ends
//! because of that, another run tries the rest. `ADJ_MATRIX` names a file that gets a line for each
//! cell.

use super::Cli;
use super::case::Case;
use crate::model::{SEARCHED, Turn};
use adjutant_api::preset::{Action, ActionOutcome, Preset, all, builtin};
use adjutant_core::Permissions;
use adjutant_mcp::mcp::{Role, catalog};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// Most runs without a tool of Adjutant that are repeated.
const UNCONNECTED_MAX: usize = 2;

/// Something that the model tries.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Try {
    Action(Action),
    /// A tool of Adjutant.
    Tool(&'static str),
}

impl Try {
    fn act(self) -> Action {
        match self {
            Self::Action(act) => act,
            Self::Tool(_) => Action::OwnTool,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Action(act) => act.word(),
            Self::Tool(name) => name,
        }
    }
}

/// A tool of Adjutant: its name, its arguments computed from the model's request, and a part of its
/// result.
type ToolCase = (&'static str, fn(&crate::model::Seen) -> Value, &'static str);

/// Tools of Adjutant in an order in which each has something to do. The last one ends the run's
/// work.
const TOOLS: [ToolCase; 10] = [
    (
        "ask_parent",
        |_| json!({ "question": "which colour?" }),
        "blue",
    ),
    (
        "request_approval",
        |_| json!({ "action": "publish" }),
        "approved",
    ),
    (
        "check_answer",
        |seen| json!({ "message_id": newest_request(seen) }),
        "approved",
    ),
    (
        "delegate_work",
        |_| json!({ "new_task_description": "count the files" }),
        "denied",
    ),
    ("start_chat", |_| json!({ "title": "plan" }), "chat 1"),
    (
        "send_chat_message",
        |_| json!({ "chat_id": 1, "message": "hello" }),
        "chat",
    ),
    ("list_chats", |_| json!({}), "plan"),
    ("show_chat", |_| json!({ "chat_id": 1 }), "hello"),
    (
        "update_subagent_status",
        |_| json!({ "status": "running", "percent": 50 }),
        "running",
    ),
    (
        "stop_work",
        |_| json!({ "stop_reason": "blocker", "details": "all was tried" }),
        "end your turn",
    ),
];

/// Returns the number of the request in the newest tool result.
fn newest_request(seen: &crate::model::Seen) -> String {
    let number = |text: &str| {
        text.split(|c: char| !c.is_ascii_alphanumeric())
            .find(|word| {
                word.strip_prefix('Q')
                    .is_some_and(|n| n.parse::<u32>().is_ok())
            })
            .map(str::to_owned)
    };
    seen.results
        .iter()
        .rev()
        .find_map(|result| number(result))
        .unwrap_or_else(|| "Q1".to_owned())
}

/// Returns everything that is tried, in order.
fn everything() -> Vec<Try> {
    let acts = Action::ALL
        .into_iter()
        .filter(|act| *act != Action::OwnTool)
        .map(Try::Action);
    acts.chain(TOOLS.iter().map(|(name, ..)| Try::Tool(name)))
        .collect()
}

/// Its outcome. `None`: the CLI has no such tool.
#[derive(Debug)]
struct Cell {
    tried: Try,
    fate: Option<ActionOutcome>,
    /// An approval was requested, but the action happened without it.
    is_done_anyway: bool,
    story: String,
}

impl Cell {
    fn is_as_promised(&self, preset: &Preset, profile: Permissions) -> bool {
        let promised = preset
            .promised(profile, self.tried.act())
            .expect("only profiles that are supported are tried");
        let fate = match (self.fate, self.tried.act()) {
            // Not every CLI has these tools.
            (None, Action::Fetch | Action::WebSearch) => return !self.is_done_anyway,
            (fate, _) => fate.unwrap_or(ActionOutcome::Refused),
        };
        !self.is_done_anyway && promised.fates.contains(&fate)
    }

    fn word(&self) -> &'static str {
        match self.fate {
            _ if self.is_done_anyway => "done anyway",
            Some(fate) => fate.about(),
            None => "—",
        }
    }
}

/// Where the model writes.
struct Places {
    work: PathBuf,
    /// Outside of the directory, and not below a directory for temporary files if possible.
    outside: tempfile::TempDir,
    temporary: tempfile::TempDir,
}

impl Places {
    fn below(work: PathBuf) -> Self {
        let outside = tempfile::Builder::new()
            .prefix("adj-outside-")
            .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
            .expect("a directory");
        let temporary = tempfile::Builder::new()
            .prefix("adj-outside-")
            .tempdir_in("/tmp")
            .expect("a directory");
        symlink(outside.path(), work.join("link")).expect("a link");
        std::fs::write(work.join("note.txt"), "the word is amber\n")
            .expect("the directory can be written");
        Self {
            work,
            outside,
            temporary,
        }
    }

    /// Returns the files that an action creates.
    fn made(&self, act: Action) -> Vec<PathBuf> {
        match act {
            Action::ShellWrite => vec![self.work.join("by-shell.txt")],
            Action::ShellWriteOutside => vec![
                self.outside.path().join("by-shell.txt"),
                self.temporary.path().join("by-shell.txt"),
            ],
            Action::WriteInside => vec![self.work.join("inside.txt")],
            Action::WriteOutside => vec![self.outside.path().join("outside.txt")],
            Action::WriteTemporary => vec![self.temporary.path().join("temporary.txt")],
            Action::WriteThroughLink => vec![self.outside.path().join("linked.txt")],
            Action::ShellRead | Action::Fetch | Action::WebSearch | Action::OwnTool => Vec::new(),
        }
    }

    fn turn(&self, cli: Cli, tried: Try, url: &str) -> Turn {
        let act = tried.act();
        let path = |path: PathBuf| path.display().to_string();
        match act {
            Action::ShellRead => Turn::shell("cat note.txt"),
            Action::ShellWrite => Turn::shell("printf x > by-shell.txt"),
            Action::ShellWriteOutside => {
                let commands: Vec<String> = self
                    .made(act)
                    .into_iter()
                    .map(|made| format!("printf x > {}", path(made)))
                    .collect();
                Turn::shell(&commands.join("; "))
            }
            Action::WriteInside | Action::WriteOutside | Action::WriteTemporary => {
                Turn::write(&path(self.made(act).remove(0)), "x\n")
            }
            Action::WriteThroughLink => {
                Turn::write(&path(self.work.join("link/linked.txt")), "x\n")
            }
            // Codex has no tool to fetch pages, so it uses a command.
            Action::Fetch if cli == Cli::Codex => {
                let (host, port) = url
                    .trim_start_matches("http://")
                    .split_once(':')
                    .expect("an address");
                let request = "printf 'GET /page HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3";
                Turn::shell(&format!(
                    "bash -c \"exec 3<>/dev/tcp/{host}/{port} && {request}\""
                ))
            }
            Action::Fetch => Turn::fetch(&format!("{url}/page")),
            Action::WebSearch => Turn::WebSearch { query: "the word" },
            Action::OwnTool => tool_turn(tried.name()),
        }
    }
}

fn tool_turn(name: &'static str) -> Turn {
    let (tool, arguments, _) = TOOLS
        .iter()
        .find(|(tool, ..)| *tool == name)
        .expect("a tool of Adjutant");
    Turn::CallWith {
        tool,
        arguments: *arguments,
    }
}

/// Tries things in one run. Returns the outcomes of those that were reached.
fn run_once(case: &Case, profile: Permissions, things: &[Try]) -> Vec<Cell> {
    let places = Places::below(case.home.work());
    let turns: Vec<Turn> = things
        .iter()
        .map(|thing| places.turn(case.cli, *thing, &case.model.url()))
        .collect();
    case.model.add_turns(
        turns
            .into_iter()
            .chain([Turn::say("That is all."), Turn::say("That is all.")]),
    );
    case.starts(profile.word());
    // The turn of the model in which each approval was requested.
    let mut asked: Vec<(usize, String)> = Vec::new();
    case.settles_everything(|about| asked.push((case.model.seen().len(), about)));
    let seen = case.model.seen();
    let aside = case.model.aside();
    assert!(
        !case.home.log("job").contains("changed after approval"),
        "{}",
        case.story()
    );
    let story = || format!("asked for {asked:#?}, aside {aside:?}\n{}", case.story());
    assert!(!seen.is_empty(), "the model was not asked\n{}", story());
    let came_to = things.len().min(seen.len());
    let cell = |n: usize| {
        let tried = things[n];
        // The results of this turn only.
        let result = seen
            .get(n + 1)
            .filter(|next| next.results.len() > seen[n].results.len())
            .map_or("", |next| next.last_result());
        let is_done = match tried {
            Try::Action(Action::ShellRead) => result.contains("the word is amber"),
            Try::Action(Action::Fetch) => aside.iter().any(|request| request.contains("/page")),
            Try::Action(Action::WebSearch) => aside.iter().any(|request| request == SEARCHED),
            Try::Action(act) => places.made(act).iter().any(|made| made.exists()),
            Try::Tool(name) => {
                let (.., expected) = TOOLS
                    .iter()
                    .find(|(tool, ..)| *tool == name)
                    .expect("a tool of Adjutant");
                result.to_lowercase().contains(expected)
                    || name == "stop_work" && case.view()["status"] == "completed"
            }
        };
        let is_asked = asked.iter().any(|(turn, _)| *turn == n + 1);
        let is_offered = !case.model.turns_without_tool().contains(&n);
        let fate = match (is_done, is_asked) {
            (true, _) => ActionOutcome::Done,
            (false, true) => ActionOutcome::Asked,
            (false, false) => ActionOutcome::Refused,
        };
        let about: Vec<&String> = asked
            .iter()
            .filter(|(turn, _)| *turn == n + 1)
            .map(|(_, about)| about)
            .collect();
        let story = format!(
            "{} {}: {fate:?}, asked for {about:?}, result {result:?}",
            profile.word(),
            tried.name()
        );
        Cell {
            tried,
            fate: is_offered.then_some(fate),
            is_done_anyway: is_done && is_asked,
            story,
        }
    };
    let cells: Vec<Cell> = (0..came_to).map(cell).collect();
    if std::env::var_os("ADJ_MATRIX_STORY").is_some() {
        eprintln!("{}", story());
    }
    cells
}

/// Returns whether a CLI had no tool of Adjutant in a run: on a loaded machine, Droid can ask its
/// model before it has connected to its servers, and then its session lacks their tools.
fn is_unconnected(cells: &[Cell]) -> bool {
    let mut tools = cells
        .iter()
        .filter(|cell| matches!(cell.tried, Try::Tool(_)))
        .peekable();
    tools.peek().is_some() && tools.all(|cell| cell.story.contains("Not found: adj___"))
}

/// Tries things, in as many runs as necessary. `None`: skipped.
fn tries(
    profile: Permissions,
    mut things: Vec<Try>,
    new_case: impl Fn() -> Option<Case>,
) -> Option<Vec<Cell>> {
    let (mut cells, mut unconnected) = (Vec::new(), 0);
    while !things.is_empty() {
        let case = new_case()?;
        let some = run_once(&case, profile, &things);
        if unconnected < UNCONNECTED_MAX && is_unconnected(&some) {
            unconnected += 1;
            continue;
        }
        things.drain(..some.len());
        cells.extend(some);
    }
    Some(cells)
}

/// Writes a row of the matrix for `cargo xtask matrix`.
fn record(cli: Cli, preset: &Preset, profile: Permissions, cells: &[Cell]) {
    let Some(file) = std::env::var_os("ADJ_MATRIX") else {
        return;
    };
    let line = |cell: &Cell| {
        let is_as_promised = cell.is_as_promised(preset, profile);
        json!({ "cli": cli.name(), "profile": profile.word(), "cell": cell.tried.name(), "fate": cell.word(), "as_promised": is_as_promised })
    };
    let lines: String = cells
        .iter()
        .map(|cell| format!("{}\n", line(cell)))
        .collect();
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .expect("ADJ_MATRIX can be written");
    file.write_all(lines.as_bytes())
        .expect("ADJ_MATRIX can be written");
}

fn broken(preset: &Preset, profile: Permissions, cells: &[Cell]) -> Vec<String> {
    cells
        .iter()
        .filter(|cell| !cell.is_as_promised(preset, profile))
        .map(|cell| cell.story.clone())
        .collect()
}

fn enforces_its_profiles(cli: Cli) {
    let preset = builtin(cli.name()).expect("it has a preset");
    let mut all_broken = Vec::new();
    for profile in Permissions::ALL {
        if preset.permissions.of(profile.word()).unsupported.is_some() {
            continue;
        }
        let Some(cells) = tries(profile, everything(), || Case::new(cli, [])) else {
            return;
        };
        record(cli, &preset, profile, &cells);
        all_broken.extend(broken(&preset, profile, &cells));
    }
    assert!(
        all_broken.is_empty(),
        "{cli:?}: {} cells are not as promised:\n{}",
        all_broken.len(),
        all_broken.join("\n")
    );
}

/// The rows of the matrix. A CLI that is marked as tested and has tools has one. Those that come
/// first support profiles in which a directory's configuration must not permit anything.
macro_rules! rows {
    ($($module:ident: $cli:ident),+; only full: $($only_full:ident: $full_cli:ident),+) => {
        $(mod $only_full {
            #[test]
            fn enforces_its_profiles() {
                super::enforces_its_profiles(super::Cli::$full_cli);
            }
        })+
        $(mod $module {
            #[test]
            fn enforces_its_profiles() {
                super::enforces_its_profiles(super::Cli::$cli);
            }

            #[test]
            fn enforces_its_profiles_in_a_hostile_directory() {
                super::holds_in_a_hostile_directory(super::Cli::$cli);
            }
        })+
        const ROWS: &[Cli] = &[$(Cli::$cli,)+ $(Cli::$full_cli),+];
    };
}

rows! {
    claude: Claude,
    codex: Codex,
    gemini: Gemini,
    goose: Goose,
    opencode: Opencode,
    kilo: Kilo,
    cline: Cline,
    qwen: Qwen,
    copilot: Copilot,
    kimi: Kimi,
    pi: Pi;
    only full: droid: Droid
}

/// A directory's configuration starts nothing and extends no permission. If hooks cannot be
/// disabled, that is reported.
fn holds_in_a_hostile_directory(cli: Cli) {
    let preset = builtin(cli.name()).expect("it has a preset");
    for profile in [Permissions::Read, Permissions::Edit] {
        let Some(case) = Case::new(cli, []) else {
            return;
        };
        let started = case.is_laid_out_to_permit_everything();
        // Commands may write in Codex' sandbox anyway.
        let act = if cli == Cli::Codex {
            Action::WriteOutside
        } else {
            Action::ShellWrite
        };
        let cells = run_once(&case, profile, &[Try::Action(act)]);
        let broken = broken(&preset, profile, &cells);
        assert!(
            broken.is_empty(),
            "{cli:?} {profile:?}: not as promised:\n{}\n{}",
            broken.join("\n"),
            case.story()
        );
        let started = std::fs::read_to_string(&started).unwrap_or_default();
        let is_said = case.view()["note"]
            .as_str()
            .is_some_and(|note| note.contains("which is not trusted"));
        let cannot_be_kept_out: &[&str] = match cli {
            Cli::Copilot => &["hook of copilot"],
            Cli::Gemini => &["hook of gemini"],
            Cli::Goose => &["plugin of goose"],
            Cli::Cline => &["hook of cline", "plugin of cline"],
            _ => &[],
        };
        let unexpected: Vec<&str> = started
            .lines()
            .filter(|line| !(is_said && cannot_be_kept_out.contains(line)))
            .collect();
        assert!(
            unexpected.is_empty(),
            "{cli:?} {profile:?} started {unexpected:?}\n{}",
            case.story()
        );
        assert!(
            preset.about.kept_out || is_said || started.is_empty(),
            "{}",
            case.view()
        );
    }
}

/// Drives a CLI by a preset with a mistake, and returns how one action differs from the promise.
fn found_with(
    cli: Cli,
    profile: Permissions,
    tried: Try,
    plant: impl Fn(&mut Preset),
) -> Option<Vec<String>> {
    let mut preset = builtin(cli.name()).expect("it has a preset");
    plant(&mut preset);
    let case = Case::new(cli, [])?.with_preset(&preset);
    let cells = run_once(&case, profile, &[tried]);
    Some(broken(&preset, profile, &cells))
}

#[test]
fn preset_with_a_mode_that_does_not_ask_is_found() {
    let no_content = |preset: &mut Preset| preset.permissions.read.env.clear();
    let Some(found) = found_with(
        Cli::Opencode,
        Permissions::Read,
        Try::Action(Action::ShellWrite),
        no_content,
    ) else {
        return;
    };
    assert_eq!(found.len(), 1, "opencode without what it is to ask for");
    let auto_edit = |preset: &mut Preset| {
        preset.permissions.edit.mode = Some("auto-edit".to_owned());
        preset.untrusted_env.clear();
    };
    let Some(found) = found_with(
        Cli::Qwen,
        Permissions::Edit,
        Try::Action(Action::WriteOutside),
        auto_edit,
    ) else {
        return;
    };
    assert_eq!(found.len(), 1, "Qwen Code in auto-edit");
    let yolo = |preset: &mut Preset| preset.permissions.edit.mode = Some("yolo".to_owned());
    let Some(found) = found_with(
        Cli::Gemini,
        Permissions::Edit,
        Try::Action(Action::ShellWrite),
        yolo,
    ) else {
        return;
    };
    assert_eq!(found.len(), 1, "Gemini CLI in yolo");
}

#[test]
fn preset_with_a_mode_that_hides_own_tools_is_found() {
    let plan = |preset: &mut Preset| preset.permissions.read.mode = Some("plan".to_owned());
    let Some(found) = found_with(
        Cli::Gemini,
        Permissions::Read,
        Try::Tool("start_chat"),
        plan,
    ) else {
        return;
    };
    assert_eq!(found.len(), 1, "Gemini CLI in plan");
}

#[test]
fn preset_that_lets_the_service_search_is_found() {
    for cli in [Cli::Gemini, Cli::Codex] {
        let unrestricted = |preset: &mut Preset| preset.permissions.read.args.clear();
        let Some(found) = found_with(
            cli,
            Permissions::Read,
            Try::Action(Action::WebSearch),
            unrestricted,
        ) else {
            return;
        };
        assert_eq!(found.len(), 1, "{cli:?} searches unasked");
    }
}

#[test]
fn preset_is_marked_as_tried_only_with_a_row_in_the_matrix() {
    let tried: BTreeSet<&str> = all()
        .iter()
        .filter(|preset| preset.has_row())
        .map(|preset| preset.name.as_str())
        .collect();
    let rows: BTreeSet<&str> = ROWS.iter().map(|cli| cli.name()).collect();
    assert_eq!(tried, rows);
}

#[test]
fn every_tool_of_a_worker_is_tried() {
    let listed: BTreeSet<String> = catalog::list(Role::Worker, false, &[])
        .into_iter()
        .map(|tool| tool.name.to_string())
        .collect();
    let tried: BTreeSet<String> = TOOLS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(listed, tried);
}
