//! Plugins that misbehave, tried in a child: each is an error that says what happened, in time, and nothing stays.

use ferrotune_devices::probe::{Module, Probe, ProbeError};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Far more than a plugin that answers needs here.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(500);

/// Cargo puts the plugin beside the tests' own executable, and the examples next door.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let folder = test.parent().expect("a folder");
    if name.ends_with(".so") {
        folder.join(name)
    } else {
        folder.parent().expect("a folder").join("examples").join(name)
    }
}

fn plugin() -> PathBuf {
    built("libferrotune_pjrt_plugin.so")
}

/// A program that sets the fault and becomes the child.
fn faulty_child(folder: &Path, fault: &str) -> PathBuf {
    let path = folder.join("probe.sh");
    let child = built("probe");
    let script = format!(
        "#!/bin/sh\necho $$ > {}\nFERROTUNE_PJRT_FAULT={fault} exec {} \"$@\"\n",
        folder.join("pid").display(),
        child.display()
    );
    // Written by another process: a child that a test beside this one is just starting would inherit the open file, and
    // the system runs no program that is open for writing.
    let write = r#"printf %s "$1" > "$2" && chmod 755 "$2""#;
    let written = Command::new("sh").args(["-c", write, "sh", &script]).arg(&path).status().expect("a shell");
    assert!(written.success(), "a script that runs");
    path
}

/// How `identify` or `open` fails with this fault; the child must be gone afterwards.
fn error(fault: &str, deadline: Duration, opens: bool) -> ProbeError {
    let folder = tempfile::tempdir().expect("a folder");
    let program = faulty_child(folder.path(), fault);
    let probe = Probe { program: &program, deadline, stop: &|| false };
    let error = if opens { probe.open(&plugin()).map(drop) } else { probe.identify(&plugin()).map(drop) };
    assert!(!is_alive(folder.path()), "the child is still there");
    error.expect_err(fault)
}

fn child_of(folder: &Path) -> Option<Pid> {
    let text = std::fs::read_to_string(folder.join("pid")).ok()?;
    Pid::from_raw(text.trim().parse().ok()?)
}

fn is_alive(folder: &Path) -> bool {
    child_of(folder).is_some_and(|pid| test_kill_process(pid).is_ok())
}

fn text(error: &ProbeError) -> String {
    error.to_string().replace(&plugin().display().to_string(), "PLUGIN")
}

#[test]
fn a_plugin_that_aborts_is_an_error_with_its_last_words() {
    let expected = "PLUGIN ended its process (SIGABRT): F0000 libtpu lockfile: the TPU is already in use by process 42";
    for place in ["load", "initialize"] {
        assert_eq!(text(&error(&format!("{place}:abort"), LONG, false)), expected);
    }
    assert_eq!(text(&error("client:abort", LONG, true)), expected);
}

#[test]
fn a_plugin_that_exits_is_an_error_with_its_status() {
    assert_eq!(text(&error("load:exit", LONG, false)), "PLUGIN ended its process (exit status 3)");
}

#[test]
fn a_plugin_that_hangs_is_ended_at_the_deadline() {
    for (fault, opens) in [("load:hang", false), ("initialize:hang", false), ("client:hang", true)] {
        let started = Instant::now();
        let error = error(fault, SHORT, opens);
        assert!(matches!(error, ProbeError::Hung { .. }), "{error}");
        assert!(started.elapsed() < SHORT * 4, "{fault}: {:?}", started.elapsed());
    }
}

#[test]
fn a_child_that_is_killed_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = faulty_child(folder.path(), "initialize:hang");
    // Somebody else kills the child, once it has got as far as the plugin; nobody asks to stop.
    let stop = || {
        let child = child_of(folder.path()).filter(|pid| has_loaded_the_plugin(*pid));
        child.is_some_and(|pid| kill_process(pid, Signal::KILL).is_err())
    };
    let probe = Probe { program: &program, deadline: LONG, stop: &stop };
    let error = probe.identify(&plugin()).expect_err("killed");
    assert_eq!(text(&error), "PLUGIN ended its process (SIGKILL)");
}

#[test]
fn an_interrupt_ends_the_child() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = faulty_child(folder.path(), "load:hang");
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() == 3
    };
    let probe = Probe { program: &program, deadline: LONG, stop: &stop };
    let error = probe.identify(&plugin()).expect_err("interrupted");
    assert!(matches!(error, ProbeError::Interrupted { .. }), "{error}");
    assert!(!is_alive(folder.path()), "the child is still there");
}

#[test]
fn a_child_goes_with_the_process_that_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = faulty_child(folder.path(), "load:hang");
    let request = folder.path().join("request.json");
    std::fs::write(&request, format!(r#"{{"plugin":{:?},"task":"Identify"}}"#, plugin())).expect("a request");
    let command = format!("{} probe < {} & wait", program.display(), request.display());
    let mut asker = Command::new("sh").args(["-c", &command]).spawn().expect("a shell");
    wait_until("the child hangs", || child_of(folder.path()).is_some_and(has_loaded_the_plugin));
    asker.kill().expect("the shell is there");
    asker.wait().expect("the shell is ours");
    wait_until("the child is gone", || !child_of(folder.path()).is_some_and(has_loaded_the_plugin));
}

/// Also false for a process that is dead, whether or not its new parent has noticed.
fn has_loaded_the_plugin(pid: Pid) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", pid.as_raw_nonzero())).unwrap_or_default();
    maps.contains("libferrotune_pjrt_plugin")
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn what_a_plugin_prints_is_no_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = faulty_child(folder.path(), "load:noise");
    let probe = Probe { program: &program, deadline: LONG, stop: &|| false };
    let identity = probe.identify(&plugin()).expect("an answer");
    assert_eq!(identity.to_string(), "PJRT 0.69, StableHLO 1.10.10");
}

#[test]
fn what_is_no_plugin_is_refused() {
    let program = built("probe");
    let probe = Probe { program: &program, deadline: LONG, stop: &|| false };
    let refused = |plugin: &str| probe.identify(plugin.as_ref()).expect_err(plugin).to_string();
    let missing = refused("/nowhere/libtpu.so");
    assert!(missing.starts_with("/nowhere/libtpu.so: cannot load the plugin"), "{missing}");
    assert!(missing.contains("No such file"), "{missing}");
    let libc = refused("libc.so.6");
    assert_eq!(
        libc,
        "libc.so.6: libc.so.6 is not a PJRT plugin: it does not export GetPjrtApi; name the library of libtpu or of \
         another PJRT plugin"
    );
}

#[test]
fn a_program_that_does_not_know_the_question_is_said() {
    for (program, expected) in
        [("/bin/echo", "gave an answer that cannot be read"), ("/nowhere", "cannot start /nowhere")]
    {
        let probe = Probe { program: program.as_ref(), deadline: LONG, stop: &|| false };
        let error = probe.identify(&plugin()).expect_err(program).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_topology_that_the_plugin_does_not_know_is_refused_with_its_code() {
    let program = built("probe");
    let probe = Probe { program: &program, deadline: LONG, stop: &|| false };
    let module = Module::Text("module @m {}".to_owned());
    let error = probe.check(&plugin(), "v5e:2x2", module).expect_err("the plugin has none");
    assert_eq!(text(&error), "PLUGIN: PJRT_TopologyDescriptionCreate: UNIMPLEMENTED: XLA:CPU has no topology v5e:2x2");
}
