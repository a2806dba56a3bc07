//! Tests of studies from other people: whose code runs, and where the names in their folders lead.

use crate::harness::{Done, Supervisor, on_disk, run, spec};
use ferrotune_journal::Journal;
use ferrotune_space::Value;
use ferrotune_space::event::Finish;
use ferrotune_space::record::Ending;
use ferrotune_space::spec::StudySpec;
use ferrotune_tuner::supervisor::spec_of;
use serde_json::json;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a library whose entry point `library` returns this status.
fn library(folder: &Path, status: u8) -> PathBuf {
    let (source, library) = (folder.join("status.rs"), folder.join(format!("{status}.so")));
    fs::write(&source, format!("#[unsafe(no_mangle)] pub extern \"C\" fn library() -> i32 {{ {status} }}")).unwrap();
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--edition=2024", "--crate-type=cdylib", "-o"]).arg(&library).arg(&source);
    assert!(rustc.status().unwrap().success());
    library
}

/// The search of a user who has compiled its code, or who trusts it.
fn trusted(spec: &StudySpec, known: &Path) -> Done {
    Supervisor::start_with(spec, &[known.as_os_str()]).finish()
}

/// The search of a user who has only the study's folder.
fn found(spec: &StudySpec, known: &Path) -> Done {
    Supervisor::start_with(spec, &[known.as_os_str(), OsStr::new("study")]).finish()
}

fn statuses(spec: &StudySpec) -> Vec<Option<Ending>> {
    on_disk(spec).into_iter().map(|trial| trial.ending).collect()
}

fn status(status: u8) -> Option<Ending> {
    Some(Ending::Failed { reason: format!("exited with {status} before the objective returned") })
}

#[test]
fn code_that_this_user_has_neither_compiled_nor_trusted_is_not_run() {
    let directory = tempfile::tempdir().unwrap();
    let (mine, theirs) = (directory.path().join("mine"), directory.path().join("theirs"));
    let mut begun = spec(directory.path(), "library", 1);
    begun.library = library(directory.path(), 7);
    begun.supervision.max_consecutive_failures = Some(100);
    assert_eq!(trusted(&begun, &mine).last(), Ok(Finish::MaxTrials));

    let folder = directory.path().join("library");
    let more = |max_trials| StudySpec { max_trials, ..spec_of(&folder).unwrap() };
    assert_eq!(found(&more(2), &mine).last(), Ok(Finish::MaxTrials), "its own code needs no word");
    let before = fs::read(folder.join("journal.log")).unwrap();
    let message = found(&more(3), &theirs).last().unwrap_err();
    assert!(message.contains("has code that this user has neither compiled nor trusted"), "{message}");
    assert!(message.contains("--trust"), "{message}");
    assert_eq!(fs::read(folder.join("journal.log")).unwrap(), before);
    assert_eq!(trusted(&more(3), &theirs).last(), Ok(Finish::MaxTrials));
    assert_eq!(found(&more(4), &theirs).last(), Ok(Finish::MaxTrials), "asked once");
    assert_eq!(statuses(&begun), vec![status(7); 4]);

    // The study now has other code, then another entry point, then one more library.
    fs::copy(library(directory.path(), 8), folder.join("objective.so")).unwrap();
    assert!(found(&more(5), &mine).last().unwrap_err().contains("--trust"));
    fs::copy(directory.path().join("7.so"), folder.join("objective.so")).unwrap();
    let elsewhere = StudySpec { symbol: "abort".to_owned(), ..more(5) };
    assert!(found(&elsewhere, &mine).last().unwrap_err().contains("--trust"));
    let mut linked = more(5);
    linked.supervision.libraries.push(directory.path().join("8.so"));
    assert!(found(&linked, &mine).last().unwrap_err().contains("--trust"));
    assert_eq!(statuses(&begun), vec![status(7); 4]);
}

#[test]
fn objective_of_a_cell_runs_in_a_study_that_came_with_another_one() {
    let directory = tempfile::tempdir().unwrap();
    let known = directory.path().join("known");
    let mut spec = spec(directory.path(), "library", 1);
    spec.library = library(directory.path(), 7);
    trusted(&spec, &directory.path().join("somebody else"));
    (spec.library, spec.max_trials) = (library(directory.path(), 8), 2);
    trusted(&spec, &known);
    assert_eq!(statuses(&spec), [status(7), status(8)]);
    // The folder now has the user's own code.
    let resumed = StudySpec { max_trials: 3, ..spec_of(&directory.path().join("library")).unwrap() };
    found(&resumed, &known);
    assert_eq!(statuses(&spec)[2], status(8));
}

#[test]
fn a_journal_cannot_ask_for_deeds_and_names_no_file_outside() {
    let directory = tempfile::tempdir().unwrap();
    let known = directory.path().join("known");
    let begun = spec(directory.path(), "quick", 1);
    assert_eq!(trusted(&begun, &known).last(), Ok(Finish::MaxTrials));
    let folder = directory.path().join("quick");
    let write = |spec: &StudySpec| {
        // The line has no checksum, like Optuna's lines.
        let line = json!({"op_code": 2, "worker_id": "somebody", "study_id": 0, "user_attr": {"ferrotune:spec": spec}});
        writeln!(fs::File::options().append(true).open(folder.join("journal.log")).unwrap(), "{line}").unwrap();
    };
    let mut hostile = Journal::read(&folder).unwrap().spec;
    (hostile.overwrite, hostile.supervision.background) = (true, true);
    hostile.given.enqueued = vec![[("x".to_owned(), Value::Float(0.5))].into()];
    write(&hostile);
    let read = spec_of(&folder).unwrap();
    assert!(!read.overwrite && !read.supervision.background && read.given.enqueued.is_empty());

    // The study names a folder of the user as its mirror.
    let drive = tempfile::tempdir().unwrap();
    let thesis = drive.path().join("thesis");
    hostile.supervision.mirror = Some(thesis.clone());
    write(&hostile);
    let resumed = StudySpec { max_trials: 2, ..spec_of(&folder).unwrap() };
    let message = found(&resumed, &known).last().unwrap_err();
    assert!(message.contains(&format!("wants to be copied to {}", thesis.display())), "{message}");
    assert!(!thesis.exists() && on_disk(&begun).len() == 1);
    assert_eq!(trusted(&resumed, &known).last(), Ok(Finish::MaxTrials));
    assert!(thesis.join("quick").is_dir());

    for library in ["/etc/passwd", "../../outside.so", "..", "libraries/deep.so", ""] {
        hostile.supervision.libraries = vec![library.into()];
        write(&hostile);
        let message = spec_of(&folder).unwrap_err().to_string();
        assert!(message.contains("which is no file's name"), "{library}: {message}");
    }
}

#[test]
fn no_name_in_a_study_leads_out_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let outside = directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let (file, chapters) = (outside.join("file"), outside.join("chapters"));
    fs::create_dir(&chapters).unwrap();
    fs::write(chapters.join("checkpoint-000001.safetensors"), "a chapter").unwrap();
    let spec = spec(directory.path(), "train", 4);
    assert_eq!(run(&StudySpec { max_trials: 1, ..spec.clone() }).last(), Ok(Finish::MaxTrials));
    let study = directory.path().join("train");
    let whole = ["journal.log", "lock", "status.json", "status.partial", "objective.so", "shared.safetensors"];
    let names = whole.into_iter().map(|name| (name, &file)).chain([
        ("libraries", &chapters),
        ("libraries/prelude.so", &file),
        ("trials", &chapters),
        // The next trial is number 1, and the best of the ended trials stays.
        ("trials/1", &chapters),
        ("trials/1/output.log", &file),
        ("trials/1/tmp", &chapters),
        ("trials/1/checkpoint-000000.partial", &file),
        ("trials/1/checkpoint-000000.safetensors", &file),
    ]);
    for (name, target) in names {
        fs::write(&file, "of the user").unwrap();
        let (link, kept) = (study.join(name), directory.path().join("kept"));
        let was_there = fs::rename(&link, &kept).is_ok();
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(target, &link).unwrap();
        let message = run(&spec).last().unwrap_err();
        assert!(message.contains(&format!("{} is a symbolic link", link.display())), "{name}: {message}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "of the user", "{name}");
        let chapter = fs::read_to_string(chapters.join("checkpoint-000001.safetensors")).unwrap();
        assert_eq!((chapter.as_str(), fs::read_dir(&chapters).unwrap().count()), ("a chapter", 1), "{name}");
        fs::remove_file(&link).unwrap();
        if was_there {
            fs::rename(&kept, &link).unwrap();
        }
    }
    // Links that an objective makes in its own folder are allowed.
    fs::create_dir_all(study.join("trials/1")).unwrap();
    symlink(&file, study.join("trials/1/data")).unwrap();
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
}
