//! The generated reference: a page for each preset, the command line, MCP clients, the MCP tools.
//! Each has one source in the code; this module writes the pages, or reports those that are stale.

mod agents;
mod cli;
mod clients;
mod mcp;

use crate::lab::Result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Pages below `docs/`, with their expected content.
type Pages = BTreeMap<PathBuf, String>;

/// A directory that contains only generated pages.
const AGENTS: &str = "agents";

/// Writes the pages, or with `check` reports the stale ones.
pub fn run(check: bool) -> Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join("docs");
    let stale = stale(&docs)?;
    if stale.is_empty() {
        println!("the reference is current");
        return Ok(());
    }
    let names: Vec<String> = stale
        .iter()
        .map(|(path, _)| path.display().to_string())
        .collect();
    if check {
        return Err(format!("not current: {}; run cargo xtask docs", names.join(", ")).into());
    }
    for (path, text) in stale {
        let file = docs.join(&path);
        match text {
            Some(text) => {
                fs::create_dir_all(file.parent().unwrap_or(&docs))?;
                fs::write(&file, text)?;
                println!("written: docs/{}", path.display());
            }
            None => {
                fs::remove_file(&file)?;
                println!("removed: docs/{}", path.display());
            }
        }
    }
    Ok(())
}

/// Returns the stale pages with their expected content, or `None` for a page that should not exist.
fn stale(docs: &Path) -> Result<Vec<(PathBuf, Option<String>)>> {
    let wanted = pages(docs)?;
    let mut stale = Vec::new();
    for (path, text) in &wanted {
        let there = match fs::read_to_string(docs.join(path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            other => Some(other?),
        };
        if there.as_ref() != Some(text) {
            stale.push((path.clone(), Some(text.clone())));
        }
    }
    let there = match fs::read_dir(docs.join(AGENTS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(stale),
        other => other?,
    };
    for entry in there {
        let path = Path::new(AGENTS).join(entry?.file_name());
        if !wanted.contains_key(&path) {
            stale.push((path, None));
        }
    }
    Ok(stale)
}

fn pages(docs: &Path) -> Result<Pages> {
    let mut pages = Pages::new();
    for preset in adjutant_api::preset::all() {
        pages.insert(
            Path::new(AGENTS).join(format!("{}.md", preset.name)),
            agents::page(preset),
        );
    }
    let index = PathBuf::from("agents.md");
    let text = fs::read_to_string(docs.join(&index))
        .map_err(|error| format!("docs/agents.md: {error}"))?;
    pages.insert(index, between_marks(&text, &agents::index())?);
    pages.insert(PathBuf::from("cli.md"), cli::page());
    pages.insert(PathBuf::from("clients.md"), clients::page());
    pages.insert(PathBuf::from("mcp.md"), mcp::page());
    Ok(pages)
}

const BEGIN: &str = "<!-- generated: cargo xtask docs -->\n";
const END: &str = "<!-- end of the generated part -->\n";

/// Replaces the generated part of a hand-written page, between two marks.
fn between_marks(text: &str, generated: &str) -> Result<String> {
    let (before, rest) = text
        .split_once(BEGIN)
        .ok_or("docs/agents.md has no mark for the start of the generated part")?;
    let (_, after) = rest
        .split_once(END)
        .ok_or("docs/agents.md has no mark for the end of the generated part")?;
    Ok(format!("{before}{BEGIN}{generated}{END}{after}"))
}

/// Formats a text as a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_is_current() {
        run(true).expect("the committed pages are current");
    }

    #[test]
    fn stale_pages_are_found() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(
            dir.path().join("agents.md"),
            format!("by hand\n{BEGIN}old\n{END}more\n"),
        )
        .expect("a page");
        fs::create_dir(dir.path().join(AGENTS)).expect("a directory");
        fs::write(dir.path().join(AGENTS).join("gone.md"), "x").expect("a page");
        let stale = stale(dir.path()).expect("the pages can be read");
        let index = stale
            .iter()
            .find(|(path, _)| path == Path::new("agents.md"))
            .and_then(|(_, text)| text.clone())
            .expect("the index is stale");
        assert!(
            index.starts_with("by hand\n")
                && index.ends_with("more\n")
                && index.contains("agents/claude.md")
                && !index.contains("old\n"),
            "{index}"
        );
        assert!(stale.contains(&(Path::new(AGENTS).join("gone.md"), None)));
    }
}
