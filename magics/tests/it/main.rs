//! Tests of the magics: the steps of a cell, the error of each mistake, and that no text makes the parser panic.

mod cells;
mod errors;
mod fuzz;
mod session;
mod shell;
mod table;
