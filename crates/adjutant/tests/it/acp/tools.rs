//! A run whose agent never reached Adjutant's tools says so; others do not.

use super::{Rig, line};
use serde_json::Value;

const NEVER: &str = "never connected to Adjutant's tools";
const BYE: &str = r#"do: ["say","bye"]"#;

fn note(view: &Value) -> &str {
    view["note"].as_str().unwrap_or_default()
}

#[test]
fn success_without_our_tools_is_noted() {
    for transport in [&[][..], &["--stdio"]] {
        let Some(rig) = Rig::with(transport) else {
            return;
        };
        let (view, _) = rig.ran(&[BYE], &[]);
        assert_eq!(view["outcome"], "succeeded", "{view}");
        assert!(
            note(&view).contains(NEVER) && note(&view).contains("adj agents test mine"),
            "{view}"
        );
        // People see it, in each form.
        let shown = rig.adj(&["show", "job"]);
        assert!(shown.out.contains(NEVER), "{shown:?}");
        let waited = rig.adj(&["wait", "job"]);
        assert!(waited.code == 0 && waited.err.contains(NEVER), "{waited:?}");
        let followed = rig.adj(&["run", "-a", "mine", "-w", BYE]);
        assert!(
            followed.code == 0 && followed.err.contains(NEVER) && !followed.out.contains(NEVER),
            "{followed:?}"
        );
    }
}

#[test]
fn agent_that_lists_or_calls_our_tools_is_not_noted() {
    for transport in [&[][..], &["--stdio"]] {
        let Some(rig) = Rig::with(transport) else {
            return;
        };
        for (name, step) in [
            ("lists", r#"do: ["list"]"#),
            (
                "calls",
                r#"do: ["tool","update_subagent_status",{"status":"running","percent":10,"summary":"x"}]"#,
            ),
        ] {
            rig.start("mine", name, &[step, BYE], &[]);
            let view = rig.home.finished(name);
            let log = rig.home.log(name);
            assert!(
                view["outcome"] == "succeeded" && note(&view).is_empty(),
                "{transport:?} {view} {log}"
            );
            assert!(name != "lists" || log.contains(" tools"), "{log}");
        }
    }
}

#[test]
fn failed_run_and_agent_without_tools_are_not_noted() {
    let plain = "[agents.plain]\nharness = \"plain\"\ncommand = [\"/bin/true\"]\n";
    let Some(rig) = Rig::new(&(line("mine", "my-agent", &[]) + plain)) else {
        return;
    };
    let (view, _) = rig.ran(&[r#"do: ["reply",{"stopReason":"refusal"}]"#], &[]);
    assert!(
        view["outcome"] == "failed" && view["cause"] == "refused" && note(&view).is_empty(),
        "{view}"
    );
    for agent in ["plain", "echo"] {
        rig.start(agent, agent, &["say hello"], &[]);
        let view = rig.home.finished(agent);
        assert!(
            view["outcome"] == "succeeded" && note(&view).is_empty(),
            "{view}"
        );
    }
}
