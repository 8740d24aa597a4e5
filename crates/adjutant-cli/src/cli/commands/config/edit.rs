//! `adj config edit`: the user's editor on a copy, which replaces the file if it is valid.

use super::change::{read, unusable};
use crate::cli::argv;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, Out, fail, fail_hint};
use crate::cli::prompt::ask;
use crate::config::{Config, Home, text_variable};
use crate::hub_client::random_hex;
use crate::process::foreground;
use crate::text;
use crate::view::codes;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The content of a new file.
const NEW_FILE: &str = "# The configuration of adj. Every setting: adj help configuration\n";

/// Opens a copy in the editor until it is valid, and replaces the file.
pub(super) async fn edit(home: &Home, out: &Out) -> CommandResult {
    let editor = editor()?;
    let file = read(home)?;
    let before = file.text.clone().unwrap_or_else(|| NEW_FILE.to_owned());
    let copy = EditorCopy::new(&before)?;
    loop {
        copy.open_in(&editor).await?;
        let text = copy.read()?;
        if text == before {
            copy.remove()?;
            out.print_message("nothing changed")?;
            return Ok(Exit::Done);
        }
        let Err(problem) = Config::check(&file.path, &text) else {
            file.write(&text)
                .map_err(|error| copy.kept(unusable(&error)))?;
            copy.remove()?;
            out.print_message(&format!(
                "{} is replaced",
                text::line(&file.path.display().to_string())
            ))?;
            return Ok(Exit::Done);
        };
        let refusal = || {
            copy.kept(fail(
                codes::INVALID,
                format!("{problem}; nothing was changed"),
            ))
        };
        if !out.interactive {
            return Err(refusal());
        }
        out.print_message(&text::line(&problem.to_string()))?;
        let answer = ask("Edit it again? [Y/n] ")?;
        if !answer.is_some_and(|answer| matches!(answer.trim(), "" | "y" | "Y" | "yes")) {
            return Err(refusal());
        }
    }
}

fn editor() -> Result<Vec<String>, Failure> {
    let Some(named) = text_variable("VISUAL").or_else(|| text_variable("EDITOR")) else {
        return Err(fail_hint(
            cli_codes::USAGE,
            "no editor is set (VISUAL, EDITOR)",
            "set EDITOR, or change one setting: adj config set KEY VALUE",
        ));
    };
    argv::split(&named).ok_or_else(|| {
        fail(
            cli_codes::USAGE,
            format!("{} is not a command", text::line(&named)),
        )
    })
}

/// A private copy of the file, in the directory for temporary files.
struct EditorCopy(PathBuf);

impl EditorCopy {
    fn new(text: &str) -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("adj-config-{}.toml", random_hex::<8>()));
        let io =
            |error: std::io::Error| fail(cli_codes::IO, format!("{}: {error}", path.display()));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(io)?;
        file.write_all(text.as_bytes()).map_err(io)?;
        Ok(Self(path))
    }

    async fn open_in(&self, editor: &[String]) -> Result<(), Failure> {
        let (program, args) = editor
            .split_first()
            .ok_or_else(|| fail(cli_codes::USAGE, "the editor's command is empty"))?;
        let mut args = args.to_vec();
        args.push(self.0.display().to_string());
        match foreground::run_attached(program, &args, Path::new(".")).await {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(self.kept(fail(
                cli_codes::IO,
                format!(
                    "{} ended with {status}; nothing was changed",
                    text::line(program)
                ),
            ))),
            Err(error) => {
                self.remove()?;
                Err(fail(
                    cli_codes::IO,
                    format!("{} cannot be started: {error}", text::line(program)),
                ))
            }
        }
    }

    fn read(&self) -> Result<String, Failure> {
        std::fs::read_to_string(&self.0).map_err(|error| {
            fail(
                cli_codes::IO,
                format!("{}: {error}; nothing was changed", self.0.display()),
            )
        })
    }

    fn remove(&self) -> Result<(), Failure> {
        std::fs::remove_file(&self.0)
            .map_err(|error| fail(cli_codes::IO, format!("{}: {error}", self.0.display())))
    }

    /// Adds the place of the copy, which holds what the user typed, to a failure.
    fn kept(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Error(mut error) => {
                error.hint = Some(format!("your version is in {}", self.0.display()));
                Failure::Error(error)
            }
            other => other,
        }
    }
}
