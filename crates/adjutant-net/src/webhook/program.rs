//! Passes a message to a program of the user. There is no shell: each argument stays one argument.

use super::error::ProgramError;
use super::{Notice, notice};
use crate::config::{find_program, notify_env, text_variable};
use crate::process::tool::{self, Tool};
use crate::text;
use adjutant_core::shorten;
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

const OUTPUT_BYTES_MAX: usize = 1024;
const PROBLEM_CHARS_MAX: usize = 300;
/// The program that shows a message on the desktop.
const NOTIFY_SEND: &str = "notify-send";

/// Runs a program to its end.
pub(super) async fn run(
    program: &str,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    input: Vec<u8>,
    limit: Duration,
) -> Result<(), ProgramError> {
    let tool = Tool {
        program: Path::new(program),
        args,
        env,
        cwd: Path::new("/"),
        input,
        input_file: None,
        output_file: None,
        limit,
        output_bytes_max: OUTPUT_BYTES_MAX,
        umask: None,
    };
    let ended = tool::run(tool)
        .await
        .map_err(|source| ProgramError::Start {
            program: program.to_owned(),
            source,
        })?;
    if ended.exit_code == Some(0) {
        return Ok(());
    }
    let said = text::line(ended.errors.trim());
    Err(ProgramError::Failed {
        program: program.to_owned(),
        code: ended.exit_code,
        said: shorten::counted(&said, PROBLEM_CHARS_MAX).to_string(),
    })
}

/// Runs the configured program with the message as JSON on its standard input. `{title}` and
/// `{text}` in its arguments stand for the parts of the message. The link is only in the JSON,
/// because other users can read arguments.
pub(super) async fn send(
    argv: &[String],
    message: &Notice,
    limit: Duration,
) -> Result<(), ProgramError> {
    let Some((program, args)) = argv.split_first() else {
        return Err(ProgramError::NoProgram { field: "command" });
    };
    let (title, text) = (notice::title(message), notice::plain_text(message));
    let args = args
        .iter()
        .map(|arg| OsString::from(fill_argument(arg, &title, &text)))
        .collect();
    let mut input =
        json!({"id": message.id, "timestamp": message.timestamp_s, "title": title, "text": text});
    if let Some(link) = &message.link {
        input["link"] = json!(link);
    }
    run(
        program,
        args,
        notify_env(),
        input.to_string().into_bytes(),
        limit,
    )
    .await
}

/// Shows a message on the desktop.
pub(super) async fn show_on_desktop(message: &Notice, limit: Duration) -> Result<(), ProgramError> {
    let path = text_variable("PATH").unwrap_or_default();
    let Some(program) = find_program(NOTIFY_SEND, &path) else {
        return Err(ProgramError::NotFound(NOTIFY_SEND));
    };
    let args = [
        "--app-name=Adjutant",
        "--",
        &notice::title(message),
        &notice::markup_text(message),
    ]
    .map(OsString::from)
    .to_vec();
    run(
        &program.display().to_string(),
        args,
        notify_env(),
        Vec::new(),
        limit,
    )
    .await
}

/// Fills an argument. What a part of the message contains is not filled again.
fn fill_argument(arg: &str, title: &str, text: &str) -> String {
    let mut out = String::new();
    let mut rest = arg;
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let parts = [("{title}", title), ("{text}", text)];
        let (name, value) = parts
            .into_iter()
            .find(|(name, _)| rest.starts_with(name))
            .unwrap_or(("{", "{"));
        out.push_str(value);
        rest = &rest[name.len()..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_is_filled_once() {
        let fill = |arg| fill_argument(arg, "{text} $(x)", "a b");
        assert_eq!(fill("{title}"), "{text} $(x)");
        assert_eq!(
            fill("--body={text}: {title} {} {other} {"),
            "--body=a b: {text} $(x) {} {other} {"
        );
    }
}
