//! Commands of the user that are given as one text, such as `$EDITOR`: split without a shell.

/// Splits a command at spaces. Single or double quotes keep spaces; nothing is expanded. `None`: a
/// quote is not closed, or the command is empty.
pub(super) fn split(command: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in command.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
        .filter(|words| quote.is_none() && words.first().is_some_and(|program| !program.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_split_without_a_shell() {
        let words = |command| split(command).map(|words| words.join("|"));
        assert_eq!(words("code --wait  -n").as_deref(), Some("code|--wait|-n"));
        assert_eq!(
            words("'/opt/my editor' \"a b\"c $HOME;x").as_deref(),
            Some("/opt/my editor|a bc|$HOME;x")
        );
        for unusable in ["", "  ", "'open", "''"] {
            assert_eq!(words(unusable), None, "{unusable:?}");
        }
    }
}
