//! The words of a command line: of one simple command, and for a search.
//!
//! An approval needs certainty, so only a command line that every shell splits into the same words
//! counts as a simple command. A refusal errs on the other side: it looks for the words anywhere in
//! the text.

/// Characters without a special meaning in any shell, outside quotes. `~` and `=` are special at
/// some places.
const PLAIN: &str = "_@%+:,./-";

/// Splits a command line into words, if it is one simple command without any shell syntax but
/// quotes.
#[must_use]
pub fn simple_command(text: &str) -> Option<Vec<String>> {
    split_command(text, |_| false)
}

/// Splits a command line in which further characters are plain.
pub(super) fn split_command(
    text: &str,
    is_plain_too: impl Fn(char) -> bool,
) -> Option<Vec<String>> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || PLAIN.contains(c) || is_plain_too(c);
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        end if end == c => break,
                        // A shell expands these within double quotes.
                        '$' | '`' | '\\' | '!' if c == '"' => return None,
                        inside if inside.is_control() => return None,
                        inside => word.push(inside),
                    }
                }
            }
            // An assignment before the program changes its environment.
            '=' if words.is_empty() => return None,
            // zsh expands `=program` at the beginning of a word.
            '=' if word.is_none() => return None,
            '=' => word.get_or_insert_default().push(c),
            c if is_plain(c) => word.get_or_insert_default().push(c),
            _ => return None,
        }
    }
    words.extend(word);
    (!words.is_empty() && !words[0].is_empty()).then_some(words)
}

/// Returns the words of a command line for a search: quotes removed, split at everything that a
/// shell treats apart.
pub(super) fn searched_words(text: &str) -> [Vec<String>; 2] {
    let text = text.replace("${IFS}", " ").replace("$IFS", " ");
    let split = |text: &str| -> Vec<String> {
        let is_apart = |c: char| c.is_whitespace() || c.is_control() || ";|&<>(){}$`!".contains(c);
        text.split(is_apart)
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let joined: String = text
        .chars()
        .filter(|c| !matches!(c, '\'' | '"' | '\\'))
        .collect();
    let apart: String = text
        .chars()
        .map(|c| {
            if matches!(c, '\'' | '"' | '\\') {
                ' '
            } else {
                c
            }
        })
        .collect();
    [split(&joined), split(&apart)]
}

/// Returns every word that a command line may contain.
pub(super) fn possible_words(text: &str) -> Vec<String> {
    let mut words = searched_words(text).concat();
    words.extend(simple_command(text).unwrap_or_default());
    words
}

/// Returns the name of a program without its directory.
pub(super) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}
