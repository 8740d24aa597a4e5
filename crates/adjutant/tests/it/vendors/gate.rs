//! Real CLIs whose model is called through the gate.

use super::Cli;
use super::case::Case;
use super::user::GOOSE_MODEL;
use crate::gate::rig::{self, Api, Rig};
use crate::model::{PATIENCE, Turn};
use adjutant_api::protocol::{Fact, FactKind, ModelUsage};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::Ordering;

/// The key that only the gate may have.
const KEY: &str = "canary-key-of-the-gate";

/// One module of tests for each CLI.
macro_rules! table {
    ($($cli:ident $name:ident,)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn run_is_counted_and_never_holds_the_key() {
                counts(Cli::$cli);
            }

            #[test]
            fn no_request_reaches_the_model_after_the_budget() {
                stops_at_its_budget(Cli::$cli);
            }

            #[test]
            fn refusal_is_shown_and_not_repeated() {
                shows_the_refusal(Cli::$cli);
            }
        }
    )*};
}

table! {
    Claude claude,
    Codex codex,
    Gemini gemini,
    Goose goose,
    Opencode opencode,
    Qwen qwen,
    Copilot copilot,
    Kimi kimi,
    Aider aider,
}

/// The base URL as the CLI's own settings would name it.
fn base_path(cli: Cli) -> &'static str {
    if matches!(cli, Cli::Claude | Cli::Gemini | Cli::Goose) {
        ""
    } else {
        "/v1"
    }
}

/// A case whose CLI has a gate, and neither the key of the API nor its address.
fn gated(cli: Cli, turns: Vec<Turn>) -> Option<Case> {
    let case = Case::new(cli, turns)?;
    let url = case.model.url();
    Some(with_gate(case, &url, KEY))
}

/// Gives the CLI of a case a gate to the API at an address, and no other way to a model.
fn with_gate(mut case: Case, url: &str, key: &str) -> Case {
    let cli = case.cli;
    let file = case.home.work().with_file_name("key");
    std::fs::write(&file, key).expect("the key can be written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))
        .expect("its mode can be set");
    let (name, url) = (cli.name(), format!("{url}{}", base_path(cli)));
    let config = format!(
        "[agents.{name}]\nharness = {name:?}\ngate = true\nbase_url = {url:?}\nkey = {{ file = {file:?} }}\n"
    );
    std::fs::write(case.home.home.dir.join("config.toml"), config)
        .expect("the configuration can be written");
    // Nothing answers where the user's own settings point.
    for name in [
        "ANTHROPIC_BASE_URL",
        "GOOGLE_GEMINI_BASE_URL",
        "OPENAI_HOST",
    ] {
        case = case.with(name, "http://127.0.0.1:9");
    }
    let nowhere = "http://127.0.0.1:9/v1";
    match cli {
        Cli::Qwen => case.with("OPENAI_BASE_URL", nowhere),
        Cli::Aider => case.with("OPENAI_API_BASE", nowhere),
        Cli::Copilot => case.with("COPILOT_PROVIDER_BASE_URL", nowhere),
        Cli::Kimi => case
            .with("KIMI_MODEL_NAME", GOOSE_MODEL)
            .with("KIMI_MODEL_PROVIDER_TYPE", "openai"),
        Cli::Opencode => {
            let model = format!("openai/{GOOSE_MODEL}");
            let config = serde_json::json!({ "autoupdate": false, "share": "disabled", "model": model, "small_model": model });
            let home = case.home.home.dir.parent().expect("a directory");
            std::fs::write(
                home.join(".config/opencode/opencode.json"),
                config.to_string(),
            )
            .expect("the home can be written");
            case
        }
        _ => case,
    }
}

/// Turns of the model that make the CLI ask it again.
fn one_call(cli: Cli) -> Turn {
    match cli {
        // It has no tools, and asks again after an edit that names no file.
        Cli::Aider => Turn::say("```\nno file\n```"),
        _ => Turn::write("made.txt", "x"),
    }
}

fn counts(cli: Cli) {
    let Some(case) = gated(cli, vec![one_call(cli), Turn::hang("Still ")]) else {
        return;
    };
    case.starts("full");
    case.model.until_asked(2);
    // While it waits for its model: environments, arguments and files of everything that it runs.
    let run = case.home.run_id("job");
    let processes = case.home.processes_of(&run);
    assert!(!processes.is_empty());
    for (pid, name) in processes {
        for file in ["environ", "cmdline"] {
            let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            assert!(!contains(&bytes), "{file} of {name}");
        }
    }
    no_file_contains(case.home.home.dir.parent().expect("a directory"));
    assert!(
        case.model.seen().iter().all(|seen| seen.key == KEY),
        "{}",
        case.story()
    );
    case.cancels();
    case.resumes_by_itself();
    let total = used(&case).expect("it was counted");
    let answers = case.model.answers() as u64;
    // The last answer was cut: what it stated so far counts.
    let whole = answers - 1;
    assert!(
        total.input_tokens + total.cached_tokens >= 100 * whole
            && total.output_tokens >= 10 * whole,
        "{total:?} of {answers}\n{}",
        case.story()
    );
    assert!(
        total.input_tokens + total.cached_tokens <= 100 * answers
            && total.output_tokens <= 10 * answers,
        "{total:?} of {answers}\n{}",
        case.story()
    );
    assert_eq!(
        (total.requests, total.unknown_requests),
        (answers, 1),
        "{total:?}\n{}",
        case.story()
    );
}

fn contains(bytes: &[u8]) -> bool {
    memchr::memmem::find(bytes, KEY.as_bytes()).is_some()
}

/// Checks every file of the user, except the one with the key.
fn no_file_contains(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, Ok(kind)) = (entry.path(), entry.file_type()) else {
            continue;
        };
        if kind.is_dir() {
            no_file_contains(&path);
        } else if kind.is_file() && path.file_name().is_some_and(|name| name != "key") {
            assert!(
                !contains(&std::fs::read(&path).unwrap_or_default()),
                "{}",
                path.display()
            );
        }
    }
}

/// Returns what the gate has counted, for all models together.
fn used(case: &Case) -> Option<ModelUsage> {
    let facts = std::fs::read_to_string(case.home.attempt_dir("job").facts()).expect("facts");
    let mut used = facts.lines().filter_map(|line| {
        match serde_json::from_str::<Fact>(line).expect("a fact").what {
            FactKind::GateUsage { used } => Some(used),
            _ => None,
        }
    });
    let sum = |sum: ModelUsage, one: ModelUsage| ModelUsage {
        model: String::new(),
        requests: sum.requests + one.requests,
        input_tokens: sum.input_tokens + one.input_tokens,
        cached_tokens: sum.cached_tokens + one.cached_tokens,
        cache_write_tokens: sum.cache_write_tokens + one.cache_write_tokens,
        output_tokens: sum.output_tokens + one.output_tokens,
        unknown_requests: sum.unknown_requests + one.unknown_requests,
    };
    used.next_back()?.into_iter().reduce(sum)
}

fn stops_at_its_budget(cli: Cli) {
    let Some(case) = gated(cli, vec![one_call(cli), Turn::say("never said")]) else {
        return;
    };
    // The first answer uses more than the budget has.
    let start = [
        "run",
        "--detach",
        "--agent",
        cli.name(),
        "--name",
        "job",
        "--permissions",
        "full",
        "--budget",
        "tokens=50,hard",
    ];
    let ran = case.ran(&[&start[..], &["--", "do what the model says"]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    let view = case
        .home
        .until_run_within(PATIENCE, "job", "at its budget", |view| {
            view["state"] == "stopped"
        });
    assert!(
        view["attention"]["why"] == "budget"
            && view["reason"]
                .as_str()
                .is_some_and(|why| why.contains(" of 50")),
        "{view}\n{}",
        case.story()
    );
    // Beside their conversation, goose and opencode ask for the title of the session: either
    // request may be the one that was answered, and both may have begun before the first answer was
    // counted.
    let (conversation, all) = (case.model.seen().len(), case.model.answers());
    let is_allowed = if matches!(cli, Cli::Goose | Cli::Opencode) {
        conversation <= 1 && (1..=2).contains(&all)
    } else {
        conversation == 1
    };
    assert!(
        is_allowed,
        "{conversation} of {all}\n{view}\n{}",
        case.story()
    );
}

/// Most requests of a CLI that is refused all of them: Claude Code tries six forms of its request
/// at once, and goose asks four times for a title, within eight seconds.
const REFUSED_MAX: usize = 12;

/// The API behind the run's gate is a gate whose budget is used up, so that the run itself is not
/// stopped.
fn shows_the_refusal(cli: Cli) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let rig = runtime.block_on(async { Rig::at(Api::absent().await, "").await });
    rig.allowed.store(0, Ordering::SeqCst);
    let Some(case) = Case::new(cli, [Turn::say("never said")]) else {
        return;
    };
    let case = with_gate(case.that_retries(), &rig.gate.url, rig::TOKEN);
    case.starts("full");
    let view = case.ends();
    let (shown, refused) = (
        format!("{view}\n{}", case.home.log("job")),
        rig.refused.load(Ordering::SeqCst),
    );
    assert_eq!(view["outcome"], "failed", "{view}\n{}", case.story());
    assert!(
        shown.contains("Adjutant refused this request: its budget is used up"),
        "{shown}\n{}",
        case.story()
    );
    assert!(
        (1..=REFUSED_MAX).contains(&refused),
        "{refused} requests\n{}",
        case.story()
    );
    eprintln!("{cli:?}: {refused} requests, {}", view["reason"]);
    drop(runtime);
}

/// Of a gated run behind the fence, the agent cannot read the file of the key.
#[test]
fn claude_calls_its_model_through_the_gate_behind_the_fence() {
    let turns = vec![
        Turn::shell("cat ../key; echo done"),
        Turn::say("That is all."),
    ];
    let Some(case) = gated(Cli::Claude, turns) else {
        return;
    };
    case.says(&[
        "run",
        "-d",
        "-a",
        "claude",
        "-n",
        "job",
        "--permissions",
        "full",
        "--fence",
        "workspace",
        "--",
        "do what the model says",
    ]);
    let view = case.succeeds("That is all.");
    assert_eq!(view["fence"]["enforced"], "mount_namespace", "{view}");
    let seen = case.asked(2);
    assert!(seen.iter().all(|seen| seen.key == KEY), "{}", case.story());
    assert!(
        seen[1].last_result().contains("done") && !seen[1].last_result().contains(KEY),
        "{}",
        case.story()
    );
    assert!(
        used(&case).is_some_and(|used| used.requests >= 2 && used.unknown_requests == 0),
        "{}",
        case.story()
    );
}
