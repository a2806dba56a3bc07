//! The folder with our packages of candle, made by the real cargo from crates.io's packages, which are in cargo's cache since
//! the workspace was built.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod folder;
mod manifest;
