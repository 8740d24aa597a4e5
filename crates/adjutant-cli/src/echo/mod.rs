//! The echo agent, `adj __echo`: a scripted agent that takes the place of a coding agent's CLI. It
//! is a separate process with its own MCP connection, and needs no key and no network. Its prompt
//! is its script, see `script`.
//!
//! It behaves like a foreign program: it reads its environment and spawns processes directly. No
//! other module uses its code.

mod chat;
mod child;
mod out;
mod plan;
mod requests;
mod script;
mod worker;

use crate::hub_client::Client;
use crate::protocol::{AttemptDir, WorkerAccess};
use script::{Command, Plan, Question, ToolCall};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{ExitCode, Output, Stdio};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The script is invalid.
const EXIT_USAGE: u8 = 2;
/// Cancelled by a message on standard input.
const EXIT_CANCELLED: u8 = 130;

/// Runs `adj __echo [--stream] [--read-only] [PROMPT]`.
#[must_use]
pub fn main(args: &[OsString]) -> ExitCode {
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    if let ["--child", kind, run, rest @ ..] = words.as_slice() {
        return match child::main(kind, run, rest.contains(&"--ignore-term")) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let started = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let code = match started {
        Ok(runtime) => runtime.block_on(live(&words)),
        Err(error) => stop(1, &error.to_string()),
    };
    // Returning could block on a thread that still reads standard input.
    std::process::exit(i32::from(code));
}

/// Input that arrives while the script runs.
enum Incoming {
    Message(String),
    Cancel,
}

async fn live(words: &[&str]) -> u8 {
    let stream = words.contains(&"--stream");
    let is_read_only = words.contains(&"--read-only");
    let given: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| !matches!(*word, "--stream" | "--read-only"))
        .collect();
    let (inbox, incoming) = mpsc::unbounded_channel();
    let prompt = if stream {
        let (first, prompt) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || read_stream(first, &inbox));
        prompt
            .await
            .map_err(|_| io::Error::other("no line with a prompt arrived"))
            .and_then(|prompt| prompt)
    } else if given.is_empty() {
        let mut bytes = Vec::new();
        io::stdin()
            .lock()
            .read_to_end(&mut bytes)
            .map(|_| String::from_utf8_lossy(&bytes).into_owned())
    } else {
        Ok(given.join(" "))
    };
    let plan = match prompt {
        Ok(prompt) => plan::plan(&prompt),
        Err(error) => return stop(1, &format!("the prompt cannot be read: {error}")),
    };
    let (cancel, mut cancelled) = mpsc::channel(1);
    let mut agent = Agent {
        messages: Messages::new(incoming, cancel),
        unread: None,
        child: None,
        is_read_only,
    };
    match plan {
        Err(problem) => stop(EXIT_USAGE, &problem.to_string()),
        Ok(Plan::Repeat { text, warning }) => {
            if let Some(warning) = warning {
                out::warning(&format!(
                    "echo: {warning}; the text contains no command and is repeated"
                ));
            }
            out::line(&text);
            0
        }
        Ok(Plan::Script(commands)) => {
            tokio::select! {
                code = agent.run(commands) => code,
                Some(()) = cancelled.recv() => {
                    out::line("cancelled");
                    EXIT_CANCELLED
                }
            }
        }
    }
}

fn stop(code: u8, why: &str) -> u8 {
    out::line(&format!("echo: {why}"));
    code
}

/// Reads JSON lines: the prompt first, then messages and the cancellation.
fn read_stream(
    first: tokio::sync::oneshot::Sender<io::Result<String>>,
    inbox: &mpsc::UnboundedSender<Incoming>,
) {
    let mut first = Some(first);
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let value: Value = serde_json::from_str(&line).unwrap_or_default();
        let text = || value["text"].as_str().unwrap_or_default().to_string();
        let taken = match (value["type"].as_str(), first.take()) {
            (Some("prompt"), Some(first)) => first.send(Ok(text())).is_ok(),
            (kind, Some(first)) => {
                let problem = format!("a line of type {kind:?} arrived before the prompt");
                first.send(Err(io::Error::other(problem))).is_ok()
            }
            (Some("message"), None) => inbox.send(Incoming::Message(text())).is_ok(),
            (Some("cancel"), None) => inbox.send(Incoming::Cancel).is_ok(),
            (kind, None) => {
                out::line(&format!("echo: ignored a line of type {kind:?}"));
                true
            }
        };
        if !taken {
            return;
        }
    }
}

/// Messages in the order of their arrival, separate from the cancellation.
struct Messages {
    queue: mpsc::UnboundedReceiver<String>,
    _sorter: JoinSet<()>,
}

impl Messages {
    fn new(mut incoming: mpsc::UnboundedReceiver<Incoming>, cancel: mpsc::Sender<()>) -> Self {
        let (send, queue) = mpsc::unbounded_channel();
        let mut sorter = JoinSet::new();
        sorter.spawn(async move {
            while let Some(next) = incoming.recv().await {
                let taken = match next {
                    Incoming::Message(text) => send.send(text).is_ok(),
                    Incoming::Cancel => cancel.send(()).await.is_ok(),
                };
                if !taken {
                    return;
                }
            }
            // The end of the input is not a cancellation, so the channel stays open.
            std::future::pending::<()>().await;
        });
        Self {
            queue,
            _sorter: sorter,
        }
    }
}

struct Agent {
    messages: Messages,
    /// The last question that was asked without waiting for the answer.
    unread: Option<String>,
    /// The run that the last delegation started.
    child: Option<String>,
    /// Its run has the permissions `read`.
    is_read_only: bool,
}

impl Agent {
    async fn run(&mut self, commands: Vec<Command>) -> u8 {
        for command in commands {
            match self.execute(command).await {
                Ok(None) => {}
                Ok(Some(code)) => return code,
                Err(error) => return stop(1, &error.to_string()),
            }
        }
        0
    }

    /// Executes one command. If it returns a code, the script ends with it.
    async fn execute(&mut self, command: Command) -> io::Result<Option<u8>> {
        match command {
            Command::Say(text) => out::line(&text),
            Command::Sleep(time) => tokio::time::sleep(time).await,
            Command::Ask(question) => self.ask(question, false).await?,
            Command::AskStdio(question) => self.ask(question, true).await?,
            Command::Approve(approval) => self.request(requests::approve(&approval), approval.nowait).await?,
            Command::ApproveBlock(approval) => out::line(&requests::approve_block(&access()?.run_id, &approval)),
            Command::Delegate(delegation) => self.request(requests::delegate(&delegation), delegation.nowait).await?,
            Command::DelegateBlock(delegation) => out::line(&requests::delegate_block(&access()?.run_id, &delegation)),
            Command::Block(call) => out::line(&requests::any_block(&access()?.run_id, &call)),
            Command::Asks { count, text, wait } => self.ask_many(count, &text, wait).await?,
            Command::Check { wait } => self.check(wait).await?,
            Command::Status => print_result(call("check_subagent_status", json!({})).await),
            Command::Progress { percent, note } => {
                expect(call("update_subagent_status", json!({"status": "running", "percent": percent, "summary": note})).await)?;
            }
            Command::Report { status, text } => {
                expect(call("update_subagent_status", json!({"status": status, "summary": text})).await)?;
            }
            Command::Done(summary) => {
                expect(call("update_subagent_status", json!({"status": "success", "summary": summary})).await)?;
                out::line(&summary);
                return Ok(Some(0));
            }
            Command::Write { path, .. } | Command::Journal { path, .. } if self.is_read_only => {
                return Err(io::Error::other(format!("{path} is not written: the permissions of this run are read")));
            }
            Command::Write { path, text } => std::fs::write(&path, text + "\n").map_err(|error| at(&path, &error))?,
            Command::Journal { path, text } => journal(&path, &text)?,
            Command::PrintEnv => environment().iter().for_each(|(name, value)| out::line(&format!("{name}={value}"))),
            Command::Spawn { kind, ignore_term } => {
                let run = access().map_or_else(|_| "-".to_string(), |access| access.run_id);
                let pid = child::spawn(kind, ignore_term, &run)?;
                out::line(&format!("spawned {} {pid}", kind.word()));
            }
            Command::Adj(args) => print_output(&child::program().args(args).stdin(Stdio::null()).output()?),
            Command::ScrubAdj(args) => run_scrubbed(&args)?,
            Command::Tool(mut tool) => {
                if let Some(child) = &self.child {
                    tool.arguments = serde_json::from_str(&tool.arguments.to_string().replace("$CHILD", child))?;
                }
                print_result(worker::over_http(&access()?, &tool).await);
            }
            Command::StdioTool(tool) => print_result(blocking(move || worker::over_stdio(&[], &tool)).await),
            Command::Steal { access, call } => {
                let steal = move || worker::over_stdio(&[OsStr::new("--token-file"), OsStr::new(&access)], &call);
                print_result(blocking(steal).await);
            }
            Command::StealHttp { access, call } => {
                let access = worker::read_access(&PathBuf::from(access))?;
                print_result(worker::over_http(&access, &call).await);
            }
            Command::StealSocket { access, call } => {
                let client = Client::worker(worker::read_access(&PathBuf::from(access))?);
                match client.send_json::<serde_json::Value>(&format!("/api/v1/{}", call.name), &call.arguments, Some("stolen")).await {
                    Ok(reply) => out::line(&format!("result: {reply}")),
                    Err(error) => out::line(&format!("refused: {}: {error}", error.code)),
                }
            }
            Command::Flood(bytes) => out::flood(bytes, true),
            Command::Line(bytes) => out::flood(bytes, false),
            Command::Binary => out::bytes(b"\xff\xfe\x00\x01 not text \xc3\x28 \xf0\x9f\x92 \x1b[31mred\x1b]0;title\x07 \xe2\x80\xa8\r\n"),
            Command::Hang => std::future::pending().await,
            Command::IgnoreTerm => child::ignore_terminate()?,
            Command::Fail(code) => return Ok(Some(code)),
            Command::Crash => std::process::abort(),
            Command::ExpectMessage => match self.messages.queue.recv().await {
                Some(text) => out::line(&format!("message: {text}")),
                None => return Err(io::Error::other("no message can arrive")),
            },
        }
        Ok(None)
    }

    async fn ask(&mut self, question: Question, stdio: bool) -> io::Result<()> {
        let tool = requests::ask(&question);
        if stdio {
            let reply = ask_stdio(tool).await?;
            return self.wait(reply, question.nonblocking).await;
        }
        self.request(tool, question.nonblocking).await
    }

    /// Makes a request, and prints the outcome.
    async fn request(&mut self, tool: ToolCall, nowait: bool) -> io::Result<()> {
        let reply = expect(worker::over_http(&access()?, &tool).await)?;
        self.wait(reply, nowait).await
    }

    async fn wait(&mut self, mut reply: worker::Answer, nowait: bool) -> io::Result<()> {
        if nowait {
            let id = id_of(&reply)?;
            out::line(&format!("asked: {id}"));
            self.unread = Some(id);
            return Ok(());
        }
        // The call has timed out: continue to wait for the same request.
        while !is_settled(&reply) {
            let id = id_of(&reply)?;
            reply = expect(call("check_answer", json!({"message_id": id, "wait_s": 3600})).await)?;
        }
        print_answer(&reply);
        self.child = reply.structured["child"]
            .as_str()
            .map(str::to_string)
            .or(self.child.take());
        Ok(())
    }

    async fn ask_many(&mut self, count: u32, text: &str, wait: bool) -> io::Result<()> {
        let access = access()?;
        let mut asked = JoinSet::new();
        for number in 1..=count {
            let question = Question {
                text: format!("{text} {number}").trim().to_string(),
                nonblocking: !wait,
                ..Question::default()
            };
            let access = access.clone();
            asked.spawn(async move {
                let mut reply =
                    expect(worker::over_http(&access, &requests::ask(&question)).await)?;
                while wait && !is_settled(&reply) {
                    let call = ToolCall {
                        name: "check_answer".to_string(),
                        arguments: json!({"message_id": id_of(&reply)?, "wait_s": 3600}),
                    };
                    reply = expect(worker::over_http(&access, &call).await)?;
                }
                io::Result::Ok((question.text, reply))
            });
        }
        while let Some(done) = asked.join_next().await {
            let (question, reply) = done.map_err(io::Error::other)??;
            if wait {
                print_answer(&reply);
            } else {
                out::line(&format!("asked: {} {question}", id_of(&reply)?));
            }
        }
        out::line(&format!("asked {count}"));
        Ok(())
    }

    async fn check(&mut self, wait: bool) -> io::Result<()> {
        let id = self
            .unread
            .clone()
            .ok_or_else(|| io::Error::other("nothing was asked without waiting"))?;
        let wait_s = if wait { 3600 } else { 0 };
        let reply =
            expect(call("check_answer", json!({"message_id": id, "wait_s": wait_s})).await)?;
        if is_settled(&reply) {
            print_answer(&reply);
        } else {
            out::line("no answer yet");
        }
        Ok(())
    }
}

async fn ask_stdio(tool: ToolCall) -> io::Result<worker::Answer> {
    let file = access_file()?;
    expect(
        blocking(move || {
            worker::over_stdio(&[OsStr::new("--token-file"), file.as_os_str()], &tool)
        })
        .await,
    )
}

async fn blocking(
    work: impl FnOnce() -> io::Result<worker::Answer> + Send + 'static,
) -> io::Result<worker::Answer> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}

async fn call(name: &str, arguments: Value) -> io::Result<worker::Answer> {
    worker::over_http(
        &access()?,
        &ToolCall {
            name: name.to_string(),
            arguments,
        },
    )
    .await
}

/// Turns a refusal into an error, which ends the script.
fn expect(reply: io::Result<worker::Answer>) -> io::Result<worker::Answer> {
    let reply = reply?;
    print_messages(&reply);
    if reply.is_error {
        Err(io::Error::other(reply.text))
    } else {
        Ok(reply)
    }
}

fn print_messages(reply: &worker::Answer) {
    for message in reply.structured["messages"]
        .as_array()
        .into_iter()
        .flatten()
    {
        out::line(&format!(
            "message: {}",
            message["text"].as_str().unwrap_or_default()
        ));
    }
}

fn print_result(reply: io::Result<worker::Answer>) {
    match reply {
        Ok(reply) if reply.is_error => out::line(&format!("refused: {}", reply.text)),
        Ok(reply) => out::line(&format!("result: {}", reply.text)),
        Err(error) => out::line(&format!("refused: {error}")),
    }
}

fn is_settled(reply: &worker::Answer) -> bool {
    reply.structured["answer"].is_string()
}

fn print_answer(reply: &worker::Answer) {
    out::line(&format!(
        "answer: {}",
        reply.structured["answer"].as_str().unwrap_or_default()
    ));
    if let Some(result) = reply.structured["child_result"].as_str() {
        out::line(&format!("child: {result}"));
    }
}

fn id_of(reply: &worker::Answer) -> io::Result<String> {
    let id = reply.structured["message_id"].as_str();
    id.map(str::to_string)
        .ok_or_else(|| io::Error::other(format!("a reply without message_id: {}", reply.text)))
}

fn print_output(output: &Output) {
    out::line(&format!(
        "exit: {}",
        output
            .status
            .code()
            .map_or_else(|| output.status.to_string(), |code| code.to_string())
    ));
    for line in output
        .stdout
        .split(|byte| *byte == b'\n')
        .chain(output.stderr.split(|byte| *byte == b'\n'))
    {
        if !line.is_empty() {
            out::line(&format!("| {}", String::from_utf8_lossy(line)));
        }
    }
}

/// Runs `adj ARGS…` from a process whose parents have exited and whose environment only names the
/// home.
fn run_scrubbed(args: &[String]) -> io::Result<()> {
    let home =
        environment_value("ADJ_HOME").or_else(|| home_of_access().map(PathBuf::into_os_string));
    let mut shell = child::program();
    shell
        .args(["__echo-scrubbed"])
        .args(args)
        .env_clear()
        .current_dir("/");
    if let Some(home) = home {
        shell.env("ADJ_HOME", home);
    }
    print_output(&shell.stdin(Stdio::null()).output()?);
    Ok(())
}

/// Runs `adj __echo-scrubbed ARGS…`: starts `adj ARGS…` in a new session and exits at once.
#[must_use]
pub(crate) fn scrubbed_main(args: &[OsString]) -> ExitCode {
    let started = rustix::process::setsid()
        .map_err(io::Error::from)
        .and_then(|_| child::program().args(args).spawn());
    match started {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            out::line(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Appends `<run> <attempt> <pid> <monotonic nanoseconds> TEXT` in one write.
fn journal(path: &str, text: &str) -> io::Result<()> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now_ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    let (run, attempt) = access().map_or_else(
        |_| ("-".to_string(), 0),
        |access| (access.run_id, access.attempt),
    );
    let line = format!("{run} {attempt} {} {now_ns} {text}\n", std::process::id());
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| at(path, &error))?;
    file.write_all(line.as_bytes())
        .map_err(|error| at(path, &error))
}

fn at(path: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

fn access() -> io::Result<WorkerAccess> {
    worker::read_access(&access_file()?)
}

fn access_file() -> io::Result<PathBuf> {
    environment_value("ADJ_WORKER")
        .map(PathBuf::from)
        .ok_or_else(|| io::Error::other("ADJ_WORKER is not set: this agent has no supervisor"))
}

/// `<home>/runs/<run>/<attempt>/worker.json`
fn home_of_access() -> Option<PathBuf> {
    let file = access_file().ok()?;
    let home = file.ancestors().nth(4)?;
    let access = worker::read_access(&file).ok()?;
    (AttemptDir::new(home, &access.run_id, access.attempt).worker_access() == file)
        .then(|| home.to_path_buf())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the echo agent reads its environment like a foreign program"
)]
fn environment_value(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the echo agent reads its environment like a foreign program"
)]
fn environment() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = std::env::vars_os()
        .map(|(name, value)| {
            (
                name.to_string_lossy().into_owned(),
                value.to_string_lossy().into_owned(),
            )
        })
        .collect();
    all.sort();
    all
}
