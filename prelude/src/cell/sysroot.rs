//! The compiler's own crates that no other crate names by itself: `extern crate alloc;` in a cell is an import of one of these.

pub extern crate alloc;
pub extern crate proc_macro;
