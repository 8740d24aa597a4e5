//! The policies of the configuration file as a whole, in a form that can be stored and compared.

use super::policies::{FilePolicy, read};
use super::values::UnusableValues;
use adjutant_core::hex;
use adjutant_core::policy::Policy;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// All policies of a configuration. Two sets with the same digest have the same policies; comments
/// and layout do not count.
#[derive(Debug, Clone)]
pub struct PolicySet {
    policies: Arc<[Policy]>,
    source: Arc<str>,
    digest: Arc<str>,
}

/// Why a stored set of policies cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicySetError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// All problems of its policies.
    #[error("{0}")]
    Invalid(String),
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
        let digest = hex(Sha256::digest(&source));
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
    pub fn from_source(source: &str) -> Result<Self, PolicySetError> {
        let files: Vec<FilePolicy> = serde_json::from_str(source)?;
        let mut unusable = UnusableValues::default();
        let set = Self::of(files, &mut unusable);
        if unusable.is_empty() {
            Ok(set)
        } else {
            Err(PolicySetError::Invalid(unusable.to_string()))
        }
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
