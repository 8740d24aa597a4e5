//! Validates a file with a chat. A file is checked completely, by the rules for posted messages,
//! before any of it is imported.

use super::{
    EntryKind, INSTRUCTIONS_BYTES_MAX, KEY_BYTES_MAX, LABEL_CHARS_MAX, MESSAGE_BYTES_MAX,
    Participant, checked_message, checked_title, follows,
};
use crate::Denied;
use std::collections::HashSet;

/// The last day of the year 9999, in milliseconds since 1970. Much later times cannot be formatted.
const TIME_MS_MAX: i64 = 253_402_128_000_000;
/// Longest name of a participant or a template, in bytes.
const NAME_BYTES_MAX: usize = 1024;
const MEMBERS_MAX: usize = 10_000;

/// The head of a file, which describes the chat.
#[derive(Debug, Clone)]
pub struct FileHead<'a> {
    pub title: &'a str,
    pub template: Option<&'a str>,
    pub instructions: Option<&'a str>,
    pub started_by: &'a str,
    pub started_name: &'a str,
    pub started_at: i64,
    pub last_at: i64,
    pub members: Vec<FileMember<'a>>,
}

#[derive(Debug, Clone)]
pub struct FileMember<'a> {
    pub who: &'a str,
    pub name: &'a str,
    pub times: [Option<i64>; 2],
    /// The position that the member has read, that of the last mention, and the number of messages.
    pub counts: [i64; 3],
}

/// An entry of a file.
#[derive(Debug, Clone)]
pub struct FileEntry<'a> {
    pub seq: i64,
    pub kind: &'a str,
    pub author: &'a str,
    pub name: &'a str,
    pub label: Option<&'a str>,
    pub text: &'a str,
    pub at: i64,
    pub reply_to: Option<i64>,
    pub key: Option<&'a str>,
    pub edited_at: Option<i64>,
    pub revisions: Vec<FileRevision<'a>>,
}

#[derive(Debug, Clone)]
pub struct FileRevision<'a> {
    pub author: &'a str,
    pub name: &'a str,
    pub text: &'a str,
    pub at: i64,
}

/// Checks a file, entry by entry.
#[derive(Debug)]
pub struct FileCheck {
    last_seq: i64,
    keys: HashSet<String>,
}

fn check_name(field: &'static str, who: &str, name: &str) -> Result<(), Denied> {
    if Participant::from_file(who).is_none() {
        return Err(Denied::invalid(field, "a participant's name is invalid"));
    }
    short(field, name)
}

fn short(field: &'static str, text: &str) -> Result<(), Denied> {
    if (1..=NAME_BYTES_MAX).contains(&text.len()) {
        Ok(())
    } else {
        Err(Denied::invalid(
            field,
            format!("a name has 1 to {NAME_BYTES_MAX} bytes"),
        ))
    }
}

fn time(field: &'static str, ms: i64) -> Result<(), Denied> {
    if (0..=TIME_MS_MAX).contains(&ms) {
        Ok(())
    } else {
        Err(Denied::invalid(
            field,
            "a time is before 1970 or after 9999",
        ))
    }
}

impl FileCheck {
    /// Checks the head of a file.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn head(head: &FileHead<'_>) -> Result<Self, Denied> {
        const HEAD: &str = "head";
        let FileHead {
            title,
            template,
            instructions,
            started_by,
            started_name,
            started_at,
            last_at,
            members,
        } = head;
        checked_title(title)?;
        if let Some(template) = template {
            short(HEAD, template)?;
        }
        if instructions.is_some_and(|text| text.len() > INSTRUCTIONS_BYTES_MAX) {
            return Err(Denied::invalid(
                HEAD,
                format!("instructions have at most {INSTRUCTIONS_BYTES_MAX} bytes"),
            ));
        }
        check_name(HEAD, started_by, started_name)?;
        time(HEAD, *started_at)?;
        time(HEAD, *last_at)?;
        if members.len() > MEMBERS_MAX {
            return Err(Denied::invalid(
                HEAD,
                format!("at most {MEMBERS_MAX} members"),
            ));
        }
        let mut known = HashSet::new();
        for FileMember {
            who,
            name,
            times,
            counts,
        } in members
        {
            check_name(HEAD, who, name)?;
            for at in times.iter().flatten() {
                time(HEAD, *at)?;
            }
            if counts.iter().any(|count| *count < 0) {
                return Err(Denied::invalid(HEAD, "a member's count is below 0"));
            }
            if !known.insert(who.strip_prefix("file:").unwrap_or(who)) {
                return Err(Denied::invalid(HEAD, "a member is listed twice"));
            }
        }
        Ok(Self::behind(0))
    }

    /// Continues after an entry.
    #[must_use]
    pub fn behind(last_seq: i64) -> Self {
        Self {
            last_seq,
            keys: HashSet::new(),
        }
    }

    /// Checks the next entry.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn entry(&mut self, entry: &FileEntry<'_>) -> Result<(), Denied> {
        let FileEntry {
            seq,
            kind,
            author,
            name,
            label,
            text,
            at,
            reply_to,
            key,
            edited_at,
            revisions,
        } = entry;
        let wrong = |what: &str| Denied::invalid("entries", format!("entry {seq}: {what}"));
        let of_entry = |result: Result<(), Denied>| {
            result.map_err(|denied| match denied {
                Denied::Invalid { problem, .. } => wrong(&problem),
                denied => denied,
            })
        };
        if !follows(self.last_seq, *seq) {
            return Err(wrong(&format!("{} is the next number", self.last_seq + 1)));
        }
        if EntryKind::from_word(kind).is_none() {
            return Err(wrong("its kind is unknown"));
        }
        of_entry(check_name("entries", author, name))?;
        of_entry(checked_message(text))?;
        of_entry(time("entries", *at))?;
        if label.is_some_and(|label| label.is_empty() || label.chars().count() > LABEL_CHARS_MAX) {
            return Err(wrong(&format!(
                "a label has 1 to {LABEL_CHARS_MAX} characters"
            )));
        }
        if reply_to.is_some_and(|to| to < 1 || to >= *seq) {
            return Err(wrong("it replies to an entry that is not before it"));
        }
        if edited_at.is_some() == revisions.is_empty() {
            return Err(wrong("its earlier texts do not match its edit times"));
        }
        if let Some(edited_at) = edited_at {
            of_entry(time("entries", *edited_at))?;
        }
        for FileRevision {
            author,
            name,
            text,
            at,
        } in revisions
        {
            of_entry(check_name("entries", author, name))?;
            of_entry(time("entries", *at))?;
            if text.len() > MESSAGE_BYTES_MAX {
                return Err(wrong("an earlier text is too long"));
            }
        }
        if let Some(key) = key {
            if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
                return Err(wrong(&format!("a key has 1 to {KEY_BYTES_MAX} bytes")));
            }
            if !self.keys.insert((*key).to_owned()) {
                return Err(wrong("its key is used by another entry"));
            }
        }
        self.last_seq = *seq;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::SEQ_MAX;
    use super::*;

    fn entry(seq: i64) -> FileEntry<'static> {
        FileEntry {
            seq,
            kind: "message",
            author: "person",
            name: "person",
            label: None,
            text: "x",
            at: 1,
            reply_to: None,
            key: None,
            edited_at: None,
            revisions: Vec::new(),
        }
    }

    #[test]
    fn entry_that_could_not_be_posted_is_refused() {
        let long = "x".repeat(MESSAGE_BYTES_MAX + 1);
        let wrong = [
            FileEntry { seq: 0, ..entry(1) },
            FileEntry { seq: 2, ..entry(1) },
            FileEntry {
                seq: SEQ_MAX + 1,
                ..entry(1)
            },
            FileEntry {
                kind: "order",
                ..entry(1)
            },
            FileEntry {
                author: "nobody at all",
                ..entry(1)
            },
            FileEntry {
                text: "",
                ..entry(1)
            },
            FileEntry {
                text: &long,
                ..entry(1)
            },
            FileEntry { at: -1, ..entry(1) },
            FileEntry {
                at: i64::MAX,
                ..entry(1)
            },
            FileEntry {
                reply_to: Some(1),
                ..entry(1)
            },
            FileEntry {
                key: Some(""),
                ..entry(1)
            },
            FileEntry {
                edited_at: Some(2),
                ..entry(1)
            },
        ];
        for entry in wrong {
            assert!(
                matches!(
                    FileCheck::behind(0).entry(&entry),
                    Err(Denied::Invalid { .. })
                ),
                "{:?}",
                entry.seq
            );
        }
        let mut check = FileCheck::behind(0);
        assert_eq!(
            check.entry(&FileEntry {
                key: Some("k"),
                ..entry(1)
            }),
            Ok(())
        );
        assert!(
            check
                .entry(&FileEntry {
                    key: Some("k"),
                    ..entry(2)
                })
                .is_err(),
            "a key belongs to one entry"
        );
        assert_eq!(
            check.entry(&FileEntry {
                reply_to: Some(1),
                ..entry(2)
            }),
            Ok(())
        );
        assert!(check.entry(&entry(2)).is_err(), "numbers increase");
        assert_eq!(check.entry(&entry(10_001)), Ok(()));
    }

    #[test]
    fn head_lists_each_member_once() {
        let member = FileMember {
            who: "client:a",
            name: "a",
            times: [Some(1), None],
            counts: [0; 3],
        };
        let head = |members| FileHead {
            title: "t",
            template: None,
            instructions: None,
            started_by: "person",
            started_name: "person",
            started_at: 1,
            last_at: 1,
            members,
        };
        assert!(FileCheck::head(&head(vec![member.clone()])).is_ok());
        assert!(FileCheck::head(&head(vec![member.clone(), member.clone()])).is_err());
        assert!(
            FileCheck::head(&head(vec![FileMember {
                times: [Some(i64::MIN), None],
                ..member
            }]))
            .is_err()
        );
    }
}
