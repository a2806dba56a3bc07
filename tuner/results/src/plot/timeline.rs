//! The time at which each trial ran and its ending, which show idle workers and long trials.

use super::title;
use crate::ResultsError;
use crate::chart::{Axis, Bar, Chart, Colour, Layer, Marks, Panel, Scale};
use crate::columns::times;
use crate::values::{ending, state_name};
use ferrotune_journal::Study;
use ferrotune_space::record::{State, TrialRecord};

/// The largest number of rows that are still readable.
const MOST_ROWS: usize = 60;
/// Units of time, each with the smallest number of seconds for which it is used.
const UNITS: [(&str, f64); 3] = [("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0)];
/// Each state with its colour.
const STATES: [(State, usize); 4] = [(State::Finished, 2), (State::Pruned, 1), (State::Failed, 3), (State::Running, 5)];

/// A trial with the seconds at which it began and ended.
type Ran<'a> = (&'a TrialRecord, f64, f64);

pub(super) fn chart(study: &Study) -> Result<Chart, ResultsError> {
    let mut ran = ran(study);
    if ran.is_empty() {
        return Err(ResultsError::NoTrial { study: study.spec.project.clone() });
    }
    let all = ran.len();
    let left_out = all.saturating_sub(MOST_ROWS);
    ran.drain(..left_out);
    let first = if left_out == 0 { "the first trial".to_owned() } else { format!("trial {}", ran[0].0.number) };
    let start = ran.iter().map(|(_, from, _)| *from).fold(f64::INFINITY, f64::min);
    let length = ran.iter().map(|(_, _, to)| to - start).fold(0.0, f64::max);
    let (unit, seconds) = UNITS.into_iter().find(|(_, seconds)| length >= 2.0 * seconds).unwrap_or(UNITS[2]);
    let layers = STATES.into_iter().filter_map(|(state, colour)| {
        let of_state = ran.iter().enumerate().filter(|(_, (trial, ..))| trial.state() == state);
        let bar = |(row, (trial, from, to)): (usize, &Ran<'_>)| {
            let label = format!("trial {}: {}, {:.1} s", trial.number, ending(trial), trial.seconds);
            Bar { from: (from - start) / seconds, to: (to - start) / seconds, row, label }
        };
        let bars: Vec<Bar> = of_state.map(bar).collect();
        let layer =
            Layer { name: state_name(state).to_owned(), colour: Colour::Series(colour), marks: Marks::Bars(bars) };
        (!is_empty(&layer)).then_some(layer)
    });
    let layers = layers.collect();
    let names = ran.iter().map(|(trial, ..)| trial.number.to_string()).collect();
    let x = Axis::new(format!("{unit} since {first}"), Scale::Linear { low: 0.0, high: (length / seconds).max(1e-3) });
    let y = Axis::new("trial", Scale::Names(names));
    let note = (left_out > 0).then(|| format!("the last {MOST_ROWS} of {all} trials are drawn"));
    Ok(Chart { title: title(study, "timeline"), panels: vec![Panel { x, y, layers }], shades: None, note })
}

fn is_empty(layer: &Layer) -> bool {
    matches!(&layer.marks, Marks::Bars(bars) if bars.is_empty())
}

/// The trials with known times. A trial without an end lasts until the last known time.
fn ran(study: &Study) -> Vec<Ran<'_>> {
    let seconds = |time: chrono::DateTime<chrono::Utc>| time.timestamp_micros() as f64 / 1e6;
    let one = |trial: &'_ TrialRecord| {
        let times = times(study, trial);
        let from = seconds(times.started?);
        Some((from, times.ended.map_or(from + trial.seconds, seconds).max(from)))
    };
    study.trials.iter().filter_map(|trial| one(trial).map(|(from, to)| (trial, from, to))).collect()
}
