//! Any agent that speaks ACP: agents on the official SDKs (`tests/acp`, installed by `.ci/acp`),
//! configured with one line; some of them misbehave.

mod add;
mod driven;
mod elicit;
mod misbehave;
mod tools;

use crate::support::{Ran, TestHome, skip};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const AGENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/acp");

/// A home with the tests' agents on its `PATH`, as `my-agent` and `py-agent`.
struct Rig {
    home: TestHome,
    bin: PathBuf,
}

impl Rig {
    /// `None`: the SDKs are not installed here.
    fn new(config: &str) -> Option<Self> {
        let Some(sdks) = std::env::var_os("ADJ_ACP").map(PathBuf::from) else {
            skip("ADJ_ACP names no directory with the ACP SDKs; run .ci/acp");
            return None;
        };
        let home = TestHome::with_config(config);
        let bin = home.work().join("../bin");
        std::fs::create_dir(&bin).expect("a directory");
        let rig = Self { home, bin };
        let node = std::env::var_os("ADJ_CLIS")
            .map(|clis| PathBuf::from(clis).join("node"))
            .filter(|node| node.exists());
        let node = node.map_or_else(|| "node".to_owned(), |node| node.display().to_string());
        let sdk = sdks.join("node_modules/@agentclientprotocol/sdk");
        rig.program(
            "my-agent",
            &format!(
                "ACP_SDK={} exec {node} {AGENTS}/agent.mjs \"$@\"",
                sdk.display()
            ),
        );
        rig.program(
            "py-agent",
            &format!(
                "exec {} {AGENTS}/agent.py \"$@\"",
                sdks.join("python/bin/python").display()
            ),
        );
        Some(rig)
    }

    /// A home with one agent, `mine`: `my-agent` with these arguments.
    fn with(args: &[&str]) -> Option<Self> {
        Self::new(&line("mine", "my-agent", args))
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.bin.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("the script can be written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
            .expect("it can be made executable");
    }

    fn adj_with(&self, args: &[&str], env: &[(&str, &str)]) -> Ran {
        let path = format!("{}:/usr/bin:/bin", self.bin.display());
        self.home
            .command(args)
            .env("PATH", path)
            .envs(env.iter().copied())
            .output()
            .expect("adj starts")
            .into()
    }

    fn adj(&self, args: &[&str]) -> Ran {
        self.adj_with(args, &[])
    }

    /// Starts a run of an agent with these steps.
    fn start(&self, agent: &str, name: &str, todo: &[&str], options: &[&str]) {
        let prompt = todo
            .iter()
            .map(|step| format!("{step}\n"))
            .collect::<String>();
        let args = ["run", "--detach", "-a", agent, "-n", name]
            .into_iter()
            .chain(options.iter().copied())
            .chain([prompt.as_str()]);
        let ran = self.adj(&args.collect::<Vec<_>>());
        assert_eq!(ran.code, 0, "{ran:?}");
    }

    /// Runs `mine` to its end, and returns its view and its log.
    fn ran(&self, todo: &[&str], options: &[&str]) -> (Value, String) {
        self.start("mine", "job", todo, options);
        let view = self.home.finished("job");
        (view, self.home.log("job"))
    }

    /// Waits until no process of a run is left. Its guard exits after the run has ended.
    fn until_none_is_left(&self, run: &str) {
        let id = self.home.run_id(run);
        self.home
            .until(&format!("no process of {run} is left"), || {
                self.home.processes_of(&id).is_empty().then_some(())
            });
    }
}

/// Returns the line that configures an agent.
fn line(name: &str, program: &str, args: &[&str]) -> String {
    let command: Vec<String> = std::iter::once(program)
        .chain(args.iter().copied())
        .map(|word| toml::Value::from(word).to_string())
        .collect();
    format!(
        "[agents.{name}]\nharness = \"acp\"\ncommand = [{}]\n",
        command.join(", ")
    )
}
