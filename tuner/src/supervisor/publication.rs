//! The publication of a study: the search, its code and its data for workers on other hosts. The study's owner publishes it
//! in the study's database and signs it with the study's token. The files are in the database or in an object store. A
//! worker refuses to run a publication with a wrong signature or hash.

use super::SupervisorError;
use super::code::{self, Code};
use super::error::PublicationError;
use super::files::Files;
use super::token::{Token, bytes_of};
use super::trust::hexadecimal;
use crate::process;
use ferrotune_journal::study_folder::{LIBRARIES, LIBRARY, SHARED, file_error, stored};
use ferrotune_journal::{Content, Journal};
use ferrotune_space::spec::{PublishTo, StudySpec, Supervision};
use hmac::Mac as _;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The version of a publication. Version 1 keeps all files in the database.
const VERSION: u64 = 2;

/// Object stores for the files that workers run. An address has the form of [`PublishTo::Store`]; an error is one line that
/// names the object.
pub trait Objects {
    /// Uploads the first `bytes` bytes of a file, unless an object of that length exists.
    fn put(&self, address: &str, file: &File, bytes: u64) -> Result<(), String>;
    /// Writes at most the first `most_bytes` bytes of the object to `to`. Returns whether the object exists.
    fn get(&self, address: &str, most_bytes: u64, to: &mut dyn Write) -> Result<bool, String>;
}

/// The signed content of a publication.
#[derive(Serialize, Deserialize)]
struct Manifest {
    version: u64,
    study: String,
    architecture: String,
    spec: StudySpec,
    files: Vec<Item>,
    /// The address below which an object store has the files; if there is none, the database has them.
    #[serde(default)]
    store: Option<String>,
}

impl Manifest {
    /// The address of a file in the object store, if there is a store.
    fn address(&self, item: &Item) -> Option<String> {
        let store = self.store.as_ref()?;
        Some(format!("{}/sha256/{}", store.trim_end_matches('/'), item.hash))
    }

    /// Refuses a file that is not the file that was signed.
    fn check(&self, path: &Path, hash: &str, bytes: u64) -> Result<(), PublicationError> {
        let study = self.study.clone();
        let Some(item) = self.files.iter().find(|item| item.path == path) else {
            return Err(unknown(&study, format!("it does not name the file {}", path.display())));
        };
        if (item.hash.as_str(), item.bytes) == (hash, bytes) {
            return Ok(());
        }
        Err(match self.address(item) {
            Some(address) => PublicationError::DamagedObject { study, address },
            None => PublicationError::Damaged { study, name: path.display().to_string() },
        })
    }
}

/// A file of a publication, with its path in a study's folder.
#[derive(Serialize, Deserialize)]
struct Item {
    path: PathBuf,
    bytes: u64,
    hash: String,
}

/// A signed manifest. It keeps the manifest's text, because a different text with the same meaning has another signature.
#[derive(Serialize, Deserialize)]
struct Signed {
    manifest: String,
    signature: String,
}

/// Publishes the files that workers of `spec` run. The bytes of the code are those that this search runs itself.
pub(super) fn publish(
    journal: &mut Journal,
    study: &Path,
    spec: &StudySpec,
    (code, files): (&Code, &Files),
    to: &PublishTo,
    objects: &dyn Objects,
) -> Result<(), SupervisorError> {
    let shared = files.shared.as_ref().map(|shared| {
        let (hash, bytes) = hash_of(shared).map_err(file_error("read", Path::new(SHARED)))?;
        Ok::<_, SupervisorError>((Item { path: SHARED.into(), bytes, hash }, shared))
    });
    let code = code.files().map(|(path, file, hash, bytes)| (Item { path, bytes, hash: hash.to_owned() }, file));
    let (items, sources): (Vec<Item>, Vec<&File>) = code.chain(shared.transpose()?).unzip();
    let manifest = Manifest {
        version: VERSION,
        study: spec.project.clone(),
        architecture: std::env::consts::ARCH.to_owned(),
        spec: stored(spec).without_call(),
        files: items,
        store: if let PublishTo::Store(address) = to { Some(address.clone()) } else { None },
    };
    let unwritten = |error: serde_json::Error| unknown(&spec.project, error.to_string());
    let text = serde_json::to_string(&manifest).map_err(unwritten)?;
    let signature = hexadecimal(&Token::of_study(study)?.signer(&text).finalize().into_bytes());
    let signed = serde_json::to_string(&Signed { manifest: text, signature }).map_err(unwritten)?;
    let mut for_database = Vec::new();
    for (item, file) in manifest.files.iter().zip(sources) {
        match manifest.address(item) {
            // The objects are uploaded before the study names them, so a worker finds all of them.
            Some(address) => objects.put(&address, file, item.bytes).map_err(PublicationError::Store)?,
            None => for_database.push((item.hash.as_str(), file, item.bytes)),
        }
    }
    Ok(journal.publish(&signed, &for_database)?)
}

/// A publication that a worker has fetched: the spec of the search, and its code.
#[derive(Debug)]
pub struct Fetched {
    /// The spec of the search, in the folder into which it was fetched.
    pub spec: StudySpec,
    /// The code that was signed, in memory.
    pub code: Code,
}

impl Fetched {
    /// Tests in a separate process whether this host can load the objective.
    ///
    /// # Errors
    /// If this host cannot load it, with the dynamic linker's reason: the code may need a newer glibc, or another
    /// processor.
    pub fn check_that_it_loads(&self, program: &Path) -> Result<(), SupervisorError> {
        let Code { objective, linked, .. } = &self.code;
        Ok(process::check_that_it_loads(program, objective, linked, &self.spec.symbol)?)
    }
}

/// Fetches the publication of a study from its database into the folder `directory/study`, and checks that all of it was
/// signed with `token`.
///
/// # Errors
/// If the database or the store lacks a part of it, if the signature or a hash is wrong, or if the code is for another
/// architecture.
pub fn fetch(
    storage: &str,
    study: &str,
    token: &Token,
    objects: &dyn Objects,
    directory: &Path,
) -> Result<Fetched, SupervisorError> {
    let mut content = Content::of(storage, study)?;
    let manifest = manifest(&mut content, study, token)?;
    if manifest.architecture != std::env::consts::ARCH {
        let (study, wanted) = (study.to_owned(), manifest.architecture);
        return Err(PublicationError::Architecture { study, wanted, own: std::env::consts::ARCH }.into());
    }
    let folder = directory.join(study);
    let libraries = folder.join(LIBRARIES);
    fs::create_dir_all(&libraries).map_err(file_error("make", &libraries))?;
    for item in &manifest.files {
        fetch_file(&mut content, &manifest, objects, item, &folder)?;
    }
    let spec = manifest.spec.clone().without_call();
    let of_study = |library: PathBuf| libraries.join(library.file_name().unwrap_or_default());
    let supervision = Supervision {
        libraries: spec.supervision.libraries.into_iter().map(of_study).collect(),
        mirror: None,
        leaves_trials: true,
        ..spec.supervision
    };
    let spec = StudySpec {
        directory: directory.to_owned(),
        project: study.to_owned(),
        library: folder.join(LIBRARY),
        shared: spec.shared.map(|_| folder.join(SHARED)),
        storage: Some(storage.to_owned()),
        supervision,
        ..spec
    };
    // The workers run exactly the bytes whose hashes are compared here.
    let code = Code::read(&spec, &folder)?;
    code.files().try_for_each(|(path, _, hash, bytes)| manifest.check(&path, hash, bytes))?;
    if let Some(shared) = &spec.shared {
        let file = File::open(shared).map_err(file_error("read", shared))?;
        let (hash, bytes) = hash_of(&file).map_err(file_error("read", shared))?;
        manifest.check(Path::new(SHARED), &hash, bytes)?;
    }
    Ok(Fetched { spec, code })
}

/// The manifest that the owner of a study has signed.
fn manifest(content: &mut Content<'_>, study: &str, token: &Token) -> Result<Manifest, SupervisorError> {
    let unsigned = || PublicationError::Unsigned { study: study.to_owned() };
    let signed: Signed = serde_json::from_str(&content.text()?).map_err(|_| unsigned())?;
    let signature = bytes_of(&signed.signature).ok_or_else(unsigned)?;
    token.signer(&signed.manifest).verify_slice(&signature).map_err(|_| unsigned())?;
    let manifest: Manifest =
        serde_json::from_str(&signed.manifest).map_err(|error| unknown(study, error.to_string()))?;
    if manifest.study != study {
        return Err(unsigned().into());
    }
    if !(1..=VERSION).contains(&manifest.version) {
        return Err(unknown(study, format!("its version is {}", manifest.version)).into());
    }
    Ok(manifest)
}

/// Fetches a file of a manifest into the study's folder. Compares no hash.
fn fetch_file(
    content: &mut Content<'_>,
    manifest: &Manifest,
    objects: &dyn Objects,
    item: &Item,
    folder: &Path,
) -> Result<(), SupervisorError> {
    let (path, study) = (&item.path, &manifest.study);
    // Even in a signed manifest, a path of another form is not a file of a study.
    let is_known = path == Path::new(LIBRARY)
        || path == Path::new(SHARED)
        || path.parent() == Some(Path::new(LIBRARIES)) && path.file_name().is_some();
    if !is_known {
        return Err(unknown(study, format!("it names the file {}", path.display())).into());
    }
    let target = folder.join(path);
    let mut file = File::create_new(&target).map_err(file_error("write", &target))?;
    let Some(address) = manifest.address(item) else { return Ok(content.write(&item.hash, item.bytes, &mut file)?) };
    if !objects.get(&address, item.bytes, &mut file).map_err(PublicationError::Store)? {
        return Err(PublicationError::NoObject { study: study.clone(), address }.into());
    }
    Ok(())
}

fn unknown(study: &str, reason: String) -> PublicationError {
    PublicationError::Unknown { study: study.to_owned(), reason }
}

/// The address below which an object store has the publication of a study; none if the database has the files.
///
/// # Errors
/// If the database has no publication, or the publication is not signed with `token`.
pub fn store_of(storage: &str, study: &str, token: &Token) -> Result<Option<String>, SupervisorError> {
    Ok(manifest(&mut Content::of(storage, study)?, study, token)?.store)
}

/// The hash of a file's bytes, and their number.
fn hash_of(file: &File) -> io::Result<(String, u64)> {
    code::read(file, u64::MAX, |_| Ok(()))
}
