//! The compiler's own crates that need `extern crate`. The kernel replaces `extern crate alloc;` in a cell by an import from this module.

pub extern crate alloc;
pub extern crate proc_macro;
