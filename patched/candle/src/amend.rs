//! Computes a new patch for a topic, so that all patches together give the sources that a developer has edited.

use crate::changes::Changes;
use crate::diff::Topic;
use crate::error::{Error, Result};
use crate::patch::Patch;
use crate::sources::Sources;
use std::collections::BTreeMap;

/// The text of each edited file; none if the file is deleted.
pub(crate) type Edits = BTreeMap<String, Option<String>>;

impl Changes {
    /// Changes the patch of a topic and our own files, so that their result, now `made`, has the `edits`.
    ///
    /// # Errors
    ///
    /// A later patch changes the same lines.
    pub(crate) fn amend(&mut self, topic: &Topic, original: &Sources, mut made: Sources, edits: &Edits) -> Result<()> {
        let mut patched = Sources::new();
        for (path, text) in edits {
            set(&mut made, path, text.as_ref());
            let texts = if original.contains_key(path) { &mut patched } else { &mut self.files };
            set(texts, path, text.as_ref());
        }
        if !patched.is_empty() {
            self.amend_patch(topic, original, patched).map_err(|error| overlap(error, topic))?;
        }
        let mut given = original.clone();
        self.apply(&mut given).map_err(|error| overlap(error, topic))?;
        let mut paths = made.keys().chain(given.keys());
        let Some(path) = paths.find(|path| given.get(*path) != made.get(*path)) else { return Ok(()) };
        // The reverse of a later patch was applied at another place than the patch itself.
        let later = self.patches.iter().rfind(|patch| patch.changes(path)).map_or(&topic.name, |patch| &patch.topic);
        let (path, topic, later) = (path.clone(), topic.name.clone(), later.clone());
        Err(Error::Overlap { upstream: self.upstream, path, topic, later })
    }

    /// Changes the patch of a topic, so that this patch and the later ones give these texts.
    fn amend_patch(&mut self, topic: &Topic, original: &Sources, mut texts: Sources) -> Result<()> {
        let upstream = self.upstream;
        let position = self.patches.partition_point(|patch| patch.topic < topic.name);
        if self.patches.get(position).is_none_or(|patch| patch.topic != topic.name) {
            self.patches.insert(position, Patch::of(upstream, &topic.name, ""));
        }
        let (earlier, rest) = self.patches.split_at_mut(position);
        let Some((patch, later)) = rest.split_first_mut() else {
            unreachable!("the patch of the topic is at its position")
        };
        if let Some(title) = &topic.title {
            patch.set_title(title);
        }
        if patch.title().is_empty() {
            return Err(Error::Untitled { upstream, topic: topic.name.clone() });
        }
        let mut before = original.clone();
        for patch in earlier {
            patch.apply(&mut before)?;
        }
        let mut after = before.clone();
        if !patch.is_empty() {
            patch.apply(&mut after)?;
        }
        for patch in later.iter().rev() {
            patch.revert(&mut texts)?;
        }
        after.append(&mut texts);
        patch.set_diffs(&before, &after);
        self.patches.retain(|patch| !patch.is_empty());
        Ok(())
    }
}

/// Sets the text of a file, or removes the file if there is no text.
fn set(sources: &mut Sources, path: &str, text: Option<&String>) {
    match text {
        Some(text) => sources.insert(path.to_owned(), text.clone()),
        None => sources.remove(path),
    };
}

/// The error for an edit that a later patch does not fit.
fn overlap(error: Error, topic: &Topic) -> Error {
    match error {
        Error::Hunk { upstream, topic: later, path, .. } => {
            Error::Overlap { upstream, path, topic: topic.name.clone(), later }
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::CANDLE;

    const PATH: &str = "candle-core/src/a.rs";
    const NEW: &str = "candle-nn/src/new.rs";

    /// A text with the numbers from 1 to 30, one a line, some of them as words.
    fn numbers(words: &[(usize, &str)]) -> String {
        let word = |line| words.iter().find(|(number, _)| *number == line).map(|(_, word)| (*word).to_owned());
        (1..=30).map(|line| word(line).unwrap_or(line.to_string()) + "\n").collect()
    }

    fn original() -> Sources {
        Sources::from([(PATH.to_owned(), numbers(&[])), ("candle-nn/src/b.rs".to_owned(), "b\n".to_owned())])
    }

    fn made(changes: &Changes) -> Sources {
        let mut made = original();
        changes.apply(&mut made).unwrap();
        made
    }

    fn topic(name: &str) -> Topic {
        Topic { name: name.to_owned(), title: Some(format!("The title of {name}")) }
    }

    /// Writes an edit into a topic; without a text, the file is deleted.
    fn amend(changes: &mut Changes, topic: &Topic, path: &str, text: Option<&str>) -> Result<()> {
        let edits = Edits::from([(path.to_owned(), text.map(str::to_owned))]);
        changes.amend(topic, &original(), made(changes), &edits)
    }

    /// Changes with two topics that patch one file.
    fn two() -> Changes {
        let mut changes = Changes::of(&CANDLE, &Sources::new());
        for (name, words) in [("01-five", [(5, "five")].as_slice()), ("02-twenty", &[(5, "five"), (20, "twenty")])] {
            amend(&mut changes, &topic(name), PATH, Some(&numbers(words))).unwrap();
        }
        changes
    }

    fn contents(changes: &Changes) -> Vec<String> {
        changes.patches.iter().map(Patch::content).collect()
    }

    #[test]
    fn a_new_topic_has_its_title_and_nothing_of_earlier_topics() {
        let changes = two();
        let expected = "The title of 02-twenty\n\n--- a/candle-core/src/a.rs\n+++ b/candle-core/src/a.rs\n\
                        @@ -17,7 +17,7 @@\n 17\n 18\n 19\n-20\n+twenty\n 21\n 22\n 23\n";
        assert_eq!(contents(&changes)[1], expected);
        assert_eq!(made(&changes)[PATH], numbers(&[(5, "five"), (20, "twenty")]));
    }

    #[test]
    fn an_edit_of_an_earlier_topic_leaves_the_later_one_as_it_is() {
        let mut changes = two();
        let later = contents(&changes).remove(1);
        let edit = numbers(&[(5, "five\nand a half"), (20, "twenty"), (30, "thirty")]);
        let untitled = Topic { name: "01-five".to_owned(), title: None };
        amend(&mut changes, &untitled, PATH, Some(&edit)).unwrap();
        assert_eq!(made(&changes)[PATH], edit);
        let now = contents(&changes);
        assert_eq!(now[1], later);
        assert!(
            now[0].starts_with("The title of 01-five\n\n--- a/") && now[0].contains("\n-30\n+thirty\n"),
            "{}",
            now[0]
        );
    }

    #[test]
    fn a_new_topic_between_others_is_applied_between_them() {
        let mut changes = two();
        let edit = numbers(&[(5, "FIVE"), (20, "twenty")]);
        amend(&mut changes, &topic("01-loud"), PATH, Some(&edit)).unwrap();
        let topics: Vec<&str> = changes.patches.iter().map(|patch| patch.topic.as_str()).collect();
        assert_eq!(topics, ["01-five", "01-loud", "02-twenty"]);
        assert!(contents(&changes)[1].contains("\n-five\n+FIVE\n"));
        assert_eq!(made(&changes)[PATH], edit);
    }

    #[test]
    fn an_edit_of_lines_that_a_later_topic_changes_belongs_there() {
        for words in [[(5, "five"), (20, "TWENTY")], [(18, "eighteen"), (20, "twenty")]] {
            let mut changes = two();
            let edit = numbers(&words);
            let error = amend(&mut changes, &topic("01-five"), PATH, Some(&edit)).unwrap_err();
            assert_eq!(
                error.to_string(),
                "the edit of candle-core/src/a.rs changes or touches lines of 02-twenty, which is applied after 01-five; write \
                 it into that one with `cargo xtask candle --diff 02-twenty`"
            );
            let mut changes = two();
            amend(&mut changes, &topic("02-twenty"), PATH, Some(&edit)).unwrap();
            assert_eq!(made(&changes)[PATH], edit);
        }
    }

    #[test]
    fn a_topic_that_changes_nothing_any_more_is_removed() {
        let mut changes = two();
        amend(&mut changes, &topic("01-five"), PATH, Some(&numbers(&[(20, "twenty")]))).unwrap();
        assert_eq!(contents(&changes).len(), 1);
        assert_eq!(changes.patches[0].topic, "02-twenty");
    }

    #[test]
    fn a_topic_changes_several_packages_and_new_files_are_ours() {
        let mut changes = two();
        amend(&mut changes, &topic("02-twenty"), "candle-nn/src/b.rs", Some("c\n")).unwrap();
        assert!(
            contents(&changes)[1]
                .ends_with("--- a/candle-nn/src/b.rs\n+++ b/candle-nn/src/b.rs\n@@ -1 +1 @@\n-b\n+c\n")
        );
        assert_eq!(made(&changes)[PATH], numbers(&[(5, "five"), (20, "twenty")]));
        let unused = Topic { name: "09-unused".to_owned(), title: None };
        amend(&mut changes, &unused, NEW, Some("new\n")).unwrap();
        assert_eq!((changes.files[NEW].as_str(), changes.patches.len()), ("new\n", 2));
        amend(&mut changes, &unused, NEW, None).unwrap();
        assert!(changes.files.is_empty());
    }

    #[test]
    fn a_new_topic_needs_a_title_which_can_be_replaced() {
        let mut changes = two();
        let untitled = Topic { name: "03-six".to_owned(), title: None };
        let edit = numbers(&[(5, "five"), (6, "six"), (20, "twenty")]);
        let error = amend(&mut changes, &untitled, PATH, Some(&edit)).unwrap_err();
        assert!(error.to_string().contains("--diff 03-six --title"), "{error}");
        let mut changes = two();
        let titled = Topic { name: "02-twenty".to_owned(), title: Some("Another title".to_owned()) };
        amend(&mut changes, &titled, PATH, Some(&edit)).unwrap();
        assert_eq!(changes.patches[1].title(), "Another title");
    }
}
