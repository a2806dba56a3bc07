//! A trace file of a profile, which Perfetto (<https://ui.perfetto.dev>) and `chrome://tracing` show, in the
//! [Trace Event Format](https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).

use crate::{Interval, Loop, Part, Profile, Recorded, Step};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt::{self, Display, Formatter};

/// The rows of the trace, as thread ids.
const STEPS: u64 = 1;
const HOST: u64 = 2;
const DEVICE: u64 = 3;

/// The part of a trace besides its events, from which a profile can be read back.
#[derive(Serialize, Deserialize)]
struct Rest {
    device: String,
    nanoseconds: u64,
    loops: Vec<(String, bool)>,
    is_cut: bool,
}

/// An event that this program has written.
#[derive(Deserialize)]
struct Event {
    name: String,
    ph: String,
    #[serde(default)]
    tid: u64,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: Arguments,
}

#[derive(Default, Deserialize)]
struct Arguments {
    #[serde(default)]
    r#loop: usize,
}

#[derive(Deserialize)]
struct Trace {
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
    #[serde(rename = "otherData")]
    rest: Rest,
}

/// The error for a text that is not a trace of this program.
#[derive(Debug)]
pub struct NotATrace(serde_json::Error);

impl Display for NotATrace {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "this is no profile: {}", self.0)
    }
}

impl std::error::Error for NotATrace {}

impl Profile {
    /// The trace of the profile, as JSON.
    pub fn trace(&self) -> Value {
        let mut events = vec![
            json!({"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "training"}}),
            row(STEPS, "steps"),
            row(HOST, "what the step does beside arithmetic"),
        ];
        if !self.runs.is_empty() {
            events.push(row(DEVICE, &format!("programs on {}", self.device)));
        }
        for (number, step) in self.steps.iter().enumerate() {
            let mut event = event(&format!("step {number}"), "step", STEPS, step.time);
            event["args"] = json!({"loop": step.of, "place": self.loops.get(step.of).map(|of| of.place.as_str())});
            events.push(event);
        }
        events.extend(self.spans.iter().map(|span| event(span.part.name(), "host", HOST, span.time)));
        events.extend(self.runs.iter().map(|run| event("program", "device", DEVICE, *run)));
        let rest = Rest {
            device: self.device.clone(),
            nanoseconds: self.nanoseconds,
            loops: self.loops.iter().map(|of| (of.place.clone(), of.prefetches)).collect(),
            is_cut: self.is_cut,
        };
        json!({"traceEvents": events, "displayTimeUnit": "ms", "otherData": rest})
    }

    /// The profile that a trace was made from.
    ///
    /// # Errors
    /// The text is not a trace that [`Profile::trace`] has made.
    pub fn from_trace(text: &str) -> Result<Profile, NotATrace> {
        let Trace { events, rest } = serde_json::from_str(text).map_err(NotATrace)?;
        let Rest { device, nanoseconds, loops, is_cut } = rest;
        let loops: Vec<Loop> = loops.into_iter().map(|(place, prefetches)| Loop { place, prefetches }).collect();
        let mut profile = Profile { device, nanoseconds, loops, is_cut, ..Profile::default() };
        for Event { name, ph, tid, ts, dur, args } in events {
            let from = nanoseconds_of(ts);
            let time = Interval { from, to: nanoseconds_of(ts + dur).max(from) };
            let part = Part::ALL.into_iter().find(|part| part.name() == name);
            match (ph.as_str(), tid, part) {
                ("X", STEPS, _) if args.r#loop < profile.loops.len() => {
                    profile.steps.push(Step { of: args.r#loop, time })
                }
                ("X", HOST, Some(part)) => profile.spans.push(Recorded { part, time }),
                ("X", DEVICE, _) => profile.runs.push(time),
                _ => {}
            }
        }
        Ok(profile)
    }
}

/// The name of a row.
fn row(number: u64, name: &str) -> Value {
    json!({"name": "thread_name", "ph": "M", "pid": 1, "tid": number, "args": {"name": name}})
}

/// An event of a trace, whose times are in microseconds.
fn event(name: &str, category: &str, row: u64, time: Interval) -> Value {
    let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    json!({
        "name": name, "cat": category, "ph": "X", "pid": 1, "tid": row,
        "ts": microseconds(time.from), "dur": microseconds(time.nanoseconds()),
    })
}

fn nanoseconds_of(microseconds: f64) -> u64 {
    (microseconds * 1e3).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_comes_back_from_its_trace() {
        let time = |from, to| Interval { from, to };
        let profile = Profile {
            device: "tpu".to_owned(),
            nanoseconds: 9_876_543_210_123,
            loops: vec![Loop { place: "line 3 of the cell".to_owned(), prefetches: true }],
            steps: vec![Step { of: 0, time: time(1, 1_500) }, Step { of: 0, time: time(1_500, 9_876_543_210_001) }],
            spans: Part::ALL.map(|part| Recorded { part, time: time(7, 1_234_567) }).into(),
            runs: vec![time(100, 200)],
            is_cut: true,
        };
        let trace = profile.trace().to_string();
        assert_eq!(Profile::from_trace(&trace).unwrap(), profile);
    }

    #[test]
    fn what_is_no_trace_is_an_error() {
        for text in ["", "[]", "{\"traceEvents\": []}"] {
            assert!(Profile::from_trace(text).unwrap_err().to_string().starts_with("this is no profile: "), "{text}");
        }
    }
}
