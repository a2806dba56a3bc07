//! The recorder of the thread that trains.

use crate::{Interval, Loop, Part, Profile, Recorded, Step};
use std::cell::RefCell;
use std::io;
use std::panic::Location;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// The greatest number of recorded parts of a thread, which take 8 MiB. The recording ends there.
const MOST_SPANS: usize = 1 << 18;

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

/// A loop that requests batches.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The loop's place in the source.
    pub place: &'static Location<'static>,
    /// Whether a thread prepares the loop's batches in advance.
    pub prefetches: bool,
}

impl Source {
    /// A loop in the caller's source, without prefetching.
    #[track_caller]
    pub fn here() -> Source {
        Source { place: Location::caller(), prefetches: false }
    }
}

struct Recorder {
    begin: Instant,
    most_steps: usize,
    loops: Vec<Source>,
    steps: Vec<Step>,
    spans: Vec<Recorded>,
    /// The step in progress: the index of its loop, and when it began.
    step: Option<(usize, u64)>,
    /// The open parts, the innermost last, each with the beginning of its time that is not recorded yet.
    open: Vec<(Part, u64)>,
    /// When the number of steps or parts reached its limit.
    full: Option<u64>,
    device: Option<Watch>,
}

/// A thread that waits for the device, and the channel to it.
struct Watch {
    runs: Sender<(u64, Wait)>,
    thread: JoinHandle<Vec<Interval>>,
}

type Wait = Box<dyn FnOnce() + Send>;

impl Recorder {
    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Ends the step in progress.
    fn end_step(&mut self, now: u64) {
        if let Some((of, from)) = self.step.take() {
            self.steps.push(Step { of, time: Interval { from, to: now } });
            if self.steps.len() >= self.most_steps {
                self.full = Some(now);
            }
        }
    }

    fn begin_step(&mut self, source: Source, now: u64) {
        self.end_step(now);
        if self.full.is_none() {
            let known = self.loops.iter().position(|known| known.place == source.place);
            let of = known.unwrap_or_else(|| {
                self.loops.push(source);
                self.loops.len() - 1
            });
            self.step = Some((of, now));
        }
    }

    /// Records the time of the innermost open part until now.
    fn record(&mut self, now: u64) {
        if let Some((part, from)) = self.open.last_mut() {
            self.spans.push(Recorded { part: *part, time: Interval { from: *from, to: now } });
            *from = now;
        }
        if self.spans.len() >= MOST_SPANS {
            self.full = Some(now);
        }
    }
}

/// Calls a function with this thread's recorder, if the thread is being recorded.
fn recording<T>(call: impl FnOnce(&mut Recorder, u64) -> T) -> Option<T> {
    RECORDER.with_borrow_mut(|recorder| {
        let recorder = recorder.as_mut().filter(|recorder| recorder.full.is_none())?;
        let now = recorder.now();
        Some(call(recorder, now))
    })
}

/// Starts to record this thread, up to so many steps. An earlier recording that was not ended is lost.
pub fn begin(most_steps: usize) {
    let recorder = Recorder {
        begin: Instant::now(),
        most_steps,
        loops: Vec::new(),
        steps: Vec::new(),
        spans: Vec::new(),
        step: None,
        open: Vec::new(),
        full: None,
        device: None,
    };
    RECORDER.set(Some(recorder));
}

/// Whether this thread records.
pub fn is_recording() -> bool {
    RECORDER.with_borrow(|recorder| recorder.as_ref().is_some_and(|recorder| recorder.full.is_none()))
}

/// Ends the recording, and returns the profile for `device`; none if [`begin`] was not called on this thread. Waits until
/// the device has run all programs. `place` returns the text for a loop's place in the source.
pub fn end(place: impl Fn(&Location<'_>) -> String, device: &str) -> Option<Profile> {
    let recorder = RECORDER.take()?;
    let nanoseconds = recorder.full.unwrap_or_else(|| recorder.now());
    let runs = match recorder.device {
        Some(Watch { runs, thread }) => {
            drop(runs);
            // The thread only waits and reads clocks.
            thread.join().unwrap_or_default()
        }
        None => Vec::new(),
    };
    let named = |source: &Source| Loop { place: place(source.place), prefetches: source.prefetches };
    Some(Profile {
        device: device.to_owned(),
        nanoseconds,
        loops: recorder.loops.iter().map(named).collect(),
        steps: recorder.steps,
        spans: recorder.spans,
        runs,
        is_cut: recorder.full.is_some(),
    })
}

/// Records that the thread spends time on this part until the returned value is dropped. Time of an inner part does not count
/// for the outer part. While a step waits for its input, all time counts as [`Part::Input`].
pub fn span(part: Part) -> Span {
    let is_open = recording(|recorder, now| {
        if let Some((Part::Input, _)) = recorder.open.last() {
            return false;
        }
        recorder.record(now);
        recorder.open.push((part, now));
        true
    });
    Span { is_open: is_open.unwrap_or(false) }
}

/// An open part of the thread's time, from [`span`].
#[derive(Debug)]
#[must_use = "the part ends when this is dropped"]
pub struct Span {
    is_open: bool,
}

impl Drop for Span {
    fn drop(&mut self) {
        if self.is_open {
            recording(|recorder, now| {
                recorder.record(now);
                recorder.open.pop();
                if let Some((_, from)) = recorder.open.last_mut() {
                    *from = now;
                }
            });
        }
    }
}

/// Makes the next batch of a loop: a step begins with the wait for the batch. If there is no batch, the loop has ended.
pub fn batch<T>(source: Source, make: impl FnOnce() -> Option<T>) -> Option<T> {
    let is_step = recording(|recorder, now| {
        let is_outside = recorder.open.is_empty();
        if is_outside {
            recorder.begin_step(source, now);
        }
        is_outside
    });
    if is_step != Some(true) {
        return make();
    }
    let waiting = span(Part::Input);
    let batch = make();
    drop(waiting);
    if batch.is_none() {
        recording(|recorder, _| {
            recorder.step = None;
            // The time at the end of a pass belongs to no step.
            recorder.spans.pop();
        });
    }
    batch
}

/// Ends the step in progress and begins the next one, for loops that do not iterate over a dataset. The last step has no end,
/// and is left out.
#[track_caller]
pub fn step() {
    let source = Source::here();
    recording(|recorder, now| recorder.begin_step(source, now));
}

/// Records that the device runs a program that the thread has started at `begin`. `wait` returns when the program has ended,
/// and is called on another thread. A device runs one program after the other.
pub fn ran(begin: Instant, wait: impl FnOnce() + Send + 'static) {
    recording(|recorder, _| {
        let started = begin.saturating_duration_since(recorder.begin);
        let started = u64::try_from(started.as_nanos()).unwrap_or(u64::MAX);
        if recorder.device.is_none() {
            match watch(recorder.begin) {
                Ok(watch) => recorder.device = Some(watch),
                Err(error) => return eprintln!("the profile does not have when the device computes: {error}"),
            }
        }
        if let Some(watch) = &recorder.device {
            // The other thread ends only after this end of the channel is dropped.
            let _ = watch.runs.send((started, Box::new(wait)));
        }
    });
}

fn watch(origin: Instant) -> io::Result<Watch> {
    let (runs, received) = mpsc::channel::<(u64, Wait)>();
    let thread = thread::Builder::new().name("profile".into()).spawn(move || {
        let mut intervals: Vec<Interval> = Vec::new();
        for (started, wait) in received {
            wait();
            let to = u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let from = started.max(intervals.last().map_or(0, |last| last.to));
            intervals.push(Interval { from, to });
        }
        intervals
    })?;
    Ok(Watch { runs, thread })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;
    use std::time::Duration;

    const SHORT: Duration = Duration::from_millis(2);

    fn ended() -> Profile {
        end(|location| location.line().to_string(), "cpu").unwrap()
    }

    fn parts(profile: &Profile) -> Vec<Part> {
        profile.spans.iter().map(|recorded| recorded.part).collect()
    }

    #[test]
    fn steps_go_from_request_to_request_and_inner_parts_do_not_count_twice() {
        begin(10);
        let source = Source::here();
        let mut batches = 0..2;
        while batch(source, || {
            let _part_of_input = span(Part::Copy);
            batches.next()
        })
        .is_some()
        {
            let _outer = span(Part::ReadBack);
            sleep(SHORT);
            drop(span(Part::Compile));
            sleep(SHORT);
        }
        let profile = ended();
        let step = [Part::Input, Part::ReadBack, Part::Compile, Part::ReadBack];
        assert_eq!(parts(&profile), [step, step].concat());
        assert_eq!(profile.steps.len(), 2);
        assert!(profile.spans.iter().all(|span| profile.steps.iter().any(|step| step.time.has(span.time))));
        assert!(profile.spans.is_sorted_by(|one, next| one.time.to <= next.time.from));
        assert!(profile.steps[0].time.nanoseconds() >= 4_000_000);
        assert!(!profile.is_cut && profile.steps[1].time.to <= profile.nanoseconds);
    }

    #[test]
    fn recording_ends_with_the_last_step_that_is_wanted() {
        begin(2);
        for _ in 0..5 {
            step();
            drop(span(Part::Report));
        }
        assert!(!is_recording());
        let profile = ended();
        assert_eq!((profile.steps.len(), profile.is_cut), (2, true));
        assert_eq!(profile.nanoseconds, profile.steps[1].time.to);
        assert_eq!(parts(&profile), [Part::Report; 2]);
    }

    #[test]
    fn a_panic_ends_its_part() {
        begin(10);
        step();
        let result = std::panic::catch_unwind(|| {
            let _span = span(Part::Checkpoint);
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(result.is_err());
        drop(span(Part::Report));
        assert_eq!(parts(&ended()), [Part::Checkpoint, Part::Report]);
    }

    #[test]
    fn runs_of_a_device_follow_each_other() {
        begin(10);
        let now = Instant::now();
        ran(now, || sleep(SHORT));
        ran(now, || sleep(SHORT));
        let runs = ended().runs;
        assert_eq!(runs[0].to, runs[1].from);
        assert!(runs.iter().all(|run| run.nanoseconds() >= 2_000_000));
    }

    #[test]
    fn other_threads_and_times_record_nothing() {
        drop(span(Part::Copy));
        assert_eq!(batch(Source::here(), || Some(1)), Some(1));
        assert_eq!(end(|_| String::new(), "cpu"), None);
        begin(10);
        thread::spawn(|| drop(span(Part::Copy))).join().unwrap();
        assert!(ended().spans.is_empty());
    }
}
