//! The notebook's state that neither evcxr nor the cell supervisor has: numbers of cells, the memory limit and the last
//! study.

use super::{files, studies};
use crate::execution::LiveDisplay;
use crate::failure::{ErrorName, Failure};
use ferrotune_magics::Study;
use ferrotune_tuner::spec::StudySpec;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// So many studies are named where a magic names none.
const MOST_NAMES: usize = 12;

#[derive(Default)]
pub(super) struct Notebook {
    /// The number of the last cell that `%undo` counts.
    cells: u64,
    /// Number of the cell that runs or ran last; none if `%undo` does not count it.
    pub(super) cell: Option<u64>,
    /// The number that Jupyter shows beside the cell that runs or ran last; none if it shows none.
    pub(super) count: Option<u32>,
    /// How many bytes a cell may hold, as `%memory limit` says.
    pub(super) memory_limit: Option<u64>,
    /// Number of the last table of `%memory`. The thread of a watched table ends once there is a later one.
    pub(super) tables: Arc<AtomicU64>,
    /// Folder of the study of the last search.
    pub(super) last_study: Option<PathBuf>,
    /// The folder before the last `%cd`.
    pub(super) previous_folder: Option<PathBuf>,
    /// `%cd` has changed the folder since the last study was used.
    pub(super) has_moved: bool,
    /// The files that `%run` runs now, the innermost last.
    pub(super) running_files: Vec<PathBuf>,
    searches: u64,
}

impl Notebook {
    /// Numbers the cell that begins; none if `%undo` does not count it.
    pub(super) fn begin_cell(&mut self, can_be_undone: bool) -> Option<u64> {
        self.cells += u64::from(can_be_undone);
        self.cell = can_be_undone.then_some(self.cells);
        self.cell
    }

    /// A new display for a search.
    pub(super) fn search_display(&mut self) -> LiveDisplay {
        self.searches += 1;
        LiveDisplay::new(format!("ferrotune-search-{}-{}", std::process::id(), self.searches))
    }

    /// Later magics that name no study are about this one.
    pub(super) fn remember_study(&mut self, folder: PathBuf) {
        (self.last_study, self.has_moved) = (Some(folder), false);
    }

    /// The named folder of studies, or else that of the last study unless `%cd` came after it, or else the default of `%%tune`.
    pub(super) fn directory(&self, named: Option<&str>) -> PathBuf {
        let last = self.last_study.as_deref().filter(|_| !self.has_moved).and_then(Path::parent);
        match named {
            Some(named) => PathBuf::from(files::expanded_text(named)),
            None => last.map_or_else(|| StudySpec::default().directory, Path::to_path_buf),
        }
    }

    /// The folder of the named study, or else of the last one.
    pub(super) fn folder_of(&self, study: &Study) -> Result<PathBuf, Failure> {
        match (&study.project, &self.last_study) {
            (Some(project), _) => Ok(self.directory(study.directory.as_deref()).join(project)),
            (None, _) if study.directory.is_some() => {
                Err(self.no_study("--directory alone names no study", study.directory.as_deref()))
            }
            (None, Some(last)) => Ok(last.clone()),
            (None, None) => Err(self.no_study("no search has run in this notebook", None)),
        }
    }

    /// The failure of a magic that does not say which study it is about.
    fn no_study(&self, problem: &str, named: Option<&str>) -> Failure {
        let directory = self.directory(named);
        let names = studies::names_in(&directory);
        let shown = names.iter().take(MOST_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = match names.len().saturating_sub(MOST_NAMES) {
            0 => String::new(),
            more => format!(" and {more} more, which %studies lists"),
        };
        let folder = directory.display();
        let text = if names.is_empty() {
            format!("{problem}, and there is none in {folder}; name its folder with --directory")
        } else {
            format!(
                "{problem}; name one of those in {folder} (--project NAME, %space NAME, %resume NAME): {shown}{more}"
            )
        };
        Failure::new(ErrorName::MagicError, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_study_that_is_not_named_is_the_last_one() {
        let mut notebook = Notebook::default();
        let folder = |notebook: &Notebook, project: Option<&str>, directory: Option<&str>| {
            let study = Study { project: project.map(str::to_owned), directory: directory.map(str::to_owned) };
            notebook.folder_of(&study).map_err(|failure| failure.text)
        };
        assert_eq!(folder(&notebook, Some("a"), None), Ok("studies/a".into()));
        assert_eq!(folder(&notebook, Some("a"), Some("/x")), Ok("/x/a".into()));
        assert!(
            folder(&notebook, None, None).is_err_and(|text| text.starts_with("no search has run in this notebook"))
        );
        notebook.last_study = Some("/y/last".into());
        assert_eq!(folder(&notebook, None, None), Ok("/y/last".into()));
        assert_eq!(folder(&notebook, Some("a"), None), Ok("/y/a".into()));
        assert!(folder(&notebook, None, Some("/x")).is_err_and(|text| text.starts_with("--directory alone")));
        notebook.has_moved = true;
        assert_eq!(folder(&notebook, None, None), Ok("/y/last".into()));
        assert_eq!(folder(&notebook, Some("a"), None), Ok("studies/a".into()));
    }

    #[test]
    fn magic_without_a_study_names_those_in_the_folder() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let directory = folder.path().display().to_string();
        let study = Study { project: None, directory: Some(directory.clone()) };
        let text = || Notebook::default().folder_of(&study).map_err(|failure| failure.text);
        assert!(text().is_err_and(|text| text.contains(&format!("there is none in {directory}"))));
        for number in 0..MOST_NAMES + 2 {
            let study = folder.path().join(format!("s{number}"));
            std::fs::create_dir(&study)?;
            std::fs::write(study.join("journal.log"), "")?;
        }
        let text = text().unwrap_err();
        assert!(text.contains(&format!("name one of those in {directory} (--project NAME, ")), "{text}");
        assert!(text.ends_with(" and 2 more, which %studies lists"), "{text}");
        Ok(())
    }

    #[test]
    fn only_cells_that_can_be_undone_have_numbers() {
        let mut notebook = Notebook::default();
        assert_eq!([true, false, true].map(|counts| notebook.begin_cell(counts)), [Some(1), None, Some(2)]);
    }
}
