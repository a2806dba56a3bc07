//! Decides which folder may be a mirror, and which of its files this program has made. Removes nothing whose name is not
//! that of a mirror's file.

use super::super::SupervisorError;
use super::{FIXED, WHOLE};
use ferrotune_journal::folder;
use ferrotune_journal::study_folder::{JOURNAL, LIBRARIES, TRIALS, file_error};
use ferrotune_journal::{Journal, JournalError};
use ferrotune_space::checkpoint::checkpoint_generation;
use ferrotune_space::spec::StudySpec;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The size limit of a journal's first line.
const LONGEST_LINE_BYTES: u64 = 1 << 20;
/// The largest number of symbolic links in one path; more count as a cycle, as in Linux itself.
const MOST_LINKS: usize = 40;

/// Checks, before anything is changed, that `root` can hold the mirror of the study. The mirror must lie outside the
/// studies' folder, its disk must be mounted, and it must not hold another study's mirror. A mirror that will be cleared
/// must contain nothing else.
pub(super) fn check(spec: &StudySpec, root: &Path) -> Result<(), SupervisorError> {
    let (study, mirror) = (spec.directory.join(&spec.project), root.join(&spec.project));
    for (directory, mirror) in [(spec.directory.as_path(), root), (study.as_path(), mirror.as_path())] {
        check_apart(directory, mirror).map_err(file_error("find the mirror", mirror))?.map_or(Ok(()), Err)?;
    }
    if !mirror.exists() {
        // A folder made in place of an unmounted disk would keep nothing, and Drive refuses to be mounted over a folder.
        return match root.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.is_dir()) {
            Some(parent) => Err(SupervisorError::NoDisk { mirror: root.to_path_buf(), parent: parent.to_path_buf() }),
            None => Ok(()),
        };
    }
    let of_another = is_of_another(&study, &mirror, spec).map_err(file_error("read the mirror", &mirror))?;
    if of_another {
        return Err(SupervisorError::OtherMirror { mirror });
    }
    if spec.overwrite { contents_to_clear(&mirror).map(drop) } else { Ok(()) }
}

/// The files and folders of a mirror to remove, in this order, when its study is overwritten.
pub(super) fn contents_to_clear(mirror: &Path) -> Result<Vec<PathBuf>, SupervisorError> {
    let contents = Contents::of(mirror, Place::Mirror).map_err(file_error("read the mirror", mirror))?;
    match contents.foreign {
        Some(found) => Err(SupervisorError::NotAMirror { mirror: mirror.to_path_buf(), found }),
        None => Ok(contents.own),
    }
}

/// A kind of folder within a mirror.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Mirror,
    Start,
    Libraries,
    Trials,
    Trial,
}

impl Place {
    /// The kind of entry that a mirror has under this name in this folder: a file, or a folder.
    fn entry(self, name: &str) -> Option<Entry> {
        match (self, name) {
            (Place::Mirror, TRIALS) => Some(Entry::Folder(Place::Trials)),
            (Place::Mirror, name) if is_journal_copy(name) => Some(Entry::File),
            (Place::Mirror, name) if is_start(name) => Some(Entry::Folder(Place::Start)),
            (Place::Start, LIBRARIES) => Some(Entry::Folder(Place::Libraries)),
            (Place::Start, name) if name == WHOLE || FIXED.contains(&name) => Some(Entry::File),
            (Place::Libraries, _) => Some(Entry::File),
            (Place::Trials, name) if name.parse::<u64>().is_ok() => Some(Entry::Folder(Place::Trial)),
            (Place::Trial, name) if is_checkpoint_copy(name) => Some(Entry::File),
            _ => None,
        }
    }
}

enum Entry {
    File,
    Folder(Place),
}

/// The contents of a folder of a mirror.
#[derive(Debug, Default)]
struct Contents {
    /// The paths that this program has made, each folder after its contents.
    own: Vec<PathBuf>,
    /// A path that this program has not made, if there is one.
    foreign: Option<PathBuf>,
}

impl Contents {
    fn of(folder: &Path, place: Place) -> io::Result<Contents> {
        let mut contents = Contents::default();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            match entry.file_name().to_str().and_then(|name| place.entry(name)) {
                Some(Entry::File) if kind.is_file() => contents.own.push(path),
                Some(Entry::Folder(place)) if kind.is_dir() => {
                    let inner = Contents::of(&path, place)?;
                    contents.own.extend(inner.own);
                    match inner.foreign {
                        Some(found) => contents.foreign = Some(found),
                        None => contents.own.push(path),
                    }
                }
                _ => contents.foreign = Some(path),
            }
        }
        Ok(contents)
    }
}

/// Removes files and empty folders, in this order.
pub(super) fn remove_all(paths: &[PathBuf]) -> io::Result<()> {
    paths.iter().try_for_each(|path| {
        let is_folder = fs::symlink_metadata(path).is_ok_and(|file| file.is_dir());
        folder::removed(if is_folder { fs::remove_dir(path) } else { fs::remove_file(path) })
    })
}

/// Removes a folder of a mirror with the files that this program has made, unless the folder contains anything else.
///
/// # Errors
/// If the folder is a symbolic link: its target is not part of the mirror.
pub(super) fn remove_folder(folder: &Path, place: Place) -> io::Result<()> {
    folder::refuse_link(folder)?;
    let contents = match Contents::of(folder, place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        contents => contents?,
    };
    remove_all(&contents.own)?;
    match contents.foreign {
        Some(found) => {
            tracing::warn!(found = %found.display(), "a file in the mirror is no part of it, and stays");
            Ok(())
        }
        None => fs::remove_dir(folder),
    }
}

/// Whether this is the name of a copy of the study's journal.
pub(super) fn is_journal_copy(name: &str) -> bool {
    journal_suffix(name).is_some_and(|suffix| stamp_in(suffix).is_some())
}

/// Whether this is the name of a copy of a study's fixed files.
pub(super) fn is_start(name: &str) -> bool {
    name.strip_prefix("start-").is_some_and(|suffix| stamp_in(suffix).is_some())
}

/// Whether this is the name of a copy of a checkpoint.
pub(super) fn is_checkpoint_copy(name: &str) -> bool {
    checkpoint_suffix(name).is_some_and(|suffix| stamp_in(suffix).is_some())
}

/// The number by which copies of any kind are sorted; none if the name is not that of a copy.
pub(super) fn stamp(name: &str) -> Option<u64> {
    journal_suffix(name).or_else(|| name.strip_prefix("start-")).or_else(|| checkpoint_suffix(name)).and_then(stamp_in)
}

fn journal_suffix(name: &str) -> Option<&str> {
    name.strip_prefix("journal-")?.strip_suffix(".log")
}

fn checkpoint_suffix(name: &str) -> Option<&str> {
    name.rsplit_once('.').filter(|(file, _)| checkpoint_generation(file).is_some()).map(|(_, suffix)| suffix)
}

/// The stamp in a text that has the form of [`super::unique`].
fn stamp_in(text: &str) -> Option<u64> {
    let has =
        |text: &str, length: usize, wanted: fn(&u8) -> bool| text.len() == length && text.as_bytes().iter().all(wanted);
    let (stamp, draw) = text.split_once('-')?;
    let is_of_form = has(stamp, 20, u8::is_ascii_digit) && has(draw, 8, u8::is_ascii_hexdigit);
    stamp.parse().ok().filter(|_| is_of_form)
}

/// Whether the mirror holds another study than this one: the first line of each journal is unique. If the study's own
/// journal is missing or empty, and the mirror will be cleared, the mirrored journal must name the study's folder.
fn is_of_another(study: &Path, mirror: &Path, spec: &StudySpec) -> io::Result<bool> {
    // An empty journal describes no study. A search that found no space for its files leaves such a journal.
    let own = first_line(&study.join(JOURNAL))?.filter(|line| !line.is_empty());
    for name in super::names(mirror, is_journal_copy)? {
        let path = mirror.join(name);
        let copy = first_line(&path)?;
        let is_another = match &own {
            // The copy may be torn, and so may the study's own journal.
            Some(own) => copy.is_some_and(|copy| !own.starts_with(&copy) && !copy.starts_with(own)),
            None if spec.overwrite => match Journal::spec_at(&path) {
                Ok(earlier) => earlier.directory != spec.directory,
                // The copy was cut off before it described a study.
                Err(JournalError::Missing { .. }) => false,
                Err(_) => true,
            },
            None => false,
        };
        if is_another {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The first line of a file; none if the file does not exist.
fn first_line(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut line = Vec::new();
    BufReader::new(file.take(LONGEST_LINE_BYTES)).read_until(b'\n', &mut line)?;
    Ok(Some(line))
}

/// The error for two folders that overlap: they are the same, or one contains the other.
fn check_apart(directory: &Path, mirror: &Path) -> io::Result<Option<SupervisorError>> {
    let (inner, outer) = (resolved(mirror)?, resolved(directory)?);
    let overlaps = is_within(&inner, &outer)? || is_within(&outer, &inner)?;
    let error = || SupervisorError::MirrorOverlaps { mirror: mirror.to_path_buf(), directory: directory.to_path_buf() };
    Ok(overlaps.then(error))
}

/// Whether `inner` is `outer` or lies in it, also under another path of `outer`, as with bind mounts.
fn is_within(inner: &Path, outer: &Path) -> io::Result<bool> {
    let identity = |path: &Path| match fs::metadata(path) {
        Ok(file) => Ok(Some((file.dev(), file.ino()))),
        Err(error) if folder::is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    };
    if inner.starts_with(outer) {
        return Ok(true);
    }
    let Some(outer) = identity(outer)? else { return Ok(false) };
    for ancestor in inner.ancestors() {
        if identity(ancestor)? == Some(outer) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The folder that a path leads to, without symbolic links and `..`, even if the folder does not exist yet.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    let reversed =
        |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect::<Vec<OsString>>();
    let mut rest = reversed(&std::path::absolute(path)?);
    let mut resolved = PathBuf::new();
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part == ".." {
            resolved.pop();
            continue;
        }
        let next = resolved.join(part);
        match fs::read_link(&next) {
            Ok(_) if links == MOST_LINKS => return Err(io::Error::from_raw_os_error(libc::ELOOP)),
            Ok(target) => {
                links += 1;
                rest.extend(reversed(&target));
            }
            // EINVAL: the path is not a symbolic link.
            Err(error) if folder::is_absence(&error) || error.kind() == io::ErrorKind::InvalidInput => {
                resolved = next;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    #[test]
    fn folders_in_one_another_are_found_before_they_exist_and_behind_links() -> TestResult {
        let root = tempfile::tempdir()?;
        let root = root.path();
        let at = |path: &str| root.join(path);
        fs::create_dir_all(at("real/inner"))?;
        symlink(at("real"), at("link"))?;
        // A symbolic link to a folder that does not exist yet.
        symlink("later/place", at("dangling"))?;
        symlink(at("circle"), at("circle"))?;
        for (directory, mirror, overlap) in [
            ("new", "new", true),
            ("new", "new/mirror", true),
            ("new/studies", "new", true),
            ("new/studies", "new/mirror", false),
            ("new", "newer", false),
            ("real/inner", "link/inner", true),
            ("real", "link/inner/deep/er", true),
            ("link/inner/../studies", "real/studies/x", true),
            ("real/inner", "link/inner/../other", false),
            ("dangling/x", "later/place/x/y", true),
            ("later", "dangling", true),
            ("later/places", "dangling", false),
        ] {
            let found = check_apart(&at(directory), &at(mirror))?;
            assert_eq!(found.is_some(), overlap, "{directory} and {mirror}");
        }
        assert!(check_apart(&at("circle"), &at("new")).is_err());
        Ok(())
    }

    #[test]
    fn nothing_is_removed_behind_a_link() -> TestResult {
        let root = tempfile::tempdir()?;
        let copy = root.path().join("backup").join("checkpoint-000003.safetensors.00000000000000000001-00000000");
        fs::create_dir(root.path().join("backup"))?;
        fs::write(&copy, "weights")?;
        symlink(root.path().join("backup"), root.path().join("7"))?;
        let error = remove_folder(&root.path().join("7"), Place::Trial).err().ok_or("it was removed")?.to_string();
        assert!(error.contains("7 is a symbolic link") && copy.exists(), "{error}");
        Ok(())
    }

    #[test]
    fn names_of_a_mirror_are_told_from_others() {
        let unique = "01790000000000000000-0123abcd";
        for (name, own) in [
            (format!("journal-{unique}.log"), true),
            (format!("start-{unique}"), true),
            (TRIALS.to_owned(), true),
            ("journal-2024.log".to_owned(), false),
            ("start-of-chapter-1".to_owned(), false),
            (format!("journal-{unique} (1).log"), false),
            ("journal.log".to_owned(), false),
            ("chapter-1.tex".to_owned(), false),
            // This number does not fit into 64 bits.
            ("start-99999999999999999999-00000000".to_owned(), false),
        ] {
            assert_eq!(Place::Mirror.entry(&name).is_some(), own, "{name}");
        }
        assert!(is_checkpoint_copy(&format!("checkpoint-000003.safetensors.{unique}")));
        assert!(!is_checkpoint_copy("checkpoint-000003.safetensors") && !is_checkpoint_copy("notes.txt"));
    }
}
