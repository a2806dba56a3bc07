//! Tests that make the folder, edit it, and write the edits into patches.

use ferrotune_candle::{CANDLE, Changes, Error, Topic, edited, make, write_changes};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The cargo that runs the tests.
pub(crate) fn cargo() -> Command {
    Command::new(env!("CARGO"))
}

/// The name of a patch that is applied after all of ours.
const TOPIC: &str = "99-test";

/// A copy of `patched/candle/`, with only our changes.
struct Copy {
    folder: tempfile::TempDir,
}

impl Copy {
    fn new() -> Self {
        let copy = Self { folder: tempfile::tempdir().unwrap() };
        for name in ["patches", "files", "candle-core/Cargo.toml", "candle-nn/Cargo.toml"] {
            copy_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join(name), &copy.path(name));
        }
        copy
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn patch(&self) -> PathBuf {
        self.path(&format!("patches/{TOPIC}.patch"))
    }

    /// A file of candle-core.
    fn source(&self, name: &str) -> PathBuf {
        self.path("candle-core/src").join(name)
    }

    fn make(&self) -> Result<Vec<String>, Error> {
        let mut lines = Vec::new();
        let changes = Changes::read(&CANDLE, self.folder.path())?;
        make(cargo(), self.folder.path(), &changes, &mut |line| lines.push(line.to_owned())).map(|()| lines)
    }

    fn edited(&self) -> Vec<String> {
        edited(&CANDLE, self.folder.path()).unwrap()
    }

    fn write_changes(&self) -> Result<Vec<String>, Error> {
        let topic = Topic { name: TOPIC.to_owned(), title: Some("A test".to_owned()) };
        write_changes(&CANDLE, cargo(), self.folder.path(), &topic)
    }

    fn append(&self, name: &str, text: &str) {
        fs::write(self.path(name), self.text(name) + text).unwrap();
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
fn a_second_call_is_free_and_a_new_file_is_not() {
    let copy = Copy::new();
    assert_eq!(copy.make().unwrap(), ["fetching candle 0.11.1"]);
    assert!(copy.path("candle-core/LICENSE").exists() && copy.source("lib.rs").exists());
    assert!(copy.path("candle-nn/README.md").exists() && copy.path("candle-nn/src/loss.rs").exists());
    assert_eq!(copy.make().unwrap(), [""; 0]);

    let time = |name: &str| fs::metadata(copy.source(name)).unwrap().modified().unwrap();
    let before = ["lib.rs", "shape.rs"].map(time);
    fs::write(copy.path("files/candle-core/src/ours.rs"), "// ours\n").unwrap();
    assert_eq!(copy.make().unwrap().len(), 1);
    assert_eq!(fs::read_to_string(copy.source("ours.rs")).unwrap(), "// ours\n");
    assert_eq!(["lib.rs", "shape.rs"].map(time), before, "files that stay the same keep their time");
}

#[test]
fn edits_of_both_packages_become_one_patch_that_makes_the_same_folder() {
    let copy = Copy::new();
    copy.make().unwrap();
    copy.append("candle-core/src/shape.rs", "// an edit\n");
    copy.append("candle-nn/src/loss.rs", "// an edit\n");
    fs::write(copy.source("ours.rs"), "// ours\n").unwrap();
    let expected = ["candle-core/src/ours.rs", "candle-core/src/shape.rs", "candle-nn/src/loss.rs"];
    assert_eq!(copy.edited(), expected);
    assert_eq!(copy.make().unwrap(), [""; 0], "the edits stay");
    assert_eq!(copy.write_changes().unwrap(), expected);
    assert_eq!(copy.edited(), [""; 0]);
    let patch = fs::read_to_string(copy.patch()).unwrap();
    let begin = "A test\n\n--- a/candle-core/src/shape.rs\n+++ b/candle-core/src/shape.rs\n@@ -";
    assert!(patch.starts_with(begin) && patch.contains("\n--- a/candle-nn/src/loss.rs\n"), "{patch}");

    let texts = || ["candle-core/src/shape.rs", "candle-nn/src/loss.rs"].map(|name| copy.text(name));
    let before = texts();
    fs::remove_dir_all(copy.path("candle-core/src")).unwrap();
    fs::remove_dir_all(copy.path("candle-nn/src")).unwrap();
    copy.make().unwrap();
    assert_eq!(texts(), before);

    for (name, text) in ["candle-core/src/shape.rs", "candle-nn/src/loss.rs"].iter().zip(before) {
        fs::write(copy.path(name), text.replace("// an edit\n", "")).unwrap();
    }
    fs::remove_file(copy.source("ours.rs")).unwrap();
    assert_eq!(copy.write_changes().unwrap(), expected);
    assert!(!copy.patch().exists() && !copy.path("files/candle-core/src/ours.rs").exists());
}

#[test]
fn edits_are_never_overwritten() {
    let copy = Copy::new();
    copy.make().unwrap();
    copy.append("candle-core/src/shape.rs", "// an edit\n");
    fs::write(copy.path("files/candle-core/src/theirs.rs"), "// theirs\n").unwrap();
    assert!(matches!(copy.make(), Err(Error::Edited { path, .. }) if path == "candle-core/src/shape.rs"));

    assert_eq!(copy.write_changes().unwrap(), ["candle-core/src/shape.rs"]);
    assert!(copy.path("files/candle-core/src/theirs.rs").exists(), "changes of others stay");
    assert_eq!(copy.make().unwrap().len(), 1, "and are made now");
    assert!(copy.source("theirs.rs").exists());
    assert!(copy.text("candle-core/src/shape.rs").ends_with("// an edit\n"));
}

#[test]
fn an_edit_of_what_has_changed_meanwhile_is_refused() {
    let copy = Copy::new();
    fs::write(copy.path("files/candle-core/src/theirs.rs"), "// theirs\n").unwrap();
    copy.make().unwrap();
    copy.append("candle-core/src/shape.rs", "// an edit\n");
    copy.write_changes().unwrap();
    copy.make().unwrap();

    copy.append("candle-core/src/theirs.rs", "// an edit\n");
    fs::write(copy.path("files/candle-core/src/theirs.rs"), "// theirs again\n").unwrap();
    assert!(matches!(copy.write_changes(), Err(Error::Diverged { path, .. }) if path == "candle-core/src/theirs.rs"));
    fs::write(copy.path("files/candle-core/src/theirs.rs"), "// theirs\n").unwrap();
    copy.write_changes().unwrap();

    copy.append("candle-core/src/shape.rs", "// another edit\n");
    let patch = fs::read_to_string(copy.patch()).unwrap();
    let theirs = patch.replace("// an edit", "// their edit");
    fs::write(copy.patch(), &theirs).unwrap();
    assert!(matches!(copy.write_changes(), Err(Error::Diverged { path, .. }) if path == "candle-core/src/shape.rs"));
    assert_eq!(fs::read_to_string(copy.patch()).unwrap(), theirs, "nothing is written");
}

#[test]
fn an_edit_that_a_later_patch_refuses_stays_where_it_is() {
    let copy = Copy::new();
    copy.make().unwrap();
    copy.append("candle-core/src/shape.rs", "// an edit\n");
    copy.write_changes().unwrap();
    copy.make().unwrap();
    let text = copy.text("candle-core/src/shape.rs").replace("// an edit", "// another edit");
    fs::write(copy.source("shape.rs"), &text).unwrap();
    let patch = fs::read_to_string(copy.patch()).unwrap();
    let topic = Topic { name: "98-earlier".to_owned(), title: Some("Earlier".to_owned()) };
    let error = write_changes(&CANDLE, cargo(), copy.folder.path(), &topic).unwrap_err();
    assert!(matches!(error, Error::Overlap { later, .. } if later == TOPIC));
    assert_eq!(copy.edited(), ["candle-core/src/shape.rs"]);
    assert_eq!((copy.text("candle-core/src/shape.rs"), fs::read_to_string(copy.patch()).unwrap()), (text, patch));
    assert!(!copy.path("patches/98-earlier.patch").exists());
}

#[test]
fn a_name_of_a_patch_has_a_number() {
    let copy = Copy::new();
    for name in ["sums", "6-sums", "006-sums", "+6-sums", "06-", "06-a/b", "06-sums.patch"] {
        let topic = Topic { name: name.to_owned(), title: None };
        let error = write_changes(&CANDLE, cargo(), copy.folder.path(), &topic).unwrap_err();
        assert!(matches!(error, Error::Unnumbered { .. }), "{name}: {error}");
    }
}

#[test]
fn a_folder_that_was_made_before_a_package_was_changed_keeps_its_edits() {
    let copy = Copy::new();
    copy.make().unwrap();
    fs::remove_dir_all(copy.path("candle-nn/src")).unwrap();
    copy.append("candle-core/src/shape.rs", "// an edit\n");
    assert!(matches!(copy.make(), Err(Error::Edited { .. })));
    assert_eq!(copy.write_changes().unwrap(), ["candle-core/src/shape.rs"]);
    copy.make().unwrap();
    assert!(copy.path("candle-nn/src/loss.rs").exists());
    assert!(copy.text("candle-core/src/shape.rs").ends_with("// an edit\n"));
}

#[test]
fn a_file_of_candle_cannot_be_deleted() {
    let copy = Copy::new();
    assert!(matches!(copy.write_changes(), Err(Error::NotMade { .. })));
    copy.make().unwrap();
    fs::remove_file(copy.source("shape.rs")).unwrap();
    assert!(matches!(copy.write_changes(), Err(Error::Deleted { path, .. }) if path == "candle-core/src/shape.rs"));
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
        let package = folder.path().join("candle-core");
        let file = package.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "mine").unwrap();
        let error = make(cargo(), folder.path(), &Changes::packed(), &mut |_| {}).unwrap_err();
        assert!(matches!(error, Error::Foreign { .. }), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
        assert!(name.starts_with("src") || !package.join("src").exists());
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
    assert!(!error.to_string().contains('\n') && !folder.path().join("candle-core/src").exists(), "{error}");
}
