//! Rules for Rust files: the heading, the length, and the modules that may have unsafe code, or read the system's own files.

/// The largest number of lines of a file whose heading gives no reason for its length.
const LONGEST_LINES: usize = 400;
/// The beginning of that reason.
const REASON: &str = "long because";
/// A module that may export names without mangling, and may have no other unsafe code.
const EXPORTS_ONLY: &str = "prelude/src/cell.rs";

/// The beginnings of literals with the path of a file of the system's own, and the calls by which Linux alone holds processes and
/// files in memory.
const SYSTEM: [&str; 6] =
    ["\"/proc", "\"/sys/", "pidfd_", "set_child_subreaper", "set_parent_process_death_signal", "memfd_create"];
/// Folders whose files may use those: tests, tasks, and what others have written.
const NOT_SHIPPED: [&str; 4] = ["/examples/", "/tests/", "patched/", "xtask/"];

/// The modules that may do what others may not.
pub(super) struct Fences {
    pub(super) unsafe_code: Vec<String>,
    /// Those that read the system's own files, and hold processes.
    pub(super) system: Vec<String>,
}

/// Checks one file.
pub(super) fn check(path: &str, source: &str, fences: &Fences) -> Vec<String> {
    let mut complaints = Vec::new();
    let heading: Vec<&str> = source.lines().take_while(|line| line.starts_with("//!")).collect();
    if heading.is_empty() {
        complaints.push(format!("{path}: the first line is not a //! comment; say what the file is for"));
    }
    let lines = source.lines().count();
    if lines > LONGEST_LINES && !heading.join(" ").contains(REASON) {
        complaints.push(format!("{path}: has {lines} lines; split it, or say `{REASON} …` in its heading"));
    }
    complaints.extend(asks_the_system(path, source, &fences.system));
    let fenced_off = fences.unsafe_code.iter().any(|module| is_inside(path, module));
    if fenced_off && path != EXPORTS_ONLY {
        return complaints;
    }
    for (index, line) in without_texts(source).lines().enumerate() {
        if has_unsafe(line, fenced_off) {
            complaints
                .push(format!("{path}:{}: unsafe code outside the modules that ARCHITECTURE.md lists", index + 1));
        }
    }
    complaints
}

/// Complains about a module that reads the system's own files, or holds a process, outside of its tests, and is not one of those that may.
fn asks_the_system(path: &str, source: &str, fenced: &[String]) -> Option<String> {
    let is_shipped = !NOT_SHIPPED.iter().any(|folder| path.contains(folder)) && !path.starts_with("tests/");
    if !is_shipped || fenced.iter().any(|module| is_inside(path, module)) {
        return None;
    }
    let own = source.split("#[cfg(test)]\nmod ").next()?;
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let asks = |line: &str| SYSTEM.iter().any(|file| line.contains(file));
    let at = own.lines().position(|line| is_code(&line) && asks(line))? + 1;
    Some(format!("{path}:{at}: asks the system outside the modules that ARCHITECTURE.md lists; ask `machine`"))
}

/// Whether `path` is the module, in its own file or in its folder.
fn is_inside(path: &str, module: &str) -> bool {
    let rest = path.strip_prefix(module.strip_suffix(".rs").unwrap_or(module));
    rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// Whether a line has the keyword `unsafe`; `#[unsafe(no_mangle)]` does not count with `exports_are_fine`.
fn has_unsafe(line: &str, exports_are_fine: bool) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices("unsafe").any(|(start, word)| {
        let after = &line[start + word.len()..];
        let alone = !line[..start].ends_with(is_word) && !after.starts_with(is_word);
        alone && !(exports_are_fine && after.starts_with("(no_mangle)"))
    })
}

/// The source with blanks in place of comments and literals, and with the same lines.
fn without_texts(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = text_length(rest, code.chars().next_back());
        if length == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            code.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[length..];
        }
    }
    code
}

/// The length in bytes of the comment or literal at the start of `rest`; 0 if `rest` starts with code.
fn text_length(rest: &str, before: Option<char>) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return rest.find("*/").map_or(rest.len(), |end| end + 2);
    }
    if rest.starts_with('"') {
        return quoted_length(rest);
    }
    if rest.starts_with('\'') {
        return char_length(rest);
    }
    if rest.starts_with('r') && !before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
        return raw_length(rest);
    }
    0
}

fn quoted_length(rest: &str) -> usize {
    let mut escaped = false;
    for (index, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return index + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of a character literal; 0 for a lifetime.
fn char_length(rest: &str) -> usize {
    let mut characters = rest.char_indices().skip(1);
    match characters.next() {
        Some((_, '\\')) => rest[3..].find('\'').map_or(0, |end| end + 4),
        Some(_) => characters.next().filter(|(_, c)| *c == '\'').map_or(0, |(end, _)| end + 1),
        None => 0,
    }
}

/// The length of a raw string; 0 for a name that begins with r.
fn raw_length(rest: &str) -> usize {
    let hashes = rest[1..].chars().take_while(|c| *c == '#').count();
    let Some(body) = rest[1 + hashes..].strip_prefix('"') else { return 0 };
    let end = format!("\"{}", "#".repeat(hashes));
    body.find(&end).map_or(rest.len(), |found| rest.len() - body.len() + found + end.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, source: &str) -> usize {
        let unsafe_code = vec!["tuner/src/process".to_owned(), EXPORTS_ONLY.to_owned()];
        check(path, source, &Fences { unsafe_code, system: vec!["machine".to_owned()] }).len()
    }

    #[test]
    fn the_system_is_asked_in_its_modules() {
        let source = "//! x\n// \"/proc/a\"\nfn f() { fs::read(\"/proc/self/maps\") }\n";
        assert_eq!(complaints("tuner/src/search.rs", source), 1);
        assert_eq!(complaints("machine/src/own.rs", source), 0);
        assert_eq!(complaints("tuner/trial/examples/memory.rs", source), 0);
        assert_eq!(complaints("tuner/src/search.rs", &source.replace("fn f", "#[cfg(test)]\nmod tests { fn f")), 0);
        assert_eq!(complaints("tuner/src/search.rs", "//! x\nuse rustix::process::pidfd_open;\n"), 1);
    }

    #[test]
    fn a_file_opens_with_what_it_is_for() {
        assert_eq!(complaints("a.rs", "//! Does this.\nfn f() {}\n"), 0);
        assert_eq!(complaints("a.rs", "// Does this.\nfn f() {}\n"), 1);
        assert_eq!(complaints("a.rs", ""), 1);
    }

    #[test]
    fn a_long_file_gives_its_reason() {
        let body = "fn f() {}\n".repeat(LONGEST_LINES);
        assert_eq!(complaints("a.rs", &format!("//! A table.\n{body}")), 1);
        assert_eq!(complaints("a.rs", &format!("//! A table,\n//! long because it is one.\n{body}")), 0);
    }

    #[test]
    fn unsafe_code_stays_in_its_modules() {
        let source = "//! x\nfn f() { unsafe { g() } }\n";
        assert_eq!(complaints("tuner/src/search.rs", source), 1);
        assert_eq!(complaints("tuner/src/process.rs", source), 0);
        assert_eq!(complaints("tuner/src/process/worker.rs", source), 0);
        assert_eq!(complaints("tuner/src/processes.rs", source), 1);
    }

    #[test]
    fn the_prelude_may_export_names_and_no_more() {
        assert_eq!(complaints(EXPORTS_ONLY, "//! x\n#[unsafe(no_mangle)]\nextern \"C\" fn f() {}\n"), 0);
        assert_eq!(complaints(EXPORTS_ONLY, "//! x\nfn f() { unsafe { g() } }\n"), 1);
        assert_eq!(complaints("prelude/src/lib.rs", "//! x\n#[unsafe(no_mangle)]\nfn f() {}\n"), 1);
    }

    #[test]
    fn the_word_in_a_comment_or_a_literal_is_no_code() {
        let texts = [
            "// unsafe",
            "/* unsafe\n unsafe */",
            "let a = \"unsafe \\\" unsafe\";",
            "let a = r#\"unsafe \" unsafe\"#;",
            "let a = ('\"', \"unsafe\");",
            "let a = ('\\'', \"unsafe\");",
            "#![deny(unsafe_code)]",
        ];
        for text in texts {
            assert_eq!(complaints("a.rs", &format!("//! x\n{text}\n")), 0, "{text}");
        }
        assert_eq!(complaints("a.rs", "//! x\nfn f<'a>(x: &'a str) { unsafe { g(x) } }\n"), 1);
    }
}
