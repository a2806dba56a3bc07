//! The token: the secret with which a study's owner signs the code that workers run, by HMAC-SHA256
//! (<https://www.rfc-editor.org/rfc/rfc2104>). This module does not decide what is signed.

use super::error::PublicationError;
use super::trust::hexadecimal;
use super::{SupervisorError, TOKEN_BYTES};
use ferrotune_journal::folder;
use ferrotune_journal::study_folder::file_error;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The environment variable that can hold the token in place of a file.
pub const TOKEN_VARIABLE: &str = "FERROTUNE_TOKEN";
/// The name of the token's file in the study's folder.
const TOKEN: &str = "token";

/// The secret with which a study's owner signs the code that workers run.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; TOKEN_BYTES]);

impl Token {
    /// Reads the token from a file, or from the variable [`TOKEN_VARIABLE`] if no file is named.
    ///
    /// # Errors
    /// If there is no token, or the token has another length.
    pub fn find(file: Option<&Path>) -> Result<Token, SupervisorError> {
        let (from, text) = match file {
            Some(file) => (file.display().to_string(), fs::read_to_string(file).map_err(file_error("read", file))?),
            None => (TOKEN_VARIABLE.to_owned(), std::env::var(TOKEN_VARIABLE).unwrap_or_default()),
        };
        Ok(Token::parse(&text).ok_or(PublicationError::NoToken { from })?)
    }

    /// The text of the token, which [`find`](Self::find) reads. The text is a secret.
    pub fn text(&self) -> String {
        hexadecimal(&self.0)
    }

    /// The token of the user's environment, or else that of the study's folder, where a new token is written if there is
    /// none.
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

    /// Returns an HMAC over a text, which signs the text or verifies its signature.
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

/// The bytes that pairs of hexadecimal digits encode.
pub(super) fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    let byte = |pair: &[u8; 2]| {
        let digits = std::str::from_utf8(pair).ok().filter(|digits| !digits.contains('+'))?;
        u8::from_str_radix(digits, 16).ok()
    };
    pairs.iter().map(byte).collect()
}
