//! The code and the mirror folders that this user trusts: code is identified by the hash of its bytes. This knowledge is
//! kept in the user's own data folder and never in a study, because a study's folder may come from anyone. Runs nothing.

use super::SupervisorError;
use ferrotune_journal::folder;
use ferrotune_journal::study_folder::file_error;
use sha2::{Digest as _, Sha256};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// The source of a part of a search, which decides whether that part is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The user, who compiled or named the part in this call, or declared it trusted. This decision is remembered.
    User,
    /// The study's folder, which may come from anyone. The part must be known already.
    Study,
}

/// The rules about whether a search may use the code and the mirror that its study's folder names.
#[derive(Clone, Debug)]
pub struct Trust {
    /// The user's folder of known parts. Without this folder no part is known, and none is remembered.
    pub known: Option<PathBuf>,
    /// The source of the code.
    pub code: Origin,
    /// The source of the mirror's name.
    pub mirror: Origin,
}

impl Trust {
    /// Accepts code that the user trusts in this call, or has trusted before. `facts` identify the code: other code has
    /// other facts.
    pub(super) fn admit_code(&self, facts: &str, study: &Path) -> Result<(), SupervisorError> {
        if self.admits(self.code, facts)? {
            return Ok(());
        }
        Err(SupervisorError::UnknownCode { study: study.to_owned() })
    }

    /// Accepts a mirror folder that the user trusts in this call, or has trusted before.
    pub(super) fn admit_mirror(&self, mirror: &Path, study: &Path) -> Result<(), SupervisorError> {
        if self.admits(self.mirror, &format!("ferrotune mirror 1\n{mirror:?}\n"))? {
            return Ok(());
        }
        Err(SupervisorError::UnknownMirror { study: study.to_owned(), mirror: mirror.to_owned() })
    }

    fn admits(&self, origin: Origin, facts: &str) -> Result<bool, SupervisorError> {
        let known = self.known.as_ref().map(|known| (known, known.join(hash(facts.as_bytes()))));
        match (origin, known) {
            (Origin::User, Some((known, mark))) => {
                // The user has asked for this search in any case; without the mark, a later search asks again.
                if let Err(error) = remember(known, &mark, facts) {
                    tracing::warn!(mark = %mark.display(), %error, "what is trusted cannot be remembered: it will be asked for again");
                }
                Ok(true)
            }
            (Origin::User, None) => Ok(true),
            (Origin::Study, None) => Ok(false),
            (Origin::Study, Some((_, mark))) => match fs::symlink_metadata(&mark) {
                Ok(mark) => Ok(mark.is_file()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(error) => Err(file_error("look for", &mark)(error).into()),
            },
        }
    }
}

/// Marks `facts` as known: only the existence of the file `mark` matters; its content is for people.
fn remember(known: &Path, mark: &Path, facts: &str) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(known)?;
    match OpenOptions::new().write(true).create_new(true).open(mark) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        file => {
            file?.write_all(facts.as_bytes())?;
            folder::sync(known)
        }
    }
}

/// The SHA-256 hash in hexadecimal digits.
fn hash(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    #[test]
    fn what_the_user_stands_for_is_known_from_then_on_and_nothing_else_is() -> TestResult {
        let directory = tempfile::tempdir()?;
        let known = directory.path().join("data/ferrotune/trusted");
        let trust = |code| Trust { known: Some(known.clone()), code, mirror: Origin::Study };
        let study = Path::new("studies/digits");
        let refused =
            |trust: Trust, facts| matches!(trust.admit_code(facts, study), Err(SupervisorError::UnknownCode { .. }));
        assert!(refused(trust(Origin::Study), "one"));
        assert!(!known.exists(), "a question leaves nothing behind");
        for _ in 0..2 {
            trust(Origin::User).admit_code("one", study)?;
        }
        trust(Origin::Study).admit_code("one", study)?;
        assert!(refused(trust(Origin::Study), "two"));
        // Trust in code does not extend to a mirror folder of the same text.
        assert!(trust(Origin::Study).admit_mirror(Path::new("one"), study).is_err());
        assert_eq!(fs::read_dir(&known)?.count(), 1);
        Ok(())
    }

    #[test]
    fn without_a_place_to_remember_the_user_is_asked_each_time() -> TestResult {
        let directory = tempfile::tempdir()?;
        fs::write(directory.path().join("file"), "")?;
        for known in [None, Some(directory.path().join("file/trusted"))] {
            let trust = |code| Trust { known: known.clone(), code, mirror: Origin::Study };
            trust(Origin::User).admit_code("one", Path::new("digits"))?;
            assert!(trust(Origin::Study).admit_code("one", Path::new("digits")).is_err());
        }
        Ok(())
    }
}
