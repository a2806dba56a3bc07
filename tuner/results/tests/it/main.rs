//! Tests of tables, charts and files with a study that never changes.

mod charts;
mod exports;
mod study;
mod tables;
