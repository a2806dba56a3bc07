//! Tests of the history file: sessions share it, a kill may tear its last line, and its size is bounded.

use std::fs;
use std::io::Write;
use std::path::Path;

use super::{CellHistory, Entry, MAX_BYTES, Query, Store};

fn open(folder: &Path) -> Store {
    Store::open(Some(folder.to_owned()))
}

fn sources(store: &Store) -> Vec<(u64, u32, String)> {
    store.entries().into_iter().map(|Entry { session, line, source }| (session, line, source)).collect()
}

#[test]
fn sessions_have_numbers_and_see_their_own_cells_last() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let mut second = open(folder.path());
    second.append(1, "two\n\"lines\"".into());
    first.append(1, "one".into());
    assert_eq!((first.session, second.session), (1, 2));
    let (one, two) = ((1, 1, "one".into()), (2, 1, "two\n\"lines\"".into()));
    assert_eq!(sources(&first), [two.clone(), one.clone()]);
    assert_eq!(sources(&second), [one, two]);
    assert_eq!(open(folder.path()).session, 3);
}

#[test]
fn torn_last_line_and_foreign_versions_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    store.append(1, "kept".into());
    let path = folder.path().join("history.jsonl");
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"{\"version\":99,\"session\":50,\"line\":1,\"source\":\"later\"}\n\xff\xfe\n{\"version\":1,\"ses")
        .unwrap();
    store.append(2, "after".into());
    let next = open(folder.path());
    assert_eq!(next.session, 2);
    assert_eq!(sources(&next), [(1, 1, "kept".into()), (1, 2, "after".into())]);
}

#[test]
fn large_file_is_cut_to_its_newer_half() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    let big = "x".repeat(200_000);
    (1..60).for_each(|line| store.append(line, big.clone()));
    let path = folder.path().join("history.jsonl");
    assert!(fs::metadata(&path).unwrap().len() > MAX_BYTES);
    let next = open(folder.path());
    assert_eq!(next.session, 2);
    assert!(fs::metadata(&path).unwrap().len() <= MAX_BYTES / 2 + 1_000);
    let lines: Vec<u32> = sources(&next).into_iter().map(|(_, line, _)| line).collect();
    assert_eq!(lines.last(), Some(&59));
    assert!(lines.len() > 15, "{lines:?}");
}

#[tokio::test]
async fn session_without_a_writable_folder_remembers_itself() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let history = CellHistory::open(Some(file.join("below a file"))).unwrap();
    history.append(1, "a".into());
    let found = history.find(Query::Tail { n: Some(5) }).await;
    assert_eq!(found, [Entry { session: 1, line: 1, source: "a".into() }]);
}
