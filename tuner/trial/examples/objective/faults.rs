//! Scenarios of trials that end badly, or that leave something behind.

use super::quick_parameter;
use super::training::train;
use ferrotune_trial::{Result, Trial};
use rustix::process::{Signal, getpid, getppid, kill_process};
use std::fs::File;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A scenario in which every trial fails in another way, except the first and the last.
pub(crate) fn faults(trial: &Trial) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    match trial.number() {
        1 => panic!("injected panic"),
        2 => std::process::abort(),
        3 => std::process::exit(0),
        4 => std::process::exit(3),
        5 => die_of_a_fault()?,
        6 => std::thread::sleep(Duration::from_secs(1000)),
        7 => allocate_for_ever(),
        8 => {
            leave_a_daemon()?;
            std::thread::sleep(Duration::from_secs(1000));
        }
        9 => return Err("injected error".into()),
        10 => leave_a_daemon()?,
        11 => (0..200_000).try_for_each(|line| writeln!(std::io::stdout(), "line {line} of much output"))?,
        _ => {}
    }
    Ok(Some(x))
}

pub(crate) fn die_of_a_fault() -> Result<()> {
    loop {
        // Rust's handler restores the default action at the first signal, and the second signal ends the process.
        kill_process(getpid(), Signal::SEGV)?;
    }
}

/// Allocates memory for ever, at most 1 GB/s. Time lost on a busy machine is not made up, because the supervisor loses it too.
fn allocate_for_ever() {
    let mut held = Vec::new();
    loop {
        held.push(vec![1_u8; 10_000_000]);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Starts two grandchildren in sessions of their own, which no process group reaches.
pub(crate) fn leave_a_daemon() -> Result<()> {
    let mut shell = Command::new("sh");
    shell.args(["-c", "setsid sleep 1000 & setsid sleep 1000 &"]).stdout(Stdio::null()).stderr(Stdio::null());
    shell.status()?;
    Ok(())
}

/// A scenario that leaves its own file in shared memory, and uses a file that another process makes meanwhile.
pub(crate) fn leave_shared_memory(trial: &Trial) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    let supervisor = getppid().ok_or("no supervisor")?;
    let name = |what: &str| format!("/dev/shm/ferrotune-test-{supervisor}-{what}");
    let own = File::create_new(name("own"))?;
    own.set_len(4096)?;
    // Steps with some work in them: on a busy machine the supervisor checks such files only now and then.
    for step in 0..200 {
        std::thread::sleep(Duration::from_millis(10));
        trial.report(step, [("val_accuracy", x)])?;
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    let foreign = loop {
        match File::options().read(true).write(true).open(name("foreign")) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => break opened?,
        }
    };
    trial.report(200, [("val_accuracy", x)])?;
    std::mem::forget((own, foreign));
    Ok(Some(x))
}

/// A scenario that trains as `slow` does. The first worker that finds a checkpoint has no file descriptors left.
pub(crate) fn short_of_files(trial: &Trial) -> Result<Option<f64>> {
    let was_short = trial.folder().join("was-short");
    let has_checkpoint = std::fs::read_dir(trial.folder())?
        .flatten()
        .any(|entry| entry.file_name().to_str().is_some_and(|name| name.ends_with(".safetensors")));
    if has_checkpoint && !was_short.exists() {
        std::fs::write(was_short, "")?;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let limit = rustix::process::Rlimit { current: Some(100), ..limit };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)?;
        std::mem::forget((0..100).map_while(|_| File::open("/dev/null").ok()).collect::<Vec<_>>());
    }
    train(trial, Duration::from_millis(10))
}
