//! Prints a search that runs in a terminal: a line on standard error for each trial.

use ferrotune_space::event::{Event, Finish};
use ferrotune_space::objective::Objective;
use ferrotune_space::record::TrialRecord;
use ferrotune_space::spec::StudySpec;
use std::io::{self, Write};

/// A writer that turns the search's events, one line of JSON each, into lines for the user.
pub(crate) struct Printer {
    objectives: Vec<Objective>,
    line: Vec<u8>,
    stopped: &'static str,
}

impl Write for Printer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            if *byte == b'\n' {
                let event: Event = serde_json::from_slice(&self.line)?;
                self.line.clear();
                self.print(&event)?;
            } else {
                self.line.push(*byte);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Printer {
    /// The printer of this search; `stopped` is the text that it prints when a signal has stopped the search.
    pub(crate) fn new(spec: &StudySpec, stopped: &'static str) -> Printer {
        Printer { objectives: spec.objectives.clone(), line: Vec::new(), stopped }
    }

    fn print(&self, event: &Event) -> io::Result<()> {
        let text = match event {
            Event::Opened { folder, earlier_trials } => {
                format!("continuing {} with {earlier_trials} earlier trials", folder.display())
            }
            Event::TrialEnded { record } => self.trial(record),
            Event::Finished { reason } => self.finish(reason).to_owned(),
            // The caller prints errors.
            Event::Error { .. }
            | Event::TrialStarted { .. }
            | Event::Executed { .. }
            | Event::Reported { .. }
            | Event::Progress(_) => {
                return Ok(());
            }
        };
        writeln!(io::stderr(), "{text}")
    }

    fn trial(&self, record: &TrialRecord) -> String {
        let ending = record.ending.as_ref().map_or_else(|| "unfinished".to_owned(), ToString::to_string);
        let values = self.objectives.iter().zip(&record.values);
        let values: String = values.map(|(objective, value)| format!(", {} = {value}", objective.metric)).collect();
        format!("trial {}: {ending}{values}, {:.1} s", record.number, record.seconds)
    }

    fn finish(&self, reason: &Finish) -> &'static str {
        match reason {
            Finish::MaxTrials => "done",
            Finish::Exhausted => "done: nothing is left to try",
            Finish::Timeout => "stopped: the time is over",
            Finish::Interrupted => self.stopped,
            Finish::Stopped => "done: a trial has stopped the search",
        }
    }
}
