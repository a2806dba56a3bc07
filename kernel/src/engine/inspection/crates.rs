//! Completion of crates and versions behind `:dep` and `%dep`, from cargo's local copy of the index. Uses no network.

use crate::execution::{Completion, Completions};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The largest number of names in a completion.
const MOST_NAMES: usize = 100;

/// Completions for the end of a line that adds a crate; none for any other line. Offsets are offsets in the line.
pub(super) fn complete(line: &str) -> Option<Completions> {
    let rest = line.trim_start().strip_prefix(":dep ").or_else(|| line.trim_start().strip_prefix("%dep "))?;
    let end = line.len();
    let of_words = |start: usize, words: Vec<String>| {
        let completion = |text| Completion { text, kind: "module".to_owned(), signature: String::new() };
        Some(Completions { start, end, matches: words.into_iter().map(completion).collect() })
    };
    let name = rest.trim_start();
    if name.chars().all(is_of_name) {
        return of_words(end - name.len(), names(name));
    }
    let (before, typed) = name.rsplit_once(['"', '@']).filter(|(_, typed)| !typed.contains(' '))?;
    let (name, value) = before.split_at(before.find(|c| !is_of_name(c)).unwrap_or(before.len()));
    let value = value.trim();
    let is_version = value.is_empty() || value == "=" || value.trim_end_matches([' ', '=']).ends_with("version");
    of_words(end - typed.len(), if is_version { versions(name, typed) } else { Vec::new() })
}

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_' || character == '-'
}

/// The crates that begin with `typed`, sorted. The list is empty if `typed` is empty: all crates would be too many.
fn names(typed: &str) -> Vec<String> {
    let mut names = Vec::new();
    if !typed.is_empty() {
        indices().iter().for_each(|index| collect(index, typed, &mut names));
    }
    names.sort_unstable();
    names.dedup();
    names.truncate(MOST_NAMES);
    names
}

/// Collects the crates of an index. Each file has the name of its crate, in folders named by its first letters: `it/oa/itoa`.
fn collect(folder: &Path, typed: &str, names: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            collect(&entry.path(), typed, names);
        } else if let Ok(name) = entry.file_name().into_string()
            && name.starts_with(typed)
        {
            names.push(name);
        }
    }
}

/// The versions of a crate that begin with `typed` and are not yanked, the newest first.
fn versions(name: &str, typed: &str) -> Vec<String> {
    let files = indices().into_iter().map(|index| index.join(place(name)));
    let mut versions: Vec<String> =
        files.filter_map(|file| fs::read(file).ok()).flat_map(|file| listed(&file)).collect();
    versions.reverse();
    versions.retain(|version| version.starts_with(typed));
    versions
}

/// The versions in a file of the index, without yanked ones. The file has one JSON object and a zero byte for each version.
fn listed(file: &[u8]) -> Vec<String> {
    let objects = file.split(|byte| *byte == 0).filter_map(|part| serde_json::from_slice::<Value>(part).ok());
    let kept = objects.filter(|object| object["yanked"] != true);
    kept.filter_map(|object| Some(object["vers"].as_str()?.to_owned())).collect()
}

/// The path of a crate's file in an index.
fn place(name: &str) -> PathBuf {
    let name = name.to_lowercase();
    match (name.len(), name.get(..1), name.get(..2), name.get(2..4)) {
        (1 | 2, ..) => PathBuf::from(name.len().to_string()).join(name),
        (3, Some(first), ..) => Path::new("3").join(first).join(&name),
        (_, _, Some(first), Some(second)) => Path::new(first).join(second).join(&name),
        _ => PathBuf::from(name),
    }
}

/// The folders of cargo's local copies of indices.
fn indices() -> Vec<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(dirs::home_dir()?.join(".cargo")));
    let folders = home.map(|home| fs::read_dir(home.join("registry/index"))).into_iter().flatten().flatten().flatten();
    folders.map(|folder| folder.path().join(".cache")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_index_are_found_and_read() {
        let places = ["a", "ab", "abc", "itoa", "Serde"].map(place);
        assert_eq!(places, ["1/a", "2/ab", "3/a/abc", "it/oa/itoa", "se/rd/serde"].map(PathBuf::from));
        let file = b"\x03\x02\0\0\0etag: x\x000.1.0\0{\"vers\":\"0.1.0\",\"yanked\":true}\x000.2.0\0{\"vers\":\"0.2.0\",\"yanked\":false}\0";
        assert_eq!(listed(file), ["0.2.0"]);
    }

    #[test]
    fn only_a_version_is_completed_in_quotation_marks() {
        assert_eq!(complete("let a = 1"), None);
        assert_eq!(complete("%dep  itoa@1 --fe"), None);
        assert_eq!(complete("%dep  itoa@1").unwrap().start, 11);
        let path = complete(":dep itoa = { path = \"1").unwrap();
        assert_eq!((path.start, path.matches), (22, Vec::new()));
        assert_eq!(complete(":dep itoa = \"1").unwrap().start, 13);
        assert_eq!(complete("%dep it").unwrap().start, 5);
    }
}
