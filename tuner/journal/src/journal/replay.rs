//! Replays a journal: reads its bytes line by line into the study that they describe, which the facts of the search change
//! later.

use super::JournalError;
use super::decode::Decoder;
use super::fact::{Fact, Refusal};
use super::format;
use super::line::{self, Line};
use super::state::StudyState;
use ferrotune_space::record::Runner;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// The state of a study after a journal's last complete line.
#[derive(Debug, Default)]
pub(super) struct Replay {
    pub(super) study: StudyState,
    decoder: Decoder,
    /// The number of bytes in complete lines.
    pub(super) length: u64,
}

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

/// The state in which the last line of a file can be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The line may be cut short or damaged by a crash.
    MayBeTorn,
    IsWhole,
}

impl Replay {
    /// Reads the journal at `path`. A last line that has no end, or is damaged, was torn by a crash and is ignored. Fails
    /// on a damaged line before that.
    pub(super) fn of(path: &Path, study: &str) -> Result<Replay, JournalError> {
        let file = File::open(path).map_err(|source| JournalError::Io { path: path.to_owned(), source })?;
        let mut replay = Replay::default();
        replay.read(&mut BufReader::with_capacity(1 << 20, file), path, study, End::MayBeTorn)?;
        Ok(replay)
    }

    /// Applies the next lines of the journal at `path`, all of which are complete. Their numbers count from the first of
    /// them.
    pub(super) fn go_on(&mut self, mut lines: &[u8], path: &Path, study: &str) -> Result<(), JournalError> {
        self.read(&mut lines, path, study, End::IsWhole)
    }

    /// The damage of the journal at `path`, including its last line; none if the journal is valid.
    pub(super) fn damage(path: &Path, study: &str) -> Option<JournalError> {
        let bytes = std::fs::read(path).map_err(|source| JournalError::Io { path: path.to_owned(), source });
        bytes.and_then(|bytes| Replay::default().go_on(&bytes, path, study)).err()
    }

    fn read(&mut self, lines: &mut impl BufRead, path: &Path, study: &str, end: End) -> Result<(), JournalError> {
        let failed = |source| JournalError::Io { path: path.to_owned(), source };
        let (mut bytes, mut number) = (Vec::new(), 0);
        loop {
            bytes.clear();
            lines.read_until(b'\n', &mut bytes).map_err(failed)?;
            let Some((b'\n', text)) = bytes.split_last() else { return Ok(()) };
            number += 1;
            let corrupt = |reason| JournalError::Corrupt { path: path.to_owned(), line: number, reason };
            let with_nulls;
            let decoded = match line::decode(text) {
                Ok(line) => Ok(line),
                Err(reason) => {
                    with_nulls = line::with_nulls(text);
                    with_nulls.as_deref().map_or(Err(reason), line::decode)
                }
            };
            match decoded {
                Ok(line) => self.apply(&line).map_err(|refusal| match refusal {
                    Refusal::Newer(found) => JournalError::NewerVersion { study: study.to_owned(), found },
                    Refusal::Damaged(reason) => corrupt(reason),
                })?,
                Err(_) if end == End::MayBeTorn && is_at_end(lines).map_err(failed)? => return Ok(()),
                Err(reason) => return Err(corrupt(reason)),
            }
            self.length += bytes.len() as u64;
        }
    }

    /// Calls `read` with the decoder, which caches the known distributions.
    pub(super) fn with_decoder<T>(&mut self, read: impl FnOnce(&mut Decoder) -> T) -> T {
        read(&mut self.decoder)
    }

    fn apply(&mut self, line: &Line<'_>) -> Result<(), Refusal> {
        if self.is_of_lost_trial(line) {
            return Ok(());
        }
        self.decoder.decode(line)?.apply(line.writer(), &mut self.study)
    }

    /// Whether a line of another program is about a trial that the journal lacks: `overwrite` has deleted the study with
    /// that trial. Optuna ignores such a line, too.
    fn is_of_lost_trial(&self, line: &Line<'_>) -> bool {
        let is_of_trial = matches!(
            line.op_code,
            Some(
                format::TRIAL_PARAMETER
                    | format::TRIAL_STATE
                    | format::TRIAL_INTERMEDIATE
                    | format::TRIAL_USER_ATTRIBUTE
            )
        );
        let is_unknown = line.trial_id.is_some_and(|trial| trial >= self.study.trials.len() as u64);
        is_of_trial && is_unknown && line.writer() == Runner::Other
    }
}

fn is_at_end(lines: &mut impl BufRead) -> io::Result<bool> {
    Ok(lines.fill_buf()?.is_empty())
}
