//! The forms of ranges and records.

mod cube;
mod distribution;
mod record;
