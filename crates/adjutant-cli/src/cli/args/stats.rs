//! The grammar of `adj stats`.

use super::values::{ValueError, duration};
use adjutant_core::stats::StatsBy;
use clap::Args;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Only runs that were dispatched within this time
    #[arg(long, value_name = "7d", value_parser = duration)]
    pub since: Option<Duration>,
    /// Group the runs: agent, pool, project (repository or directory) or parent
    #[arg(long, value_name = "WHAT", value_parser = by)]
    pub by: Option<StatsBy>,
}

fn by(text: &str) -> Result<StatsBy, ValueError> {
    StatsBy::from_word(text).ok_or_else(|| ValueError::StatsBy(text.to_owned()))
}
