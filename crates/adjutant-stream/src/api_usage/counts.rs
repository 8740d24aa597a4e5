//! Token counts as the vendors' APIs state them, in each one's own terms.

/// Largest count that is believed.
const COUNT_MAX: u64 = 1 << 40;

/// A count of a usage object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Input,
    /// Input that contains what was read from or written to a cache (OpenAI, LiteLLM).
    Prompt,
    /// Gemini: the input that tools of the service have added.
    ToolInput,
    /// Part of the input that was read from a cache (OpenAI, Gemini).
    CachedWithin,
    /// Read from a cache: in addition to the input (Anthropic), or contained in the prompt
    /// (LiteLLM).
    CacheRead,
    /// Written to a cache: likewise.
    CacheWrite,
    Output,
    /// Gemini: thinking, in addition to the output.
    Thoughts,
}

const FIELDS: usize = 8;

impl Field {
    pub(super) fn of_usage(key: &[u8]) -> Option<Self> {
        Some(match key {
            b"input_tokens" | b"promptTokenCount" => Self::Input,
            b"prompt_tokens" => Self::Prompt,
            b"toolUsePromptTokenCount" => Self::ToolInput,
            // The last two: DeepSeek and Moonshot.
            b"cachedContentTokenCount" | b"prompt_cache_hit_tokens" | b"cached_tokens" => {
                Self::CachedWithin
            }
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
        let count = std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| digits.parse::<u64>().ok())
            .filter(|count| *count <= COUNT_MAX);
        match count {
            // Some state the same count under two names.
            Some(count) => self.stated[field as usize] = self.of(field).max(Some(count)),
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
        [Field::Input, Field::Prompt, Field::Output]
            .into_iter()
            .any(|field| self.of(field).is_some())
    }

    fn of(&self, field: Field) -> Option<u64> {
        self.stated[field as usize]
    }

    /// Returns the counts, none of which becomes smaller as long as the API keeps to one form.
    pub(super) fn stated(&self) -> super::Stated {
        let of = |field| self.of(field).unwrap_or(0);
        let (within, read, write) = (
            of(Field::CachedWithin),
            of(Field::CacheRead),
            of(Field::CacheWrite),
        );
        // LiteLLM states the cached part of its prompt twice, in the forms of both vendors.
        let is_contained = self.of(Field::Prompt).is_some() || (read > 0 && read == within);
        let (within, read, write_within, write) = if is_contained {
            (within.max(read), 0, write, 0)
        } else {
            (within, read, 0, write)
        };
        super::Stated {
            input: of(Field::Input).max(of(Field::Prompt)) + of(Field::ToolInput),
            cached_within: within,
            cache_read: read,
            cache_write_within: write_within,
            cache_write: write,
            output: of(Field::Output) + of(Field::Thoughts),
        }
    }
}
