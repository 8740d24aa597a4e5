//! The policies of the configuration file as a whole, in a form that can be stored and compared.

use super::policies::{FilePolicy, read};
use super::values::UnusableValues;
use adjutant_core::policy::Policy;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// All policies of a configuration. Two sets with the same digest have the same policies; comments and layout do not count.
#[derive(Debug, Clone)]
pub struct PolicySet {
    policies: Arc<[Policy]>,
    source: Arc<str>,
    digest: Arc<str>,
}

impl Default for PolicySet {
    fn default() -> Self {
        Self::of(Vec::new(), &mut UnusableValues::default())
    }
}

impl PolicySet {
    /// Reads this part of the file. An invalid policy is reported.
    pub(super) fn of(files: Vec<FilePolicy>, unusable: &mut UnusableValues) -> Self {
        let source = serde_json::to_string(&files).expect("texts are valid JSON");
        let digest: String = Sha256::digest(&source)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self {
            policies: read(files, unusable).into(),
            source: source.into(),
            digest: digest.into(),
        }
    }

    /// Parses a set that was stored, or returns its problem.
    ///
    /// # Errors
    /// The text is not [`PolicySet::source`] of a valid set.
    pub fn from_source(source: &str) -> Result<Self, String> {
        let files: Vec<FilePolicy> =
            serde_json::from_str(source).map_err(|error| error.to_string())?;
        let mut unusable = UnusableValues::default();
        let set = Self::of(files, &mut unusable);
        unusable.into_text().map_or(Ok(set), Err)
    }

    #[must_use]
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Returns the policies as JSON.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }
}
