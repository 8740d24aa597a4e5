//! Files without a name, through which large bodies pass between the network and git.
//!
//! A body is never in memory as a whole, and nothing is left of it when the process dies.

use crate::files;
use adjutant_core::units::duration;
use futures::stream::try_unfold;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body, Bytes, Frame};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How much of a file is read at a time, in bytes.
const CHUNK_BYTES: usize = 256 * 1024;
/// How long a body may send nothing.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// A body that is read from a file.
pub type FileBody = UnsyncBoxBody<Bytes, io::Error>;

/// Creates a file below `home` that has no name, so that the file is gone with the process.
///
/// # Errors
/// The disk failed.
pub fn create(home: &Path, dir: &Path) -> io::Result<File> {
    files::make_dirs(home, dir)?;
    static MADE: AtomicU64 = AtomicU64::new(0);
    let path = dir.join(format!(
        "spool-{}-{}",
        std::process::id(),
        MADE.fetch_add(1, Ordering::Relaxed)
    ));
    let file = files::replace(home, &path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

/// Returns the rest of a file as a body.
#[must_use]
pub fn body_of(file: File) -> FileBody {
    let read = |mut file: File| {
        let mut chunk = vec![0; CHUNK_BYTES];
        let read = file.read(&mut chunk)?;
        chunk.truncate(read);
        Ok::<_, io::Error>((chunk, file))
    };
    let chunks = try_unfold(file, move |file| async move {
        let (chunk, file) = tokio::task::spawn_blocking(move || read(file))
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))?;
        Ok((!chunk.is_empty()).then(|| (Frame::data(Bytes::from(chunk)), file)))
    });
    StreamBody::new(chunks).boxed_unsync()
}

/// Why a body was not received.
#[derive(Debug, thiserror::Error)]
pub enum NotReceived {
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    #[error("{0}")]
    Broken(String),
    #[error("it cannot be written: {0}")]
    Disk(io::Error),
}

/// Writes a body to a file.
///
/// # Errors
/// The body is larger than `bytes_max`, ends early or pauses for too long, or the disk failed.
pub async fn receive<B>(mut body: B, to: &File, bytes_max: u64) -> Result<(), NotReceived>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut bytes = 0;
    loop {
        let frame = tokio::time::timeout(SILENCE_MAX, body.frame()).await;
        let Some(frame) = frame.map_err(|_| {
            NotReceived::Broken(format!("nothing arrived in {}", duration::of(SILENCE_MAX)))
        })?
        else {
            return Ok(());
        };
        let Ok(data) = frame
            .map_err(|error| NotReceived::Broken(error.to_string()))?
            .into_data()
        else {
            continue;
        };
        bytes += data.len() as u64;
        if bytes > bytes_max {
            return Err(NotReceived::TooLarge(bytes_max));
        }
        let mut file = to.try_clone().map_err(NotReceived::Disk)?;
        let written = tokio::task::spawn_blocking(move || file.write_all(&data)).await;
        written
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(NotReceived::Disk)?;
    }
}

/// Writes a line of JSON. Returns the same file for what follows.
///
/// # Errors
/// The disk failed.
pub fn write_line(file: &mut File, line: &impl Serialize) -> io::Result<File> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    file.write_all(&bytes)?;
    file.try_clone()
}

/// Reads a line of JSON from the beginning of a file, which is at the rest then.
///
/// # Errors
/// There is no such line, or the disk failed.
pub fn read_line<T: DeserializeOwned>(file: &mut File, bytes_max: u64) -> io::Result<T> {
    file.seek(SeekFrom::Start(0))?;
    let mut line = Vec::new();
    BufReader::new(file.try_clone()?)
        .take(bytes_max)
        .read_until(b'\n', &mut line)?;
    if !line.ends_with(b"\n") {
        return Err(io::Error::other("it has no first line"));
    }
    file.seek(SeekFrom::Start(line.len() as u64))?;
    Ok(serde_json::from_slice(&line)?)
}
