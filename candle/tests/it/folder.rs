//! Making the folder, editing it, and writing the changes anew.

use ferrotune_candle::{CANDLE, Changes, Error, edited, make, write_changes};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The cargo that runs the tests.
pub(crate) fn cargo() -> Command {
    Command::new(env!("CARGO"))
}

/// A copy of `candle/`, with only our changes, and the folder of candle-core in it.
struct Copy {
    folder: tempfile::TempDir,
}

impl Copy {
    fn new() -> Self {
        let copy = Self { folder: tempfile::tempdir().unwrap() };
        for name in ["patches", "files", "candle-core/Cargo.toml"] {
            copy_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join(name), &copy.path(name));
        }
        copy
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file of candle-core.
    fn source(&self, name: &str) -> PathBuf {
        self.path("candle-core/src").join(name)
    }

    fn make(&self) -> Result<Vec<String>, Error> {
        let mut lines = Vec::new();
        let changes = Changes::read(&CANDLE, self.folder.path())?;
        make(cargo(), &self.path("candle-core"), &changes, &mut |line| lines.push(line.to_owned())).map(|()| lines)
    }

    fn write_changes(&self) -> Result<Vec<String>, Error> {
        write_changes(&CANDLE, cargo(), &self.path("candle-core"), self.folder.path())
    }

    fn append(&self, name: &str, text: &str) {
        let file = self.source(name);
        fs::write(&file, fs::read_to_string(&file).unwrap() + text).unwrap();
    }
}

fn copy_all(from: &Path, to: &Path) {
    if from.is_dir() {
        for entry in fs::read_dir(from).unwrap() {
            let name = entry.unwrap().file_name();
            copy_all(&from.join(&name), &to.join(&name));
        }
    } else if from.exists() {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    }
}

#[test]
fn a_second_call_is_free_and_a_new_patch_is_not() {
    let copy = Copy::new();
    assert_eq!(copy.make().unwrap(), ["fetching candle-core 0.11.1"]);
    assert!(copy.path("candle-core/LICENSE").exists() && copy.source("lib.rs").exists());
    assert_eq!(copy.make().unwrap(), [""; 0]);

    let time = |name: &str| fs::metadata(copy.source(name)).unwrap().modified().unwrap();
    let before = ["lib.rs", "shape.rs"].map(time);
    fs::create_dir_all(copy.path("files/src")).unwrap();
    fs::write(copy.path("files/src/ours.rs"), "// ours\n").unwrap();
    assert_eq!(copy.make().unwrap().len(), 1);
    assert_eq!(fs::read_to_string(copy.source("ours.rs")).unwrap(), "// ours\n");
    assert_eq!(["lib.rs", "shape.rs"].map(time), before, "files that stay the same keep their time");
}

#[test]
fn edits_become_changes_that_make_the_same_folder() {
    let copy = Copy::new();
    copy.make().unwrap();
    copy.append("shape.rs", "// an edit\n");
    fs::write(copy.source("ours.rs"), "// ours\n").unwrap();
    let expected = ["src/ours.rs", "src/shape.rs"];
    assert_eq!(edited(&copy.path("candle-core")).unwrap(), expected);
    assert_eq!(copy.make().unwrap(), [""; 0], "the edits stay");
    assert_eq!(copy.write_changes().unwrap(), expected);
    assert_eq!(edited(&copy.path("candle-core")).unwrap(), [""; 0]);
    let patch = fs::read_to_string(copy.path("patches/src/shape.rs.patch")).unwrap();
    assert!(patch.starts_with("--- a/src/shape.rs\n+++ b/src/shape.rs\n@@ -"), "{patch}");

    let text = fs::read_to_string(copy.source("shape.rs")).unwrap();
    fs::remove_dir_all(copy.path("candle-core/src")).unwrap();
    copy.make().unwrap();
    assert_eq!(fs::read_to_string(copy.source("shape.rs")).unwrap(), text);

    fs::write(copy.source("shape.rs"), text.replace("// an edit\n", "")).unwrap();
    fs::remove_file(copy.source("ours.rs")).unwrap();
    assert_eq!(copy.write_changes().unwrap(), expected);
    assert!(!copy.path("patches/src/shape.rs.patch").exists() && !copy.path("files/src/ours.rs").exists());
}

#[test]
fn edits_are_never_overwritten() {
    let copy = Copy::new();
    copy.make().unwrap();
    copy.append("shape.rs", "// an edit\n");
    fs::create_dir_all(copy.path("files/src")).unwrap();
    fs::write(copy.path("files/src/theirs.rs"), "// theirs\n").unwrap();
    assert!(matches!(copy.make(), Err(Error::Edited { path, .. }) if path == "src/shape.rs"));

    assert_eq!(copy.write_changes().unwrap(), ["src/shape.rs"]);
    assert!(copy.path("files/src/theirs.rs").exists(), "changes of others stay");
    assert_eq!(copy.make().unwrap().len(), 1, "and are made now");
    assert!(copy.source("theirs.rs").exists());
    assert!(fs::read_to_string(copy.source("shape.rs")).unwrap().ends_with("// an edit\n"));

    copy.append("theirs.rs", "// an edit\n");
    fs::write(copy.path("files/src/theirs.rs"), "// theirs again\n").unwrap();
    assert!(matches!(copy.write_changes(), Err(Error::Diverged { path, .. }) if path == "src/theirs.rs"));
}

#[test]
fn a_file_of_candle_cannot_be_deleted() {
    let copy = Copy::new();
    assert!(matches!(copy.write_changes(), Err(Error::NotMade { .. })));
    copy.make().unwrap();
    fs::remove_file(copy.source("shape.rs")).unwrap();
    assert!(matches!(copy.write_changes(), Err(Error::Deleted { path, .. }) if path == "src/shape.rs"));
}

#[test]
fn what_a_cleaner_of_caches_has_taken_is_made_again() {
    let copy = Copy::new();
    copy.make().unwrap();
    let path = copy.source("shape.rs");
    let text = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(copy.make().unwrap().len(), 1);
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn files_of_somebody_else_are_never_overwritten() {
    for name in ["src/lib.rs", "Cargo.toml", "README.md"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "mine").unwrap();
        let error = make(cargo(), folder.path(), &Changes::packed(), &mut |_| {}).unwrap_err();
        assert!(matches!(error, Error::Foreign { .. }), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
        assert!(name.starts_with("src") || !folder.path().join("src").exists());
    }
}

#[test]
fn the_rest_of_a_killed_process_is_removed() {
    let copy = Copy::new();
    for rest in ["candle-core/src.new", "candle-core/src.old"] {
        fs::create_dir_all(copy.path(rest)).unwrap();
        fs::write(copy.path(rest).join("half.rs"), "").unwrap();
    }
    copy.make().unwrap();
    assert!(!copy.source("half.rs").exists());
    assert!(!copy.path("candle-core/src.new").exists() && !copy.path("candle-core/src.old").exists());
}

#[test]
fn processes_that_make_it_together_make_it_once() {
    let copy = Copy::new();
    let made: usize = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..3).map(|_| scope.spawn(|| copy.make().unwrap().len())).collect();
        calls.into_iter().map(|call| call.join().unwrap()).sum()
    });
    assert_eq!(made, 1);
}

#[test]
fn without_network_and_cache_the_error_says_so() {
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut cargo = cargo();
    cargo.env("CARGO_HOME", home.path()).env("CARGO_NET_OFFLINE", "true");
    let error = make(cargo, folder.path(), &Changes::packed(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(!error.to_string().contains('\n') && !folder.path().join("src").exists(), "{error}");
}
