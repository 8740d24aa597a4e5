//! Real CLIs whose model is called through the gate.

use super::Cli;
use super::case::Case;
use crate::model::Turn;
use adjutant::link::{Fact, FactKind, ModelUsage};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

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
        }
    )*};
}

table! {
    Claude claude,
    Codex codex,
    Gemini gemini,
    Goose goose,
    Qwen qwen,
}

/// The base URL as the CLI's own settings would name it.
fn base_path(cli: Cli) -> &'static str {
    if matches!(cli, Cli::Claude | Cli::Gemini | Cli::Goose) { "" } else { "/v1" }
}

/// A case whose CLI has a gate, and neither the key of the API nor its address.
fn gated(cli: Cli, turns: Vec<Turn>) -> Option<Case> {
    let mut case = Case::new(cli, turns)?;
    let key = case.home.work().with_file_name("key");
    std::fs::write(&key, KEY).expect("the key can be written");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("its mode can be set");
    let (name, url) = (cli.name(), format!("{}{}", case.model.url(), base_path(cli)));
    let config = format!("[agents.{name}]\nharness = {name:?}\ngate = true\nbase_url = {url:?}\nkey = {{ file = {key:?} }}\n");
    std::fs::write(case.home.home.dir.join("config.toml"), config).expect("the configuration can be written");
    // Nothing answers where the user's own settings point.
    for name in ["ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "OPENAI_HOST"] {
        case = case.with(name, "http://127.0.0.1:9");
    }
    if cli == Cli::Qwen {
        case = case.with("OPENAI_BASE_URL", "http://127.0.0.1:9/v1");
    }
    Some(case)
}

fn counts(cli: Cli) {
    let Some(case) = gated(cli, vec![Turn::write("made.txt", "x"), Turn::hang("Still ")]) else { return };
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
    assert!(case.model.seen().iter().all(|seen| seen.key == KEY), "{}", case.story());
    case.cancels();
    case.home.until("it has ended", || (case.view()["state"] == "finished").then_some(()));
    let total = used(&case).expect("it was counted");
    let answers = case.model.answers() as u64;
    // The last answer was cut: what it stated so far counts.
    let whole = answers - 1;
    assert!(total.input_tokens + total.cached_tokens >= 100 * whole && total.output_tokens >= 10 * whole, "{total:?} of {answers}\n{}", case.story());
    assert!(
        total.input_tokens + total.cached_tokens <= 100 * answers && total.output_tokens <= 10 * answers,
        "{total:?} of {answers}\n{}",
        case.story()
    );
    assert_eq!((total.requests, total.unknown_requests), (answers, 1), "{total:?}\n{}", case.story());
}

fn contains(bytes: &[u8]) -> bool {
    memchr::memmem::find(bytes, KEY.as_bytes()).is_some()
}

/// Checks every file of the user, except the one with the key.
fn no_file_contains(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
        if kind.is_dir() {
            no_file_contains(&path);
        } else if kind.is_file() && path.file_name().is_some_and(|name| name != "key") {
            assert!(!contains(&std::fs::read(&path).unwrap_or_default()), "{}", path.display());
        }
    }
}

/// Returns what the gate has counted, for all models together.
fn used(case: &Case) -> Option<ModelUsage> {
    let facts = std::fs::read_to_string(case.home.attempt_dir("job").facts()).expect("facts");
    let mut used = facts.lines().filter_map(|line| match serde_json::from_str::<Fact>(line).expect("a fact").what {
        FactKind::GateUsage { used } => Some(used),
        _ => None,
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
    let Some(case) = gated(cli, vec![Turn::write("made.txt", "x"), Turn::say("never said")]) else { return };
    // The first answer uses more than the budget has.
    let start = ["run", "--detach", "--agent", cli.name(), "--name", "job", "--permissions", "full", "--budget", "tokens=50,hard"];
    let ran = case.ran(&[&start[..], &["--", "do what the model says"]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    case.home.until("it has stopped", || (case.view()["state"] == "stopped").then_some(()));
    let view = case.view();
    assert!(view["attention"]["why"] == "budget" && view["reason"].as_str().is_some_and(|why| why.contains(" of 50")), "{view}\n{}", case.story());
    // Beside its conversation, goose asks for the title of its session: either request may be the one that was answered,
    // and both may have begun before the first answer was counted.
    let (conversation, all) = (case.model.seen().len(), case.model.answers());
    let is_allowed = if cli == Cli::Goose { conversation <= 1 && (1..=2).contains(&all) } else { conversation == 1 };
    assert!(is_allowed, "{conversation} of {all}\n{view}\n{}", case.story());
}
