//! The question whether the user has interrupted the running cell, which the library of cells answers.

use std::sync::OnceLock;

static INTERRUPTED: OnceLock<fn() -> bool> = OnceLock::new();

/// Sets the function that knows whether the user has interrupted the running cell. The first call counts.
#[doc(hidden)]
pub fn interrupts_with(is_interrupted: fn() -> bool) {
    INTERRUPTED.get_or_init(|| is_interrupted);
}

pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.get().is_some_and(|is_interrupted| is_interrupted())
}
