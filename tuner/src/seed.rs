//! Numbers that nobody can foretell, from the operating system: seeds of searches that name none, and unique names.

/// 53 random bits, as many as survive any JSON reader.
pub(crate) fn draw() -> u64 {
    getrandom::u64().expect("Linux has had getrandom(2) since version 3.17") >> 11
}
