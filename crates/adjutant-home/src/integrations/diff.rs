//! The difference between two contents of a file. An edit changes one place, so one hunk with its
//! neighbours is enough.

/// How many unchanged lines are shown around the changed ones.
const CONTEXT: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

/// Returns the lines of the hunk, with the number of its first line. Nothing if the contents are
/// equal.
#[must_use]
pub fn hunk<'a>(before: &'a str, after: &'a str) -> (usize, Vec<Line<'a>>) {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let head = old
        .iter()
        .zip(&new)
        .take_while(|(one, other)| one == other)
        .count();
    let (old_rest, new_rest) = (&old[head..], &new[head..]);
    let tail = old_rest
        .iter()
        .rev()
        .zip(new_rest.iter().rev())
        .take_while(|(one, other)| one == other)
        .count();
    let (removed, added) = (
        &old_rest[..old_rest.len() - tail],
        &new_rest[..new_rest.len() - tail],
    );
    if removed.is_empty() && added.is_empty() {
        return (0, Vec::new());
    }
    let first = head.saturating_sub(CONTEXT);
    let mut lines: Vec<Line<'_>> = old[first..head]
        .iter()
        .map(|line| Line::Same(line))
        .collect();
    lines.extend(removed.iter().map(|line| Line::Removed(line)));
    lines.extend(added.iter().map(|line| Line::Added(line)));
    lines.extend(
        old_rest[old_rest.len() - tail..]
            .iter()
            .take(CONTEXT)
            .map(|line| Line::Same(line)),
    );
    (first + 1, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunk_has_the_changed_lines_and_their_neighbours() {
        let (line, lines) = hunk("a\nb\nc\nd\ne\nf\ng\nh\n", "a\nb\nc\nd\nX\nY\nf\ng\nh\n");
        assert_eq!(line, 2);
        use Line::{Added, Removed, Same};
        assert_eq!(
            lines,
            [
                Same("b"),
                Same("c"),
                Same("d"),
                Removed("e"),
                Added("X"),
                Added("Y"),
                Same("f"),
                Same("g"),
                Same("h")
            ]
        );
        assert_eq!(hunk("a\n", "a\n"), (0, vec![]));
        assert_eq!(hunk("", "a\n"), (1, vec![Added("a")]));
        assert_eq!(hunk("x\nx\n", "x\nx\nx\n").1.len(), 3);
    }
}
