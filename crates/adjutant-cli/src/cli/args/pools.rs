//! The grammar of the commands for pools.

use super::values::ValueError;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct PoolsArgs {
    #[command(subcommand)]
    pub what: Option<PoolsWhat>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PoolsWhat {
    /// Change the number of slots of a pool
    Set {
        /// The pool
        pool: String,
        /// How many of its runs may be live at a time, or "configured" to use the number in the
        /// configuration
        #[arg(long, value_name = "N", value_parser = slots)]
        slots: Slots,
    },
    /// Stop starting runs of a pool; live runs continue
    Pause {
        /// The pool
        pool: String,
    },
    /// Start runs of a paused pool again
    Resume {
        /// The pool
        pool: String,
    },
}

/// A number of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slots {
    Number(u64),
    Configured,
}

fn slots(text: &str) -> Result<Slots, ValueError> {
    match text {
        "configured" => Ok(Slots::Configured),
        text => text
            .parse()
            .map(Slots::Number)
            .map_err(|_| ValueError::Slots(text.to_owned())),
    }
}
