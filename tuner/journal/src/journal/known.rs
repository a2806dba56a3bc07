//! A study as its facts so far describe it, wherever they are kept. Changed by facts alone.

use super::fact::Fact;
use super::replay::Replay;
use ferrotune_space::record::Runner;

/// What a search knows of its study.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// With all facts that were read or recorded.
    pub(super) replay: Replay,
    /// Whether facts of other programs have been applied since the search asked.
    pub(super) has_news: bool,
    /// The study's name, for messages.
    pub(super) name: String,
}

impl Known {
    /// Changes the records by facts of this search's own.
    pub(super) fn apply(&mut self, facts: Vec<Fact<'_>>) {
        for fact in facts {
            let applied = fact.apply(Runner::Search, &mut self.replay.study);
            applied.expect("a search records facts of trials that exist, in its own version");
        }
    }
}
