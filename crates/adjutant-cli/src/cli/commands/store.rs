//! `adj store`: copies the store between the file in the home and a database on a server.

use crate::cli::alert::is_read_by_person;
use crate::cli::args::StoreCommand;
use crate::cli::context::Context;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, fail, fail_hint};
use crate::cli::style::Style;
use crate::cli::{columns, symbols};
use crate::config::{Config, PostgresAddress};
use crate::hub::{
    Copied, CopyError, Progress, StoreCopyError, StorePlace as StoreLocation, copy_store,
};
use crate::text;
use crate::view::codes;
use serde_json::json;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// The name of the file in the home, as an argument.
const HOME: &str = "home";
/// The time between two updates of the progress on the terminal.
const SHOWN_EVERY: Duration = Duration::from_millis(100);

/// Copies a store.
pub(crate) fn store(what: &StoreCommand, cx: &Context) -> CommandResult {
    let StoreCommand::Copy { from, to } = what;
    let places = [(from, "FROM"), (to, "TO")].map(|(text, name)| place(text, name, cx));
    let [from_place, to_place] = places;
    let (from_place, to_place) = (from_place?, to_place?);
    if address_of(&from_place) == address_of(&to_place) {
        return Err(fail(cli_codes::USAGE, "FROM and TO are the same store"));
    }
    let mut line = ProgressLine {
        is_shown: is_read_by_person(&io::stderr(), cx),
        last: None,
    };
    let copied = copy_store(&cx.home, &from_place, &to_place, &mut |progress| {
        line.update(progress)
    });
    line.clear();
    let copied = copied.map_err(|error| refusal(&error, &to_place, cx))?;
    print(&copied, from, to, &to_place, cx)
}

fn place(text: &str, name: &str, cx: &Context) -> Result<StoreLocation, Failure> {
    match text {
        HOME => Ok(StoreLocation::Home(cx.home.clone())),
        // The text is not repeated, because it could contain a password.
        text => text.parse().map(StoreLocation::Postgres).map_err(|error| {
            let is_address = text.starts_with("postgres://") || text.starts_with("postgresql://");
            let problem = if is_address {
                "cannot be used"
            } else {
                "is neither home nor an address"
            };
            fail(cli_codes::USAGE, format!("{name} {problem}: {error}"))
        }),
    }
}

fn address_of(place: &StoreLocation) -> Option<&PostgresAddress> {
    match place {
        StoreLocation::Home(_) => None,
        StoreLocation::Postgres(address) => Some(address),
    }
}

fn refusal(error: &StoreCopyError, to: &StoreLocation, cx: &Context) -> Failure {
    let message = error.to_string();
    match error {
        StoreCopyError::HubRuns { .. } => fail_hint(codes::CONFLICT, message, "adj stop"),
        StoreCopyError::Copy(CopyError::NoSource) => fail(codes::NOT_FOUND, message),
        StoreCopyError::Copy(CopyError::TargetInUse { .. }) => {
            let hint = match to {
                StoreLocation::Home(_) => {
                    let file = cx.home.database().display().to_string();
                    format!("mv {file} {file}.old")
                }
                StoreLocation::Postgres(_) => "create another database, and copy to it".to_owned(),
            };
            fail_hint(codes::CONFLICT, message, hint)
        }
        StoreCopyError::Home(_) | StoreCopyError::Copy(_) => fail(codes::STORAGE, message),
    }
}

fn print(
    copied: &Copied,
    from: &str,
    to: &str,
    place: &StoreLocation,
    cx: &Context,
) -> CommandResult {
    let rows: u64 = copied.tables.iter().map(|table| table.rows).sum();
    let out = &cx.out;
    if out.json {
        let table = |table: &crate::hub::CopiedTable| json!({ "name": table.name, "rows": table.rows, "hash": table.hash });
        out.print_json(&json!({
            "from": from,
            "to": to,
            "rows": rows,
            "replaced_texts": copied.replaced_texts,
            "tables": copied.tables.iter().map(table).collect::<Vec<_>>(),
        }))?;
        return Ok(Exit::Done);
    }
    for table in copied.tables.iter().filter(|table| table.rows > 0) {
        out.print_line(&format!(
            "  {:<20} {}",
            table.name,
            text::count(table.rows, "row", "rows")
        ))?;
    }
    let done = format!(
        "copied {}; both sides have the same",
        text::count(rows, "row", "rows")
    );
    out.print_line(&format!("{} {done}", out.paint.apply(Style::Good, "✓")))?;
    if copied.replaced_texts > 0 {
        let texts = text::count(copied.replaced_texts, "text", "texts");
        out.print_message(&format!(
            "NUL characters in {texts} are U+FFFD now, because PostgreSQL stores none"
        ))?;
    }
    // The suggested command reports an unreadable configuration.
    let set = Config::store_of(&cx.home).ok();
    if set.as_ref().map(Option::as_ref) == Some(address_of(place)) {
        out.print_message("the configuration names this store already")?;
    } else if address_of(place).is_some() {
        out.suggest(&format!("adj config set store '{to}'"))?;
    } else {
        out.suggest("adj config unset store")?;
    }
    Ok(Exit::Done)
}

/// A line on the terminal that shows how far the copy is.
struct ProgressLine {
    is_shown: bool,
    last: Option<Instant>,
}

impl ProgressLine {
    fn update(&mut self, progress: Progress<'_>) {
        if !self.is_shown || self.last.is_some_and(|last| last.elapsed() < SHOWN_EVERY) {
            return;
        }
        self.last = Some(Instant::now());
        let Progress {
            table,
            rows,
            rows_total,
            is_check,
        } = progress;
        let what = if is_check { "comparing" } else { "copying" };
        let line = text::cut(
            &format!("{what} {table}: {rows} of {rows_total} rows"),
            columns().saturating_sub(1),
        );
        write(&symbols::shown(
            &format!("\r\u{1b}[K{line}"),
            Some(columns()),
        ));
    }

    fn clear(&self) {
        if self.last.is_some() {
            write("\r\u{1b}[K");
        }
    }
}

fn write(text: &str) {
    let mut err = io::stderr().lock();
    if let Err(error) = err.write_all(text.as_bytes()).and_then(|()| err.flush()) {
        tracing::debug!(%error, "the terminal is gone");
    }
}
