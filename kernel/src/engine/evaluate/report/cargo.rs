//! The reason why cargo cannot add a crate, from cargo's text: the reason first, without progress lines and without long lists.

/// The largest number of versions that a list of versions keeps.
const MOST_VERSIONS: usize = 12;

/// The crate in which evcxr tries a dependency, as cargo names it.
const TRIAL: &str = "package `evcxr_dummy_validate_dep`";

/// cargo's text with the reason in its first line; none if the text does not come from cargo.
pub(super) fn reason(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.iter().position(|line| line.starts_with("error: "))?;
    let is_progress = |line: &&str| line.starts_with("    ") || line.starts_with("warning: ");
    if !lines[..start].iter().all(is_progress) {
        return None;
    }
    let mut lines: Vec<String> =
        lines[start..].iter().map(|line| shortened(&line.replace(TRIAL, "this notebook"))).collect();
    lines[0].drain(.."error: ".len());
    // cargo names the missing feature only after the list of versions.
    let lacking = lines
        .iter()
        .position(|line| line.contains("does not have that feature") || line.contains("does not have these features"));
    if let Some(at) = lacking {
        let line = lines.remove(at);
        lines.insert(0, line);
        if let Some(at) = lines.iter().position(|line| line.starts_with(" available features: ")) {
            let line = lines.remove(at);
            lines[0] = format!("{};{line}", lines[0].trim_end_matches('.'));
        }
    } else if let Some(candidates) = lines.get(1).filter(|line| line.starts_with("candidate versions found")).cloned() {
        lines.remove(1);
        lines[0] = format!("{}; {candidates}", lines[0]);
    }
    lines.dedup_by(|line, before| line.is_empty() && before.is_empty());
    Some(lines.join("\n"))
}

/// A line without the end of a long list of versions.
fn shortened(line: &str) -> String {
    let versions: Vec<&str> = line.split(", ").collect();
    match versions.len().checked_sub(MOST_VERSIONS) {
        Some(more) if more > 0 && line.starts_with("versions that meet the requirements") => {
            format!("{} and {more} more", versions[..MOST_VERSIONS].join(", "))
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_that_is_missing_is_the_reason() {
        let versions: Vec<String> = (0..20).rev().map(|patch| format!("1.0.{patch}")).collect();
        let text = format!(
            "    Updating crates.io index\nerror: failed to select a version for `serde`.\nversions that meet the \
             requirements `^1` are: {}\n\npackage `evcxr_dummy_validate_dep` depends on `serde` with feature `x` but `serde` \
             does not have that feature.\n available features: alloc, std\n\n\nfailed to select a version",
            versions.join(", ")
        );
        let reason = reason(&text).unwrap();
        assert_eq!(
            reason.lines().next(),
            Some(
                "this notebook depends on `serde` with feature `x` but `serde` does not have that feature; available features: alloc, std"
            )
        );
        assert!(reason.contains("are: 1.0.19, ") && reason.contains(", 1.0.8 and 8 more\n"), "{reason}");
        assert!(!reason.contains("\n\n\n") && !reason.contains("Updating"), "{reason}");
    }

    #[test]
    fn a_version_that_is_missing_is_the_reason_with_those_that_there_are() {
        let text = "    Updating crates.io index\nerror: failed to select a version for the requirement `itoa = \"^99\"`\n\
                    candidate versions found which didn't match: 1.0.19, 1.0.18, ...\nlocation searched: crates.io index";
        let expected = "failed to select a version for the requirement `itoa = \"^99\"`; candidate versions found which \
                        didn't match: 1.0.19, 1.0.18, ...\nlocation searched: crates.io index";
        assert_eq!(reason(text).as_deref(), Some(expected));
    }

    #[test]
    fn a_text_of_the_compiler_is_left_as_it_is() {
        for text in ["expected `;`", "mismatched types\nerror: of the user", ""] {
            assert_eq!(reason(text), None);
        }
    }
}
