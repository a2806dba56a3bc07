//! A patch for one topic of our changes: a text with the problem and the solution, and unified diffs of one or more files.
//!
//! The paths are those in the project's own git repository, so that `git apply` accepts the patch there, too.

use crate::error::{Error, Result};
use crate::package::Upstream;
use crate::sources::{self, Sources};
use diffy::patch_set::{ParseOptions, PatchKind, PatchSet};
use diffy::{DiffOptions, Line};

/// The patch of one topic.
#[derive(Clone, Debug)]
pub struct Patch {
    upstream: &'static Upstream,
    /// The patch's name: a number that determines the order of the patches, and words, such as `06-sums-of-rows`.
    pub topic: String,
    /// The text above the diffs.
    text: String,
    diffs: String,
}

impl Patch {
    /// Parses the content of a patch's file.
    pub(crate) fn of(upstream: &'static Upstream, topic: &str, content: &str) -> Self {
        let begin =
            if content.starts_with("--- ") { Some(0) } else { content.find("\n--- ").map(|newline| newline + 1) };
        let (text, diffs) = content.split_at(begin.unwrap_or(content.len()));
        Self { upstream, topic: topic.to_owned(), text: text.to_owned(), diffs: diffs.to_owned() }
    }

    /// The content of the patch's file.
    pub(crate) fn content(&self) -> String {
        format!("{}{}", self.text, self.diffs)
    }

    /// A hash of the diffs. The text above the diffs is not hashed, because it changes no sources.
    pub(crate) fn hash(&self) -> String {
        sources::hash(&self.diffs)
    }

    /// The first line of the text, with the problem and the solution; empty if there is none.
    pub fn title(&self) -> &str {
        self.text.lines().next().unwrap_or_default().trim()
    }

    /// Replaces the title of the patch.
    pub(crate) fn set_title(&mut self, title: &str) {
        let rest = self.text.split_once('\n').map_or("\n", |(_, rest)| rest);
        self.text = format!("{title}\n{rest}");
    }

    /// The text, and the changed files with the numbers of lines that are added and removed.
    pub(crate) fn describe(&self) -> Result<String> {
        let mut lines = vec![format!("{}: {}", self.topic, self.title())];
        let rest = self.text.lines().skip(1).filter(|line| !line.trim().is_empty());
        lines.extend(rest.map(|line| format!("    {line}")));
        for (path, diff) in self.files()? {
            let count = |is_counted: fn(&Line<'_, str>) -> bool| -> usize {
                diff.hunks().iter().flat_map(|hunk| hunk.lines()).filter(|line| is_counted(line)).count()
            };
            let added = count(|line| matches!(line, Line::Insert(_)));
            let removed = count(|line| matches!(line, Line::Delete(_)));
            lines.push(format!("    {path} +{added} -{removed}"));
        }
        Ok(lines.join("\n") + "\n")
    }

    /// Whether the patch changes the file at this path.
    pub(crate) fn changes(&self, path: &str) -> bool {
        self.diffs.contains(&format!("\n+++ b/{path}\n"))
    }

    /// Applies the patch to the project's sources.
    pub(crate) fn apply(&self, sources: &mut Sources) -> Result<()> {
        for (path, diff) in self.files()? {
            let Some(text) = sources.get_mut(&path) else {
                return Err(Error::NothingToPatch { upstream: self.upstream, topic: self.topic.clone(), path });
            };
            *text = self.applied(&path, text, &diff)?;
        }
        Ok(())
    }

    /// Reverts the patch in these texts; a file of the patch that is not among the texts is skipped.
    pub(crate) fn revert(&self, texts: &mut Sources) -> Result<()> {
        for (path, diff) in self.files()?.iter().rev() {
            if let Some(text) = texts.get_mut(path) {
                *text = self.applied(path, text, &diff.reverse())?;
            }
        }
        Ok(())
    }

    /// Replaces the diffs by those from the texts `before` to the texts `after`.
    pub(crate) fn set_diffs(&mut self, before: &Sources, after: &Sources) {
        let changed = after.iter().filter_map(|(path, after)| Some((path, before.get(path)?, after)));
        self.diffs = changed.map(|(path, before, after)| unified(path, before, after)).collect();
    }

    /// Whether the patch changes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.diffs.is_empty()
    }

    /// The changed files by path, with the diff of each.
    fn files(&self) -> Result<Vec<(String, diffy::Patch<'_, str>)>> {
        let malformed = |source| Error::Malformed { upstream: self.upstream, topic: self.topic.clone(), source };
        let files = PatchSet::parse(&self.diffs, ParseOptions::unidiff()).map(|file| {
            let PatchKind::Text(diff) = file.map_err(malformed)?.into_patch() else {
                unreachable!("a unified diff has no binary files");
            };
            let path = diff.modified().unwrap_or_default();
            Ok((path.strip_prefix("b/").unwrap_or(path).to_owned(), diff))
        });
        files.collect()
    }

    fn applied(&self, path: &str, text: &str, diff: &diffy::Patch<'_, str>) -> Result<String> {
        diffy::apply(text, diff).map_err(|source| Error::Hunk {
            upstream: self.upstream,
            topic: self.topic.clone(),
            path: path.to_owned(),
            source,
        })
    }
}

/// A unified diff with three lines of context; empty for texts that are the same.
fn unified(path: &str, before: &str, after: &str) -> String {
    if before == after {
        return String::new();
    }
    let mut options = DiffOptions::new();
    options.set_original_filename(format!("a/{path}")).set_modified_filename(format!("b/{path}"));
    options.create_patch(before, after).to_string()
}
