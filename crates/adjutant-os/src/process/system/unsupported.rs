//! What Adjutant cannot do yet on a system.

use std::io;

/// Something that this system may have, but that Adjutant cannot do there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} is not supported on this system yet: {instead}", what = self.what(), instead = INSTEAD)]
pub enum Unsupported {
    /// To end every process that an agent has started, also those that have left its session.
    Containment,
    /// To watch, signal and reap a process by a descriptor instead of its number.
    ProcessDescriptors,
    /// To find the process at the other end of a connection.
    PeerProcess,
    /// To restrict what an agent can see and write.
    Fence,
    /// To learn that memory is short.
    Pressure,
    /// To learn that files have changed.
    FileEvents,
    /// To make a pipe with a name.
    NamedPipe,
}

const INSTEAD: &str = "run agents on a Linux machine";

impl Unsupported {
    const fn what(self) -> &'static str {
        match self {
            Self::Containment => "ending all processes of an agent",
            Self::ProcessDescriptors => "watching processes without their numbers",
            Self::PeerProcess => "identifying the process of a caller",
            Self::Fence => "a fence around an agent",
            Self::Pressure => "a report of memory pressure",
            Self::FileEvents => "noticing changes of files",
            Self::NamedPipe => "a pipe with a name",
        }
    }
}

impl From<Unsupported> for io::Error {
    fn from(unsupported: Unsupported) -> Self {
        Self::new(io::ErrorKind::Unsupported, unsupported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_feature_is_a_sentence_with_a_remedy() {
        let error = io::Error::from(Unsupported::Containment);
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            "ending all processes of an agent is not supported on this system yet: \
             run agents on a Linux machine"
        );
    }
}
