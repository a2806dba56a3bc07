//! What is shown of a study, against a study that never changes.

mod charts;
mod exports;
mod study;
mod tables;
