//! The fields of a block, parsed from YAML or JSON.

/// A field's value, independent of the format. Numbers, dates and booleans keep their source text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    Text(String),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

impl Field {
    /// Returns the value of a key; of a duplicate key, the first one.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(pairs) => pairs
                .iter()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value),
            Self::Text(_) | Self::List(_) => None,
        }
    }

    /// Returns the value as text: a list becomes a line for each entry.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::Text(text) => text.trim_end().to_owned(),
            Self::List(items) => items
                .iter()
                .map(|item| format!("- {}", item.to_text().replace('\n', "\n  ")))
                .collect::<Vec<_>>()
                .join("\n"),
            Self::Map(pairs) => pairs
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_text()))
                .collect::<Vec<_>>()
                .join("\n"),
        }
    }

    /// Returns the value as a list of texts. A text becomes one entry for each line that is not
    /// empty, without its list marker.
    #[must_use]
    pub(crate) fn to_texts(&self) -> Vec<String> {
        match self {
            Self::List(items) => items
                .iter()
                .map(Self::to_text)
                .filter(|text| !text.is_empty())
                .collect(),
            Self::Text(text) => text
                .lines()
                .map(|line| line.trim().trim_start_matches(['-', '*', '•']).trim())
                .filter(|line| !line.is_empty())
                .map(ToOwned::to_owned)
                .collect(),
            Self::Map(_) => vec![self.to_text()],
        }
    }
}
