//! A profiler of training steps: a recorder, and reports on the recorded profile.
//!
//! The thread that trains records itself, between [`begin`] and [`end`]. Without a recording, a call costs one read of a
//! thread-local variable.
//!
//! ```
//! use ferrotune_profile::{Part, Source, batch, begin, end, span};
//! begin(100);
//! let source = Source::here();
//! let mut batches = 0..3;
//! while let Some(_batch) = batch(source, || batches.next()) {
//!     std::thread::sleep(std::time::Duration::from_millis(5)); // a step of training
//!     let _checkpoint = span(Part::Checkpoint);
//! }
//! let profile = end(|location| location.to_string(), "cpu").expect("it was begun");
//! assert_eq!(profile.steps.len(), 3);
//! let report = profile.report();
//! assert!(report.loops[0].sentence().starts_with("compute-bound"), "{}", report.loops[0].sentence());
//! ```

mod recorder;
mod report;
mod trace;

pub use recorder::{Source, Span, batch, begin, end, is_recording, ran, span, step};
pub use report::{LoopReport, Report};
pub use trace::NotATrace;

/// A part of a step other than its arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The step waits for its batch.
    Input,
    /// Arrays are copied to the device.
    Copy,
    /// A program is compiled for the device.
    Compile,
    /// Values are read from the device, which may have to compute them first.
    ReadBack,
    /// A checkpoint is written.
    Checkpoint,
    /// Metrics are sent to the supervisor of the search.
    Report,
}

impl Part {
    /// All parts, in the order of tables.
    pub const ALL: [Part; 6] = [Part::Input, Part::Copy, Part::Compile, Part::ReadBack, Part::Checkpoint, Part::Report];

    /// The part's name in tables and traces.
    pub fn name(self) -> &'static str {
        match self {
            Part::Input => "waiting for input",
            Part::Copy => "copying to the device",
            Part::Compile => "compiling",
            Part::ReadBack => "reading back",
            Part::Checkpoint => "checkpointing",
            Part::Report => "reporting",
        }
    }
}

/// The profile of a thread. Times are in nanoseconds since the beginning of the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The device that the training computes on, such as `cpu` or `tpu`.
    pub device: String,
    /// The duration of the recording, in nanoseconds.
    pub nanoseconds: u64,
    /// The loops that the steps belong to.
    pub loops: Vec<Loop>,
    /// The steps, in order of time.
    pub steps: Vec<Step>,
    /// The recorded parts of the thread's time, in order of time; no two overlap.
    pub spans: Vec<Recorded>,
    /// The intervals in which the device ran programs, in the order of their ends; empty where the device does not report them.
    pub runs: Vec<Interval>,
    /// Whether the recording reached its limit, so that later steps are missing.
    pub is_cut: bool,
}

/// An interval of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// The beginning, in nanoseconds.
    pub from: u64,
    /// The end, in nanoseconds.
    pub to: u64,
}

impl Interval {
    /// The length of the interval, in nanoseconds.
    pub fn nanoseconds(self) -> u64 {
        self.to.saturating_sub(self.from)
    }

    fn has(self, other: Interval) -> bool {
        self.from <= other.from && other.to <= self.to
    }
}

/// A loop over batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The loop's place in the source.
    pub place: String,
    /// Whether a thread prepares the loop's batches in advance.
    pub prefetches: bool,
}

/// A step: the time from the request for a batch to the request for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The index of the step's loop.
    pub of: usize,
    /// The interval of the step.
    pub time: Interval,
}

/// An interval of time that the thread spent on one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The part.
    pub part: Part,
    /// The interval.
    pub time: Interval,
}
