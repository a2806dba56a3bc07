//! What workers on other hosts run: the search, its code and its data, published in the study's database by the study's owner
//! and signed with the study's token (HMAC-SHA256, <https://www.rfc-editor.org/rfc/rfc2104>). A worker runs nothing whose
//! signature or hash is another one.

use super::SupervisorError;
use super::code::{self, Code};
use super::files::Files;
use super::trust::hexadecimal;
use crate::folder;
use crate::journal::{Content, Journal};
use crate::process;
use crate::spec::{StudySpec, Supervision};
use crate::study_folder::{LIBRARIES, LIBRARY, SHARED, file_error, stored};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// In place of a token's file.
pub const TOKEN_VARIABLE: &str = "FERROTUNE_TOKEN";
/// In the study's folder.
const TOKEN: &str = "token";
const TOKEN_BYTES: usize = 32;

/// The version of what is published.
const VERSION: u64 = 1;

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

/// The secret with which a study's owner signs what workers run.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; TOKEN_BYTES]);

impl Token {
    /// The token in a file, or in the variable [`TOKEN_VARIABLE`] where no file is named.
    ///
    /// # Errors
    /// Where there is none, or it has another length.
    pub fn find(file: Option<&Path>) -> Result<Token, SupervisorError> {
        let (from, text) = match file {
            Some(file) => (file.display().to_string(), fs::read_to_string(file).map_err(file_error("read", file))?),
            None => (TOKEN_VARIABLE.to_owned(), std::env::var(TOKEN_VARIABLE).unwrap_or_default()),
        };
        Ok(Token::parse(&text).ok_or(PublicationError::NoToken { from })?)
    }

    /// The text that [`find`](Self::find) reads: a secret.
    pub fn text(&self) -> String {
        hexadecimal(&self.0)
    }

    /// The token of the user's environment, or that of a study's folder, which gets one where it has none.
    pub(super) fn of_study(study: &Path) -> Result<Token, SupervisorError> {
        if std::env::var_os(TOKEN_VARIABLE).is_some() {
            return Token::find(None);
        }
        let path = study.join(TOKEN);
        let made = || {
            let mut bytes = [0; TOKEN_BYTES];
            getrandom::fill(&mut bytes).map_err(io::Error::from)?;
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            writeln!(file, "{}", hexadecimal(&bytes))?;
            file.sync_all()?;
            folder::sync(study)
        };
        match made() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(file_error("write", &path))?,
        }
        Token::find(Some(&path))
    }

    fn parse(text: &str) -> Option<Token> {
        Some(Token(bytes_of(text.trim())?.try_into().ok()?))
    }

    fn signer(&self, text: &str) -> Hmac<Sha256> {
        let mut signer = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        signer.update(text.as_bytes());
        signer
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Token")
    }
}

/// What is signed.
#[derive(Serialize, Deserialize)]
struct Manifest {
    version: u64,
    study: String,
    architecture: String,
    spec: StudySpec,
    files: Vec<Item>,
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
    code: &Code,
    files: &Files,
) -> Result<(), SupervisorError> {
    let linked = code.linked.iter().map(|library| (Path::new(LIBRARIES).join(&library.name), &library.file));
    let objective = [(PathBuf::from(LIBRARY), &code.objective.file)];
    let shared = files.shared.as_ref().map(|shared| (PathBuf::from(SHARED), shared));
    let sources: Vec<(PathBuf, &File)> = objective.into_iter().chain(linked).chain(shared).collect();
    let item = |(path, file): &(PathBuf, &File)| {
        let (hash, bytes) = hash_of(file).map_err(file_error("read", path))?;
        Ok(Item { path: path.clone(), bytes, hash })
    };
    let items = sources.iter().map(item).collect::<Result<Vec<Item>, SupervisorError>>()?;
    let manifest = Manifest {
        version: VERSION,
        study: spec.project.clone(),
        architecture: std::env::consts::ARCH.to_owned(),
        spec: stored(spec).without_call(),
        files: items,
    };
    let unknown =
        |error: serde_json::Error| PublicationError::Unknown { study: spec.project.clone(), reason: error.to_string() };
    let text = serde_json::to_string(&manifest).map_err(unknown)?;
    let signature = hexadecimal(&Token::of_study(study)?.signer(&text).finalize().into_bytes());
    let signed = serde_json::to_string(&Signed { manifest: text, signature }).map_err(unknown)?;
    let files: Vec<(&str, &File, u64)> =
        manifest.files.iter().zip(&sources).map(|(item, (_, file))| (item.hash.as_str(), *file, item.bytes)).collect();
    Ok(journal.publish(&signed, &files)?)
}

/// Puts what the owner of a study at an address has published into the folder `directory/study`; gives the search that runs
/// there, once nothing in it is other than what was signed with `token`.
///
/// # Errors
/// Where the database has nothing of it, where the signature or a hash is another one, or for another architecture.
pub fn fetch(storage: &str, study: &str, token: &Token, directory: &Path) -> Result<StudySpec, SupervisorError> {
    let mut content = Content::of(storage, study)?;
    let unsigned = || PublicationError::Unsigned { study: study.to_owned() };
    let signed: Signed = serde_json::from_str(&content.text()?).map_err(|_| unsigned())?;
    let signature = bytes_of(&signed.signature).ok_or_else(unsigned)?;
    token.signer(&signed.manifest).verify_slice(&signature).map_err(|_| unsigned())?;
    let unknown = |reason: String| PublicationError::Unknown { study: study.to_owned(), reason };
    let manifest: Manifest = serde_json::from_str(&signed.manifest).map_err(|error| unknown(error.to_string()))?;
    if manifest.study != study {
        return Err(unsigned().into());
    }
    if manifest.version != VERSION {
        return Err(unknown(format!("its version is {}", manifest.version)).into());
    }
    if manifest.architecture != std::env::consts::ARCH {
        let (study, wanted) = (study.to_owned(), manifest.architecture);
        return Err(PublicationError::Architecture { study, wanted, own: std::env::consts::ARCH }.into());
    }
    let folder = directory.join(study);
    let libraries = folder.join(LIBRARIES);
    fs::create_dir_all(&libraries).map_err(file_error("make", &libraries))?;
    for Item { path, bytes, hash } in &manifest.files {
        // Signed or not, a path of another form is no file of a study.
        let is_known = path == Path::new(LIBRARY)
            || path == Path::new(SHARED)
            || path.parent() == Some(Path::new(LIBRARIES)) && path.file_name().is_some();
        if !is_known {
            return Err(unknown(format!("it names the file {}", path.display())).into());
        }
        let target = folder.join(path);
        let mut file = File::create_new(&target).map_err(file_error("write", &target))?;
        content.write(hash, *bytes, &mut file)?;
        let file = File::open(&target).map_err(file_error("read", &target))?;
        if hash_of(&file).map_err(file_error("read", &target))? != (hash.clone(), *bytes) {
            let (study, name) = (study.to_owned(), path.display().to_string());
            return Err(PublicationError::Damaged { study, name }.into());
        }
    }
    let spec = manifest.spec.without_call();
    let of_study = |library: PathBuf| libraries.join(library.file_name().unwrap_or_default());
    let supervision = Supervision {
        libraries: spec.supervision.libraries.into_iter().map(of_study).collect(),
        mirror: None,
        leaves_trials: true,
        ..spec.supervision
    };
    Ok(StudySpec {
        directory: directory.to_owned(),
        project: study.to_owned(),
        library: folder.join(LIBRARY),
        shared: spec.shared.map(|_| folder.join(SHARED)),
        storage: Some(storage.to_owned()),
        supervision,
        ..spec
    })
}

/// Finds out whether this host can run the objective of a search, in a process of its own.
///
/// # Errors
/// Where it cannot, with the dynamic linker's reason: it may be made for a newer glibc, or for another processor.
pub fn check_that_it_loads(spec: &StudySpec, program: &Path) -> Result<(), SupervisorError> {
    let code = Code::read(spec, &spec.directory.join(&spec.project))?;
    Ok(process::check_that_it_loads(program, &code.objective, &code.linked, &spec.symbol)?)
}

/// The hash of a file's bytes, and how many they are.
fn hash_of(file: &File) -> io::Result<(String, u64)> {
    code::read(file, u64::MAX, |_| Ok(()))
}

/// The bytes that pairs of hexadecimal digits stand for.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    let byte = |pair: &[u8; 2]| {
        let digits = std::str::from_utf8(pair).ok().filter(|digits| !digits.contains('+'))?;
        u8::from_str_radix(digits, 16).ok()
    };
    pairs.iter().map(byte).collect()
}
