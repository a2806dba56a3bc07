//! Random numbers from the operating system: seeds of searches, and parts of unique names. Everything else in a search
//! is drawn from its seed.

/// A seed for a search whose user gives none. It has 53 bits, which every JSON reader keeps.
///
/// # Panics
/// If the operating system has no random numbers, without which nothing else works either.
pub(crate) fn draw_seed() -> u64 {
    getrandom::u64().expect("the operating system gives random numbers") >> 11
}
