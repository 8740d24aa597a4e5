//! Benchmarks, campaigns, the matrix of permissions, the generated reference and manual pages:
//! `cargo xtask bench`, `campaign`, `fleet`, `matrix`, `docs`, `man`.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool for developers: it starts processes and prints"
)]
#![expect(unreachable_pub, reason = "nothing outside uses a program")]

mod agent;
mod bench;
mod campaign;
mod docs;
mod fleet;
mod floor;
mod fuzz;
mod lab;
mod man;
mod matrix;
mod mcp;
mod panics;
#[path = "../../crates/adjutant-store/src/store/testing/server.rs"]
#[allow(dead_code, reason = "shared with the tests, which use all of it")]
mod postgres;
#[path = "../../crates/adjutant/tests/it/processes.rs"]
#[allow(dead_code, reason = "shared with the tests, which use all of it")]
mod processes;
mod random;
mod standin;
mod stats;
mod wire;
mod writes;

use clap::{Parser, Subcommand};
use lab::Result;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Measures the promised figures with a packaged build (profile `dist`)
    Bench {
        /// Smaller samples
        #[arg(long)]
        quick: bool,
        /// Only measurements whose name contains this (may be repeated)
        #[arg(long)]
        only: Vec<String>,
        /// Keeps the stores on a PostgreSQL server of its own, and measures what has a target there
        #[arg(long)]
        postgres: bool,
        /// Measures this binary instead of building one
        #[arg(long, value_name = "FILE")]
        adj: Option<PathBuf>,
        /// Compares with this binary: measures both in turn, five times each, and prints the ratios
        /// of the medians and of the best values
        #[arg(long, value_name = "FILE")]
        against: Option<PathBuf>,
    },
    /// Kills every process of Adjutant at random moments and at every failpoint, and checks the
    /// result
    Campaign {
        /// How often each of hub, supervisor and guard is killed
        #[arg(long, default_value_t = 500)]
        kills: u64,
        /// Repeats the random choices of an earlier campaign
        #[arg(long)]
        seed: Option<u64>,
        /// How long the signal parser is fuzzed first, in seconds
        #[arg(long, default_value_t = 60)]
        fuzz_s: u64,
        /// Skips the failpoints
        #[arg(long)]
        no_failpoints: bool,
        /// Runs only the lanes whose changes are merged, discarded and undone
        #[arg(long)]
        only_workspaces: bool,
        /// Keeps the stores on a PostgreSQL server of its own, and kills it too
        #[arg(long)]
        postgres: bool,
        /// Uses this binary (with debug assertions, for the failpoints) instead of building one
        #[arg(long, value_name = "FILE")]
        adj: Option<PathBuf>,
    },
    /// Saves files, kills the hub and cuts the power while merges, undos and discards change a
    /// user's tree, and checks that nothing of the user is missing (images of the disk as root,
    /// with qemu-storage-daemon)
    Writes {
        /// How often the hub is killed
        #[arg(long, default_value_t = 500)]
        kills: u64,
        /// How many images of a disk that lost its power are checked
        #[arg(long, default_value_t = 300)]
        images: u64,
        /// How many saves are raced
        #[arg(long, default_value_t = 300)]
        races: u64,
        /// Repeats the random choices of an earlier run
        #[arg(long)]
        seed: Option<u64>,
        /// Switches the checks and the syncs off, which each lane must find
        #[arg(long)]
        planted: bool,
        /// Uses this binary (with debug assertions, for the failpoints) instead of building one
        #[arg(long, value_name = "FILE")]
        adj: Option<PathBuf>,
    },
    /// Kills, stops, cuts off and slows hubs that share a store, their runners and their PostgreSQL
    /// server at random moments, sets their clocks, and checks the result (as root, with nftables
    /// and iproute2)
    Fleet {
        /// How many faults are caused
        #[arg(long, default_value_t = 300)]
        faults: u64,
        /// Repeats the random choices of an earlier campaign
        #[arg(long)]
        seed: Option<u64>,
        /// Switches the fencing off, which must be found
        #[arg(long)]
        unfenced: bool,
        /// Uses this binary (with debug assertions, for --unfenced) instead of building one
        #[arg(long, value_name = "FILE")]
        adj: Option<PathBuf>,
    },
    /// Fuzzes the signal parser
    Fuzz {
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Repeats an earlier seed
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Writes the reference below docs/: a page for each agent, the command line, the MCP tools
    Docs {
        /// Writes nothing, and fails if a page is stale
        #[arg(long)]
        check: bool,
    },
    /// Writes manual pages into a directory: adj.1, and a page for each command
    Man { dir: PathBuf },
    /// Drives the real CLIs through every permission profile, and prints the results
    Matrix {
        /// Prints the results in this file (`ADJ_MATRIX`) instead of running tests
        #[arg(long, value_name = "FILE")]
        rows: Option<PathBuf>,
    },
    /// Load from within a run (started by a benchmark)
    #[command(hide = true)]
    Agent,
}

fn main() -> ExitCode {
    if let Some(code) = standin::main(&std::env::args_os().collect::<Vec<_>>()) {
        return code;
    }
    let result = match Arguments::parse().what {
        What::Agent => agent::main(),
        What::Docs { check } => docs::run(check),
        What::Man { dir } => man::run(&dir),
        What::Matrix { rows } => match matrix::run(rows) {
            Ok(true) => Ok(()),
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => Err(error),
        },
        What::Bench {
            quick,
            only,
            postgres,
            adj,
            against,
        } => {
            let adj = adj.map_or_else(|| build("dist", &["--profile", "dist"]), Ok);
            adj.and_then(|adj| {
                runtime()?.block_on(bench::run(adj, quick, &only, postgres, against))
            })
        }
        What::Fleet {
            faults,
            seed,
            unfenced,
            adj,
        } => {
            let adj = adj.map_or_else(|| build("debug", &[]), Ok);
            adj.and_then(|adj| {
                runtime()?.block_on(fleet::run(
                    &adj,
                    faults,
                    seed.unwrap_or_else(now_s),
                    unfenced,
                ))
            })
        }
        What::Writes {
            kills,
            images,
            races,
            seed,
            planted,
            adj,
        } => {
            let adj = adj.map_or_else(|| build("debug", &[]), Ok);
            let size = writes::Size {
                kills,
                images,
                races,
            };
            adj.and_then(|adj| writes::run(&adj, &size, seed.unwrap_or_else(now_s), planted))
        }
        What::Fuzz { seconds, seed } => {
            fuzz::run(seed.unwrap_or_else(now_s), Duration::from_secs(seconds))
        }
        What::Campaign {
            kills,
            seed,
            fuzz_s,
            no_failpoints,
            only_workspaces,
            postgres,
            adj,
        } => {
            let now = now_s();
            // Only a build with debug assertions has failpoints.
            let adj = adj.map_or_else(|| build("debug", &[]), Ok);
            let fuzzed = fuzz::run(seed.unwrap_or(now), Duration::from_secs(fuzz_s));
            let seed = seed.unwrap_or(now);
            fuzzed.and(adj).and_then(|adj| {
                runtime()?.block_on(campaign::run(
                    &adj,
                    kills,
                    seed,
                    !no_failpoints,
                    only_workspaces,
                    postgres,
                ))
            })
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(1, |time| time.as_secs())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?)
}

/// Builds `adj` and returns its path.
fn build(profile: &str, args: &[&str]) -> Result<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--package", "adjutant", "--bin", "adj"])
        .args(args)
        .current_dir(&root);
    // `cargo run` has set it. Build scripts that depend on it would run again, and everything would
    // be compiled again.
    let status = command.env_remove("CARGO_MANIFEST_DIR").status()?;
    if !status.success() {
        return Err("adj does not build".into());
    }
    Ok(std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), PathBuf::from)
        .join(profile)
        .join("adj"))
}
