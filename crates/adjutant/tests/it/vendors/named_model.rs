//! `adj run --model`: each CLI whose preset passes a model on asks for it, in a new and in a
//! resumed session.

use super::Cli;
use super::case::Case;
use super::user::OTHER_MODEL;
use crate::model::{Turn, WORDS_ONLY};
use adjutant_api::preset;

/// Dispatches a run with a model, lets it end, and checks which model the CLI asked for.
fn asks_for(cli: Cli, named: &str, seen: &str) {
    let Some(case) = Case::new(cli, [Turn::say("Done."), Turn::say("Done again.")]) else {
        return;
    };
    let case = match cli {
        Cli::Aider => case.with("AIDER_MODEL", "openai/another"),
        // Otherwise this would be the name that is sent.
        Cli::Copilot => case.with("COPILOT_PROVIDER_WIRE_MODEL", ""),
        _ => case,
    };
    let ran = case.ran(&[
        "run",
        "-d",
        "-a",
        cli.name(),
        "-n",
        "job",
        "--permissions",
        cli.writing(),
        "--model",
        named,
        "do what the model says",
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(case.ends()["outcome"], "succeeded", "{}", case.story());
    assert_eq!(case.asked(1)[0].model, seen, "{}", case.story());
}

macro_rules! each {
    ($($name:ident: $cli:ident, $named:expr, $seen:expr;)*) => {
        $(
            #[test]
            fn $name() {
                asks_for(Cli::$cli, $named, $seen);
            }
        )*

        /// A preset gets a way to name a model only with a test of it.
        #[test]
        fn every_preset_that_passes_a_model_on_is_tested() {
            let tested = [$(Cli::$cli.name()),*];
            let presets: Vec<&str> = preset::all().iter().filter(|preset| preset.model.is_some()).map(|preset| preset.name.as_str()).collect();
            assert!(presets.len() == tested.len() && presets.iter().all(|name| tested.contains(name)), "{presets:?}");
        }
    };
}

each! {
    aider_asks_for_the_named_model: Aider, &format!("openai/{WORDS_ONLY}"), WORDS_ONLY;
    claude_asks_for_the_named_model: Claude, "claude-haiku-4-5", "claude-haiku-4-5";
    codex_asks_for_the_named_model: Codex, OTHER_MODEL, OTHER_MODEL;
    copilot_asks_for_the_named_model: Copilot, "claude-sonnet-4.5", "claude-sonnet-4.5";
    gemini_asks_for_the_named_model: Gemini, "gemini-2.5-pro", "gemini-2.5-pro";
    goose_asks_for_the_named_model: Goose, OTHER_MODEL, OTHER_MODEL;
    kilo_asks_for_the_named_model: Kilo, &format!("test/{OTHER_MODEL}"), OTHER_MODEL;
    opencode_asks_for_the_named_model: Opencode, &format!("test/{OTHER_MODEL}"), OTHER_MODEL;
    pi_asks_for_the_named_model: Pi, &format!("test/{OTHER_MODEL}"), OTHER_MODEL;
    qwen_asks_for_the_named_model: Qwen, OTHER_MODEL, OTHER_MODEL;
}
