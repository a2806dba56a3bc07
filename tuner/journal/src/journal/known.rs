//! A study as its facts so far describe it, whether they are in a file or in a database. Only facts change it.

use super::fact::Fact;
use super::replay::Replay;
use ferrotune_space::record::Runner;

/// A search's knowledge of its study.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The state of the study after all facts that were read or recorded.
    pub(super) replay: Replay,
    /// Whether facts of other programs have been applied since the search last asked.
    pub(super) has_news: bool,
    /// The study's name, for messages.
    pub(super) name: String,
}

impl Known {
    /// Applies this search's own facts to the records.
    pub(super) fn apply(&mut self, facts: Vec<Fact<'_>>) {
        for fact in facts {
            let applied = fact.apply(Runner::Search, &mut self.replay.study);
            applied.expect("a search records facts of trials that exist, in its own version");
        }
    }
}
