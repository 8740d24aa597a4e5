//! The limits for the load of the machine.

use super::values::UnusableValues;
use adjutant_core::pressure::{PressureLimits, Share};
use serde::Deserialize;

const MEMORY_PERCENT: u64 = 40;
const PAUSE_PERCENT: u64 = 20;

/// As the file declares them, in percent. 0: no limit.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FilePressure {
    memory: Option<u64>,
    cpu: Option<u64>,
    pause: Option<u64>,
}

/// Reads the limits.
pub(super) fn read(file: FilePressure, unusable: &mut UnusableValues) -> PressureLimits {
    let mut limit =
        |key: &str, given: Option<u64>, default: u64| match u32::try_from(given.unwrap_or(default))
        {
            Ok(0) => None,
            Ok(percent @ 1..=100) => Some(Share::percent(percent)),
            _ => {
                unusable.report(
                    format!("pressure.{key}"),
                    "use 1 to 100 percent, or 0 for no limit",
                );
                None
            }
        };
    PressureLimits {
        memory: limit("memory", file.memory, MEMORY_PERCENT),
        cpu: limit("cpu", file.cpu, 0),
        pause: limit("pause", file.pause, PAUSE_PERCENT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_percentages_and_0_is_none() {
        let mut unusable = UnusableValues::default();
        let found = read(
            FilePressure {
                memory: Some(0),
                cpu: Some(90),
                pause: None,
            },
            &mut unusable,
        );
        assert_eq!(
            found,
            PressureLimits {
                memory: None,
                cpu: Some(Share::percent(90)),
                pause: Some(Share::percent(20))
            }
        );
        read(
            FilePressure {
                memory: Some(101),
                cpu: Some(u64::MAX),
                pause: Some(100),
            },
            &mut unusable,
        );
        assert_eq!(unusable.fields(), ["pressure.memory", "pressure.cpu"]);
    }
}
