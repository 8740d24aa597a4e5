//! Exit codes: the table that scripts rely on, and the mapping of every error code to it.

use crate::view::codes;

/// How a command ends. The numbers are an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Done,
    Failed,
    Usage,
    NeedsInput,
    NotAllowed,
    NotFound,
    Unreachable,
    Conflict,
    Limit,
    TimedOut,
    NotStarted,
    NotExecutable,
    AgentNotFound,
    Interrupted,
    Terminated,
}

/// Error codes of the command line, in addition to [`codes`].
pub(super) mod cli_codes {
    /// The command line is wrong.
    pub(crate) const USAGE: &str = "usage";
    /// A run waits for the person.
    pub(crate) const NEEDS_INPUT: &str = "needs_input";
    pub(crate) const TIMED_OUT: &str = "timed_out";
    pub(crate) const RUN_FAILED: &str = "run_failed";
    pub(crate) const INTERRUPTED: &str = "interrupted";
    pub(crate) const TERMINATED: &str = "terminated";
    /// A file or the terminal could not be read or written.
    pub(crate) const IO: &str = "io";
    /// The agent's program could not be started.
    pub(crate) const NOT_STARTED: &str = "not_started";
}

/// One row of the table.
#[derive(Debug)]
pub struct Row {
    pub exit: Exit,
    pub number: u8,
    pub meaning: &'static str,
    pub codes: &'static [&'static str],
}

/// Every exit code in ascending order, as `adj help exit-codes` prints it.
pub(super) const TABLE: [Row; 15] = [
    Row {
        exit: Exit::Done,
        number: 0,
        meaning: "success; for wait and run --wait: every run succeeded, or there was nothing to wait for",
        codes: &[],
    },
    Row {
        exit: Exit::Failed,
        number: 1,
        meaning: "any other failure; for wait and run --wait: a run failed, or a named one was cancelled",
        codes: &[
            codes::INTERNAL,
            codes::STORAGE,
            cli_codes::RUN_FAILED,
            cli_codes::IO,
        ],
    },
    Row {
        exit: Exit::Usage,
        number: 2,
        meaning: "wrong usage or an invalid value",
        codes: &[
            codes::INVALID,
            codes::UNFITTING,
            codes::UNSUPPORTED_PROFILE,
            codes::NO_FENCE,
            cli_codes::USAGE,
        ],
    },
    Row {
        exit: Exit::NeedsInput,
        number: 3,
        meaning: "a run needs you: it asks something or is stopped; with --until any or all: every remaining run does",
        codes: &[cli_codes::NEEDS_INPUT],
    },
    Row {
        exit: Exit::NotAllowed,
        number: 4,
        meaning: "not allowed",
        codes: &[codes::NOT_ALLOWED, codes::USE_SUPERVISOR],
    },
    Row {
        exit: Exit::NotFound,
        number: 5,
        meaning: "no such run or request, or an ambiguous prefix",
        codes: &[codes::NOT_FOUND, codes::AMBIGUOUS],
    },
    Row {
        exit: Exit::Unreachable,
        number: 6,
        meaning: "the hub cannot be reached or started, or the runner that has a log cannot be reached",
        codes: &[codes::UNREACHABLE, codes::CLOSING],
    },
    Row {
        exit: Exit::Conflict,
        number: 7,
        meaning: "the state has changed (already answered, expired, withdrawn or finished), a merge conflicts, or an undo could not restore all files",
        codes: &[
            codes::CONFLICT,
            codes::ALREADY_ANSWERED,
            codes::USED,
            codes::EXPIRED,
            codes::WITHDRAWN,
            codes::RUN_FINISHED,
            codes::KEY_REUSED,
        ],
    },
    Row {
        exit: Exit::Limit,
        number: 8,
        meaning: "a limit is reached, or the disk is full",
        codes: &[codes::LIMIT, codes::STORAGE_FULL],
    },
    Row {
        exit: Exit::TimedOut,
        number: 124,
        meaning: "the wait timed out",
        codes: &[codes::STALLED, cli_codes::TIMED_OUT],
    },
    Row {
        exit: Exit::NotStarted,
        number: 125,
        meaning: "the agent could not be started",
        codes: &[codes::SETUP_FAILED, cli_codes::NOT_STARTED],
    },
    Row {
        exit: Exit::NotExecutable,
        number: 126,
        meaning: "the agent's program is not executable",
        codes: &[codes::AGENT_NOT_EXECUTABLE],
    },
    Row {
        exit: Exit::AgentNotFound,
        number: 127,
        meaning: "no such agent, or its program was not found",
        codes: &[codes::AGENT_NOT_FOUND],
    },
    Row {
        exit: Exit::Interrupted,
        number: 130,
        meaning: "interrupted (Ctrl-C); runs continue",
        codes: &[cli_codes::INTERRUPTED],
    },
    Row {
        exit: Exit::Terminated,
        number: 143,
        meaning: "terminated; runs continue",
        codes: &[cli_codes::TERMINATED],
    },
];

impl Exit {
    /// Returns the exit of an error code; an unknown code is a general failure.
    #[must_use]
    pub fn of(code: &str) -> Self {
        TABLE
            .iter()
            .find(|row| row.codes.contains(&code))
            .map_or(Self::Failed, |row| row.exit)
    }

    /// Returns the number of the exit code.
    #[must_use]
    pub fn number(self) -> u8 {
        TABLE
            .iter()
            .find(|row| row.exit == self)
            .map_or(1, |row| row.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_code_has_one_exit_code() {
        let source = include_str!("../../../adjutant-api/src/view/mod.rs");
        let section = source
            .split("pub mod codes {")
            .nth(1)
            .expect("view/mod.rs has the codes");
        let declared: Vec<&str> = section
            .lines()
            .filter_map(|l| l.split_once("&str = \"")?.1.split('"').next())
            .collect();
        assert!(declared.len() >= 15, "{declared:?}");
        for code in declared {
            let rows = TABLE.iter().filter(|row| row.codes.contains(&code)).count();
            assert_eq!(rows, 1, "{code}");
        }
    }

    #[test]
    fn numbers_are_unique_and_sorted() {
        assert!(TABLE.windows(2).all(|pair| pair[0].number < pair[1].number));
        for row in &TABLE {
            assert_eq!(row.exit.number(), row.number);
            assert!(row.codes.iter().all(|code| Exit::of(code) == row.exit));
        }
    }
}
