//! Rules for text files: paths of one machine, outputs of notebooks, and the paths in pages for contributors.

use std::path::Path;

/// The prefixes of paths that exist on one machine only, in two parts so that this file does not contain one.
const MACHINE_PATHS: [[&str; 2]; 3] = [["/ro", "ot/"], ["/ho", "me/"], ["/wo", "rk/"]];
/// The user name that examples may have.
const EXAMPLE: &str = "me/";
/// The start of the line of ARCHITECTURE.md that lists the modules with unsafe code.
pub(super) const UNSAFE: &str = "* **Unsafe code**";
/// The start of the line that lists the modules that read the system's own files.
pub(super) const SYSTEM: &str = "* **The system's own files**";
/// The extensions that make a name without a folder a path.
const EXTENSIONS: [&str; 7] = [".rs", ".py", ".md", ".toml", ".ipynb", ".lock", ".txt"];

/// Checks a text file.
pub(super) fn check(path: &str, content: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, line) in content.lines().enumerate() {
        if let Some(found) = machine_path(line) {
            complaints.push(format!("{path}:{}: {found} exists on one machine only", index + 1));
        }
    }
    complaints
}

fn machine_path(line: &str) -> Option<String> {
    MACHINE_PATHS.iter().map(|pieces| pieces.concat()).find(|folder| {
        line.match_indices(folder.as_str()).any(|(start, _)| {
            let before = line[..start].chars().next_back();
            let begins = before.is_none_or(|before| !before.is_alphanumeric() && !"._-/~}$".contains(before));
            begins && !line[start + folder.len()..].starts_with(EXAMPLE)
        })
    })
}

/// Complains about outputs and execution counts that are stored in a notebook.
pub(super) fn stored_outputs(path: &str, content: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (key, empty) in [("\"outputs\":", "[]"), ("\"execution_count\":", "null")] {
        let stored = content.match_indices(key).any(|(start, _)| {
            // A quote in a cell's source is escaped, so this key is the notebook's own.
            let value: String = content[start + key.len()..].chars().filter(|c| !c.is_whitespace()).take(4).collect();
            !content[..start].ends_with('\\') && !value.starts_with(empty)
        });
        if stored {
            complaints.push(format!("{path}: has stored {key} clear all outputs before saving"));
        }
    }
    complaints
}

/// Complains about paths in backticks that do not exist, in a page whose paths begin at the root.
pub(super) fn missing_paths(page: &str, content: &str, root: &Path) -> Vec<String> {
    let missing = backticked(content).filter(|name| is_path(name) && !root.join(name).exists());
    missing.map(|name| format!("{page} names {name}, which does not exist")).collect()
}

/// The modules that a line of ARCHITECTURE.md lists.
pub(super) fn modules(architecture: &str, beginning: &str) -> Vec<String> {
    let lines = architecture.lines().filter(|line| line.starts_with(beginning));
    lines.flat_map(backticked).filter(|name| is_path(name)).map(str::to_owned).collect()
}

/// The texts between single backticks, outside of code blocks.
pub(super) fn backticked(text: &str) -> impl Iterator<Item = &str> {
    let in_prose = text.split("```").step_by(2);
    in_prose.flat_map(|prose| prose.split('`').skip(1).step_by(2))
}

fn is_path(name: &str) -> bool {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    let made = name.starts_with("target/") || name.starts_with('/');
    plain && !made && (name.contains('/') || EXTENSIONS.iter().any(|extension| name.ends_with(extension)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn paths_of_one_machine_are_found_and_others_are_not() {
        let [folder, home, _] = MACHINE_PATHS.map(|pieces| pieces.concat());
        for line in [format!("see {folder}x"), format!("\"{home}someone/x\""), folder.clone()] {
            assert_eq!(check("a.md", &line).len(), 1, "{line}");
        }
        for line in [format!("a{folder}x"), format!("{home}me/venv"), "/usr/lib".to_owned()] {
            assert!(check("a.md", &line).is_empty(), "{line}");
        }
    }

    #[test]
    fn notebooks_with_outputs_or_counts_are_found() {
        let clean = r#"{"execution_count": null, "outputs": [], "source": ["let \"outputs\": [1]"]}"#;
        assert!(stored_outputs("a.ipynb", clean).is_empty());
        assert_eq!(stored_outputs("a.ipynb", &clean.replace("null", "3")).len(), 1);
        assert_eq!(stored_outputs("a.ipynb", &clean.replace("[],", "[\n{}],")).len(), 1);
    }

    #[test]
    fn a_path_that_does_not_exist_is_found() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("kernel/src")).unwrap();
        let text =
            "`kernel/src` and `kernel/gone.rs`, `cargo xtask tidy`, `target/venv`\n```text\n`no/path`\n```\n`gone.md`";
        let missing = missing_paths("ARCHITECTURE.md", text, root.path());
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(missing[0].contains("kernel/gone.rs") && missing[1].contains("gone.md"));
    }

    #[test]
    fn modules_are_read_from_their_line_alone() {
        let text =
            format!("* `a/b.rs`\n{UNSAFE} is in `c/d` and `e/f.rs` only.\n{SYSTEM} in `/proc` are read in `g/src`.\n");
        assert_eq!(modules(&text, UNSAFE), ["c/d", "e/f.rs"]);
        assert_eq!(modules(&text, SYSTEM), ["g/src"]);
    }
}
