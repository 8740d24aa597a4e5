//! The prompt as a program receives it, through command line, hub, guard and supervisor. A script
//! plays each kind of CLI and records its arguments, input and environment.

use crate::support::TestHome;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// How a CLI receives its prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Unchanged on standard input.
    Stdin,
    /// In one argument, after this one.
    Arg(&'static str),
    /// In a user message of stream-json.
    Claude,
    /// In a content block of `session/prompt`.
    Acp,
    /// In the input of a turn.
    Codex,
    /// In a command of its RPC mode.
    Pi,
}

/// Returns the lines that the scripted CLI prints to complete its protocol.
fn lines_of(way: Way) -> &'static str {
    match way {
        Way::Codex => {
            "{\"id\":1,\"result\":{}}\n{\"id\":2,\"result\":{\"thread\":{\"id\":\"t\"}}}\n{\"id\":3,\"result\":{\"turn\":{\"id\":\"u\"}}}\n\
             {\"method\":\"turn/completed\",\"params\":{\"threadId\":\"t\",\"turn\":{\"id\":\"u\",\"status\":\"completed\",\"items\":[{\"type\":\"agentMessage\",\"text\":\"done\"}]}}}"
        }
        Way::Pi => {
            "{\"type\":\"extension_ui_request\",\"id\":\"s\",\"method\":\"setStatus\",\"statusKey\":\"adjutant\",\"statusText\":\"ready\"}\n\
             {\"id\":\"state\",\"type\":\"response\",\"command\":\"get_state\",\"success\":true,\"data\":{\"messageCount\":0}}\n\
             {\"id\":\"prompt\",\"type\":\"response\",\"command\":\"prompt\",\"success\":true}\n\
             {\"type\":\"message_end\",\"message\":{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"done\"}],\"stopReason\":\"stop\"}}\n{\"type\":\"agent_settled\"}"
        }
        Way::Claude => {
            "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"done\"}"
        }
        Way::Acp => {
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":1,\"agentCapabilities\":{\"mcpCapabilities\":{\"http\":true}}}}\n\
             {\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"sessionId\":\"s\"}}\n{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}\n\
             {\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":\"s\",\"update\":\
             {\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"done\"}}}}\n\
             {\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{\"stopReason\":\"end_turn\"}}"
        }
        _ => "done",
    }
}

const MEGABYTES: usize = 2 << 20;

/// Returns prompts that could be misinterpreted: as an option, a file, a command, by a shell or a
/// terminal.
fn prompts() -> Vec<(&'static str, String)> {
    let mut prompts: Vec<(&'static str, String)> = [
        ("dash", "-"),
        ("option", "--help"),
        ("version", "-v --version"),
        ("mention", "@/etc/passwd and @secret.txt"),
        ("slash", "/quit"),
        ("bang", "!touch pwned"),
        ("shell", "$(touch pwned) `touch pwned` ; touch pwned | touch pwned > pwned\n&& touch pwned $HOME ~ * 'a' \"b\" \\n %s"),
        ("lines", "one\ntwo\r\n\n\tthree\n---\nfour\u{2028}five\n"),
        ("bidi", "\u{202e}evil\u{202c} \u{200b}\u{feff} \u{1b}[31mred\u{1b}]0;title\u{7} \u{85}"),
        ("braces", "{prompt} {session} {mcp_token} {file:mcp.json} {\"type\":\"result\"}"),
        ("nul", "before\0after"),
    ]
    .map(|(name, prompt)| (name, prompt.to_owned()))
    .into();
    prompts.push((
        "long",
        format!("{}end", "0123456789abcdé\n".repeat(MEGABYTES / 17)),
    ));
    prompts
}

/// A home with one agent, played by the script.
struct Stage {
    home: TestHome,
    records: PathBuf,
    way: Way,
}

impl Stage {
    fn new(preset: &str, way: Way) -> Self {
        let home = TestHome::new();
        let records = home.work().join("../records");
        std::fs::create_dir(&records).expect("a directory");
        let records = records.canonicalize().expect("a directory");
        let script = records.join("program");
        // Each run has its own directory for records.
        let text = format!(
            "#!/bin/sh\nd={}/$(basename \"$PWD\")\nmkdir -p $d\ncat /proc/$$/cmdline > $d/argv\ncat /proc/$$/environ > $d/environ\n\
             cat <<'END'\n{}\nEND\ncat > $d/stdin\n",
            records.display(),
            lines_of(way)
        );
        std::fs::write(&script, text).expect("the script can be written");
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))
            .expect("it can be made executable");
        let prompt = match (preset, way) {
            ("plain", Way::Arg(_)) => "prompt = \"arg\"\n",
            _ => "",
        };
        let config = format!(
            "live_runs_max = 4\n[agents.recorder]\nharness = \"{preset}\"\ncommand = [{:?}]\npermissions = \"full\"\n{prompt}",
            script.display().to_string()
        );
        std::fs::write(home.home.dir.join("config.toml"), config)
            .expect("the configuration can be written");
        Self { home, records, way }
    }

    /// Dispatches a prompt from a file, and returns whether it was accepted.
    fn starts(&self, name: &str, prompt: &str) -> Result<(), String> {
        let dir = self.home.work().join(name);
        std::fs::create_dir(&dir).expect("a directory");
        let file = self.records.join(format!("{name}.prompt"));
        std::fs::write(&file, prompt).expect("a prompt");
        let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let args = [
            "--json",
            "run",
            "--detach",
            "-a",
            "recorder",
            "-n",
            name,
            "-C",
            &text(&dir),
            "--file",
            &text(&file),
        ];
        let mut command = self.home.command(&args);
        command
            .env("A_SECRET", "not-for-agents")
            .env("AWS_SECRET_ACCESS_KEY", "not-for-agents");
        let ran: crate::support::Ran = command.output().expect("adj starts").into();
        if ran.code == 0 {
            Ok(())
        } else {
            Err(format!("{} {}", ran.code, ran.err))
        }
    }

    fn record(&self, name: &str, what: &str) -> Vec<u8> {
        let path = self.records.join(name).join(what);
        std::fs::read(&path)
            .unwrap_or_else(|error| panic!("{}: {error}\n{}", path.display(), self.home.log(name)))
    }

    /// Returns the script's arguments without its name.
    fn argv(&self, name: &str) -> Vec<String> {
        let bytes = self.record(name, "argv");
        let text = String::from_utf8(bytes).expect("UTF-8");
        let all: Vec<String> = text
            .strip_suffix('\0')
            .expect("it ends with NUL")
            .split('\0')
            .map(str::to_owned)
            .collect();
        assert_eq!(
            (all[0].as_str(), all[1].ends_with("/program")),
            ("/bin/sh", true),
            "{all:?}"
        );
        all[2..].to_vec()
    }

    /// Returns the prompt that the program received, and its other arguments.
    fn given(&self, name: &str) -> (String, Vec<String>) {
        let mut argv = self.argv(name);
        let stdin = String::from_utf8(self.record(name, "stdin")).expect("UTF-8");
        let text = match self.way {
            Way::Stdin => stdin,
            Way::Arg(before) => {
                assert_eq!(stdin, "");
                let last = argv.pop().expect("the prompt is the last argument");
                last.strip_prefix(before)
                    .unwrap_or_else(|| panic!("{last:?}"))
                    .to_owned()
            }
            Way::Claude => {
                let line = stdin.strip_suffix('\n').expect("a whole line");
                assert!(!line.contains('\n'), "one line");
                let said: Value = serde_json::from_str(line).expect("JSON");
                assert_eq!(
                    (
                        &said["type"],
                        said["message"]["content"].as_array().map(Vec::len)
                    ),
                    (&"user".into(), Some(1))
                );
                said["message"]["content"][0]["text"]
                    .as_str()
                    .expect("a text")
                    .to_owned()
            }
            Way::Acp => {
                let said: Vec<Value> = stdin
                    .lines()
                    .map(|line| serde_json::from_str(line).expect("JSON"))
                    .collect();
                let methods: Vec<&str> = said
                    .iter()
                    .filter_map(|said| said["method"].as_str())
                    .collect();
                assert_eq!(
                    methods,
                    [
                        "initialize",
                        "session/new",
                        "session/set_mode",
                        "session/prompt"
                    ]
                );
                let blocks = &said[3]["params"]["prompt"];
                assert_eq!(
                    (blocks.as_array().map(Vec::len), &blocks[0]["type"]),
                    (Some(1), &"text".into())
                );
                blocks[0]["text"].as_str().expect("a text").to_owned()
            }
            Way::Codex => {
                let said: Vec<Value> = stdin
                    .lines()
                    .map(|line| serde_json::from_str(line).expect("JSON"))
                    .collect();
                let methods: Vec<&str> = said
                    .iter()
                    .filter_map(|said| said["method"].as_str())
                    .collect();
                assert_eq!(
                    methods,
                    ["initialize", "initialized", "thread/start", "turn/start"]
                );
                let input = &said[3]["params"]["input"];
                assert_eq!(
                    (input.as_array().map(Vec::len), &input[0]["type"]),
                    (Some(1), &"text".into())
                );
                input[0]["text"].as_str().expect("a text").to_owned()
            }
            Way::Pi => {
                let said: Vec<Value> = stdin
                    .lines()
                    .map(|line| serde_json::from_str(line).expect("JSON"))
                    .collect();
                let types: Vec<&str> = said
                    .iter()
                    .filter_map(|said| said["type"].as_str())
                    .collect();
                assert_eq!(types, ["get_state", "prompt"]);
                said[1]["message"].as_str().expect("a text").to_owned()
            }
        };
        (text, argv)
    }
}

/// Removes what differs between attempts from arguments: ids and ports.
fn without_ids(argv: &[String]) -> Vec<String> {
    let ids = regex::Regex::new(r"[0-9a-f]{8}-[0-9a-f-]{27}|127\.0\.0\.1:\d+|work/[a-z]+")
        .expect("a pattern");
    argv.iter()
        .map(|arg| ids.replace_all(arg, "*").into_owned())
        .collect()
}

/// Passes all prompts to one kind of CLI.
fn takes_every_prompt_as_it_is(preset: &str, way: Way) {
    let stage = Stage::new(preset, way);
    let mut taken = Vec::new();
    for (name, prompt) in prompts() {
        match (way, name) {
            (Way::Arg(_), "nul" | "long") => {
                let refusal = stage
                    .starts(name, &prompt)
                    .expect_err("it cannot be passed");
                let word = if name == "nul" { "NUL" } else { "argument" };
                assert!(
                    refusal.starts_with("2 ") && refusal.contains(word),
                    "{refusal}"
                );
            }
            _ => {
                stage
                    .starts(name, &prompt)
                    .unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
                taken.push((name, prompt));
            }
        }
    }
    let mut argvs = Vec::new();
    for (name, prompt) in &taken {
        let view = stage.home.finished(name);
        assert_eq!(view["outcome"], "succeeded", "{name}: {view}");
        let (text, argv) = stage.given(name);
        // The statement comes first, so that a prompt is never at the beginning; then the exact
        // prompt.
        let (statement, task) = text
            .split_once("\n---\n")
            .unwrap_or_else(|| panic!("{name}: {text:?}"));
        assert!(
            statement.starts_with("## EXECUTION CONTEXT: BACKGROUND SUBAGENT\nYou are run "),
            "{name}: {statement}"
        );
        assert!(
            task == prompt,
            "{name}: {} bytes became {}",
            prompt.len(),
            task.len()
        );
        let others = argv.join("\0");
        assert!(
            !others.contains("EXECUTION CONTEXT")
                && !others.contains("touch pwned")
                && !others.contains("/etc/passwd"),
            "{name}: {argv:?}"
        );
        let environ = String::from_utf8_lossy(&stage.record(name, "environ")).into_owned();
        assert!(
            !environ.contains("not-for-agents") && !environ.contains("EXECUTION CONTEXT"),
            "{name}: {environ}"
        );
        assert!(
            !stage.home.work().join(name).join("pwned").exists(),
            "{name}"
        );
        argvs.push(without_ids(&argv));
    }
    assert!(
        argvs.windows(2).all(|pair| pair[0] == pair[1]),
        "the arguments are the same for every prompt: {argvs:#?}"
    );
    let expected: Option<&[&str]> = match preset {
        "plain" => Some(&[]),
        "crush" => Some(&["run", "--quiet"]),
        "gemini" => Some(&["--acp", "--allowed-mcp-server-names", "adj"]),
        "goose" => Some(&["acp", "--with-builtin", "developer"]),
        // Two files of the attempt follow these arguments.
        "q" => Some(&["chat", "--no-interactive", "--trust-all-tools", "--"]),
        "aider" => Some(&[
            "--yes-always",
            "--no-auto-commits",
            "--no-pretty",
            "--no-stream",
            "--no-analytics",
            "--no-check-update",
        ]),
        _ => None,
    };
    if let Some(expected) = expected {
        let compared = if preset == "aider" {
            &argvs[0][..expected.len()]
        } else {
            &argvs[0]
        };
        assert_eq!(compared, expected);
    }
}

#[test]
fn plain_program_gets_every_prompt_on_its_input() {
    takes_every_prompt_as_it_is("plain", Way::Stdin);
}

#[test]
fn plain_program_gets_every_prompt_in_one_argument() {
    takes_every_prompt_as_it_is("plain", Way::Arg(""));
}

#[test]
fn preset_of_text_gets_every_prompt_on_its_input() {
    takes_every_prompt_as_it_is("crush", Way::Stdin);
}

#[test]
fn preset_that_takes_an_argument_gets_every_prompt_in_one() {
    takes_every_prompt_as_it_is("aider", Way::Arg("--message="));
}

#[test]
fn preset_that_takes_a_positional_argument_gets_every_prompt_in_one() {
    takes_every_prompt_as_it_is("q", Way::Arg(""));
}

#[test]
fn claude_gets_every_prompt_in_a_message() {
    takes_every_prompt_as_it_is("claude", Way::Claude);
}

#[test]
fn codex_gets_every_prompt_in_a_turn() {
    takes_every_prompt_as_it_is("codex", Way::Codex);
}

#[test]
fn gemini_gets_every_prompt_in_a_content_block() {
    takes_every_prompt_as_it_is("gemini", Way::Acp);
}

#[test]
fn goose_gets_every_prompt_in_a_content_block() {
    takes_every_prompt_as_it_is("goose", Way::Acp);
}

#[test]
fn pi_gets_every_prompt_in_a_command() {
    takes_every_prompt_as_it_is("pi", Way::Pi);
}
