//! The child in which the tests try plugins: what `ferrotune probe` is in the program.

fn main() -> std::process::ExitCode {
    ferrotune_devices::probe::child::main()
}
