//! The problems of a configuration file, which an error names in one line, as a list.

/// The text between the file and its problems.
const COUNTED: &str = " problems: ";
const SEPARATOR: &str = "; ";

/// Splits the message about a file with several problems: the file with the number of them, and
/// each problem.
pub(crate) fn problem_list(message: &str) -> Option<(String, Vec<&str>)> {
    let (head, list) = message.split_once(COUNTED)?;
    if !begins_with_line(list) {
        return None;
    }
    let mut problems = Vec::new();
    let mut begin = 0;
    for (at, _) in list.match_indices(SEPARATOR) {
        // A problem can contain the separator.
        if begins_with_line(&list[at + SEPARATOR.len()..]) {
            problems.push(&list[begin..at]);
            begin = at + SEPARATOR.len();
        }
    }
    problems.push(&list[begin..]);
    Some((format!("{head}{}", COUNTED.trim_end()), problems))
}

fn begins_with_line(text: &str) -> bool {
    let Some(number) = text.strip_prefix("line ") else {
        return false;
    };
    number
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .starts_with(": ")
        && number.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_an_entry() {
        let message = "/a/config.toml: 3 problems: line 1: x: unknown key; did you mean y?; line 12: z: missing; line 40: a: use true or false";
        let (head, problems) = problem_list(message).expect("a list");
        assert_eq!(head, "/a/config.toml: 3 problems:");
        assert_eq!(
            problems,
            [
                "line 1: x: unknown key; did you mean y?",
                "line 12: z: missing",
                "line 40: a: use true or false"
            ]
        );
        for other in [
            "config.toml: line 3: x: missing",
            "2 problems: none",
            "",
            "3 problems: line x: y",
        ] {
            assert_eq!(problem_list(other), None, "{other}");
        }
    }
}
