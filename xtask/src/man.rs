//! Manual pages, generated from the grammar: `adj.1`, and a page for each command (`adj-run.1`,
//! `adj-chat-post.1`). Packages contain them.

use crate::lab::Result;
use clap::Command;
use clap_mangen::Man;
use std::fs;
use std::path::Path;

/// Writes the pages into a directory, which is created.
pub fn run(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let mut written = 0;
    for page in pages(grammar()) {
        page.generate_to(dir)
            .map_err(|error| format!("{}: {error}", dir.join(page.get_filename()).display()))?;
        written += 1;
    }
    println!("{written} pages written to {}", dir.display());
    Ok(())
}

/// Returns the grammar. `adj mcp` parses its arguments by itself, so its help is added.
fn grammar() -> Command {
    adjutant_cli::cli::grammar()
        .mut_subcommand("mcp", |mcp| {
            mcp.after_help(adjutant_mcp::mcp::command::HELP)
        })
        .disable_help_subcommand(true)
}

/// Returns the pages of a command and of the visible commands below it.
fn pages(mut command: Command) -> Vec<Man> {
    command.build();
    let version = command.get_version().unwrap_or_default().to_owned();
    let mut pages = Vec::new();
    let mut left = vec![command];
    while let Some(command) = left.pop() {
        left.extend(
            command
                .get_subcommands()
                .filter(|below| !below.is_hide_set())
                .cloned(),
        );
        pages.push(
            Man::new(command)
                .source(format!("adj {version}"))
                .manual("Adjutant"),
        );
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_command_has_a_manual_page() {
        let dir = tempfile::tempdir().expect("a directory");
        let man = dir.path().join("man1");
        run(&man).expect("pages");
        let read = |name: &str| {
            fs::read_to_string(man.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        for below in adjutant_cli::cli::grammar().get_subcommands() {
            let file = man.join(format!("adj-{}.1", below.get_name()));
            assert_eq!(file.exists(), !below.is_hide_set(), "{}", file.display());
        }
        assert!(
            read("adj-chat-post.1").contains(".TH adj-chat-post 1"),
            "{}",
            read("adj-chat-post.1")
        );
        assert!(read("adj.1").contains("adj\\-run(1)"), "{}", read("adj.1"));
        assert!(
            read("adj-run.1").contains("\\-\\-agent"),
            "{}",
            read("adj-run.1")
        );
        assert!(read("adj-mcp.1").contains("standard input and output"));
    }
}
