//! The files that a study keeps beside its journal: all that its trials need. With them the study can continue after the
//! session that began it, in another folder, or on another machine.

use super::SupervisorError;
use super::code::CHUNK_BYTES;
use super::error::read_error;
use ferrotune_journal::Journal;
use ferrotune_journal::folder::{self, removed};
use ferrotune_journal::study_folder::{
    self, LIBRARIES, LIBRARY, OUTPUT, SHARED, file_error, is_same_file, refuse_links_of_trial,
};
use ferrotune_space::spec::{StudySpec, Supervision};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Seek as _};
use std::path::{Path, PathBuf};

/// Reads the spec of the study in a folder, to continue the study wherever that folder is now. Fails if there is no study,
/// if the spec cannot be read, or if a link in the folder leads out of it: the folder may come from anyone.
pub fn spec_of(study: &Path) -> Result<StudySpec, SupervisorError> {
    let study = &fs::canonicalize(study).map_err(file_error("find the study", study))?;
    let spec = Journal::read(study)?.spec;
    if spec.library.as_os_str().is_empty() {
        return Err(SupervisorError::OwnProgram { study: study.clone() });
    }
    folder::refuse_links(&study.join(LIBRARIES))?;
    let mut libraries = Vec::new();
    for library in spec.supervision.libraries {
        if library.file_name() != Some(library.as_os_str()) {
            return Err(SupervisorError::StrayLibrary { study: study.clone(), library });
        }
        libraries.push(study.join(LIBRARIES).join(library));
    }
    let spec = StudySpec {
        directory: study.parent().unwrap_or(study).to_path_buf(),
        project: study.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        library: study.join(LIBRARY),
        shared: spec.shared.map(|_| study.join(SHARED)),
        supervision: Supervision { libraries, ..spec.supervision },
        ..spec
    };
    Ok(StudySpec { storage: Journal::storage_of(study)?, ..spec.without_call() })
}

/// The last output of a trial of the study in a folder; empty if no output is kept.
pub fn output_of(study: &Path, number: u64) -> Result<Vec<u8>, SupervisorError> {
    let folder = study_folder::of_trial(study, number);
    refuse_links_of_trial(&folder)?;
    let path = folder.join(OUTPUT);
    match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        output => Ok(output.map_err(file_error("read", &path))?),
    }
}

/// The shared data of a study, as an open file that its workers receive.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) shared: Option<File>,
}

impl Files {
    /// Copies the files that `spec` names into the study's folder, unless they are already there. All files are copied
    /// before any of them gets its final name. The code is kept there for later searches; workers load it from memory.
    ///
    /// # Errors
    /// If a file cannot be read or copied, the study keeps all its earlier files. If a copy cannot be renamed, as on a
    /// failing disk, some of the study's files are the new ones, and the next start replaces the rest.
    pub(super) fn install(spec: &StudySpec, study: &Path) -> Result<Files, SupervisorError> {
        let (shared, libraries) = (study.join(SHARED), study.join(LIBRARIES));
        let mut wanted = Vec::new();
        // A program that contains its objective needs no library.
        if !spec.library.as_os_str().is_empty() {
            wanted.push((spec.library.as_path(), study.join(LIBRARY), By::Copy));
        }
        wanted.extend(spec.shared.as_deref().map(|source| (source, shared.clone(), By::Copy)));
        folder::refuse_links(&libraries)?;
        for source in &spec.supervision.libraries {
            wanted.push((source, libraries.join(source.file_name().unwrap_or_default()), By::LinkOrCopy));
        }
        if !spec.supervision.libraries.is_empty() {
            folder::create_and_sync(&libraries).map_err(copy_error(&libraries, study))?;
        }
        let mut copies = Copies::default();
        wanted.iter().try_for_each(|(source, target, by)| copies.add(source, target, *by, study))?;
        copies.put_in_place(study)?;
        let open = |path: &Path| File::open(path).map_err(file_error("open the shared data", path));
        Ok(Files { shared: spec.shared.as_ref().map(|_| open(&shared)).transpose()? })
    }
}

/// The way in which a file gets into the study's folder.
#[derive(Clone, Copy)]
enum By {
    Copy,
    /// A link to the library, or a copy. A library is never changed in place, so a hard link is as good as a copy and costs
    /// nothing.
    LinkOrCopy,
}

/// Copies that do not have their final names in the study yet. They are removed if this value is dropped before they are
/// renamed.
#[derive(Default)]
struct Copies {
    /// The present path and the final path of each copy.
    partial: Vec<(PathBuf, PathBuf)>,
}

impl Copies {
    /// Copies a file that will be renamed to `target`, unless `target` has the same bytes.
    fn add(&mut self, source: &Path, target: &Path, by: By, study: &Path) -> Result<(), SupervisorError> {
        if is_same_file(source, target) {
            return Ok(());
        }
        let name = target.file_name().unwrap_or_default();
        let mut from = File::open(source).map_err(read_error("read", source, study))?;
        // A study on another disk than the prelude already has its copy.
        if has_same_bytes(&mut from, target).map_err(copy_error(target, study))? {
            return Ok(());
        }
        let partial = target.with_file_name(format!("{}.partial", name.display()));
        self.partial.push((partial.clone(), target.to_path_buf()));
        let copied = removed(fs::remove_file(&partial)).and_then(|()| match by {
            By::LinkOrCopy if fs::canonicalize(source).and_then(|file| fs::hard_link(file, &partial)).is_ok() => Ok(()),
            // A library is copied, too, if it is on another file system, or on a file system without hard links.
            By::Copy | By::LinkOrCopy => {
                let mut to = File::create(&partial)?;
                io::copy(&mut from, &mut to)?;
                to.sync_all()
            }
        });
        copied.map_err(copy_error(target, study))
    }

    /// Renames the copies to their final names, one after the other. If the machine stops meanwhile, the study has files of
    /// the earlier search and of this one, each of them whole; the next start replaces the rest.
    fn put_in_place(mut self, study: &Path) -> Result<(), SupervisorError> {
        while let Some((partial, target)) = self.partial.last() {
            let parent = target.parent().unwrap_or(study);
            let put = fs::rename(partial, target).and_then(|()| folder::sync(parent));
            put.map_err(copy_error(target, study))?;
            self.partial.pop();
        }
        Ok(())
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        for (partial, _) in &self.partial {
            if let Err(error) = removed(fs::remove_file(partial)) {
                tracing::warn!(%error, path = %partial.display(), "a copy that was cut off stays until the next one");
            }
        }
    }
}

/// Whether `target` exists and has the same bytes as `from`. `from` is at its beginning before and after the call.
fn has_same_bytes(from: &mut File, target: &Path) -> io::Result<bool> {
    let to = match File::open(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    if from.metadata()?.len() != to.metadata()?.len() {
        return Ok(false);
    }
    let same = is_equal(BufReader::with_capacity(CHUNK_BYTES, &*from), BufReader::with_capacity(CHUNK_BYTES, to))?;
    from.rewind()?;
    Ok(same)
}

fn is_equal(mut one: impl BufRead, mut other: impl BufRead) -> io::Result<bool> {
    loop {
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let length = left.len().min(right.len());
        if left[..length] != right[..length] {
            return Ok(false);
        }
        if length == 0 {
            return Ok(left.len() == right.len());
        }
        one.consume(length);
        other.consume(length);
    }
}

fn copy_error(target: &Path, study: &Path) -> impl FnOnce(io::Error) -> SupervisorError {
    let file = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let study = study.to_path_buf();
    move |source| SupervisorError::Copy { file, study, source }
}
