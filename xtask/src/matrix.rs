//! Prints the matrix of what the vendors' CLIs do in each permission profile, from the results of
//! the tests.

use crate::lab::Result;
use adjutant_api::preset;
use adjutant_core::Permissions;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A cell, as a test writes it.
#[derive(Debug, Deserialize)]
struct Cell {
    cli: String,
    profile: String,
    cell: String,
    fate: String,
    as_promised: bool,
}

/// Runs the tests that fill the matrix, or reads their results, and prints it. Returns whether
/// every cell is present and as promised.
pub fn run(rows: Option<PathBuf>) -> Result<bool> {
    let (file, passed, _kept) = match rows {
        Some(file) => (file, true, None),
        None => {
            let dir = tempfile::tempdir()?;
            let file = dir.path().join("rows");
            let passed = fill(&file)?;
            (file, passed, Some(dir))
        }
    };
    let cells = read(&file)?;
    for profile in Permissions::ALL.map(Permissions::word) {
        print(profile, &cells);
    }
    let problems = problems(&cells);
    problems.iter().for_each(|problem| println!("{problem}"));
    if !passed {
        println!("a test that fills the matrix has failed");
    }
    Ok(passed && problems.is_empty())
}

/// Runs the tests that drive the real CLIs.
fn fill(file: &Path) -> Result<bool> {
    let clis = match std::env::var_os("ADJ_CLIS") {
        Some(clis) => PathBuf::from(clis),
        None => {
            let installed = Command::new(".ci/clis").status()?;
            if !installed.success() {
                return Err(".ci/clis failed: set ADJ_CLIS to a directory with the CLIs".into());
            }
            cache()?.join("clis/bin")
        }
    };
    let mut command = Command::new("cargo");
    command.args([
        "test",
        "--locked",
        "-p",
        "adjutant",
        "--test",
        "it",
        "--",
        "vendors::profiles::",
    ]);
    command
        .env("ADJ_CLIS", clis)
        .env("ADJ_REQUIRE_ALL", "1")
        .env("ADJ_MATRIX", file);
    Ok(command.status()?.success())
}

fn cache() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let base = variable("XDG_CACHE_HOME")
        .or_else(|| Some(variable("HOME")?.join(".cache")))
        .ok_or("HOME is not set")?;
    Ok(variable("ADJ_CI_CACHE").unwrap_or_else(|| base.join("adjutant-ci")))
}

fn read(file: &Path) -> Result<Vec<Cell>> {
    let text =
        std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(text
        .lines()
        .map(serde_json::from_str)
        .collect::<std::result::Result<_, _>>()?)
}

/// Returns the distinct values of a field, in order.
fn distinct(cells: &[Cell], field: impl Fn(&Cell) -> &str) -> Vec<&str> {
    let mut all = Vec::new();
    for cell in cells {
        let value = field(cell);
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

/// Prints a profile: a line for each action, a column for each CLI.
fn print(profile: &str, cells: &[Cell]) {
    let clis = distinct(cells, |cell| &cell.cli);
    let mut lines = vec![
        std::iter::once(profile)
            .chain(clis.iter().copied())
            .map(str::to_owned)
            .collect::<Vec<_>>(),
    ];
    for tried in distinct(cells, |cell| &cell.cell) {
        let of = |cli: &&str| {
            let cell = cells
                .iter()
                .find(|cell| cell.profile == profile && cell.cli == *cli && cell.cell == tried);
            cell.map_or_else(String::new, |cell| {
                format!(
                    "{}{}",
                    cell.fate,
                    if cell.as_promised { "" } else { " (!)" }
                )
            })
        };
        lines.push(
            std::iter::once(tried.to_owned())
                .chain(clis.iter().map(of))
                .collect(),
        );
    }
    let width = |column: usize| {
        lines
            .iter()
            .map(|line| line[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..=clis.len()).map(width).collect();
    for line in &lines {
        let padded: Vec<String> = line
            .iter()
            .zip(&widths)
            .map(|(text, width)| format!("{text:<width$}"))
            .collect();
        println!("{}", padded.join("  ").trim_end());
    }
    println!();
}

/// Returns cells that are not as promised, and missing rows.
fn problems(cells: &[Cell]) -> Vec<String> {
    let mut problems: Vec<String> = cells
        .iter()
        .filter(|cell| !cell.as_promised)
        .map(|cell| {
            format!(
                "not as promised: {} {} {}: {}",
                cell.cli, cell.profile, cell.cell, cell.fate
            )
        })
        .collect();
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for cell in cells {
        *counts.entry((&cell.cli, &cell.profile)).or_default() += 1;
    }
    let whole = counts.values().copied().max().unwrap_or(1);
    for preset in preset::all().iter().filter(|preset| preset.has_row()) {
        for profile in Permissions::ALL.map(Permissions::word) {
            let is_supported = preset.permissions.of(profile).unsupported.is_none();
            if is_supported
                && counts
                    .get(&(preset.name.as_str(), profile))
                    .is_none_or(|count| *count < whole)
            {
                problems.push(format!(
                    "not tried, or not to its end: {} {profile}",
                    preset.name
                ));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrix_with_a_broken_or_a_missing_cell_has_problems() {
        let tried = preset::all().iter().filter(|preset| preset.has_row());
        let cell = |preset: &preset::Preset, profile: &str| Cell {
            cli: preset.name.clone(),
            profile: profile.to_owned(),
            cell: "shell_read".to_owned(),
            fate: "done".to_owned(),
            as_promised: true,
        };
        let mut cells: Vec<Cell> = tried
            .flat_map(|preset| Permissions::ALL.map(|profile| cell(preset, profile.word())))
            .collect();
        assert_eq!(problems(&cells), [""; 0]);
        cells[0].as_promised = false;
        let missing = cells.pop().expect("there are some");
        assert_eq!(
            problems(&cells),
            [
                format!("not as promised: {} read shell_read: done", cells[0].cli),
                format!(
                    "not tried, or not to its end: {} {}",
                    missing.cli, missing.profile
                )
            ]
        );
    }
}
