//! Tests of ownership: a search neither deletes nor ends what is not its own, such as folders beside a mirror, files in /dev/shm, and
//! the trials of other supervisors.

use crate::harness::{Supervisor, on_disk, program, run, spec, tagged};
use ferrotune_space::event::Finish;
use ferrotune_space::spec::StudySpec;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// All files below a folder, except the study's lock, with their contents.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push((path.display().to_string(), std::fs::read(path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn mirror_in_the_studys_own_folder_is_refused_and_costs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let studies = directory.path().join("studies");
    let spec = spec(&studies, "quick", 2);
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    std::os::unix::fs::symlink(&studies, directory.path().join("alias")).unwrap();
    let study = studies.join("quick");
    let before = files(&study);
    for mirror in ["studies", "studies/quick", "studies/new/../quick/mirror", "alias", "alias/quick", "."] {
        for overwrite in [false, true] {
            let mut spec = StudySpec { overwrite, ..spec.clone() };
            spec.supervision.mirror = Some(directory.path().join(mirror));
            let message = run(&spec).last().unwrap_err();
            assert!(message.contains("are one folder, or one lies in the other"), "{mirror}: {message}");
            assert_eq!(files(&study), before, "{mirror}");
        }
    }
    assert_eq!(on_disk(&spec).len(), 2);
}

#[test]
fn folder_that_is_no_mirror_is_not_cleared_and_the_study_stays() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(&directory.path().join("studies"), "quick", 2);
    let drive = directory.path().join("drive");
    spec.supervision.mirror = Some(drive.clone());
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    std::fs::create_dir(drive.join("quick/thesis")).unwrap();
    std::fs::write(drive.join("quick/thesis/chapter-1.tex"), "words").unwrap();
    spec.overwrite = true;
    let (study, mirror) = (files(&directory.path().join("studies/quick")), files(&drive));
    let message = run(&spec).last().unwrap_err();
    assert!(
        message.contains("thesis/chapter-1.tex") || message.contains("quick/thesis, which is no part"),
        "{message}"
    );
    assert_eq!((files(&directory.path().join("studies/quick")), files(&drive)), (study, mirror));
    // A mirror with nothing else in it is made again with its study.
    std::fs::remove_dir_all(drive.join("quick/thesis")).unwrap();
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    let copies = std::fs::read_dir(drive.join("quick")).unwrap().map(|entry| entry.unwrap().file_name());
    let journals = copies.filter(|name| name.to_string_lossy().starts_with("journal-")).count();
    assert!((1..=2).contains(&journals), "{journals}");
}

#[test]
fn only_shared_memory_that_the_trial_made_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let spec = spec(directory.path(), "shared_memory", 1);
    let mut supervisor = Supervisor::start(&spec);
    let pid = supervisor.pid();
    let name = |what: &str| PathBuf::from(format!("/dev/shm/ferrotune-test-{pid}-{what}"));
    supervisor.wait_for_step(2);
    assert!(name("own").exists());
    // Both files are of another program of this user. The trial uses the first one, and has no link to the second.
    for what in ["foreign", "chapter-1"] {
        std::fs::write(name(what), "words").unwrap();
    }
    assert_eq!(supervisor.finish().last(), Ok(Finish::MaxTrials));
    let record = &on_disk(&spec)[0];
    let left = &record.memory.as_ref().unwrap().left;
    assert!(left.contains(&format!("{} (4.0 KiB), removed", name("own").display())), "{left:?}");
    assert!(!name("own").exists());
    for what in ["foreign", "chapter-1"] {
        let line = format!("{} (5 B), which stays: who made it is not known", name(what).display());
        assert!(left.contains(&line), "{left:?}");
        assert_eq!(std::fs::read_to_string(name(what)).unwrap(), "words");
        std::fs::remove_file(name(what)).unwrap();
    }
}

/// Whether a PID namespace can be made on this machine. Prints a line if not.
fn can_make_pid_namespaces() -> bool {
    // On some systems nobody can choose a process id.
    let script = "echo 5000 >/proc/sys/kernel/ns_last_pid";
    let made = Command::new("unshare").args(UNSHARE).args(["--mount-proc", "sh", "-c", script]).status();
    let can = made.is_ok_and(|status| status.success());
    if !can {
        eprintln!("skipped: this user may not make PID namespaces here, or not choose process ids in them");
    }
    can
}

const UNSHARE: [&str; 5] = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child"];

/// A process id that no process has in this namespace.
fn free_pid() -> u32 {
    (20_000..32_000).rev().find(|pid| !Path::new(&format!("/proc/{pid}")).exists()).unwrap()
}

#[test]
fn trial_of_a_supervisor_in_another_pid_namespace_is_left_alone() {
    if !can_make_pid_namespaces() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut inner = spec(directory.path(), "deaf", 1);
    inner.project = "contained".to_owned();
    let path = directory.path().join("contained.spec.json");
    std::fs::write(&path, serde_json::to_vec(&inner).unwrap()).unwrap();
    // In its namespace the supervisor has a process id that is free here, so it looks dead from here.
    let script = format!("echo {} >/proc/sys/kernel/ns_last_pid && \"$@\"; exit", free_pid() - 1);
    let mut unshare = Command::new("unshare");
    unshare.args(UNSHARE).args(["--mount-proc", "sh", "-c", &script]);
    unshare.arg("sh").arg(program()).arg("supervise").arg(&path);
    let mut container = unshare.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while tagged("contained").is_empty() {
        assert!(Instant::now() < deadline && container.try_wait().unwrap().is_none(), "the trial does not begin");
        std::thread::yield_now();
    }
    let trial = tagged("contained");
    assert_eq!(run(&spec(directory.path(), "quick", 1)).last(), Ok(Finish::MaxTrials));
    assert_eq!(tagged("contained"), trial);
    container.kill().unwrap();
    container.wait().unwrap();
}

#[test]
fn search_that_would_take_other_processes_for_its_own_does_not_begin() {
    if !can_make_pid_namespaces() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let spec = spec(directory.path(), "quick", 1);
    let path = directory.path().join("spec.json");
    std::fs::write(&path, serde_json::to_vec(&spec).unwrap()).unwrap();
    // The namespace has no /proc of its own: its process ids name other processes there, such as the first process of the machine.
    let done = Command::new("unshare").args(UNSHARE).arg(program()).arg("supervise").arg(&path).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(!done.status.success() && said.contains("/proc shows another PID namespace; mount it anew"), "{said}");
}
