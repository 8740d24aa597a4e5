//! Validation of callers' input, before anything is changed.

use crate::view::ClarificationView;
use adjutant_core::name::NameError;
use adjutant_core::{Denied, PromptVia, limits, shorten};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Maximum number of characters of a name that an error quotes.
const NAME_SHOWN_CHARS_MAX: usize = 60;

/// Creates the error for a text that is not a valid run name.
pub(super) fn unusable_name(name: &str, why: &NameError) -> Denied {
    let shown = shorten::to_chars(name, NAME_SHOWN_CHARS_MAX);
    Denied::invalid("name", format!("{shown:?} cannot be a name: {why}"))
}

/// Refuses a text that is too long.
pub(super) fn check_size(field: &'static str, text: &str, bytes_max: usize) -> Result<(), Denied> {
    if text.len() > bytes_max {
        return Err(Denied::invalid(
            field,
            format!("is {} bytes long; the limit is {bytes_max}", text.len()),
        ));
    }
    Ok(())
}

pub(super) fn checked_options(options: &[String]) -> Result<(), Denied> {
    if options.len() > limits::OPTIONS_MAX {
        return Err(Denied::invalid(
            "options",
            format!(
                "{} given; the limit is {}",
                options.len(),
                limits::OPTIONS_MAX
            ),
        ));
    }
    for option in options {
        if option.is_empty() {
            return Err(Denied::invalid("options", "one of them is empty"));
        }
        check_size("options", option, limits::OPTION_BYTES_MAX)?;
    }
    Ok(())
}

/// Refuses an expiry below `min_s` seconds or above the limit.
pub(super) fn checked_expiry(expires_s: Option<u64>, min_s: i64) -> Result<(), Denied> {
    if let Some(expires_s) = expires_s
        && !(min_s..=limits::EXPIRY_MS_MAX / 1000)
            .contains(&i64::try_from(expires_s).unwrap_or(i64::MAX))
    {
        return Err(Denied::invalid(
            "expires_s",
            format!("use {min_s} to {}", limits::EXPIRY_MS_MAX / 1000),
        ));
    }
    Ok(())
}

pub(super) fn checked_clarification(
    clarification: Option<&ClarificationView>,
) -> Result<(), Denied> {
    let Some(ClarificationView {
        reason,
        blocked_at,
        can_resume_with,
        current_state,
    }) = clarification
    else {
        return Ok(());
    };
    for (field, text) in [
        ("reason", reason),
        ("blocked_at", blocked_at),
        ("can_resume_with", can_resume_with),
        ("current_state", current_state),
    ] {
        check_size(field, text.as_deref().unwrap_or(""), limits::TEXT_BYTES_MAX)?;
    }
    Ok(())
}

/// Maximum number of variables in a dispatch, and the maximum length of a value in bytes.
const ENV_MAX: usize = 200;
const ENV_BYTES_MAX: usize = 128 * 1024;
/// Maximum number of arguments of an acceptance command, and their total length in bytes.
const ACCEPT_WORDS_MAX: usize = 200;
const ACCEPT_BYTES_MAX: usize = 32 * 1024;
/// The kernel limits a single argument to 128 KiB.
const PROMPT_ARG_BYTES_MAX: usize = 120 * 1024;

pub(super) fn checked_prompt(prompt: &str, via: PromptVia) -> Result<(), Denied> {
    if prompt.trim().is_empty() {
        return Err(Denied::invalid(
            "prompt",
            "is empty: say what the run should do",
        ));
    }
    check_size("prompt", prompt, limits::PROMPT_BYTES_MAX)?;
    if via == PromptVia::Arg {
        if prompt.len() > PROMPT_ARG_BYTES_MAX {
            let bytes = prompt.len();
            return Err(Denied::invalid(
                "prompt",
                format!(
                    "is {bytes} bytes long; this agent takes it as an argument of at most {PROMPT_ARG_BYTES_MAX} bytes"
                ),
            ));
        }
        if prompt.contains('\0') {
            return Err(Denied::invalid(
                "prompt",
                "contains a NUL byte, which an argument cannot hold",
            ));
        }
    }
    Ok(())
}

pub(super) fn checked_measure(criteria: Option<&str>, accept: &[String]) -> Result<(), Denied> {
    check_size("criteria", criteria.unwrap_or(""), limits::TEXT_BYTES_MAX)?;
    if accept.len() > ACCEPT_WORDS_MAX
        || accept.iter().map(String::len).sum::<usize>() > ACCEPT_BYTES_MAX
    {
        return Err(Denied::invalid(
            "accept",
            format!("use at most {ACCEPT_WORDS_MAX} arguments, {ACCEPT_BYTES_MAX} bytes in total"),
        ));
    }
    if accept
        .first()
        .is_some_and(|program| program.contains(char::is_whitespace) && !program.contains('/'))
    {
        return Err(Denied::invalid(
            "accept",
            "give the program and each argument separately: no shell splits them",
        ));
    }
    if accept
        .first()
        .is_some_and(|program| program.trim().is_empty())
        || accept.iter().any(|word| word.contains('\0'))
    {
        return Err(Denied::invalid(
            "accept",
            "has no program, or contains a NUL byte",
        ));
    }
    Ok(())
}

pub(super) fn checked_cwd(cwd: &str) -> Result<String, Denied> {
    let path = Path::new(cwd);
    if !path.is_absolute() || cwd.contains('\0') {
        return Err(Denied::invalid("cwd", "must be an absolute path"));
    }
    match path.metadata() {
        Ok(meta) if meta.is_dir() => {}
        Ok(_) => return Err(Denied::invalid("cwd", format!("{cwd} is not a directory"))),
        Err(error) => return Err(Denied::invalid("cwd", format!("{cwd}: {error}"))),
    }
    if let Err(error) = rustix::fs::accessat(
        rustix::fs::CWD,
        path,
        rustix::fs::Access::EXEC_OK,
        rustix::fs::AtFlags::EACCESS,
    ) {
        return Err(Denied::invalid(
            "cwd",
            format!("{cwd} cannot be entered: {}", io::Error::from(error)),
        ));
    }
    let canonical = path
        .canonicalize()
        .map_err(|error| Denied::invalid("cwd", format!("{cwd}: {error}")))?;
    canonical
        .into_os_string()
        .into_string()
        .map_err(|_| Denied::invalid("cwd", "is not valid UTF-8"))
}

pub(super) fn checked_env(env: &BTreeMap<String, String>) -> Result<(), Denied> {
    let bad_name =
        |name: &str| name.is_empty() || name.contains(['=', '\0']) || name.starts_with("ADJ_");
    if env.len() > ENV_MAX
        || env.iter().any(|(name, value)| {
            bad_name(name) || value.contains('\0') || value.len() > ENV_BYTES_MAX
        })
    {
        return Err(Denied::invalid(
            "env",
            "contains a variable that cannot be passed to an agent",
        ));
    }
    Ok(())
}
