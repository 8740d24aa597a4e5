//! `cargo xtask writes`: a user saves files while undos and merges replace them, the hub is killed
//! while it merges, undoes and discards, and the power fails around a merge or an undo. After each,
//! every save that the user has not replaced is in the tree or in a snapshot, a merge is complete
//! or absent, nothing of Adjutant is left in the repository, and what was acknowledged is there.
//!
//! With `--planted`, the checks and the syncs are switched off. A lane that finds nothing then has
//! failed.

mod disk;
mod images;
mod rounds;
mod site;

use crate::lab::Result;
use crate::random::Random;
use std::path::Path;
use std::time::Instant;

/// How much each lane does.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub kills: u64,
    pub images: u64,
    pub races: u64,
}

/// What a lane has done.
#[derive(Debug, Default)]
struct Found {
    /// A summary of what was done.
    done: String,
    problems: Vec<String>,
}

/// Runs a lane as often as its size demands.
type Lane<'a> = &'a dyn Fn() -> Result<Found>;

/// Runs the three lanes.
///
/// # Errors
/// A lane found a problem; with `planted`, a lane found none.
pub fn run(adj: &Path, size: &Size, seed: u64, planted: bool) -> Result<()> {
    println!(
        "writes: {} races, {} kills, {} images, seed {seed}{}",
        size.races,
        size.kills,
        size.images,
        if planted { ", planted" } else { "" }
    );
    let mut failed = 0;
    let lanes: [(&str, u64, Lane<'_>); 3] = [
        ("races", size.races, &|| {
            rounds::races(adj, size.races, &mut Random::new(seed), planted)
        }),
        ("kills", size.kills, &|| {
            rounds::kills(
                adj,
                size.kills,
                &mut Random::new(seed.wrapping_add(1)),
                planted,
            )
        }),
        ("images", size.images, &|| {
            images::images(
                adj,
                size.images,
                &mut Random::new(seed.wrapping_add(2)),
                planted,
            )
        }),
    ];
    for (name, count, lane) in lanes {
        if count == 0 {
            continue;
        }
        let start = Instant::now();
        let found = match lane() {
            Ok(found) => found,
            Err(error) if name == "images" && error.is::<disk::Unavailable>() => {
                println!("LEFT OUT: images: {error}");
                continue;
            }
            Err(error) => Found {
                done: String::new(),
                problems: vec![error.to_string()],
            },
        };
        println!(
            "{name}: {} ({:.0} s)",
            found.done,
            start.elapsed().as_secs_f64()
        );
        for problem in found.problems.iter().take(if planted { 1 } else { 20 }) {
            println!(
                "{}: {name}: {problem}",
                if planted { "found" } else { "PROBLEM" }
            );
        }
        if found.problems.is_empty() == planted {
            failed += 1;
            if planted {
                println!("MISSED: {name} has found nothing, although the checks were switched off");
            }
        }
    }
    match failed {
        0 => Ok(()),
        _ => Err(format!("{failed} lanes failed; repeat with --seed {seed}").into()),
    }
}
