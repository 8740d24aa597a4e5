//! Stable words: the names under which values are stored, sent and shown.
//!
//! An enum lists its words with [`crate::words!`]; nothing else maps between the two.

/// A type whose values have stable words; [`words!`](crate::words!) implements it.
pub trait Words: Copy + Eq + 'static {
    /// The words that are written, in the order of the values. Empty for a type that combines the
    /// words of others.
    const WORDS: &'static [&'static str] = &[];

    /// Returns the stable word.
    #[must_use]
    fn word(self) -> &'static str;

    /// Returns the value that a stable word names.
    #[must_use]
    fn from_word(word: &str) -> Option<Self>;
}

/// Returns the value whose word a run has written: in any case, with blanks or hyphens for
/// underscores, and in quotes or emphasis. Stored words are read with [`Words::from_word`].
#[must_use]
pub fn spoken<T: Words>(text: &str) -> Option<T> {
    let bare = text.trim_matches(|c: char| !c.is_alphanumeric());
    let joined: String = bare
        .chars()
        .map(|c| {
            if c.is_whitespace() || c == '-' {
                '_'
            } else {
                c
            }
        })
        .collect();
    [joined.to_lowercase(), joined.to_uppercase()]
        .iter()
        .find_map(|word| T::from_word(word))
}

/// Returns the value whose word begins a text, and whether the text contains nothing else.
#[must_use]
pub(crate) fn spoken_first<T: Words>(text: &str) -> Option<(T, bool)> {
    const WORDS_MAX: usize = 3;
    if let Some(value) = spoken(text) {
        return Some((value, true));
    }
    let words: Vec<&str> = text.split_whitespace().take(WORDS_MAX).collect();
    (1..=words.len())
        .rev()
        .find_map(|count| spoken(&words[..count].join(" ")))
        .map(|value| (value, false))
}

/// Gives an enum without data its stable words. It generates `ALL` (every variant, in the order of
/// the list), `word` and `from_word`. The first word of a variant is the one that is written; words
/// after `|` are read too.
///
/// A variant without a word and a word used twice do not compile. Words are spelled out rather than
/// derived from the variants, so that renaming a variant in code changes nothing that is stored.
///
/// ```
/// #[derive(Debug, Clone, Copy, PartialEq, Eq)]
/// enum Light { On, Off }
/// adjutant_core::words!(Light { On = "on", Off = "off" | "out" });
/// assert_eq!(Light::ALL, [Light::On, Light::Off]);
/// assert_eq!(Light::Off.word(), "off");
/// assert_eq!((Light::from_word("out"), Light::from_word("dim")), (Some(Light::Off), None));
/// ```
///
/// ```compile_fail
/// #[derive(Debug, Clone, Copy, PartialEq, Eq)]
/// enum Light { On, Off }
/// adjutant_core::words!(Light { On = "on", Off = "on" });
/// ```
#[macro_export]
macro_rules! words {
    ($name:ident { $($variant:ident = $word:literal $(| $alias:literal)*),+ $(,)? }) => {
        impl $name {
            /// Every value.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// Returns the stable word.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// Returns the value that a stable word names.
            #[must_use]
            #[deny(unreachable_patterns)]
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word $(| $alias)* => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        impl $crate::words::Words for $name {
            const WORDS: &'static [&'static str] = &[$($word),+];

            fn word(self) -> &'static str {
                Self::word(self)
            }

            fn from_word(word: &str) -> Option<Self> {
                Self::from_word(word)
            }
        }
    };
}
