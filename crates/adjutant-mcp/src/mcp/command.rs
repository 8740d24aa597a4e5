//! The arguments of `adj mcp`. They are parsed by hand, because every agent session starts this
//! process and the command line's grammar would take longer than the rest of the start.

use super::facade;
use super::session::{Facade, Role};
use super::stdio::{StdioArgs, stdio};
use crate::view::{ErrorView, codes};
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// What `adj mcp --help` prints.
pub const HELP: &str = "Serve MCP on standard input and output

Usage: adj mcp [OPTIONS]

Options:
      --role <ROLE>        The tools to serve: parent or worker. Default: worker inside a run, else parent
      --token-file <FILE>  Act for the run whose supervisor wrote this file
      --client <NAME>      Act as this client. Default: a client named after the current directory
      --facade <SERVER>    Serve the tools of another server instead: codex (codex and codex-reply of codex mcp-server)
      --agent <AGENT>      The agent that the facade starts. Default: codex
      --compat             List the other names of tools and arguments too
      --ephemeral          Use a home in memory, which is removed when its hub exits
      --max-wait <SECONDS> The longest time that a call may block. Default: the client's own limit, if it is known
  -h, --help               Print help

Connect an agent:
  adj install
  claude mcp add adjutant -s user -- adj mcp
  codex mcp add adjutant -- adj mcp
  gemini mcp add -s user adjutant adj mcp
  opencode mcp add adjutant -- adj mcp
  copilot mcp add adjutant -- adj mcp
  goose session --with-extension \"adj mcp\"
  qwen mcp add adjutant adj mcp       (and \"alwaysLoadTools\": true in its entry of ~/.qwen/settings.json)
  Kimi Code (~/.kimi-code/mcp.json), Cursor (~/.cursor/mcp.json):
    {\"mcpServers\": {\"adjutant\": {\"command\": \"adj\", \"args\": [\"mcp\"]}}}
";

/// Runs `adj mcp` with the arguments that follow it.
#[must_use]
pub fn main(args: &[OsString]) -> ExitCode {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        return ExitCode::from(u8::from(
            std::io::stdout().write_all(HELP.as_bytes()).is_err(),
        ));
    }
    let parsed = parse(args).inspect(|parsed| {
        if parsed.ephemeral {
            crate::config::request_ephemeral();
        }
    });
    match parsed.and_then(|args| greet_person().and_then(|()| stdio(args))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => print_refusal(&error),
    }
}

/// Tells a person at a terminal, who would wait for a prompt, what this is. An MCP client connects
/// pipes.
fn greet_person() -> Result<(), ErrorView> {
    const NOTICE: &str =
        "adj mcp serves MCP clients (coding agents, editors), which start it themselves; it waits for their messages on standard input.
  connect a client: adj install
  leave: Ctrl-D
";
    let mut stderr = std::io::stderr();
    if !(std::io::stdin().is_terminal() && stderr.is_terminal()) {
        return Ok(());
    }
    let failed = |error: std::io::Error| ErrorView {
        code: codes::INTERNAL.into(),
        message: format!("standard error: {error}"),
        hint: None,
    };
    stderr.write_all(NOTICE.as_bytes()).map_err(failed)
}

fn print_refusal(error: &ErrorView) -> ExitCode {
    const USAGE: u8 = 2;
    let hint = error
        .hint
        .as_deref()
        .map(|hint| format!("\n  hint: {}", crate::text::line(hint)))
        .unwrap_or_default();
    let written = writeln!(
        std::io::stderr(),
        "error[{}]: {}{hint}",
        error.code,
        crate::text::line(&error.message)
    );
    // If standard error is closed too, only the exit code reports the error.
    let failed = if written.is_ok() && error.code == codes::INVALID {
        USAGE
    } else {
        1
    };
    ExitCode::from(failed)
}

/// Parses the arguments, in both forms (`--role worker`, `--role=worker`).
///
/// # Errors
/// An unknown option, a missing or unusable value.
pub fn parse(args: &[OsString]) -> Result<StdioArgs, ErrorView> {
    let mut parsed = StdioArgs::default();
    let mut agent = None;
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let text = arg
            .to_str()
            .ok_or_else(|| usage(&format!("{} is not UTF-8", arg.to_string_lossy())))?;
        let (name, attached) = match text.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => (text, None),
        };
        let mut value = || match attached.clone().or_else(|| rest.next().cloned()) {
            Some(value) => Ok(value),
            None => Err(usage(&format!("{name} needs a value"))),
        };
        match name {
            "--role" => parsed.role = Some(role(&value()?)?),
            "--token-file" => parsed.token_file = Some(PathBuf::from(value()?)),
            "--facade" => parsed.facade = Some(facade(&value()?)?),
            "--agent" => agent = Some(utf8(name, value()?)?),
            "--client" => parsed.client = Some(utf8(name, value()?)?),
            "--max-wait" => parsed.max_wait_s = Some(seconds(&utf8(name, value()?)?)?),
            "--ephemeral" if attached.is_none() => parsed.ephemeral = true,
            "--compat" if attached.is_none() => parsed.compat = true,
            _ => return Err(usage(&format!("unexpected argument {text}"))),
        }
    }
    match (&mut parsed.facade, agent) {
        (Some(facade), Some(agent)) => facade.agent = agent,
        (None, Some(_)) => return Err(usage("--agent needs --facade")),
        (_, None) => {}
    }
    Ok(parsed)
}

fn facade(value: &OsStr) -> Result<Facade, ErrorView> {
    match value.to_str() {
        Some("codex") => Ok(Facade {
            agent: facade::AGENT.to_owned(),
        }),
        _ => Err(usage(&format!(
            "there is no facade {}",
            value.to_string_lossy()
        ))),
    }
}

fn role(value: &OsStr) -> Result<Role, ErrorView> {
    match value.to_str() {
        Some("parent") => Ok(Role::Parent),
        Some("worker") => Ok(Role::Worker),
        _ => Err(usage(&format!(
            "there is no role {}",
            value.to_string_lossy()
        ))),
    }
}

fn utf8(name: &str, value: OsString) -> Result<String, ErrorView> {
    value
        .into_string()
        .map_err(|_| usage(&format!("the value of {name} is not UTF-8")))
}

fn seconds(value: &str) -> Result<u64, ErrorView> {
    value
        .parse()
        .map_err(|_| usage(&format!("{value} is not a number of seconds")))
}

fn usage(message: &str) -> ErrorView {
    ErrorView {
        code: codes::INVALID.into(),
        message: message.into(),
        hint: Some("adj mcp --help".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<StdioArgs, ErrorView> {
        parse(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn both_forms_of_an_option_are_read() {
        let args = parsed(&[
            "--role=worker",
            "--token-file",
            "/x",
            "--compat",
            "--max-wait=5",
            "--client",
            "a b",
        ])
        .expect("parsed");
        assert_eq!(args.role, Some(Role::Worker));
        assert_eq!(
            (args.token_file, args.compat, args.max_wait_s, args.client),
            (Some("/x".into()), true, Some(5), Some("a b".into()))
        );
    }

    #[test]
    fn facade_starts_its_agent_or_another() {
        let agent = |args: &[&str]| {
            parsed(args)
                .expect("parsed")
                .facade
                .map(|facade| facade.agent)
        };
        assert_eq!(agent(&["--facade", "codex"]), Some("codex".to_owned()));
        assert_eq!(
            agent(&["--agent=mine", "--facade=codex"]),
            Some("mine".to_owned())
        );
        assert_eq!(agent(&[]), None);
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            &["--rolle"][..],
            &["--role"],
            &["--role", "boss"],
            &["--max-wait", "soon"],
            &["--compat=1"],
            &["--facade", "claude"],
            &["--agent", "echo"],
            &["x"],
        ] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }
}
