//! Token counts as the vendors' APIs state them, in each one's own terms.

/// Largest count that is believed.
const COUNT_MAX: u64 = 1 << 40;

/// A count of a usage object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Input,
    /// Gemini: the input that tools of the service have added.
    ToolInput,
    /// Part of the input that was read from a cache (OpenAI, Gemini).
    CachedWithin,
    /// Read from a cache, in addition to the input (Anthropic).
    CacheRead,
    /// Written to a cache, in addition to the input (Anthropic).
    CacheWrite,
    Output,
    /// Gemini: thinking, in addition to the output.
    Thoughts,
}

const FIELDS: usize = 7;

impl Field {
    pub(super) fn of_usage(key: &[u8]) -> Option<Self> {
        Some(match key {
            b"input_tokens" | b"prompt_tokens" | b"promptTokenCount" => Self::Input,
            b"toolUsePromptTokenCount" => Self::ToolInput,
            b"cachedContentTokenCount" => Self::CachedWithin,
            b"cache_read_input_tokens" => Self::CacheRead,
            b"cache_creation_input_tokens" => Self::CacheWrite,
            b"output_tokens" | b"completion_tokens" | b"candidatesTokenCount" => Self::Output,
            b"thoughtsTokenCount" => Self::Thoughts,
            _ => return None,
        })
    }
}

/// The counts of one response. Those of later statements replace smaller ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    stated: [Option<u64>; FIELDS],
    /// A count was negative, a fraction, absurdly large or no number.
    pub(super) is_invalid: bool,
}

impl Counts {
    pub(super) fn note(&mut self, field: Field, digits: &[u8]) {
        let count = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok()).filter(|count| *count <= COUNT_MAX);
        match count {
            Some(count) => self.stated[field as usize] = Some(count),
            None => self.is_invalid = true,
        }
    }

    pub(super) fn merge(&mut self, later: &Self) {
        for (stated, later) in self.stated.iter_mut().zip(later.stated) {
            *stated = (*stated).max(later);
        }
        self.is_invalid |= later.is_invalid;
    }

    /// Returns whether anything was counted.
    pub(super) fn is_stated(&self) -> bool {
        self.of(Field::Input).is_some() || self.of(Field::Output).is_some()
    }

    fn of(&self, field: Field) -> Option<u64> {
        self.stated[field as usize]
    }

    /// Returns the counts, none of which becomes smaller.
    pub(super) fn stated(&self) -> super::Stated {
        let of = |field| self.of(field).unwrap_or(0);
        super::Stated {
            input: of(Field::Input) + of(Field::ToolInput),
            cached_within: of(Field::CachedWithin),
            cache_read: of(Field::CacheRead),
            cache_write: of(Field::CacheWrite),
            output: of(Field::Output) + of(Field::Thoughts),
        }
    }
}
