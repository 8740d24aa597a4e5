//! pi with Adjutant's extension: paths that pi expands, and a missing extension.

use super::Cli;
use super::case::Case;
use crate::model::Turn;
use serde_json::json;

#[test]
fn pi_asks_for_expanded_paths_and_sums_its_usage() {
    let turns = [
        Turn::write("~/tilde.txt", "x\n"),
        Turn::write("@/var/tmp/adj-at.txt", "x\n"),
        Turn::say("So be it."),
    ];
    let Some(case) = Case::new(Cli::Pi, turns) else {
        return;
    };
    case.starts("edit");
    let asked = case.denies_everything();
    assert!(
        asked.len() == 2 && asked[0].contains("tilde.txt") && asked[1].contains("adj-at.txt"),
        "{asked:?}\n{}",
        case.story()
    );
    let home = case.home.home.dir.parent().expect("a directory").to_owned();
    for file in [
        home.join("tilde.txt"),
        case.home.work().join("~/tilde.txt"),
        "/var/tmp/adj-at.txt".into(),
    ] {
        assert!(!file.exists(), "{}", file.display());
    }
    let view = case.succeeds("So be it.");
    // Three calls of 100 and 10 tokens, at 2 and 8 dollars a million.
    assert_eq!(
        (
            &view["usage"]["input_tokens"],
            &view["usage"]["output_tokens"]
        ),
        (&300.into(), &30.into()),
        "{view}"
    );
    assert!(
        view["usage"].to_string().contains("840") || view["usage"].to_string().contains("0.00084"),
        "{view}"
    );
}

/// Declares pi with these arguments and files of the attempt.
fn declared(case: &Case, extension: &str, files: &str) {
    let config = format!(
        "[agents.other]\nharness = \"other\"\n[presets.other]\ntitle = \"pi\"\ndriver = \"pi\"\ncommand = [\"pi\"]\n\
         args = [\"--mode\", \"rpc\"{extension}]\nenv_pass = [\"PI_*\"]\nfiles = {{ {files} }}\nstream = {{ end_is_stated = true, rules = [\n\
         {{ when = {{ type = \"response|extension_ui_request|agent_settled\" }}, listen = true }} ] }}\n\
         can = {{}}\nabout = {{ vendor = \"x\", install = \"x\", sign_in = \"x\" }}\n"
    );
    std::fs::write(case.home.home.dir.join("config.toml"), config)
        .expect("the home can be written");
}

/// Runs the declared agent, which fails before its model is asked, and returns what it has logged.
fn fails(case: &Case) -> String {
    let ran = case.ran(&[
        "run",
        "--detach",
        "--agent",
        "other",
        "--name",
        "job",
        "--permissions",
        "full",
        "do what the model says",
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let view = case.ends();
    assert_eq!(view["outcome"], "failed", "{view}\n{}", case.story());
    case.asked(0);
    format!("{view}\n{}", case.home.log("job"))
}

#[test]
fn pi_without_the_extension_gets_no_prompt() {
    let Some(case) = Case::new(
        Cli::Pi,
        [Turn::shell("touch unguarded.txt"), Turn::say("It was run.")],
    ) else {
        return;
    };
    declared(&case, "", "");
    let told = fails(&case);
    assert!(
        told.contains("has not started Adjutant's extension"),
        "{told}"
    );
}

#[test]
fn pi_whose_extension_cannot_reach_adjutant_gets_no_prompt() {
    let Some(case) = Case::new(
        Cli::Pi,
        [Turn::shell("touch unguarded.txt"), Turn::say("It was run.")],
    ) else {
        return;
    };
    let files = "\"adjutant.mjs\" = \"{pi_extension}\", \"access.json\" = '{\"url\":\"http://127.0.0.1:1/mcp\",\"token\":\"x\"}'";
    declared(&case, ", \"--extension\", \"{file:adjutant.mjs}\"", files);
    let told = fails(&case);
    assert!(
        told.contains("Failed to load extension") && told.contains("ECONNREFUSED"),
        "{told}"
    );
}

/// `codemode` is a tool whose script calls the other ones.
#[test]
fn pi_asks_for_a_script_and_for_each_call_of_it() {
    for (profile, in_script) in [("read", "writes.txt"), ("edit", "../beside.txt")] {
        let code = format!(
            "await tools.bash({{ command: \"touch by-shell.txt\" }}); await tools.write({{ path: \"{in_script}\", content: \"x\" }});"
        );
        let turns = || {
            [
                Turn::call("codemode", json!({ "code": code })),
                Turn::say("So be it."),
            ]
        };
        let new_case = || {
            let case = Case::new(Cli::Pi, turns())?;
            let settings = case
                .home
                .home
                .dir
                .with_file_name(".pi")
                .join("agent/settings.json");
            let text = std::fs::read_to_string(&settings)
                .expect("it was written")
                .replacen('{', "{\"defaultTools\":[\"+codemode\"],", 1);
            std::fs::write(settings, text).expect("the home can be written");
            Some(case)
        };
        let Some(case) = new_case() else { return };
        case.starts(profile);
        let asked = case.denies_everything();
        assert!(
            asked.len() == 1 && asked[0].contains("codemode"),
            "{profile}: {asked:?}\n{}",
            case.story()
        );
        assert_eq!(
            (case.made("by-shell.txt"), case.made(in_script)),
            (None, None),
            "{profile}: {}",
            case.story()
        );
        // The approved script runs, and what it does needs approval as outside of it.
        let Some(case) = new_case() else { return };
        case.starts(profile);
        let asked = case.approves_everything();
        assert_eq!(
            asked.len(),
            3,
            "{profile}: the script, the command and the file: {asked:?}\n{}",
            case.story()
        );
        assert!(
            case.made("by-shell.txt").is_some() && case.made(in_script).is_some(),
            "{profile}: {}",
            case.story()
        );
    }
}
