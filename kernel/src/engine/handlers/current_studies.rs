//! The default study of magics that name no study, and the default folder of studies.

use crate::engine::handlers::{files, studies};
use crate::failure::{ErrorName, Failure};
use ferrotune_magics::Study;
use ferrotune_space::spec::StudySpec;
use std::path::{Path, PathBuf};

/// The largest number of studies that the error of a magic without a study lists.
const MOST_NAMES: usize = 12;

/// The notebook's current studies: the study of the last search, and all studies that searches of this notebook have used.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct CurrentStudies {
    /// Folder of the study of the last search.
    pub(in crate::engine) last_study: Option<PathBuf>,
    /// Folders of the studies that searches of this notebook have begun or continued, the most recent last.
    pub(in crate::engine) begun: Vec<PathBuf>,
    /// Whether `%cd` has changed the working folder since the last study was used.
    pub(in crate::engine) has_moved: bool,
}

impl CurrentStudies {
    /// Makes a study the default of later magics that name no study.
    pub(in crate::engine) fn remember_study(&mut self, folder: PathBuf) {
        (self.last_study, self.has_moved) = (Some(folder), false);
    }

    /// Records that a search of this notebook runs in a study's folder.
    pub(in crate::engine) fn begin(&mut self, folder: PathBuf) {
        self.begun.retain(|known| *known != folder);
        self.begun.push(folder.clone());
        self.remember_study(folder);
    }

    /// The folder of studies: the named folder, or else the folder that holds the last study. The default of `%%tune` applies if there
    /// is no last study, or if `%cd` came after it.
    pub(in crate::engine) fn directory(&self, named: Option<&str>) -> PathBuf {
        let last = self.last_study.as_deref().filter(|_| !self.has_moved).and_then(Path::parent);
        match named {
            Some(named) => PathBuf::from(files::expanded_text(named)),
            None => last.map_or_else(|| StudySpec::default().directory, Path::to_path_buf),
        }
    }

    /// The folder of the named study, or else of the last study.
    pub(in crate::engine) fn folder_of(&self, study: &Study) -> Result<PathBuf, Failure> {
        match (&study.project, &self.last_study) {
            (Some(project), _) => Ok(self.directory(study.directory.as_deref()).join(project)),
            (None, _) if study.directory.is_some() => {
                Err(self.no_study("--directory alone names no study", study.directory.as_deref()))
            }
            (None, Some(last)) => Ok(last.clone()),
            (None, None) => Err(self.no_study("no search has run in this notebook", None)),
        }
    }

    /// The failure of a magic that needs a study and names none.
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
        let mut current_studies = CurrentStudies::default();
        let folder = |current_studies: &CurrentStudies, project: Option<&str>, directory: Option<&str>| {
            let study = Study { project: project.map(str::to_owned), directory: directory.map(str::to_owned) };
            current_studies.folder_of(&study).map_err(|failure| failure.text)
        };
        assert_eq!(folder(&current_studies, Some("a"), None), Ok("studies/a".into()));
        assert_eq!(folder(&current_studies, Some("a"), Some("/x")), Ok("/x/a".into()));
        assert!(
            folder(&current_studies, None, None)
                .is_err_and(|text| text.starts_with("no search has run in this notebook"))
        );
        current_studies.last_study = Some("/y/last".into());
        assert_eq!(folder(&current_studies, None, None), Ok("/y/last".into()));
        assert_eq!(folder(&current_studies, Some("a"), None), Ok("/y/a".into()));
        assert!(folder(&current_studies, None, Some("/x")).is_err_and(|text| text.starts_with("--directory alone")));
        current_studies.has_moved = true;
        assert_eq!(folder(&current_studies, None, None), Ok("/y/last".into()));
        assert_eq!(folder(&current_studies, Some("a"), None), Ok("studies/a".into()));
    }

    #[test]
    fn magic_without_a_study_names_those_in_the_folder() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let directory = folder.path().display().to_string();
        let study = Study { project: None, directory: Some(directory.clone()) };
        let text = || CurrentStudies::default().folder_of(&study).map_err(|failure| failure.text);
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
}
