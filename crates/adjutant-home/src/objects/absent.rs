//! What a build without the feature `log-store` has instead of a store.

use super::{ObjectError, OpenError};
use crate::config::LogStoreAddress;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::ops::Range;
use tokio::sync::OwnedSemaphorePermit;

/// A store, of which there is none.
#[derive(Debug, Clone)]
pub struct Objects(Infallible);

impl Objects {
    /// Opens no store.
    ///
    /// # Errors
    /// Always: this program has no log store.
    pub fn open(_: &LogStoreAddress) -> Result<Self, OpenError> {
        Err(OpenError::NotBuiltIn)
    }

    pub async fn admit_reader(&self) -> Option<OwnedSemaphorePermit> {
        match self.0 {}
    }

    #[must_use]
    pub fn address(&self) -> &LogStoreAddress {
        match self.0 {}
    }

    /// # Errors
    /// There is no store.
    pub async fn put(&self, _: &str, _: Vec<u8>) -> Result<(), ObjectError> {
        match self.0 {}
    }

    /// # Errors
    /// There is no store.
    pub async fn put_parts<F: Future<Output = io::Result<Option<Vec<u8>>>>>(
        &self,
        _: &str,
        _: impl FnMut() -> F,
    ) -> Result<(), ObjectError> {
        match self.0 {}
    }

    /// # Errors
    /// There is no store.
    pub async fn get(&self, _: &str, _: u64) -> Result<Option<Vec<u8>>, ObjectError> {
        match self.0 {}
    }

    /// # Errors
    /// There is no store.
    pub(crate) async fn get_range(&self, _: &str, _: Range<u64>) -> Result<Vec<u8>, ObjectError> {
        match self.0 {}
    }

    /// # Errors
    /// There is no store.
    pub async fn list(&self, _: &str) -> Result<BTreeMap<String, u64>, ObjectError> {
        match self.0 {}
    }

    /// # Errors
    /// There is no store.
    pub async fn delete(&self, _: &str) -> Result<(), ObjectError> {
        match self.0 {}
    }
}
