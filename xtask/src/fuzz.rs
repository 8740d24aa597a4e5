//! A fuzzer for the signal scanner and parser, deterministic by its seed. Output is composed of
//! pieces of a corpus that are mutated, cut and spliced, and is fed in random chunks.
//!
//! Checks: no panic, the same result for any chunks, bounded blocks, linear time, and constant
//! memory.

use crate::lab::Result;
use crate::random::Random;
use adjutant_core::signal::{Own, SignalKind};
use adjutant_core::{RunId, Time, shorten};
use adjutant_stream::signal::{BLOCK_BYTES_MAX, FoundSignal, Scanner, interpret};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Longest output of one round, in bytes.
const OUTPUT_BYTES_MAX: usize = 512 * 1024;
/// Time limit for any input, far more than a linear parser needs.
const ROUND_MAX: Duration = Duration::from_secs(4);
/// How much memory use may grow with endless output.
const GROWTH_BYTES_MAX: u64 = 16 * 1024 * 1024;
const ENDLESS_BYTES: usize = 128 * 1024 * 1024;

/// Valid and broken blocks, and other output.
const CORPUS: &[&str] = &[
    "[CLARIFICATION_NEEDED]\nagent_id: ME\nreason: two ways\nquestions:\n  - question_id: Q1\n    text: left or right?\n    options: [left, right]\n    type: optional\n[/CLARIFICATION_NEEDED]\n",
    "[STOP_WORK]\nagent_id: ME\nstop_reason: error\ndetails: |\n  it printed\n  [/STOP_WORK]\n  and stopped\nstate_snapshot: [a, b]\n[/STOP_WORK]\n",
    "[DELEGATE_WORK]\nagent_id: ME\nnew_task_description: |\n  - one\n  - two\nindependence: blocks_current_work\npriority: P0\n[/DELEGATE_WORK]\n",
    "[COMPLETION_REPORT]\nagent_id: ME\ntimestamp: 2026-01-11T12:00:00-05:00\nstatus: success\nsummary: >-\n  folded\n  text\ndeliverables:\n  - a.md\n[/COMPLETION_REPORT]\n",
    "[PROGRESS]\nagent_id: ME\npercent: 40 %\n[/PROGRESS]\n",
    "[APPROVAL_NEEDED]\nagent_id: ME\naction: \"rm -rf target\"\npreview: {a: 1, b: [2]}\n[/APPROVAL_NEEDED]\n",
    "{\"signal_type\":\"PROGRESS\",\"agent_id\":\"ME\",\"payload\":{\"percent\":10,\"note\":\"a } b\"}}\n",
    "{\n  \"signal_type\": \"STOP_WORK\",\n  \"agent_id\": \"ME\",\n  \"payload\": {\"stop_reason\": \"blocker\", \"details\": [1, {\"a\": null}]}\n}\n",
    "```yaml\n",
    "```\n",
    "ordinary output\n",
    "    Compiling x v0.1.0\r\n",
    "[INFO] a log line\n",
    "{\"other\": 1}\n",
    "{{{{\n",
    "}}}}\n",
    "\u{1f44d} \u{fc}\u{e4}\n",
    "\n",
    "\r\n",
    "\t",
];
/// Tokens that are inserted into output.
const TOKENS: &[&str] = &[
    "[",
    "]",
    "[/",
    "{",
    "}",
    "\"",
    "\\",
    ": ",
    "- ",
    "|\n",
    ">\n",
    "&a ",
    "*a",
    "!!x ",
    "? ",
    "---\n",
    "...\n",
    "#",
    "%",
    "'",
    "\0",
    "\u{feff}",
    "\u{2028}",
    "\n",
    "\r",
    "\r\n",
    "  ",
    "\t",
    "signal_type",
    "agent_id: ME\n",
    "[STOP_WORK]\n",
    "[/STOP_WORK]\n",
    "[PROGRESS]",
    "[/PROGRESS]",
    "<<: ",
    "~",
    "null",
    "1e999",
    "\u{d7ff}",
    "0x",
    "@",
    "`",
];

/// Fuzzes for a time.
///
/// # Errors
/// A check has failed. The message contains the seed.
pub fn run(seed: u64, length: Duration) -> Result<()> {
    println!(
        "fuzz: the reader of signals, {} s, seed {seed}",
        length.as_secs()
    );
    let own = RunId::new(Time(1), [1; 10]);
    let start = Instant::now();
    let (mut rounds, mut bytes, mut blocks, mut taken, mut slowest) =
        (0_u64, 0_u64, 0_u64, 0_u64, Duration::ZERO);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let outcome = loop {
        if start.elapsed() >= length {
            break Ok(());
        }
        let mut random = Random::new(seed.wrapping_add(rounds.wrapping_mul(0x9e37_79b9)));
        let text = output(&mut random, own);
        let began = Instant::now();
        let scanned = catch_unwind(AssertUnwindSafe(|| scan_and_parse(&text, own, &mut random)));
        let took = began.elapsed();
        slowest = slowest.max(took);
        let problem = match scanned {
            Err(_) => Some("it panics".to_owned()),
            Ok(Err(problem)) => Some(problem),
            Ok(Ok(_)) if took > ROUND_MAX => Some(format!("{} bytes take {took:?}", text.len())),
            Ok(Ok((found, read))) => {
                blocks += found;
                taken += read;
                None
            }
        };
        if let Some(problem) = problem {
            let head: String = text.chars().take(2_000).collect();
            break Err(format!(
                "fuzz: round {rounds} of seed {seed}: {problem}; the output begins {head:?}"
            ));
        }
        rounds += 1;
        bytes += text.len() as u64;
    };
    std::panic::set_hook(hook);
    outcome?;
    endless()?;
    println!(
        "fuzz: {rounds} outputs, {} MB, {blocks} blocks found, {taken} taken, the slowest took {slowest:?}",
        bytes / 1_000_000
    );
    Ok(())
}

/// Generates an output.
fn output(random: &mut Random, own: RunId) -> String {
    let mut text = String::new();
    // Most outputs are short, some are long.
    let pieces = if random.below(20) == 0 {
        1 + random.below(400)
    } else {
        1 + random.below(12)
    };
    for _ in 0..pieces {
        let piece = pick(random, CORPUS);
        match random.below(12) {
            0 => text.push_str(&piece.replace('\n', "\r\n")),
            1 => piece
                .lines()
                .for_each(|line| text.push_str(&format!("  {line}\n"))),
            2 => (0..random.below(300)).for_each(|_| text.push_str(piece)),
            _ => text.push_str(piece),
        }
        if text.len() > OUTPUT_BYTES_MAX {
            break;
        }
    }
    let mut text = text.replace("ME", &own.to_string());
    for _ in 0..random.below(8) {
        mutate(&mut text, random);
    }
    let end = boundary(&text, OUTPUT_BYTES_MAX);
    text.truncate(end);
    text
}

fn mutate(text: &mut String, random: &mut Random) {
    let at = boundary(text, below(random, text.len() + 1));
    match random.below(7) {
        0 => text.truncate(at),
        1 => drop(text.drain(..at)),
        2 => {
            let to = boundary(text, at + below(random, 200)).max(at);
            text.replace_range(at..to, "");
        }
        3 => {
            let to = boundary(text, at + below(random, 400)).max(at);
            let copy = text[at..to].to_owned();
            let into = boundary(text, below(random, text.len() + 1));
            text.insert_str(into, &copy);
        }
        4 => {
            let run = pick(random, TOKENS).repeat(1 + below(random, 5_000));
            text.insert_str(at, &run);
        }
        _ => text.insert_str(at, pick(random, TOKENS)),
    }
}

fn pick(random: &mut Random, all: &'static [&'static str]) -> &'static str {
    all[below(random, all.len())]
}

fn below(random: &mut Random, limit: usize) -> usize {
    usize::try_from(random.below(limit as u64)).unwrap_or(0)
}

/// Returns the last character boundary up to `at`.
fn boundary(text: &str, at: usize) -> usize {
    shorten::head(text, at).len()
}

/// Scans an output whole and in random chunks, and parses the blocks. Returns the number of blocks
/// and of valid ones.
fn scan_and_parse(
    text: &str,
    own: RunId,
    random: &mut Random,
) -> std::result::Result<(u64, u64), String> {
    let whole = scan(&[text]);
    let mut cuts = Vec::new();
    let mut rest = text;
    let scale = [4, 100, 10_000][below(random, 3)];
    let longest = 1 + below(random, scale);
    while !rest.is_empty() {
        let at = boundary(rest, 1 + below(random, longest));
        let at = if at == 0 {
            rest.chars().next().map_or(0, char::len_utf8)
        } else {
            at
        };
        let (piece, after) = rest.split_at(at);
        cuts.push(piece);
        rest = after;
    }
    let in_pieces = scan(&cuts);
    if let Some(at) =
        (0..whole.len().max(in_pieces.len())).find(|at| whole.get(*at) != in_pieces.get(*at))
    {
        let head = |found: Option<&FoundSignal>| {
            format!("{found:?}").chars().take(600).collect::<String>()
        };
        let (whole, pieces) = (head(whole.get(at)), head(in_pieces.get(at)));
        return Err(format!(
            "how it is cut changes what is found: as number {at}, {whole} in one piece, {pieces} in pieces of up to {longest}"
        ));
    }
    let mut taken = 0;
    for found in &whole {
        let (FoundSignal::Block { text, .. }
        | FoundSignal::Json { text }
        | FoundSignal::Oversized { text, .. }
        | FoundSignal::Mention { line: text, .. }) = found;
        if text.len() > BLOCK_BYTES_MAX + 1 {
            return Err(format!("a block of {} bytes", text.len()));
        }
        taken += u64::from(
            interpret(
                found,
                Own {
                    id: own,
                    name: "fond-mouse",
                },
            )
            .signal()
            .is_some(),
        );
    }
    Ok((whole.len() as u64, taken))
}

fn scan(pieces: &[&str]) -> Vec<FoundSignal> {
    let mut scanner = Scanner::default();
    let mut all = Vec::new();
    for piece in pieces {
        scanner.feed(piece, &mut |found| all.push(found));
    }
    scanner.end(&mut |found| all.push(found));
    all
}

/// Feeds endless output of each kind: a line, a block, an object, opening lines.
fn endless() -> Result<()> {
    for piece in [
        "x",
        "[STOP_WORK]\ndetails: |\n",
        "  more\n",
        "{\"a\":\n",
        "{",
        "[PROGRESS]\n",
        "[PROGRESS",
        " ",
    ] {
        let chunk = piece.repeat(64 * 1024 / piece.len());
        let mut scanner = Scanner::default();
        for kind in SignalKind::ALL {
            scanner.feed(&format!("[{}]\n", kind.tag()), &mut drop);
        }
        let before = resident_bytes()?;
        for _ in 0..ENDLESS_BYTES / 8 / chunk.len() {
            scanner.feed(&chunk, &mut drop);
        }
        let grown = resident_bytes()?.saturating_sub(before);
        if grown > GROWTH_BYTES_MAX {
            return Err(format!("fuzz: endless {piece:?} takes {grown} bytes of memory").into());
        }
        scanner.end(&mut drop);
    }
    Ok(())
}

fn resident_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .ok_or("no resident size")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_generates_the_same_outputs_with_signals() {
        let own = RunId::new(Time(1), [1; 10]);
        let mut taken = 0;
        for round in 0..200 {
            let text = output(&mut Random::new(round), own);
            assert_eq!(text, output(&mut Random::new(round), own));
            let (_, read) =
                scan_and_parse(&text, own, &mut Random::new(round)).expect("nothing wrong");
            taken += read;
        }
        assert!(taken > 50, "{taken}");
    }
}
