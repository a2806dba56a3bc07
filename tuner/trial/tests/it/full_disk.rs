//! Tests of a full disk while the study's files are copied: nothing is lost, and the search begins or continues once there is room.

use crate::harness::{on_disk, run, spec};
use ferrotune_space::event::Finish;
use ferrotune_space::spec::StudySpec;
use ferrotune_tuner::supervisor::spec_of;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system of 8 MiB, unmounted when dropped. It cannot be made where this user may not mount file systems.
struct Disk(PathBuf);

impl Disk {
    fn mount(folder: PathBuf) -> Option<Disk> {
        std::fs::create_dir(&folder).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(&folder).output();
        mount.is_ok_and(|done| done.status.success()).then_some(Disk(folder))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

/// Fills the disk except for `left_bytes`.
fn fill(disk: &Path, left_bytes: usize) -> PathBuf {
    let filler = disk.join("filler");
    let statvfs = rustix::fs::statvfs(disk).unwrap();
    let free = (statvfs.f_bavail * statvfs.f_frsize) as usize;
    std::fs::write(&filler, vec![1_u8; free - left_bytes]).unwrap();
    filler
}

#[test]
fn study_whose_files_do_not_fit_begins_or_goes_on_once_they_do() {
    let directory = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(directory.path().join("disk")) else {
        eprintln!("skipped: this user may not mount a small disk");
        return;
    };
    let library = |name: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, name.repeat(1 << 17)).unwrap();
        path
    };
    let mut spec = StudySpec { directory: disk.0.clone(), ..spec(directory.path(), "quick", 2) };
    spec.supervision.libraries = vec![library("libone.so"), library("libstd-two.so")];
    let study = disk.0.join("quick");
    let refused = |spec: &StudySpec, file: &str| {
        let message = run(spec).last().unwrap_err();
        let expected = format!("cannot copy {file} into the study {} (No space left on device", study.display());
        assert!(
            message.starts_with(&expected) && message.contains("free some space there or choose another"),
            "{message}"
        );
        let partial = std::fs::read_dir(study.join("libraries")).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(partial.into_iter().all(|name| !name.to_string_lossy().ends_with(".partial")));
    };

    // The disk has room for the first library and half of the second one.
    let filler = fill(&disk.0, 2_600_000);
    refused(&spec, "libstd-two.so");
    let missing = spec_of(&study).unwrap_err().to_string();
    assert!(missing.starts_with("there is no study in "), "{missing}");
    refused(&StudySpec { overwrite: true, ..spec.clone() }, "libstd-two.so");
    std::fs::remove_file(filler).unwrap();
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    assert_eq!(std::fs::read(study.join("libraries/libstd-two.so")).unwrap().len(), 13 << 17);

    // The same cell runs after an update. Its new libraries do not fit, and the study continues with its old ones.
    let filler = fill(&disk.0, 1_500_000);
    let mut updated = StudySpec { max_trials: 4, ..spec.clone() };
    updated.library = PathBuf::from("/bin/true");
    updated.supervision.libraries = vec![library("libone.so"), library("libstd-three.so")];
    refused(&updated, "libstd-three.so");
    assert_eq!(std::fs::read(study.join("objective.so")).unwrap(), std::fs::read(&spec.library).unwrap());
    let resumed = StudySpec { max_trials: 3, ..spec_of(&study).unwrap() };
    assert_eq!(run(&resumed).last(), Ok(Finish::MaxTrials));
    std::fs::remove_file(filler).unwrap();
    assert_eq!(run(&updated).last(), Ok(Finish::MaxTrials));
    assert_eq!(on_disk(&spec).len(), 4);
    assert!(study.join("libraries/libstd-three.so").exists());

    // One of the study's files is missing.
    std::fs::remove_file(study.join("libraries/libstd-three.so")).unwrap();
    let message = run(&StudySpec { max_trials: 5, ..spec_of(&study).unwrap() }).last().unwrap_err();
    assert!(message.contains("has no libstd-three.so; run the search from its own cell"), "{message}");
}
