//! The secret with which a study's owner signs what workers run, by HMAC-SHA256 (<https://www.rfc-editor.org/rfc/rfc2104>). Signs no text
//! of its own.

use super::SupervisorError;
use super::publication::PublicationError;
use super::trust::hexadecimal;
use ferrotune_journal::folder;
use ferrotune_journal::study_folder::file_error;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// In place of a token's file.
pub const TOKEN_VARIABLE: &str = "FERROTUNE_TOKEN";
/// In the study's folder.
const TOKEN: &str = "token";
pub(super) const TOKEN_BYTES: usize = 32;

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

    /// Signs a text.
    pub(super) fn signer(&self, text: &str) -> Hmac<Sha256> {
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

/// The bytes that pairs of hexadecimal digits stand for.
pub(super) fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    let byte = |pair: &[u8; 2]| {
        let digits = std::str::from_utf8(pair).ok().filter(|digits| !digits.contains('+'))?;
        u8::from_str_radix(digits, 16).ok()
    };
    pairs.iter().map(byte).collect()
}
