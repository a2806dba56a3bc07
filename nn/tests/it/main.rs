//! Tests of models, metrics and losses through the public interface.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod compiled;
mod damaged;
mod described;
mod files;
mod golden;
mod losses;
mod metrics;
mod models;
