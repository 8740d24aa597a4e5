//! Peers: other hubs that follow chats of this one, or whose chats this one follows.
//!
//! A peer states the names of its participants. The receiving hub puts the name of the peer before
//! them, so no peer can speak for a participant of this hub or of another peer.

use crate::Denied;
use crate::limits::NAME_BYTES_MAX;
use std::fmt;

/// Maximum number of peers of a hub.
pub const PEERS_MAX: usize = 100;
/// Maximum number of chats of other hubs that a hub follows at a time.
pub const FOLLOWED_MAX: usize = 200;
/// Maximum number of chats of one hub that a hub follows at a time: each has a connection that
/// waits, and one that posts.
pub const FOLLOWED_OF_PEER_MAX: usize = 50;
/// Maximum number of posts that wait in one followed chat.
pub const WAITING_POSTS_MAX: u64 = 1_000;
/// Maximum number of refused posts that a followed chat keeps; older ones are dropped.
pub const REFUSED_POSTS_KEPT: u32 = 20;
/// Maximum number of participants of one peer in a chat.
pub const SPEAKERS_MAX: u64 = 200;
/// Maximum number of characters of a participant's name.
const SPEAKER_CHARS_MAX: usize = 50;
/// Separates a hub from its participants.
const SEPARATOR: char = '/';

/// The name of another hub, chosen on this one: lower-case ASCII letters, digits and hyphens,
/// starting with a letter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerName(String);

impl PeerName {
    /// Parses a name that a user chose.
    ///
    /// # Errors
    /// The text is not a valid name.
    pub fn parse(text: &str) -> Result<Self, Denied> {
        let is_well_formed = (1..=NAME_BYTES_MAX).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if is_well_formed {
            return Ok(Self(text.to_owned()));
        }
        Err(Denied::invalid(
            "peer",
            format!(
                "use a-z, 0-9 and -, starting with a letter, at most {NAME_BYTES_MAX} characters"
            ),
        ))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A participant as its own hub names it: `claude`, or `office/claude` for a participant of a peer
/// of that hub.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Speaker(String);

impl Speaker {
    /// Parses the name of a participant of the stating hub itself.
    ///
    /// # Errors
    /// The text is not a valid name.
    pub fn parse_own(text: &str) -> Result<Self, Denied> {
        if is_speaker_name(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(unusable())
        }
    }

    /// Parses the name of a participant of the stating hub, or of one of its peers.
    ///
    /// # Errors
    /// The text is not a valid name.
    pub fn parse(text: &str) -> Result<Self, Denied> {
        match text.split_once(SEPARATOR) {
            Some((peer, name)) if PeerName::parse(peer).is_ok() && is_speaker_name(name) => {
                Ok(Self(text.to_owned()))
            }
            Some(_) => Err(unusable()),
            None => Self::parse_own(text),
        }
    }

    /// Converts a display name to a name that other hubs accept.
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        let plain = |c: char| if is_speaker_char(c) { c } else { '-' };
        let shown: String = name.chars().map(plain).take(SPEAKER_CHARS_MAX).collect();
        let shown = shown.trim_matches(['-', '.']);
        Self(if shown.is_empty() {
            "participant".to_owned()
        } else {
            shown.to_owned()
        })
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_speaker_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn is_speaker_name(text: &str) -> bool {
    (1..=SPEAKER_CHARS_MAX).contains(&text.len())
        && text.chars().all(is_speaker_char)
        && !text.starts_with(['-', '.'])
}

fn unusable() -> Denied {
    Denied::invalid(
        "participant",
        format!("use 1 to {SPEAKER_CHARS_MAX} of a-z, A-Z, 0-9, ., _ and -"),
    )
}

/// A participant of a peer: `office/claude`. The receiving hub sets the first part.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PeerParticipant {
    pub peer: PeerName,
    pub speaker: Speaker,
}

impl PeerParticipant {
    /// Parses the output of `Display`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (peer, speaker) = text.split_once(SEPARATOR)?;
        Some(Self {
            peer: PeerName::parse(peer).ok()?,
            speaker: Speaker::parse(speaker).ok()?,
        })
    }
}

impl fmt::Display for PeerParticipant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{SEPARATOR}{}", self.peer, self.speaker.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn speaker_cannot_forge_another_hub_or_a_line() {
        for text in [
            "",
            "a/b",
            "a\nb",
            "a b",
            "a:b",
            "-a",
            ".a",
            "ä",
            "a\u{202e}b",
            "[a]",
            &"a".repeat(51),
        ] {
            assert!(Speaker::parse_own(text).is_err(), "{text:?}");
        }
        for text in ["a/b/c", "/a", "a/", "A/b", "a//b", "hub b/c", "a/b\n"] {
            assert!(Speaker::parse(text).is_err(), "{text:?}");
        }
        assert!(Speaker::parse_own("claude").is_ok() && Speaker::parse("office/claude").is_ok());
    }

    #[test]
    fn participant_round_trips_through_text() {
        for text in ["office/claude", "office/lab/brave-otter"] {
            let parsed = PeerParticipant::parse(text).expect("a participant");
            assert_eq!(parsed.to_string(), text);
            assert_eq!(parsed.peer.as_str(), "office");
        }
        assert!(
            PeerParticipant::parse("a/b/c/d").is_none()
                && PeerParticipant::parse("office").is_none()
        );
    }

    proptest! {
        #[test]
        fn every_name_becomes_one_that_peers_accept(name in any::<String>()) {
            let speaker = Speaker::of_name(&name);
            prop_assert!(Speaker::parse_own(speaker.as_str()).is_ok(), "{:?}", speaker);
        }
    }
}
