//! Where an error of candle was made. `?` keeps no place in a function that returns candle's own result, such as a model's
//! `forward`; the calls that led to the error tell the line.
//!
//! candle calls a function where it makes an error, and that keeps the addresses of the calls. Their files and lines are looked up
//! only for an error that ends a cell or a trial.

use std::cell::RefCell;
use std::ffi::c_void;

/// So many calls are kept: rayon and the kernel add some tens to those of the user.
const MOST_CALLS: usize = 256;

thread_local! {
    /// The last error of this thread.
    static LAST: RefCell<Option<Origin>> = const { RefCell::new(None) };
}

struct Origin {
    error: String,
    addresses: Vec<usize>,
}

/// Remembers from now on the calls that lead to each error of candle.
#[doc(hidden)]
pub fn witness_errors() {
    candle_core::error::on_error(witness);
}

fn witness(error: &candle_core::Error) {
    let mut addresses = Vec::with_capacity(64);
    backtrace::trace(|frame| {
        addresses.push(frame.ip().addr());
        addresses.len() < MOST_CALLS
    });
    LAST.set(Some(Origin { error: error.to_string(), addresses }));
}

/// The calls that led to the error of candle which this message is about, as `file:line:column`, innermost first. Empty unless it is
/// the last error of this thread.
#[doc(hidden)]
pub fn calls_to(message: &str) -> Vec<String> {
    let addresses = LAST.with_borrow(|last| {
        let origin = last.as_ref().filter(|origin| !origin.error.is_empty() && message.contains(&origin.error));
        origin.map_or_else(Vec::new, |origin| origin.addresses.clone())
    });
    // It may be older than the last cell's library.
    backtrace::clear_symbol_cache();
    let mut calls = Vec::new();
    for address in addresses {
        backtrace::resolve(std::ptr::without_provenance_mut::<c_void>(address), |symbol| {
            if let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno()) {
                calls.push(format!("{}:{line}:{}", file.display(), symbol.colno().unwrap_or(1)));
            }
        });
    }
    calls
}
