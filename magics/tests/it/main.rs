//! What a cell becomes, what each mistake says, and that no text whatever makes the parser panic.

mod cells;
mod errors;
mod fuzz;
mod session;
mod table;
