//! `adj __count-tokens`: how many tokens texts have, as the tokenizer o200k_base counts them. A process of its
//! own, which lives no longer than that: the tokenizer's tables take 50 MB.
//!
//! It reads a JSON list of texts from standard input and prints the list of their counts.

use std::io::{Read, Write};
use std::process::ExitCode;

/// Counts what standard input holds.
#[must_use]
pub fn main() -> ExitCode {
    let counted = || -> Result<(), String> {
        let mut input = Vec::new();
        std::io::stdin().lock().read_to_end(&mut input).map_err(|error| error.to_string())?;
        let texts: Vec<String> = serde_json::from_slice(&input).map_err(|error| error.to_string())?;
        let counts = serde_json::to_vec(&count(&texts)?).map_err(|error| error.to_string())?;
        std::io::stdout().lock().write_all(&counts).map_err(|error| error.to_string())
    };
    match counted() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            tracing::error!(%message, "no count");
            ExitCode::FAILURE
        }
    }
}

/// The tokenizer is given so many bytes at once: its expression fails on a very long run of blanks. Each
/// further piece may count one token more than the whole would.
const PIECE_BYTES: usize = 16 * 1024;

/// Counts the tokens of texts.
///
/// # Errors
/// The tokenizer's tables cannot be read.
pub fn count(texts: &[String]) -> Result<Vec<u64>, String> {
    let tokenizer = tiktoken_rs::o200k_base().map_err(|error| error.to_string())?;
    Ok(texts.iter().map(|text| pieces(text).map(|piece| tokenizer.encode_ordinary(piece).len() as u64).sum()).collect())
}

fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let end = (0..=PIECE_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let (piece, rest) = text.split_at(end);
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn each_text_is_counted_separately() {
        let texts = ["", "hello world", "<|endoftext|>", "Größe 你好 🦀", "\u{0}\u{202e}", &"ä🦀".repeat(10_000)].map(str::to_owned);
        let counts = count(&texts).expect("counted");
        assert_eq!(counts[..2], [0, 2]);
        assert!(counts[2] > 1, "special tokens are text: {counts:?}");
        assert!(counts.iter().zip(&texts).all(|(count, text)| *count <= text.len() as u64), "{counts:?}");
    }

    #[test]
    fn counting_unbroken_text_is_not_quadratic() {
        let began = Instant::now();
        let counts = count(&["a".repeat(1024 * 1024), " ".repeat(1024 * 1024), "aB1!".repeat(256 * 1024)]).expect("counted");
        assert!(counts.iter().all(|count| *count > 0));
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }
}
