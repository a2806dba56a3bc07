//! Tests of the folder with our packages of candle, which the real cargo makes from crates.io's packages. These packages are in
//! cargo's cache since the workspace was built.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod folder;
mod manifest;
