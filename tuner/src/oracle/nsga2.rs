//! NSGA-II.
mod variation;
