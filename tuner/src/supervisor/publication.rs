//! What workers on other hosts run: the search, its code and its data, published in the study's database by the study's owner
//! and signed with the study's token. The files are there or in a store of objects. A worker runs nothing whose signature or hash
//! is another one.

use super::SupervisorError;
use super::code::{self, Code};
use super::files::Files;
use super::token::{TOKEN_BYTES, Token, bytes_of};
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

/// The version of what is published. What version 1 has is all in the database.
const VERSION: u64 = 2;

/// Why a worker cannot run what a study's owner has published.
#[derive(Debug, thiserror::Error)]
pub enum PublicationError {
    /// Another token, or somebody else's content.
    #[error(
        "what study {study} has for workers is not signed with this token; take the file `token` in the folder of the search that was started last with --publish"
    )]
    Unsigned {
        /// The study.
        study: String,
    },
    /// It was signed, and is not what this version writes.
    #[error(
        "what study {study} has for workers cannot be read ({reason}); use the version of ferrotune that has published it"
    )]
    Unknown {
        /// The study.
        study: String,
        /// What is wrong.
        reason: String,
    },
    /// The objective is machine code for another architecture.
    #[error(
        "study {study} has code for {wanted}, and this host is {own}; start its workers on hosts of its architecture"
    )]
    Architecture {
        /// The study.
        study: String,
        /// The code's architecture.
        wanted: String,
        /// This host's.
        own: &'static str,
    },
    /// A file that was fetched is not the one that was signed.
    #[error("the file {name} of study {study} is damaged in its database; start its search again with --publish")]
    Damaged {
        /// The study.
        study: String,
        /// The file.
        name: String,
    },
    /// An object of a store is not the one that was signed.
    #[error(
        "{address}, which study {study} has for workers, has other bytes than were signed; remove that object, and start the study's search again with --publish"
    )]
    DamagedObject {
        /// The study.
        study: String,
        /// The object.
        address: String,
    },
    /// A store does not have what was published.
    #[error(
        "there is no {address}, which study {study} has for workers; start the study's search again with --publish"
    )]
    NoObject {
        /// The study.
        study: String,
        /// The object.
        address: String,
    },
    /// A store cannot be read or written.
    #[error("{0}")]
    Store(String),
    /// There is no token to sign or to check with.
    #[error("{from} has no token, which is {} hexadecimal digits; take the file `token` in the study's folder", 2 * TOKEN_BYTES)]
    NoToken {
        /// The file, or the variable.
        from: String,
    },
    /// The objective is a part of a program.
    #[error(
        "--publish needs an objective of a notebook; on other hosts, start the program itself with the same storage"
    )]
    OwnProgram,
}

/// Stores of objects, for the files that workers run. An address is as in [`PublishTo::Store`]; an error is a line that names
/// the object.
pub trait Objects {
    /// Puts the first `bytes` bytes of a file there, unless an object of that length is there.
    fn put(&self, address: &str, file: &File, bytes: u64) -> Result<(), String>;
    /// Writes the object, and no more than its first `most_bytes` bytes; says whether there is one.
    fn get(&self, address: &str, most_bytes: u64, to: &mut dyn Write) -> Result<bool, String>;
}

/// What is signed.
#[derive(Serialize, Deserialize)]
struct Manifest {
    version: u64,
    study: String,
    architecture: String,
    spec: StudySpec,
    files: Vec<Item>,
    /// The address below which a store has the files; without one, the database has them.
    #[serde(default)]
    store: Option<String>,
}

impl Manifest {
    /// Where the store has a file.
    fn address(&self, item: &Item) -> Option<String> {
        let store = self.store.as_ref()?;
        Some(format!("{}/sha256/{}", store.trim_end_matches('/'), item.hash))
    }

    /// Refuses a file that is not the one that was signed.
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

/// A file, by its path in a study's folder.
#[derive(Serialize, Deserialize)]
struct Item {
    path: PathBuf,
    bytes: u64,
    hash: String,
}

/// A manifest as it is published: its text, since another one of the same meaning has another signature.
#[derive(Serialize, Deserialize)]
struct Signed {
    manifest: String,
    signature: String,
}

/// Publishes what workers of `spec` run. The bytes of the code are those that this search runs itself.
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
            // Before the study says so: a worker finds all of it.
            Some(address) => objects.put(&address, file, item.bytes).map_err(PublicationError::Store)?,
            None => for_database.push((item.hash.as_str(), file, item.bytes)),
        }
    }
    Ok(journal.publish(&signed, &for_database)?)
}

/// What a worker has fetched: the search that runs, and its code.
#[derive(Debug)]
pub struct Fetched {
    /// The search, in the folder that it was fetched into.
    pub spec: StudySpec,
    /// The code that was signed, in memory.
    pub code: Code,
}

impl Fetched {
    /// Finds out whether this host can run the objective, in a process of its own.
    ///
    /// # Errors
    /// Where it cannot, with the dynamic linker's reason: it may be made for a newer glibc, or for another processor.
    pub fn check_that_it_loads(&self, program: &Path) -> Result<(), SupervisorError> {
        let Code { objective, linked, .. } = &self.code;
        Ok(process::check_that_it_loads(program, objective, linked, &self.spec.symbol)?)
    }
}

/// Puts what the owner of a study at an address has published into the folder `directory/study`, once nothing in it is other
/// than what was signed with `token`.
///
/// # Errors
/// Where the database or the store has nothing of it, where the signature or a hash is another one, or for another architecture.
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
    // The bytes that run are those whose hashes are compared here.
    let code = Code::read(&spec, &folder)?;
    code.files().try_for_each(|(path, _, hash, bytes)| manifest.check(&path, hash, bytes))?;
    if let Some(shared) = &spec.shared {
        let file = File::open(shared).map_err(file_error("read", shared))?;
        let (hash, bytes) = hash_of(&file).map_err(file_error("read", shared))?;
        manifest.check(Path::new(SHARED), &hash, bytes)?;
    }
    Ok(Fetched { spec, code })
}

/// What the owner of a study has signed.
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

/// Puts a file of a manifest into the study's folder. Compares no hash.
fn fetch_file(
    content: &mut Content<'_>,
    manifest: &Manifest,
    objects: &dyn Objects,
    item: &Item,
    folder: &Path,
) -> Result<(), SupervisorError> {
    let (path, study) = (&item.path, &manifest.study);
    // Signed or not, a path of another form is no file of a study.
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

/// The address below which a store has what the owner of a study at an address has published; none where the database has it.
///
/// # Errors
/// Where the database has nothing of it, and where it is not signed with `token`.
pub fn store_of(storage: &str, study: &str, token: &Token) -> Result<Option<String>, SupervisorError> {
    Ok(manifest(&mut Content::of(storage, study)?, study, token)?.store)
}

/// The hash of a file's bytes, and how many they are.
fn hash_of(file: &File) -> io::Result<(String, u64)> {
    code::read(file, u64::MAX, |_| Ok(()))
}
