//! Prices of models: dollars for a million tokens, with the date at which they were valid.

use super::values::UnusableValues;
use adjutant_core::AgentName;
use adjutant_core::budget::{Price, Tokens};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Largest price of a million tokens, in dollars.
const DOLLARS_MAX: f64 = 100_000.0;

/// The prices as the file has them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FilePrices {
    date: Option<String>,
    #[serde(default)]
    models: BTreeMap<String, FilePrice>,
}

/// The price of one model as the file has it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FilePrice {
    input: Option<f64>,
    output: Option<f64>,
    cached: Option<f64>,
    cache_write: Option<f64>,
}

/// The configured prices.
#[derive(Debug, Clone, Default)]
pub struct Prices {
    /// The date at which they were valid.
    pub date: Option<String>,
    /// By the name of the model; a name that ends in `*` is a prefix.
    models: BTreeMap<String, Price>,
    /// The model as which an agent's usage is priced.
    of_agents: BTreeMap<String, String>,
}

impl Prices {
    /// Returns whether no model has a price.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// Returns what tokens of the most expensive model cost, in millionths of a dollar. Without
    /// prices, the cost has no limit.
    #[must_use]
    pub fn highest_cost_micros(&self, tokens: u64) -> u64 {
        let parts = |price: &Price| {
            [price.input, price.cached, price.cache_write, price.output]
                .into_iter()
                .max()
        };
        let highest = self.models.values().filter_map(parts).max();
        highest.map_or(u64::MAX, |price| {
            let price = Price {
                input: 0,
                cached: 0,
                cache_write: 0,
                output: price,
            };
            price
                .cost_micros(&Tokens {
                    output: tokens,
                    ..Tokens::default()
                })
                .unsigned_abs()
        })
    }

    /// Returns the price of a model: that of its name, else that of its longest prefix.
    #[must_use]
    pub fn of_model(&self, model: &str) -> Option<Price> {
        let begins = |name: &str| {
            name.strip_suffix('*')
                .is_some_and(|begin| model.starts_with(begin))
        };
        let longest = || {
            self.models
                .iter()
                .filter(|(name, _)| begins(name))
                .max_by_key(|(name, _)| name.len())
        };
        self.models
            .get(model)
            .or_else(|| longest().map(|(_, price)| price))
            .copied()
    }

    /// Returns the price of an agent's usage where its stream names no model.
    #[must_use]
    pub fn of_agent(&self, agent: &str) -> Option<Price> {
        self.of_model(self.of_agents.get(agent)?)
    }
}

/// Reads the prices. `agents`: each with the model as which it is priced.
pub(super) fn read<'a>(
    file: FilePrices,
    agents: impl Iterator<Item = (&'a String, Option<&'a String>)>,
    unusable: &mut UnusableValues,
) -> Prices {
    let FilePrices { date, models } = file;
    if date.as_deref().is_some_and(|date| !is_date(date)) {
        unusable.report("prices.date", "write it as 2026-11-23");
    }
    if date.is_none() && !models.is_empty() {
        unusable.report(
            "prices",
            "say when they were valid, as date = \"2026-11-23\"",
        );
    }
    let mut prices = Prices {
        date,
        ..Prices::default()
    };
    for (
        name,
        FilePrice {
            input,
            output,
            cached,
            cache_write,
        },
    ) in models
    {
        let field = |key: &str| format!("prices.models.{name}.{key}");
        let mut read = |key: &str, dollars: Option<f64>| match dollars {
            None => None,
            Some(dollars) => unusable.check(
                &field(key),
                thousandths(dollars).ok_or_else(|| format!("use 0 to {DOLLARS_MAX} dollars")),
            ),
        };
        let (input_price, output_price) = (read("input", input), read("output", output));
        let (cached, cache_write) = (read("cached", cached), read("cache_write", cache_write));
        if input.is_none() || output.is_none() {
            unusable.report(
                format!("prices.models.{name}"),
                "needs input and output, in dollars for a million tokens",
            );
        }
        let (Some(input), Some(output)) = (input_price, output_price) else {
            continue;
        };
        let price = Price {
            input,
            cached: cached.unwrap_or(input),
            cache_write: cache_write.unwrap_or(input),
            output,
        };
        prices.models.insert(name, price);
    }
    for (name, model) in agents {
        let (Some(model), Ok(parsed)) = (model, AgentName::parse(name)) else {
            continue;
        };
        if prices.of_model(model).is_none() {
            unusable.report(
                format!("agents.{name}.priced_as"),
                format!("no price of {model:?}: add [prices.models.{model:?}]"),
            );
        }
        prices.of_agents.insert(parsed.to_string(), model.clone());
    }
    prices
}

/// Converts dollars for a million tokens.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the bounds are checked before"
)]
fn thousandths(dollars: f64) -> Option<u64> {
    (0.0..=DOLLARS_MAX)
        .contains(&dollars)
        .then(|| (dollars * 1_000.0).round() as u64)
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let is_number = |part: &str, digits: usize, range: std::ops::RangeInclusive<u32>| {
        part.len() == digits
            && part.bytes().all(|b| b.is_ascii_digit())
            && part.parse().is_ok_and(|number| range.contains(&number))
    };
    matches!(parts[..], [year, month, day] if is_number(year, 4, 2000..=9999) && is_number(month, 2, 1..=12) && is_number(day, 2, 1..=31))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices(text: &str) -> (Prices, Vec<String>) {
        let file: FilePrices = toml::from_str(text).expect("TOML");
        let mut unusable = UnusableValues::default();
        let read = read(file, std::iter::empty(), &mut unusable);
        (
            read,
            unusable
                .fields()
                .into_iter()
                .map(ToOwned::to_owned)
                .collect(),
        )
    }

    #[test]
    fn longest_name_gives_the_price() {
        let text = "date = \"2026-11-23\"\n[models]\n\"m*\" = { input = 1, output = 2 }\n\"m-large*\" = { input = 3, output = 15, cached = 0.3 }\n\"m-x\" = { input = 7, output = 7 }";
        let (prices, problems) = prices(text);
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(
            prices.of_model("m-large-2"),
            Some(Price {
                input: 3_000,
                cached: 300,
                cache_write: 3_000,
                output: 15_000
            })
        );
        assert_eq!(
            prices.of_model("m-small").map(|price| price.input),
            Some(1_000)
        );
        assert_eq!(prices.of_model("m-x").map(|price| price.input), Some(7_000));
        assert_eq!(
            (prices.of_model("other"), prices.of_model("")),
            (None, None)
        );
    }

    #[test]
    fn unusable_prices_are_reported() {
        for (text, field) in [
            ("date = \"yesterday\"", "prices.date"),
            ("[models.x]\ninput = 1\noutput = 1", "prices"),
            (
                "date = \"2026-11-23\"\n[models.x]\ninput = -1\noutput = 1",
                "prices.models.x.input",
            ),
            (
                "date = \"2026-11-23\"\n[models.x]\ninput = 1\noutput = nan",
                "prices.models.x.output",
            ),
            (
                "date = \"2026-11-23\"\n[models.x]\ninput = 1e9\noutput = 1",
                "prices.models.x.input",
            ),
            (
                "date = \"2026-11-23\"\n[models.x]\ninput = 1",
                "prices.models.x",
            ),
        ] {
            assert_eq!(prices(text).1, [field], "{text}");
        }
    }
}
