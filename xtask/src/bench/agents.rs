//! The vendors' CLIs: the rate at which their streams are read, and the delay that Adjutant adds to
//! their first event.

use super::{Bench, in_lab};
use crate::lab::{Lab, Result};
use crate::stats::{Row, Samples};

use adjutant_api::preset::{self, Driver};
use adjutant_api::view::{AgentView, Cancel, RunView};
use adjutant_stream::reader::{Reader, ReaderConfig};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The CLIs with recorded streams.
const RECORDED: [&str; 4] = ["claude", "codex", "gemini", "goose"];
/// The CLIs whose first event is measured.
pub const STARTED: [&str; 10] = [
    "claude", "codex", "gemini", "goose", "opencode", "copilot", "qwen", "kimi", "pi", "aider",
];
/// Number of bytes to read of each stream.
const DECODED_BYTES: usize = 64_000_000;
/// 200 MB/s plus a margin of 30 %.
const DECODED_MB_S: f64 = 260.0;
/// The size of a read from a pipe.
const READ_BYTES: usize = 64 * 1024;
const FIRST_EVENT_MAX: Duration = Duration::from_secs(60);

/// Reads recorded streams repeatedly, as a supervisor does.
pub async fn decode() -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for cli in RECORDED {
        let mut stream = Vec::new();
        let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../crates/adjutant/tests/fixtures/streams")
            .join(cli);
        for entry in std::fs::read_dir(&dir)? {
            stream.extend(std::fs::read(entry?.path())?);
        }
        let of = preset::builtin(cli).ok_or("a built-in preset")?.stream;
        let mut reader = Reader::new(
            &ReaderConfig {
                stream: of,
                answers_after: None,
            },
            16 * 1024,
        );
        let (mut told, mut read, mut shown) = (Vec::new(), 0, 0_usize);
        let start = Instant::now();
        while read < DECODED_BYTES {
            for piece in stream.chunks(READ_BYTES) {
                reader.push(piece, &mut |_| shown += 1, &mut told);
                told.clear();
                read += piece.len();
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "bytes far below 2^52")]
        let rate = read as f64 / 1e6 / start.elapsed().as_secs_f64();
        if shown == 0 {
            return Err(format!("no event was decoded from the stream of {cli}").into());
        }
        rows.push(Row::number(
            &format!("reading recorded streams of {cli}"),
            rate,
            "MB/s",
            DECODED_MB_S,
            false,
        ));
    }
    Ok(rows)
}

/// Measures the time from the start to the first event, alternating the CLI alone and `adj run`.
pub async fn overhead(bench: &Bench, cli: &'static str) -> Result<Vec<Row>> {
    let Some(clis) = std::env::var_os("ADJ_CLIS").map(PathBuf::from) else {
        let missing = "ADJ_CLIS names no directory with the vendors' CLIs; run .ci/clis";
        if std::env::var_os("ADJ_REQUIRE_ALL").is_some() {
            return Err(missing.into());
        }
        eprintln!("SKIPPED: {missing}");
        return Ok(vec![Row::failed(
            "adj run to an agent's first event",
            "skipped: no CLIs are installed",
        )]);
    };
    in_lab(bench, "", |lab| async move {
        let path = format!("{}:/usr/bin:/bin", clis.display());
        // Prices of models, which aider would load from the network.
        let caches = lab.dir.path().join(".aider/caches");
        std::fs::create_dir_all(&caches)?;
        std::fs::write(
            caches.join("model_prices_and_context_window.json"),
            "{\"none\":{}}",
        )?;
        let model = answering_model()?;
        let client = lab.client();
        let (mut bare, mut ours, mut over) = (Samples::default(), Samples::default(), Vec::new());
        for pair in 0..=bench.scale.first_events {
            let alone = alone(&lab, &path, &model, cli)?;
            let (through, run) = start_through_adjutant(&lab, &path, &model, cli).await?;
            client
                .call(&Cancel {
                    run: run.identity.run_id.clone(),
                    reason: None,
                })
                .await?;
            lab.finished(&client, &run.identity.run_id, Duration::from_secs(30))
                .await?;
            // The first pair is a warm-up that fills the page cache.
            if pair > 0 {
                bare.push(alone);
                ours.push(through);
                over.push(through.as_secs_f64() * 1e3 - alone.as_secs_f64() * 1e3);
            }
        }
        over.sort_by(f64::total_cmp);
        let what = format!(
            "adj run to the first event of {cli} ({:.0} ms), beyond the CLI alone ({:.0} ms), p50",
            ours.p50(),
            bare.p50()
        );
        Ok(vec![Row::number(
            &what,
            over[over.len() / 2],
            "ms",
            50.0,
            true,
        )])
    })
    .await
}

/// The programs of the presets that a list of agents finds.
const LISTED: [&str; 12] = [
    "claude", "codex", "gemini", "goose", "opencode", "qwen", "copilot", "kimi", "pi", "aider",
    "amp", "droid",
];
const LISTS: usize = 20;
/// A program that takes as long as a fast CLI to print its version.
const SAYS_ITS_VERSION: &str = "#!/bin/sh\nsleep 0.3\necho 1.2.3\n";

/// Lists twelve agents, with no known version and with all versions known.
pub async fn list(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, "", |lab| async move {
        let bin = lab.dir.path().join("bin");
        std::fs::create_dir(&bin)?;
        let path = format!("{}:/usr/bin:/bin", bin.display());
        let install = || -> Result<()> {
            for name in LISTED {
                // A new file each time, so that its version is unknown.
                let (made, program) = (bin.join("made"), bin.join(name));
                std::fs::write(&made, SAYS_ITS_VERSION)?;
                std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o755))?;
                std::fs::rename(&made, &program)?;
            }
            Ok(())
        };
        let list = || -> Result<(Duration, Vec<AgentView>)> {
            let start = Instant::now();
            let output = lab
                .command(&["--json", "agents"])
                .env("PATH", &path)
                .output()?;
            let took = start.elapsed();
            let mut reply: serde_json::Value = serde_json::from_slice(&output.stdout)?;
            let agents: Vec<AgentView> = serde_json::from_value(reply["data"].take())?;
            Ok((
                took,
                agents
                    .into_iter()
                    .filter(|agent| LISTED.contains(&agent.name.as_str()))
                    .collect(),
            ))
        };
        let known = |agents: &[AgentView]| {
            agents
                .iter()
                .filter(|agent| agent.version.is_some())
                .count()
        };
        let (mut cold, mut warm) = (Samples::default(), Samples::default());
        for _ in 0..LISTS {
            install()?;
            let (took, agents) = list()?;
            if known(&agents) > 0 || agents.iter().any(|agent| !agent.found) {
                return Err(format!(
                    "{} versions are known, and none was said yet",
                    known(&agents)
                )
                .into());
            }
            cold.push(took);
            let end = Instant::now() + FIRST_EVENT_MAX;
            while known(&list()?.1) < LISTED.len() {
                if Instant::now() > end {
                    return Err("not every version was determined".into());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            warm.push(list()?.0);
        }
        let spawn = Some(bench.floors.spawn.p50());
        Ok(vec![
            Row::latency("adj agents, 12 CLIs, no version known", &cold, spawn, 50.0),
            Row::latency(
                "adj agents, 12 CLIs, all versions known",
                &warm,
                spawn,
                50.0,
            ),
        ])
    })
    .await
}

/// The arguments of aider's preset, without those that name the attempt's directory.
const AIDER: [&str; 16] = [
    "--yes-always",
    "--no-auto-commits",
    "--no-pretty",
    "--no-stream",
    "--no-analytics",
    "--no-check-update",
    "--no-dirty-commits",
    "--no-gitignore",
    "--no-show-release-notes",
    "--map-tokens",
    "0",
    "--no-suggest-shell-commands",
    "--no-detect-urls",
    "--disable-playwright",
    "--model=openai/gpt-4o",
    "--message=hello",
];

/// The text of the model's answers. It is the first event of a CLI without a structured stream: its
/// first lines are a banner, which is not shown.
const ANSWER: &str = "hello back";

/// Starts a server with an OpenAI-compatible API that gives the same answer to each request.
/// Returns its address.
fn answering_model() -> Result<String> {
    let body = serde_json::json!({
        "id": "1", "object": "chat.completion", "created": 1, "model": "gpt-4o",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": ANSWER}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    })
    .to_string();
    let reply = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            if let Err(error) = answer(connection, &reply) {
                eprintln!("the model of the benchmark: {error}");
            }
        }
    });
    Ok(url)
}

/// Reads a request, and replies.
fn answer(connection: TcpStream, reply: &str) -> std::io::Result<()> {
    let mut reader = BufReader::new(&connection);
    let (mut line, mut body) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if let Some(length) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            body = length.trim().parse().map_err(std::io::Error::other)?;
        }
    }
    std::io::copy(&mut reader.take(body), &mut std::io::sink())?;
    (&connection).write_all(reply.as_bytes())
}

/// Sets the environment of a user of the CLIs. Only aider reaches a model.
fn environment(command: &mut Command, lab: &Lab, path: &str, model: &str) {
    let nobody = "http://127.0.0.1:1";
    command
        .env("HOME", lab.dir.path())
        .env("PATH", path)
        .env("GOOSE_PROVIDER", "openai")
        .env("GOOSE_MODEL", "gpt-4o");
    command
        .env("AIDER_MODEL", "openai/gpt-4o")
        .env("PI_OFFLINE", "1");
    for name in [
        "ANTHROPIC_BASE_URL",
        "GOOGLE_GEMINI_BASE_URL",
        "OPENAI_HOST",
    ] {
        command.env(name, nobody);
    }
    command.env("OPENAI_API_BASE", model);
    for name in ["ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"] {
        command.env(name, "test-key");
    }
    for name in [
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "DISABLE_TELEMETRY",
        "DISABLE_AUTOUPDATER",
        "GOOSE_DISABLE_KEYRING",
    ] {
        command.env(name, "1");
    }
}

fn alone(lab: &Lab, path: &str, model: &str, cli: &str) -> Result<Duration> {
    let preset = preset::builtin(cli).ok_or("a built-in preset")?;
    let args: &[&str] = match cli {
        "claude" => &[
            "-p",
            "--output-format",
            "stream-json",
            "--input-format",
            "stream-json",
            "--verbose",
            "--setting-sources",
            "user",
        ],
        "codex" => &["app-server"],
        "gemini" => &["--acp"],
        "goose" => &["acp", "--with-builtin", "developer"],
        "opencode" => &["acp", "--print-logs", "--log-level", "ERROR"],
        "copilot" => &["--acp", "--no-auto-update"],
        "qwen" => &["--acp"],
        "kimi" => &["acp"],
        "pi" => &["--mode", "rpc", "--no-approve"],
        _ => &AIDER,
    };
    let opening = match preset.driver {
        Driver::Claude => r#"{"type":"user","message":{"role":"user","content":"hello"}}"#,
        Driver::Codex => {
            r#"{"id":1,"method":"initialize","params":{"clientInfo":{"name":"bench","version":"1"}}}"#
        }
        Driver::Pi => r#"{"type":"get_state"}"#,
        Driver::Jsonl | Driver::Plain => "",
        Driver::Acp => {
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}"#
        }
    };
    let program = path.split(':').next().unwrap_or_default();
    let mut command = Command::new(Path::new(program).join(cli));
    // Without variables that refer to the attempt's directory.
    let env = preset.env.iter().filter(|(_, value)| !value.contains('{'));
    command
        .args(args)
        .env_clear()
        .envs(env)
        .current_dir(lab.dir.path());
    command
        .env_remove("ADJ_MCP_TOKEN")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    environment(&mut command, lab, path, model);
    let start = Instant::now();
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().ok_or("a pipe")?;
    writeln!(stdin, "{opening}")?;
    let mut first = BufReader::new(child.stdout.take().ok_or("a pipe")?).lines();
    let first = if preset.driver == Driver::Plain {
        first.find(|line| line.as_ref().map_or(true, |line| line.contains(ANSWER)))
    } else {
        first.next()
    };
    let took = start.elapsed();
    child.kill()?;
    child.wait()?;
    match first.transpose()? {
        Some(line) if !line.trim().is_empty() => Ok(took),
        _ => Err(format!("{cli} produced no event").into()),
    }
}

async fn start_through_adjutant(
    lab: &Lab,
    path: &str,
    model: &str,
    cli: &str,
) -> Result<(Duration, RunView)> {
    let permissions = if cli == "aider" { "full" } else { "edit" };
    let mut command = lab.command(&[
        "--json",
        "run",
        "--detach",
        "--agent",
        cli,
        "--permissions",
        permissions,
        "hello",
    ]);
    environment(&mut command, lab, path, model);
    let start = Instant::now();
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("adj run: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let mut reply: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let run: RunView = serde_json::from_value(reply["data"].take())?;
    let is_text = preset::builtin(cli).is_some_and(|preset| preset.driver == Driver::Plain);
    let stream =
        Path::new(&run.place.log_path).with_extension(if is_text { "log" } else { "jsonl" });
    let has_event = || {
        std::fs::read_to_string(&stream).is_ok_and(|text| {
            if is_text {
                text.contains(ANSWER)
            } else {
                !text.is_empty()
            }
        })
    };
    while !has_event() {
        if start.elapsed() > FIRST_EVENT_MAX {
            return Err(format!("nothing in {}", stream.display()).into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok((start.elapsed(), run))
}
