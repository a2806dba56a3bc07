//! What the steps of a training spend their time on: a recorder, and reports on what it has recorded.
//!
//! The thread that trains records for itself, between [`begin`] and [`end`]. Where nothing is recorded, a call costs a
//! look at a thread's variable.
//!
//! ```
//! use ferrotune_profile::{Part, Source, batch, begin, end, span};
//! begin(100);
//! let source = Source::here();
//! let mut batches = 0..3;
//! while let Some(_batch) = batch(source, || batches.next()) {
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

/// What a step spends time on, beside its arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The step waits for its batch.
    Input,
    /// Arrays go to the device.
    Copy,
    /// A program is compiled for the device.
    Compile,
    /// Values come from the device, which may have to compute them first.
    ReadBack,
    /// A checkpoint is written.
    Checkpoint,
    /// Metrics go to the supervisor of the search.
    Report,
}

impl Part {
    /// All parts, in the order of tables.
    pub const ALL: [Part; 6] = [Part::Input, Part::Copy, Part::Compile, Part::ReadBack, Part::Checkpoint, Part::Report];

    /// What tables and traces call it.
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

/// What a thread has recorded. Times are in nanoseconds since the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The device that the training computes on, such as `cpu` or `tpu`.
    pub device: String,
    /// How long was recorded.
    pub nanoseconds: u64,
    /// The loops whose steps these are.
    pub loops: Vec<Loop>,
    /// The steps, in their order.
    pub steps: Vec<Step>,
    /// What the thread did beside arithmetic, in its order; no two overlap.
    pub spans: Vec<Recorded>,
    /// When the device ran programs, in the order in which they ended; empty where nothing can tell.
    pub runs: Vec<Interval>,
    /// Whether there was more than is recorded.
    pub is_cut: bool,
}

/// A time, from its beginning to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Where it begins, in nanoseconds.
    pub from: u64,
    /// Where it ends, in nanoseconds.
    pub to: u64,
}

impl Interval {
    /// How long it is, in nanoseconds.
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
    /// Where it is in the source.
    pub place: String,
    /// Whether a thread makes its batches before they are asked for.
    pub prefetches: bool,
}

/// From the request for a batch to the request for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The index of its loop.
    pub of: usize,
    /// When it ran.
    pub time: Interval,
}

/// Time that was spent on one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// What it was spent on.
    pub part: Part,
    /// When.
    pub time: Interval,
}
