//! Tests of the forms of ranges, records and messages.

mod cube;
mod distribution;
mod record;
mod wire;
