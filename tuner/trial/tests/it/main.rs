//! Tests of real searches, with a supervisor process, worker processes and a study folder on disk, and of the gradients of our candle.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod checkpoints;
mod faults;
mod fixed;
mod full_disk;
mod given;
mod gradients;
mod harness;
mod objectives;
mod ownership;
mod repeats;
mod resume;
mod rules;
mod search;
mod seeds;
mod shared;
mod staying;
mod sums;
mod supervision;
mod torture;
mod trust;
