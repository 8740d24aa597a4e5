//! The machine's own floor, measured in the same run, below which no figure can be.

use crate::stats::Samples;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

#[derive(Debug)]
pub struct Floors {
    pub append_fdatasync: Samples,
    pub socket_round_trip: Samples,
    pub spawn: Samples,
}

pub fn measure(dir: &Path, count: usize) -> io::Result<Floors> {
    Ok(Floors {
        append_fdatasync: append_fdatasync(dir, count)?,
        socket_round_trip: socket_round_trip(count * 5)?,
        spawn: spawn(count / 4)?,
    })
}

/// Measures durable appends of 4 KiB on the disk of the homes.
pub fn append_fdatasync(dir: &Path, count: usize) -> io::Result<Samples> {
    let path = dir.join("floor");
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    let mut samples = Samples::default();
    for _ in 0..count {
        let start = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        samples.push(start.elapsed());
    }
    std::fs::remove_file(path)?;
    Ok(samples)
}

/// Measures round trips of 64 bytes to another thread.
fn socket_round_trip(count: usize) -> io::Result<Samples> {
    let (near, far) = UnixStream::pair()?;
    round_trips(near, far, count)
}

/// Measures round trips of 64 bytes between two ends of a connection, the farther one in another
/// thread.
pub fn round_trips(
    mut near: impl Read + Write,
    mut far: impl Read + Write + Send + 'static,
    count: usize,
) -> io::Result<Samples> {
    let other = std::thread::spawn(move || {
        let mut buffer = [0; 64];
        while far.read_exact(&mut buffer).is_ok() && far.write_all(&buffer).is_ok() {}
    });
    let mut samples = Samples::default();
    let mut buffer = [0; 64];
    for _ in 0..count {
        let start = Instant::now();
        near.write_all(&buffer)?;
        near.read_exact(&mut buffer)?;
        samples.push(start.elapsed());
    }
    drop(near);
    other
        .join()
        .map_err(|_| io::Error::other("the other end panicked"))?;
    Ok(samples)
}

/// Measures starting an empty program and waiting for its end.
fn spawn(count: usize) -> io::Result<Samples> {
    let mut samples = Samples::default();
    for _ in 0..count {
        let start = Instant::now();
        Command::new("/bin/true").stdin(Stdio::null()).status()?;
        samples.push(start.elapsed());
    }
    Ok(samples)
}
