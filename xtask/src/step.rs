//! The steps of a task. Prints the name of each step when it begins and its time when it ends; an error names its step.

use anyhow::{Context, Result, anyhow, bail};
use std::process::Command;
use std::thread;
use std::time::Instant;

/// Runs a step of a task.
pub(crate) fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    eprintln!("==> {name}");
    let started = Instant::now();
    let result = work().with_context(|| format!("step `{name}` failed"))?;
    eprintln!("<== {name}: {:.1} s", started.elapsed().as_secs_f64());
    Ok(result)
}

/// Begins work in a thread, and returns a function that waits for the work. An error is printed at once, and the function returns it.
pub(crate) fn begin<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> impl FnOnce() -> Result<T> {
    let thread = thread::spawn(|| work().inspect_err(|error| eprintln!("{error:#}")));
    || thread.join().map_err(|_| anyhow!("its thread panicked"))?
}

/// Runs a program to its end, with its output on the terminal.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot run {program}"))?;
    if !status.success() {
        bail!("{program} ended with {status}");
    }
    Ok(())
}

/// Runs a program to its end and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!("{program} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_fails_is_named() {
        let error = step("fmt", || run(&mut Command::new("false"))).unwrap_err();
        assert!(format!("{error:#}").starts_with("step `fmt` failed: false ended with "), "{error:#}");
    }

    #[test]
    fn work_that_fails_in_a_thread_fails_the_step_that_waits_for_it() {
        let error = step("packages", begin(|| run(&mut Command::new("false")))).unwrap_err();
        assert!(format!("{error:#}").starts_with("step `packages` failed: false ended with "), "{error:#}");
        assert_eq!(begin(|| Ok(3))().unwrap(), 3);
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        let error = run(&mut Command::new("no-such-program")).unwrap_err();
        assert!(format!("{error:#}").starts_with("cannot run no-such-program"), "{error:#}");
    }
}
