//! The store of objects, with the `object_store` crate.

use super::{ObjectError, OpenError, http};
use crate::config::{Bucket, LogStoreAddress, Provider};
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{BackoffConfig, Error, ObjectStore, ObjectStoreExt, PutPayload, RetryConfig};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Longest text of an error.
const PROBLEM_CHARS_MAX: usize = 400;
/// How many threads wait for objects at a time.
const READERS_MAX: usize = 6;
/// How often a request is repeated, and for how long. The caller repeats what fails after that.
const RETRIES: usize = 2;
const RETRY_FOR: Duration = Duration::from_secs(20);

/// A store of objects. Clones share it.
#[derive(Debug, Clone)]
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: String,
    address: Arc<LogStoreAddress>,
    readers: Arc<Semaphore>,
    /// The directory as it was opened: its device and inode.
    directory: Option<(u64, u64)>,
}

impl Objects {
    /// Opens a store, without a request to it. Blocks.
    ///
    /// # Errors
    /// The directory does not exist, or the credentials cannot be used.
    pub fn open(address: &LogStoreAddress) -> Result<Self, OpenError> {
        let mut directory = None;
        let (store, prefix): (Arc<dyn ObjectStore>, _) = match address {
            LogStoreAddress::Directory(dir) => {
                // It is not created, because a file system that should be mounted there may be
                // missing.
                let opened = object_store::local::LocalFileSystem::new_with_prefix(dir)
                    .map_err(|_| OpenError::NoDirectory(dir.clone()))?;
                directory = identity(dir);
                (
                    Arc::new(opened.with_fsync(true).with_automatic_cleanup(true)),
                    String::new(),
                )
            }
            LogStoreAddress::Bucket(bucket) => (at_provider(bucket)?, bucket.prefix.clone()),
        };
        Ok(Self {
            store,
            prefix,
            address: Arc::new(address.clone()),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            directory,
        })
    }

    /// Waits until a thread may wait for objects. Each request needs another thread of the runtime,
    /// of which there are few.
    pub async fn admit_reader(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.readers).acquire_owned().await.ok()
    }

    #[must_use]
    pub fn address(&self) -> &LogStoreAddress {
        &self.address
    }

    /// Checks that a directory is still the one that was opened: its file system could have been
    /// unmounted.
    fn check(&self) -> Result<(), ObjectError> {
        match &*self.address {
            LogStoreAddress::Directory(dir) if identity(dir) != self.directory => {
                let hint = "mount its file system again, or restart the hub (adj stop) to use what is there now";
                Err(ObjectError::Failed(format!(
                    "the directory {} is gone, or not the one that was opened: {hint}",
                    dir.display()
                )))
            }
            _ => Ok(()),
        }
    }

    fn path(&self, name: &str) -> Path {
        Path::from(if self.prefix.is_empty() {
            name.to_owned()
        } else {
            format!("{}/{name}", self.prefix)
        })
    }

    /// Stores an object, or replaces it. It is complete or absent.
    ///
    /// # Errors
    /// It is not stored, or this is unknown.
    pub async fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), ObjectError> {
        self.check()?;
        self.store
            .put(&self.path(name), PutPayload::from(bytes))
            .await
            .map_err(explained)?;
        Ok(())
    }

    /// Stores an object from parts, which `next` reads in order until there is none. It is complete
    /// or absent.
    ///
    /// # Errors
    /// It is not stored, or this is unknown.
    pub async fn put_parts<F: Future<Output = io::Result<Option<Vec<u8>>>>>(
        &self,
        name: &str,
        mut next: impl FnMut() -> F,
    ) -> Result<(), ObjectError> {
        self.check()?;
        let mut upload = self
            .store
            .put_multipart(&self.path(name))
            .await
            .map_err(explained)?;
        let sent = async {
            while let Some(part) = next().await? {
                upload
                    .put_part(PutPayload::from(part))
                    .await
                    .map_err(explained)?;
            }
            upload.complete().await.map_err(explained)?;
            Ok(())
        };
        let sent = sent.await;
        if sent.is_err()
            && let Err(error) = upload.abort().await
        {
            tracing::debug!(%error, name, "the parts of an object remain until the bucket's rule removes them");
        }
        sent
    }

    /// Reads a whole object. `None`: it does not exist.
    ///
    /// # Errors
    /// It cannot be read, or is larger.
    pub async fn get(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, ObjectError> {
        self.check()?;
        let found = match self.store.get(&self.path(name)).await {
            Ok(found) if found.meta.size > bytes_max => {
                return Err(ObjectError::Failed(format!(
                    "{name} is larger than {bytes_max} bytes"
                )));
            }
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(explained(error)),
        };
        Ok(Some(found.bytes().await.map_err(explained)?.to_vec()))
    }

    /// Reads a part of an object.
    ///
    /// # Errors
    /// It cannot be read, or is shorter.
    pub(crate) async fn get_range(
        &self,
        name: &str,
        range: Range<u64>,
    ) -> Result<Vec<u8>, ObjectError> {
        let wanted = range.end.saturating_sub(range.start);
        self.check()?;
        let bytes = self
            .store
            .get_range(&self.path(name), range)
            .await
            .map_err(explained)?;
        if bytes.len() as u64 == wanted {
            Ok(bytes.to_vec())
        } else {
            Err(ObjectError::Failed(format!(
                "{name} is shorter than it should be"
            )))
        }
    }

    /// Lists the objects below a name, with their sizes.
    ///
    /// # Errors
    /// They cannot be listed.
    pub async fn list(&self, below: &str) -> Result<BTreeMap<String, u64>, ObjectError> {
        self.check()?;
        let path = self.path(below);
        let found: Vec<_> = match self.store.list(Some(&path)).try_collect().await {
            Err(Error::NotFound { .. })
                if matches!(*self.address, LogStoreAddress::Directory(_)) =>
            {
                Vec::new()
            }
            found => found.map_err(explained)?,
        };
        let named = |meta: object_store::ObjectMeta| {
            let name = meta
                .location
                .as_ref()
                .strip_prefix(path.as_ref())?
                .trim_start_matches('/')
                .to_owned();
            Some((name, meta.size))
        };
        Ok(found.into_iter().filter_map(named).collect())
    }

    /// Removes an object, if it exists.
    ///
    /// # Errors
    /// It may still exist.
    pub async fn delete(&self, name: &str) -> Result<(), ObjectError> {
        self.check()?;
        match self.store.delete(&self.path(name)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(explained(error)),
        }
    }
}

/// Returns what identifies a directory. `None`: it does not exist.
fn identity(dir: &std::path::Path) -> Option<(u64, u64)> {
    std::fs::metadata(dir)
        .ok()
        .map(|meta| (meta.dev(), meta.ino()))
}

fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: RETRIES,
        retry_timeout: RETRY_FOR,
    }
}

fn at_provider(bucket: &Bucket) -> Result<Arc<dyn ObjectStore>, OpenError> {
    let credentials = bucket.credentials()?;
    let connector = http::Connector::new(bucket.endpoint.as_deref())?;
    // The names of the variables are those of the crate's options.
    let values = credentials
        .into_iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value));
    let unusable = |error: Error| OpenError::Unusable(line(&error));
    let name = bucket.name.clone();
    Ok(match bucket.provider {
        Provider::S3 => {
            let mut builder = object_store::aws::AmazonS3Builder::new()
                .with_http_connector(connector)
                .with_retry(retries())
                .with_allow_http(true);
            for (name, value) in values {
                builder = builder.with_config(name.parse().map_err(unusable)?, value);
            }
            builder = builder.with_bucket_name(name);
            if let Some(endpoint) = &bucket.endpoint {
                builder = builder.with_endpoint(endpoint);
            }
            if let Some(region) = &bucket.region {
                builder = builder.with_region(region);
            }
            Arc::new(builder.build().map_err(unusable)?)
        }
        Provider::Google => {
            let mut builder = object_store::gcp::GoogleCloudStorageBuilder::new()
                .with_http_connector(connector)
                .with_retry(retries());
            for (name, value) in values {
                builder = builder.with_config(name.parse().map_err(unusable)?, value);
            }
            if let Some(endpoint) = &bucket.endpoint {
                builder =
                    builder.with_config(object_store::gcp::GoogleConfigKey::BaseUrl, endpoint);
            }
            Arc::new(builder.with_bucket_name(name).build().map_err(unusable)?)
        }
        Provider::Azure => {
            let mut builder = object_store::azure::MicrosoftAzureBuilder::new()
                .with_http_connector(connector)
                .with_retry(retries())
                .with_allow_http(true);
            for (name, value) in values {
                builder = builder.with_config(name.parse().map_err(unusable)?, value);
            }
            if let Some(account) = &bucket.account {
                builder = builder.with_account(account);
            }
            if let Some(endpoint) = &bucket.endpoint {
                builder = builder.with_endpoint(endpoint.clone());
            }
            Arc::new(
                builder
                    .with_container_name(name)
                    .build()
                    .map_err(unusable)?,
            )
        }
    })
}

fn explained(error: Error) -> ObjectError {
    let text = line(&error);
    // The status of a refused list is only in the text.
    let is_refused = ["401 Unauthorized", "403 Forbidden"]
        .iter()
        .any(|status| text.contains(status));
    match &error {
        Error::NotFound { .. } => ObjectError::Missing,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => ObjectError::Denied(text),
        _ if is_refused => ObjectError::Denied(text),
        _ => ObjectError::Failed(text),
    }
}

/// Returns an error with its causes, in one line.
fn line(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    adjutant_core::quote::quote_line(&text, PROBLEM_CHARS_MAX)
}
