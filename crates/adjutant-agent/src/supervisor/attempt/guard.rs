//! Watches the guard by its lifeline, a pipe that carries no data.

use std::io;
use tokio::net::unix::pipe;

/// Waits until the guard has exited. `None`: it is not watched, which takes forever. Cancel safe.
///
/// # Errors
/// The guard cannot be watched.
pub(super) async fn guard_exit(lifeline: Option<&pipe::Receiver>) -> io::Result<()> {
    let Some(lifeline) = lifeline else {
        return std::future::pending().await;
    };
    loop {
        lifeline.readable().await?;
        match lifeline.try_read(&mut [0]) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    fn lifeline() -> (pipe::Receiver, OwnedFd) {
        let (ours, theirs) = crate::process::pipe().expect("a pipe");
        (pipe::Receiver::from_owned_fd(ours).expect("a pipe"), theirs)
    }

    #[tokio::test]
    async fn guard_lives_as_long_as_its_end_of_the_lifeline() {
        let (ours, theirs) = lifeline();
        let waits = tokio::time::timeout(Duration::from_millis(20), guard_exit(Some(&ours)));
        assert!(waits.await.is_err(), "it lives");
        drop(theirs);
        guard_exit(Some(&ours)).await.expect("it has exited");
    }

    #[test]
    fn guard_that_cannot_be_watched_has_not_exited() {
        let runtime = || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime")
        };
        // Nothing watches the pipe once its runtime is gone.
        let gone = runtime();
        let (ours, _theirs) = gone.block_on(async { lifeline() });
        drop(gone);
        assert!(runtime().block_on(guard_exit(Some(&ours))).is_err());
    }
}
