//! The board's items in their order: what needs the person, what works, what is done. The dashboard
//! groups them in the same way.

use crate::text;
use crate::view::{AttentionList, MentionView, RequestView, RunList, RunView};
use adjutant_core::RunStateKind;
use std::collections::{HashMap, HashSet};

/// A section of the board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Needs,
    Working,
    Done,
}

impl Section {
    pub(super) const ALL: [Self; 3] = [Self::Needs, Self::Working, Self::Done];
}

/// The identity of an item, which stays when the item moves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ItemId {
    Request(String),
    Run(String),
    Mention(i64),
}

/// An item of the board.
#[derive(Debug, Clone, Copy)]
pub(super) enum Item<'a> {
    Request(&'a RequestView),
    Run(&'a RunView),
    Mention(&'a MentionView),
}

/// What the hub knows, and the items that match the filter.
#[derive(Debug, Default)]
pub(super) struct Board {
    runs: HashMap<String, RunView>,
    attention: AttentionList,
    /// Runs that the list leaves out.
    runs_more: u64,
    filter: String,
    items: Vec<(Section, ItemId)>,
    cost_usd: f64,
}

impl Board {
    /// Replaces everything.
    pub(super) fn replace(&mut self, list: RunList, attention: AttentionList) {
        self.runs_more = list.more;
        self.runs = list
            .runs
            .into_iter()
            .map(|run| (run.identity.run_id.clone(), run))
            .collect();
        self.set_attention(attention);
        self.arrange();
    }

    /// Replaces some runs, removes others, and replaces what needs attention.
    pub(super) fn update(&mut self, runs: Vec<RunView>, gone: &[String], attention: AttentionList) {
        for run in gone {
            self.runs.remove(run);
        }
        self.runs.extend(
            runs.into_iter()
                .map(|run| (run.identity.run_id.clone(), run)),
        );
        self.set_attention(attention);
        self.arrange();
    }

    fn set_attention(&mut self, attention: AttentionList) {
        // A run that needs the person may be older than the list of runs.
        self.runs.extend(
            attention
                .runs
                .iter()
                .map(|run| (run.identity.run_id.clone(), run.clone())),
        );
        self.attention = attention;
    }

    pub(crate) fn set_filter(&mut self, filter: &str) {
        self.filter = filter.to_lowercase();
        self.arrange();
    }

    pub(super) fn filter(&self) -> &str {
        &self.filter
    }

    fn arrange(&mut self) {
        let words: Vec<&str> = self.filter.split_whitespace().collect();
        let needy: HashSet<&str> = self
            .attention
            .runs
            .iter()
            .map(|run| run.identity.run_id.as_str())
            .collect();
        // Runs that cannot continue without the person are not listed twice.
        let asking: HashSet<&str> = self
            .attention
            .requests
            .iter()
            .filter(|request| request.blocking)
            .map(|request| request.run_id.as_str())
            .collect();
        let found: Vec<&RunView> = self
            .runs
            .values()
            .filter(|run| matches(&words, Item::Run(run)))
            .collect();
        let others = || {
            found
                .iter()
                .copied()
                .filter(|run| !needy.contains(run.identity.run_id.as_str()))
        };
        let mut working: Vec<&RunView> = others()
            .filter(|run| !is_done(run) && !asking.contains(run.identity.run_id.as_str()))
            .collect();
        let mut done: Vec<&RunView> = others().filter(|run| is_done(run)).collect();
        working.sort_by(|a, b| {
            (&b.times.created_at, &b.identity.run_id)
                .cmp(&(&a.times.created_at, &a.identity.run_id))
        });
        done.sort_by(|a, b| {
            (ended_at(b), &b.identity.run_id).cmp(&(ended_at(a), &a.identity.run_id))
        });
        let needed = self
            .needs()
            .filter(|item| matches(&words, *item))
            .map(|item| (Section::Needs, item.id()));
        let run_ids = |section, runs: Vec<&RunView>| {
            runs.into_iter()
                .map(|run| (section, ItemId::Run(run.identity.run_id.clone())))
                .collect::<Vec<_>>()
        };
        let items = needed
            .chain(run_ids(Section::Working, working))
            .chain(run_ids(Section::Done, done))
            .collect();
        let cost_usd = found
            .iter()
            .filter_map(|run| run.cost.usage.as_ref()?.cost_usd)
            .sum();
        (self.items, self.cost_usd) = (items, cost_usd);
    }

    /// Returns everything that needs the person, also what the filter hides.
    pub(super) fn needs(&self) -> impl Iterator<Item = Item<'_>> {
        let AttentionList {
            requests,
            runs,
            mentions,
            ..
        } = &self.attention;
        requests
            .iter()
            .map(Item::Request)
            .chain(runs.iter().map(Item::Run))
            .chain(mentions.iter().map(Item::Mention))
    }

    pub(super) fn items(&self) -> &[(Section, ItemId)] {
        &self.items
    }

    /// Returns the number of items in a section, and whether there are more that are not listed.
    pub(super) fn count(&self, section: Section) -> (usize, bool) {
        let count = self.items.iter().filter(|(of, _)| *of == section).count();
        let has_more = match section {
            Section::Needs => {
                self.attention.requests_more > 0
                    || self.attention.runs_more > 0
                    || self.attention.mentions_more
            }
            Section::Working => false,
            Section::Done => self.runs_more > 0,
        };
        (count, has_more)
    }

    /// Returns the sum of the known costs of the listed runs.
    pub(super) fn cost_usd(&self) -> f64 {
        self.cost_usd
    }

    pub(super) fn item(&self, id: &ItemId) -> Option<Item<'_>> {
        match id {
            ItemId::Request(id) => self
                .attention
                .requests
                .iter()
                .find(|request| request.message_id == *id)
                .map(Item::Request),
            ItemId::Run(id) => self.runs.get(id).map(Item::Run),
            ItemId::Mention(chat) => self
                .attention
                .mentions
                .iter()
                .find(|mention| mention.chat_id == *chat)
                .map(Item::Mention),
        }
    }

    pub(super) fn run(&self, id: &str) -> Option<&RunView> {
        self.runs.get(id)
    }
}

impl Item<'_> {
    pub(super) fn id(&self) -> ItemId {
        match self {
            Self::Request(request) => ItemId::Request(request.message_id.clone()),
            Self::Run(run) => ItemId::Run(run.identity.run_id.clone()),
            Self::Mention(mention) => ItemId::Mention(mention.chat_id),
        }
    }

    /// Returns the run that the item is about.
    pub(super) fn run_id(&self) -> Option<&str> {
        match self {
            Self::Request(request) => Some(&request.run_id),
            Self::Run(run) => Some(&run.identity.run_id),
            Self::Mention(_) => None,
        }
    }

    /// Describes the item in one line: its name and what it wants.
    pub(super) fn title(&self) -> String {
        text::line(&match self {
            Self::Request(request) => format!("{} of {}", request.number, request.run_name),
            Self::Run(run) => run.identity.name.clone(),
            Self::Mention(mention) => mention.title.clone(),
        })
    }
}

fn is_done(run: &RunView) -> bool {
    run.condition.state == RunStateKind::Finished
}

fn ended_at(run: &RunView) -> &str {
    run.times
        .ended_at
        .as_deref()
        .unwrap_or(&run.times.updated_at)
}

/// Returns whether an item has all words of the filter.
fn matches(words: &[&str], item: Item<'_>) -> bool {
    if words.is_empty() {
        return true;
    }
    let text = match item {
        Item::Request(request) => format!(
            "{} {} {}",
            request.run_name,
            request.number,
            crate::present::asked_for(request).line()
        ),
        Item::Run(run) => {
            let outcome = run
                .condition
                .outcome
                .as_ref()
                .map(|outcome| outcome.as_str())
                .unwrap_or_default();
            format!(
                "{} {} {} {} {outcome} {}",
                run.identity.name,
                run.identity.agent,
                run.identity.task,
                run.condition.state.as_str(),
                run.terms.pool
            )
        }
        Item::Mention(mention) => format!(
            "{} {} {}",
            mention.title, mention.message.name, mention.message.text
        ),
    };
    let text = text.to_lowercase();
    words.iter().all(|word| text.contains(word))
}
