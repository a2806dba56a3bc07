//! Misbehaviour on request: `FERROTUNE_PJRT_FAULT=PLACE:DEED`.

/// Does what the environment asks for at this place.
#[expect(clippy::print_stdout, reason = "some plugins do print there, and it must not matter")]
pub(crate) fn strike(place: &str) {
    let Ok(fault) = std::env::var("FERROTUNE_PJRT_FAULT") else { return };
    match fault.strip_prefix(place).and_then(|rest| rest.strip_prefix(':')) {
        Some("abort") => {
            eprintln!("F0000 libtpu lockfile: the TPU is already in use by process 42");
            std::process::abort();
        }
        Some("exit") => std::process::exit(3),
        Some("hang") => loop {
            std::thread::park();
        },
        Some("noise") => {
            println!("WARNING: could not determine TPU accelerator type");
            println!("{{\"Failed\":\"a plugin that prints what looks like an answer\"}}");
        }
        _ => {}
    }
}
