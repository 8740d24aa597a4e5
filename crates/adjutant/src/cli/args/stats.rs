//! The grammar of `adj stats`.

use super::values::duration;
use adjutant_core::stats::StatsBy;
use clap::Args;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Only runs that were dispatched within this time
    #[arg(long, value_name = "7d", value_parser = duration)]
    pub since: Option<Duration>,
    /// Group the runs: agent, pool, project (repository or directory) or parent
    #[arg(long, value_name = "WHAT", value_parser = by)]
    pub by: Option<StatsBy>,
}

fn by(text: &str) -> Result<StatsBy, String> {
    StatsBy::from_word(text)
        .ok_or_else(|| format!("{text:?} is not one of agent, pool, project and parent"))
}
