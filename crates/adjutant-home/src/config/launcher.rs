//! The launcher of a pool: a command that starts a runner on demand.

use super::environment::text_variable;
use super::programs::find_program;
use super::values::UnusableValues;
use crate::files;
use adjutant_core::launch::{JOIN_TIMEOUT_DEFAULT_MS, LAUNCHED_MAX};
use adjutant_core::units::duration;
use std::io;
use std::path::{Path, PathBuf};

const ARGUMENTS_MAX: usize = 200;
/// Largest file of `launch_input`, in bytes.
const INPUT_BYTES_MAX: u64 = 256 * 1024;
/// The placeholders for the runner's name, its pool and the hub's address.
const PLACEHOLDERS: [&str; 3] = ["{name}", "{pool}", "{url}"];
/// The placeholder for the token, allowed only in the input.
const TOKEN: &str = "{token}";

/// A command that starts a runner on demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    /// The program, by its path or as a name in `PATH`, and its arguments.
    pub argv: Vec<String>,
    /// The file whose text is its standard input. `None`: the token is.
    pub input: Option<PathBuf>,
    /// Maximum number of its launched runners at a time.
    pub max: u64,
    /// How long such a runner may take to join.
    pub join_within_ms: i64,
}

/// Why a launcher has no standard input.
#[derive(Debug, thiserror::Error)]
pub enum LaunchInputError {
    /// The error contains the path.
    #[error("launch_input: {0}")]
    Io(#[from] io::Error),
    #[error("launch_input: {0} is not UTF-8")]
    NotUtf8(PathBuf),
    #[error("launch_input: {0} has no {TOKEN}, without which the runner cannot join")]
    NoToken(PathBuf),
}

/// Why the command of a launcher cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum LaunchProblem {
    #[error(
        "use a list with a program and its arguments, such as [\"ssh\", \"gpu1.example.org\", \"adj\", \"runner\", …]"
    )]
    NoProgram,
    #[error("use at most {ARGUMENTS_MAX} arguments")]
    Arguments,
    #[error("the program cannot contain a placeholder")]
    VariableProgram,
    #[error(
        "{TOKEN} cannot be an argument, which other users can read: the command gets the token on its standard input (adj runner --token-file -), or in the text of launch_input"
    )]
    ShownToken,
    #[error("unknown placeholder {0}: use {known}", known = PLACEHOLDERS.join(", "))]
    UnknownPlaceholder(String),
}

/// The settings of a launcher as the file declares them.
#[derive(Debug, Default)]
pub(super) struct FileLauncher<'a> {
    pub launch: Option<&'a [String]>,
    pub launch_input: Option<&'a str>,
    pub launch_max: Option<u64>,
    pub launch_timeout: Option<&'a str>,
}

/// The values of the placeholders.
#[derive(Debug, Clone, Copy)]
pub struct LaunchValues<'a> {
    pub name: &'a str,
    pub pool: &'a str,
    pub url: &'a str,
}

impl Launcher {
    /// Returns the program and its arguments.
    #[must_use]
    pub fn filled_argv(&self, values: &LaunchValues<'_>) -> Vec<String> {
        self.argv
            .iter()
            .map(|arg| fill(arg, values, None))
            .collect()
    }

    /// Finds the program by its path, or by its name in an absolute directory of `PATH`.
    #[must_use]
    pub fn program(&self) -> Option<PathBuf> {
        find_program(
            self.argv.first()?,
            &text_variable("PATH").unwrap_or_default(),
        )
    }

    /// Returns the standard input.
    ///
    /// # Errors
    /// The file cannot be read, or its text has no place for the token.
    pub fn filled_input(
        &self,
        values: &LaunchValues<'_>,
        token: &str,
    ) -> Result<String, LaunchInputError> {
        let Some(path) = &self.input else {
            return Ok(format!("{token}\n"));
        };
        let text = String::from_utf8(files::read_named(path, INPUT_BYTES_MAX)?)
            .map_err(|_| LaunchInputError::NotUtf8(path.clone()))?;
        if !text.contains(TOKEN) {
            return Err(LaunchInputError::NoToken(path.clone()));
        }
        Ok(fill(&text, values, Some(token)))
    }
}

/// Fills a text. Placeholders within values are not replaced.
fn fill(text: &str, values: &LaunchValues<'_>, token: Option<&str>) -> String {
    let [name, pool, url] = PLACEHOLDERS;
    let parts = [(name, values.name), (pool, values.pool), (url, values.url)];
    let parts: Vec<(&str, &str)> = parts
        .into_iter()
        .chain(token.map(|token| (TOKEN, token)))
        .collect();
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (found, value) = parts
            .iter()
            .find(|(found, _)| rest.starts_with(found))
            .unwrap_or(&("{", "{"));
        out.push_str(value);
        rest = &rest[found.len()..];
    }
    out + rest
}

/// Reads the launcher of a pool. `dir`: that of the configuration file.
pub(super) fn read(
    file: &FileLauncher<'_>,
    pool: &str,
    dir: &Path,
    unusable: &mut UnusableValues,
) -> Option<Launcher> {
    let field = |key: &str| format!("pools.{pool}.{key}");
    let Some(argv) = file.launch else {
        let given = [
            ("launch_input", file.launch_input.is_some()),
            ("launch_max", file.launch_max.is_some()),
            ("launch_timeout", file.launch_timeout.is_some()),
        ];
        for (key, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
            unusable.report(field(key), "needs launch, the command that starts a runner");
        }
        return None;
    };
    unusable.check(&field("launch"), check(argv));
    let max = file.launch_max.unwrap_or(1);
    if !(1..=LAUNCHED_MAX).contains(&max) {
        unusable.report(field("launch_max"), format!("use 1 to {LAUNCHED_MAX}"));
    }
    let join_within_ms = file
        .launch_timeout
        .and_then(|text| unusable.check(&field("launch_timeout"), duration::parse_positive(text)));
    Some(Launcher {
        argv: argv.to_vec(),
        input: file.launch_input.map(|path| dir.join(path)),
        max,
        join_within_ms: join_within_ms.unwrap_or(JOIN_TIMEOUT_DEFAULT_MS),
    })
}

fn check(argv: &[String]) -> Result<(), LaunchProblem> {
    let Some(program) = argv.first().filter(|program| !program.is_empty()) else {
        return Err(LaunchProblem::NoProgram);
    };
    if argv.len() > ARGUMENTS_MAX || argv.iter().any(|arg| arg.contains('\0')) {
        return Err(LaunchProblem::Arguments);
    }
    if placeholders(program).next().is_some() {
        return Err(LaunchProblem::VariableProgram);
    }
    match argv
        .iter()
        .flat_map(|arg| placeholders(arg))
        .find(|found| !PLACEHOLDERS.contains(found))
    {
        None => Ok(()),
        Some(TOKEN) => Err(LaunchProblem::ShownToken),
        Some(other) => Err(LaunchProblem::UnknownPlaceholder(other.to_owned())),
    }
}

/// Returns what looks like a placeholder: lower-case letters in braces.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('{').filter_map(|(at, _)| {
        let end = at + text[at..].find('}')?;
        let word = &text[at + 1..end];
        (!word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
        .then(|| &text[at..=end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: LaunchValues<'_> = LaunchValues {
        name: "launched-gpu-1",
        pool: "gpu",
        url: "https://hub:7317",
    };

    fn argv(args: &[&str]) -> Vec<String> {
        args.iter().map(|arg| (*arg).to_owned()).collect()
    }

    #[test]
    fn placeholders_are_filled_once_within_one_argument() {
        let launcher = Launcher {
            argv: argv(&[
                "ssh",
                "--join={url}",
                "{name} {pool}",
                "{{.ID}}",
                "{\"a\": {}}",
            ]),
            input: None,
            max: 1,
            join_within_ms: 1,
        };
        let filled = launcher.filled_argv(&VALUES);
        assert_eq!(
            filled,
            argv(&[
                "ssh",
                "--join=https://hub:7317",
                "launched-gpu-1 gpu",
                "{{.ID}}",
                "{\"a\": {}}"
            ])
        );
        assert_eq!(
            launcher.filled_input(&VALUES, "adj_x").ok().as_deref(),
            Some("adj_x\n")
        );
        let dir = tempfile::tempdir().expect("a directory");
        let launcher = Launcher {
            input: Some(dir.path().join("job.json")),
            ..launcher
        };
        let filled_from = |text: &str| {
            std::fs::write(dir.path().join("job.json"), text).expect("a file");
            launcher.filled_input(&VALUES, "adj_{pool}")
        };
        let text = "{\"name\": \"{name}\", \"token\": \"{token}\", \"other\": \"${node.id} {x}\"}";
        let filled = filled_from(text).expect("it has a place for the token");
        assert_eq!(
            filled,
            "{\"name\": \"launched-gpu-1\", \"token\": \"adj_{pool}\", \"other\": \"${node.id} {x}\"}"
        );
        assert!(
            filled_from("{name}")
                .is_err_and(|problem| problem.to_string().contains("job.json has no {token}"))
        );
    }

    #[test]
    fn unusable_launchers_are_refused() {
        for (args, expected) in [
            (&[][..], "use a list with a program"),
            (&["{name}"], "the program cannot contain a placeholder"),
            (
                &["ssh", "{host}"],
                "unknown placeholder {host}: use {name}, {pool}, {url}",
            ),
            (&["ssh", "--token={token}"], "{token} cannot be an argument"),
        ] {
            let mut unusable = UnusableValues::default();
            let file = FileLauncher {
                launch: Some(&argv(args)),
                launch_max: Some(0),
                launch_timeout: Some("soon"),
                ..FileLauncher::default()
            };
            read(&file, "gpu", Path::new("/"), &mut unusable);
            assert_eq!(
                unusable.fields(),
                [
                    "pools.gpu.launch",
                    "pools.gpu.launch_max",
                    "pools.gpu.launch_timeout"
                ]
            );
            assert!(
                check(&argv(args)).is_err_and(|problem| problem.to_string().contains(expected)),
                "{args:?}"
            );
        }
        let mut unusable = UnusableValues::default();
        assert_eq!(
            read(
                &FileLauncher {
                    launch_max: Some(1),
                    ..FileLauncher::default()
                },
                "gpu",
                Path::new("/"),
                &mut unusable
            ),
            None
        );
        assert_eq!(unusable.fields(), ["pools.gpu.launch_max"]);
    }
}
