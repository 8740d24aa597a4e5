//! `adj config`.

mod agents;
pub(crate) mod change;
mod edit;
mod listing;
mod pools;
mod tables;
mod view;
mod webhooks;

pub(crate) use agents::settings;

use crate::cli::args::ConfigCommand;
use crate::cli::context::home;
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure, Out, fail, fail_hint};
use crate::config::{Config, Home, json_schema};
use crate::text;
use crate::view::codes;
use listing::ConfigListing;
use serde_json::json;

/// Prints the configuration, its path or its schema, or changes it.
pub(crate) async fn config(what: ConfigCommand, out: &Out) -> CommandResult {
    if what == ConfigCommand::Schema {
        let schema = serde_json::to_string_pretty(&json_schema())
            .map_err(|error| fail(codes::INTERNAL, error.to_string()))?;
        return out.print_data(&(schema + "\n")).map(|()| Exit::Done);
    }
    let home = home()?;
    match what {
        ConfigCommand::Path => path(&home, out),
        ConfigCommand::Show | ConfigCommand::Schema => show(&home, out),
        ConfigCommand::Edit => edit::edit(&home, out).await,
        ConfigCommand::Get { key } => change::get(&key, &home, out),
        ConfigCommand::Set { key, value } => change::set(&key, &value, &home, out),
        ConfigCommand::Unset { key } => change::unset(&key, &home, out),
    }
}

/// Prints the path, and nothing else on stdout: `$EDITOR $(adj config path)`.
fn path(home: &Home, out: &Out) -> CommandResult {
    let file = Config::path(home);
    if out.json {
        out.print_json(&json!({"config": file, "exists": file.exists(), "home": home.dir, "logs": home.logs_dir(), "hub_log": home.hub_log(), "socket": home.socket()}))?;
        return Ok(Exit::Done);
    }
    out.print_data(&(text::line(&file.display().to_string()) + "\n"))?;
    if !file.exists() {
        out.print_message("the file does not exist; defaults apply")?;
    }
    Ok(Exit::Done)
}

/// Prints the configuration with its defaults.
fn show(home: &Home, out: &Out) -> CommandResult {
    let config = load(home)?;
    if out.json {
        out.print_json(&view::view(&config))?;
    } else {
        ConfigListing::new(&config, out).print()?;
    }
    Ok(Exit::Done)
}

/// Reads the configuration.
pub(crate) fn load(home: &Home) -> Result<Config, Failure> {
    Config::load(home).map_err(|e| {
        fail_hint(
            codes::INVALID,
            e.to_string(),
            "fix that line, or move the file away",
        )
    })
}
