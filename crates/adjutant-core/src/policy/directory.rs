//! Command lines that may change the directory of the shell that runs them.
//!
//! Only what this shell itself executes can do so: a program, a substitution or a text in quotes
//! cannot. Where the parts of a command line are not certain, every word counts.

use super::command_words::searched_words;

/// Shell commands that change the directory of their shell, or may run one that does.
const DIRECTORY_CHANGERS: &[&str] = &["cd", "pushd", "popd", "chdir", "eval", "source"];
/// Shell commands that store or run a text as commands.
const TEXT_RUNNERS: &[&str] = &[
    "trap",
    "alias",
    "bind",
    "complete",
    "compgen",
    "function",
    "mapfile",
    "readarray",
    "enable",
    "autoload",
    "emulate",
    "set",
    "shopt",
    "declare",
    "typeset",
    "export",
    "local",
    "readonly",
    "fc",
    "hash",
    "zle",
    "add-zsh-hook",
];
/// Words of a shell before a program.
const PREFIXES: &[&str] = &[
    "then",
    "do",
    "else",
    "elif",
    "if",
    "while",
    "until",
    "!",
    "time",
    "command",
    "builtin",
    "exec",
    "coproc",
    "noglob",
    "nocorrect",
    "-",
];
/// Maximum depth of `eval` in `eval`.
const DEPTH_MAX: usize = 4;

/// Returns the directories to which a command line may change its shell, by name, as far as it
/// states them. `None`: it changes to no directory but `from`.
#[must_use]
pub fn directory_changes(text: &str, from: &str) -> Option<Vec<String>> {
    changes_within(text, from, DEPTH_MAX)
}

fn changes_within(text: &str, from: &str, depth: usize) -> Option<Vec<String>> {
    let Some(commands) = commands(text) else {
        return changes_of_any_word(text, from);
    };
    let mut targets: Option<Vec<String>> = None;
    for command in commands {
        let changes = match command.kind() {
            Kind::Program => None,
            Kind::Evaluates(inner) if depth > 0 => changes_within(&inner, from, depth - 1),
            Kind::Evaluates(_) | Kind::Unknown => changes_of_any_word(command.text, from),
        };
        if let Some(changes) = changes {
            targets.get_or_insert_default().extend(changes);
        }
    }
    targets
}

/// A simple command of a command line.
struct Command<'a> {
    text: &'a str,
    words: Vec<Word>,
    /// Something is redirected before the program.
    is_redirected_first: bool,
}

/// A word without its quotes.
#[derive(Default)]
struct Word {
    text: String,
    /// A shell replaces something in it.
    is_expanded: bool,
}

enum Kind {
    /// It starts a program, or a shell command that does not concern the directory.
    Program,
    /// It executes this text.
    Evaluates(String),
    Unknown,
}

impl Command<'_> {
    fn kind(&self) -> Kind {
        let Some((program, arguments)) = self.words.split_first() else {
            return Kind::Program;
        };
        let name = program.text.as_str();
        if name == "eval"
            && !self.is_redirected_first
            && arguments.iter().all(|word| !word.is_expanded)
        {
            return Kind::Evaluates(
                arguments
                    .iter()
                    .map(|word| word.text.as_str())
                    .collect::<Vec<_>>()
                    .join(" "),
            );
        }
        let is_special = [DIRECTORY_CHANGERS, TEXT_RUNNERS, PREFIXES]
            .iter()
            .any(|list| list.contains(&name))
            || name == ".";
        if self.is_redirected_first || program.is_expanded || is_special || name.contains('=') {
            Kind::Unknown
        } else {
            Kind::Program
        }
    }
}

/// Returns the words of the simple commands of a command line, without quotes, as far as they are
/// certain.
pub(super) fn words_of_commands(text: &str) -> Vec<Vec<String>> {
    let commands = commands(text).unwrap_or_default();
    commands
        .into_iter()
        .map(|command| command.words.into_iter().map(|word| word.text).collect())
        .collect()
}

/// Splits a command line into its simple commands. `None`: it contains groups, substitutions or
/// other syntax whose end is not certain.
fn commands(text: &str) -> Option<Vec<Command<'_>>> {
    let mut commands = Vec::new();
    let (mut start, mut words, mut is_redirected_first) = (0, Vec::new(), false);
    let mut word: Option<Word> = None;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            // A descriptor that another one becomes, or the output of both.
            '&' if text[..at].ends_with(['<', '>'])
                || chars.peek().is_some_and(|(_, next)| *next == '>') => {}
            ';' | '|' | '&' | '\n' => {
                words.extend(word.take());
                commands.push(Command {
                    text: text[start..at].trim(),
                    words: std::mem::take(&mut words),
                    is_redirected_first,
                });
                (start, is_redirected_first) = (at + c.len_utf8(), false);
            }
            ' ' | '\t' => words.extend(word.take()),
            '<' | '>' => {
                // Here-documents contain any text.
                if c == '<' && chars.peek().is_some_and(|(_, next)| *next == '<') {
                    return None;
                }
                is_redirected_first |= words.is_empty();
                words.extend(word.take());
            }
            '(' | ')' | '{' | '}' | '`' | '#' => return None,
            '$' if chars
                .peek()
                .is_some_and(|(_, next)| matches!(next, '(' | '\'' | '"' | '{')) =>
            {
                return None;
            }
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()?.1 {
                        '\'' => break,
                        inside => word.text.push(inside),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()?.1 {
                        '"' => break,
                        '`' => return None,
                        '$' if chars.peek().is_some_and(|(_, next)| *next == '(') => return None,
                        '$' => word.is_expanded = true,
                        '\\' => word.text.push(chars.next()?.1),
                        inside => word.text.push(inside),
                    }
                }
            }
            '\\' => match chars.next()?.1 {
                '\n' | '\r' => return None,
                escaped => word.get_or_insert_default().text.push(escaped),
            },
            c if c.is_control() => return None,
            '$' | '*' | '?' | '[' | '~' => {
                let word = word.get_or_insert_default();
                word.is_expanded = true;
                word.text.push(c);
            }
            c => word.get_or_insert_default().text.push(c),
        }
    }
    words.extend(word);
    commands.push(Command {
        text: text[start..].trim(),
        words,
        is_redirected_first,
    });
    Some(commands)
}

fn changes_of_any_word(text: &str, from: &str) -> Option<Vec<String>> {
    let returns = ["", "'", "\""].map(|quote| format!("cd {quote}{from}{quote}"));
    let mut targets: Option<Vec<String>> = None;
    for part in text
        .split(|c: char| ";|&(){}".contains(c) || c.is_control() && c != '\t')
        .map(str::trim)
    {
        // A program that is named by a variable or another command can be any.
        let is_open = programs(part)
            .iter()
            .any(|program| program == "." || program.contains(['$', '`', '*', '?', '[']));
        let [words, apart] = searched_words(part);
        let changes = |words: &[String]| {
            words
                .iter()
                .any(|word| DIRECTORY_CHANGERS.contains(&word.as_str()))
        };
        if returns.iter().any(|whole| whole == part)
            || !is_open && !changes(&words) && !changes(&apart)
        {
            continue;
        }
        let named = words
            .iter()
            .skip_while(|word| !DIRECTORY_CHANGERS.contains(&word.as_str()))
            .skip(1);
        targets
            .get_or_insert_default()
            .extend(named.filter(|word| !word.starts_with('-')).cloned());
    }
    targets
}

/// Returns the words of a command that may be its program, without quotes: the first one that is
/// neither a keyword, an assignment nor a redirection. Where a quote is cut off, any word may be.
fn programs(part: &str) -> Vec<String> {
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let is_assignment = |word: &str| {
        word.split_once('=').is_some_and(|(name, _)| {
            let name = name.strip_suffix('+').unwrap_or(name);
            is_name(name.split_once('[').map_or(name, |(name, _)| name))
        })
    };
    let Some(words) = quoted_words(part) else {
        return part
            .split_whitespace()
            .map(|word| word.replace(['\'', '"', '\\'], ""))
            .collect();
    };
    let mut words = words.into_iter().peekable();
    let (mut follows_prefix, mut follows_exec) = (false, false);
    while let Some(word) = words.next() {
        let is_option = follows_prefix && word.starts_with('-');
        // `2>&1` is cut at its `&`.
        let redirection = word.trim_start_matches(|c: char| c.is_ascii_digit());
        if redirection.starts_with(['<', '>']) {
            if redirection.trim_start_matches(['<', '>']).is_empty() {
                words.next();
            }
        } else if !redirection.is_empty() && !is_assignment(&word) && !is_option {
            if !PREFIXES.contains(&word.as_str()) {
                // The value of an option, as of `exec -a`, may come first.
                return std::iter::once(word)
                    .chain(words.next().filter(|_| follows_exec))
                    .collect();
            }
            (follows_prefix, follows_exec) = (true, word == "exec");
        } else if word.contains('`') {
            return vec![word];
        }
    }
    Vec::new()
}

/// Splits a text at spaces outside quotes, and removes the quotes. `None`: a quote is not closed.
fn quoted_words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        end if end == c => break,
                        '\\' if c == '"' => word.extend(chars.next()),
                        inside => word.push(inside),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(chars.next()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}
