//! Tests of the reader's public API. Unit tests would compile all decoders of files a second time.

#![cfg(feature = "serve")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod answers;
mod columns;
mod folders;
mod images;
mod npy;
mod objects;
mod tables;
