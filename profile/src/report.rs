//! The report on a profile: the mean step of each loop, what limits it, and what to change.

use crate::{Interval, Part, Profile};

/// The least share of a step's time that the wait for input takes in an input-bound step, as in TensorFlow's input-pipeline analyzer
/// (<https://www.tensorflow.org/guide/profiler>).
const MUCH: f64 = 0.2;
/// The least share of the wait for input in a partly input-bound step.
const LITTLE: f64 = 0.05;

/// The least share of a step at which the report advises to change a part other than the input.
const NOTABLE: f64 = 0.1;

/// The mean steps of a profile's loops.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The loops with at least two steps, in the order in which they began.
    pub loops: Vec<LoopReport>,
}

/// The mean step of a loop.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopReport {
    /// The loop's place in the source.
    pub place: String,
    /// The number of measured steps: all but the first one, which also opens files and compiles.
    pub steps: usize,
    /// The mean length of a step, in nanoseconds.
    pub mean: f64,
    /// The median length of a step, in nanoseconds.
    pub median: f64,
    /// The length of the first step, in nanoseconds.
    pub first: f64,
    /// The recorded parts, with their mean nanoseconds per step.
    pub parts: Vec<(Part, f64)>,
    /// The mean nanoseconds per step without the recorded parts: for arithmetic, and for starting programs of a device.
    pub rest: f64,
    /// The share of the steps' time in which the device computed, from 0 to 1. For the CPU, this is the time without the recorded
    /// parts.
    pub busy: f64,
    is_on_cpu: bool,
    prefetches: bool,
}

impl Profile {
    /// The report on the profile.
    pub fn report(&self) -> Report {
        Report { loops: (0..self.loops.len()).filter_map(|of| self.report_of(of)).collect() }
    }

    fn report_of(&self, of: usize) -> Option<LoopReport> {
        let all: Vec<Interval> = self.steps.iter().filter(|step| step.of == of).map(|step| step.time).collect();
        let (first, steps) = all.split_first().filter(|(_, others)| !others.is_empty())?;
        let count = steps.len() as f64;
        let total: u64 = steps.iter().map(|step| step.nanoseconds()).sum();
        let mut lengths: Vec<u64> = steps.iter().map(|step| step.nanoseconds()).collect();
        lengths.sort_unstable();
        let middle = lengths.len() / 2;
        let median = (lengths[(lengths.len() - 1) / 2] + lengths[middle]) as f64 / 2.0;
        let mut parts = [0; Part::ALL.len()];
        let mut spans = self.spans.iter().peekable();
        for step in steps {
            while spans.next_if(|span| span.time.from < step.from).is_some() {}
            while let Some(span) = spans.next_if(|span| step.has(span.time)) {
                parts[span.part as usize] += span.time.nanoseconds();
            }
        }
        let outside: u64 = parts.iter().sum();
        let rest = total.saturating_sub(outside) as f64;
        let is_on_cpu = self.runs.is_empty();
        let busy = if is_on_cpu { rest } else { overlap(&self.runs, steps) as f64 };
        let mean_of = |nanoseconds: u64| nanoseconds as f64 / count;
        let parts = Part::ALL.into_iter().map(|part| (part, mean_of(parts[part as usize])));
        Some(LoopReport {
            place: self.loops[of].place.clone(),
            steps: steps.len(),
            mean: mean_of(total),
            median,
            first: first.nanoseconds() as f64,
            parts: parts.filter(|(_, nanoseconds)| *nanoseconds > 0.0).collect(),
            rest: rest / count,
            busy: busy / (total as f64).max(1.0),
            is_on_cpu,
            prefetches: self.loops[of].prefetches,
        })
    }
}

/// The total overlap of two lists of intervals. Each list is in order of time, and its own intervals do not overlap.
fn overlap(one: &[Interval], other: &[Interval]) -> u64 {
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    let mut total = 0;
    while let (Some(left), Some(right)) = (one.peek(), other.peek()) {
        total += left.to.min(right.to).saturating_sub(left.from.max(right.from));
        let ended = if left.to <= right.to { &mut one } else { &mut other };
        ended.next();
    }
    total
}

impl LoopReport {
    /// The share of a part in a step, from 0 to 1.
    pub fn share(&self, part: Part) -> f64 {
        let of = self.parts.iter().find(|(own, _)| *own == part);
        of.map_or(0.0, |(_, nanoseconds)| nanoseconds / self.mean.max(1.0))
    }

    /// The name of the time without the recorded parts.
    pub fn rest_name(&self) -> &'static str {
        if self.is_on_cpu { "computing" } else { "starting programs, and Rust" }
    }

    /// A sentence that says what limits the steps.
    pub fn sentence(&self) -> String {
        let input = self.share(Part::Input);
        let (waits, busy) = (percent(input), percent(self.busy));
        match input {
            MUCH.. => format!(
                "input-bound: a step waits for its input {waits} of the time, and the device computes {busy} of it"
            ),
            LITTLE.. => format!(
                "partly input-bound: a step waits for its input {waits} of the time, and the device computes {busy} of it"
            ),
            _ => format!(
                "compute-bound: the device computes {busy} of the time, and a step waits for its input {waits} of it"
            ),
        }
    }

    /// Advice on what to change, the most useful first.
    pub fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        if self.share(Part::Input) >= LITTLE {
            advice.push(if self.prefetches {
                "make the input faster: give `map` more threads, keep what it makes with `cache` or `cache_in`, or read \
                 smaller files"
                    .to_owned()
            } else {
                "end the dataset with `.prefetch(2)`, so that the next batch is made while a step computes; then give `map` \
                 more threads"
                    .to_owned()
            });
        }
        let cures = [
            (
                Part::Compile,
                "keep the shapes of batches the same, such as with `batch(size, true)`, so that no program is compiled again",
            ),
            (Part::Copy, "copy more at once: whole batches, and what never changes once before the loop"),
            (
                Part::ReadBack,
                "read values less often, such as the loss of every 100th step: to read one waits for the device",
            ),
            (Part::Checkpoint, "write checkpoints less often"),
            (Part::Report, "report less often, such as once in an epoch"),
        ];
        for (part, cure) in cures {
            let share = self.share(part);
            // A step also waits for a busy device when it reads values.
            if share >= NOTABLE && (part != Part::ReadBack || self.busy < 1.0 - NOTABLE) {
                advice.push(format!("{} takes {} of a step: {cure}", part.name(), percent(share)));
            }
        }
        if advice.is_empty() {
            advice.push(if self.is_on_cpu {
                "the arithmetic decides: another device (`%tpu_connect`) or a smaller model makes the steps shorter"
                    .to_owned()
            } else {
                "the arithmetic decides: larger batches, `ferrotune::compile`, or more devices train faster".to_owned()
            });
        }
        advice
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Loop, Recorded, Step};

    const MS: u64 = 1_000_000;

    fn time(from: u64, to: u64) -> Interval {
        Interval { from: from * MS, to: to * MS }
    }

    /// A profile with a first step of 100 ms, and others of 10 ms that wait `input` ms for their batches.
    fn profile(input: u64) -> Profile {
        let times: Vec<Interval> =
            std::iter::once(time(0, 100)).chain((10..20).map(|step| time(10 * step, 10 * step + 10))).collect();
        Profile {
            device: "cpu".to_owned(),
            nanoseconds: 200 * MS,
            loops: vec![Loop { place: "line 1 of the cell".to_owned(), prefetches: false }],
            spans: times
                .iter()
                .map(|step| Recorded {
                    part: Part::Input,
                    time: Interval { from: step.from, to: step.from + input * MS },
                })
                .collect(),
            steps: times.into_iter().map(|time| Step { of: 0, time }).collect(),
            ..Profile::default()
        }
    }

    fn only(profile: &Profile) -> LoopReport {
        let [report] = profile.report().loops.try_into().unwrap();
        report
    }

    #[test]
    fn the_mean_step_leaves_the_first_one_out() {
        let report = only(&profile(9));
        assert_eq!((report.steps, report.first, report.mean, report.median), (10, 1e8, 1e7, 1e7));
        assert_eq!((report.parts.as_slice(), report.rest), (&[(Part::Input, 9e6)][..], 1e6));
        assert_eq!(
            report.sentence(),
            "input-bound: a step waits for its input 90 % of the time, and the device computes 10 % of it"
        );
        assert!(report.advice()[0].contains(".prefetch(2)"));
    }

    #[test]
    fn a_loop_that_hardly_waits_is_bound_by_its_arithmetic() {
        let report = only(&profile(0));
        let expected = "compute-bound: the device computes 100 % of the time, and a step waits for its input 0 % of it";
        assert_eq!((report.sentence().as_str(), report.busy), (expected, 1.0));
        assert!(report.advice()[0].starts_with("the arithmetic decides"));
        assert!(only(&profile(1)).sentence().starts_with("partly input-bound: "));
    }

    #[test]
    fn a_device_is_busy_while_it_runs_programs() {
        let mut profile = profile(1);
        profile.runs = vec![time(90, 105), time(107, 108), time(190, 300)];
        profile.spans[1].part = Part::Compile;
        let report = only(&profile);
        assert!((report.busy - 0.16).abs() < 1e-9, "{}", report.busy);
        profile.loops[0].prefetches = true;
        for span in &mut profile.spans {
            (span.part, span.time.to) = (Part::ReadBack, span.time.from + 5 * MS);
        }
        let report = only(&profile);
        let expected = "reading back takes 50 % of a step: read values less often";
        assert!(report.advice()[0].starts_with(expected), "{:?}", report.advice());
        profile.runs = vec![time(0, 200)];
        assert!(only(&profile).advice()[0].starts_with("the arithmetic decides"));
    }
}
