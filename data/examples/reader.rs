//! The reader's process for the tests of this crate, without the other commands of `ferrotune`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ferrotune_reader::main()
}
