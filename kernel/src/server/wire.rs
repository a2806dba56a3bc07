//! Turns ZeroMQ frames into Jupyter messages and back: delimiter, signature, headers. This module knows no message types and
//! answers nothing. A frame that cannot be read becomes a [`WireError`], never a panic.
//!
//! See "The Wire Protocol" in the Jupyter messaging specification.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chrono::{SecondsFormat, Utc};
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value, json};
use sha2::Sha256;
use zeromq::ZmqMessage;

/// The version of the messaging protocol that this kernel speaks.
///
/// 5.4 demands shutdown and interrupt on the control socket. Later versions demand a welcome message on IOPub, which a PUB
/// socket cannot send. Subshells, which come from 5.5, are an optional feature: `supported_features` announces them.
pub(crate) const PROTOCOL_VERSION: &str = "5.4";

const DELIMITER: &[u8] = b"<IDS|MSG>";

/// The reason why frames are not a message for this kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    #[error("message of {frames} frames has no `<IDS|MSG>` delimiter; is the sender a Jupyter client?")]
    NoDelimiter { frames: usize },
    #[error("message ends after {frames} of the 5 frames that follow its delimiter")]
    Truncated { frames: usize },
    #[error("message signature is wrong; the sender does not hold the key of this kernel's connection file")]
    WrongSignature,
    #[error("message {part} is not readable: {reason}")]
    Unreadable { part: &'static str, reason: String },
}

/// The header of the request that a message answers, in its original bytes, so that no field is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parent(Arc<[u8]>);

impl Parent {
    /// The parent of a message that answers no request.
    pub(crate) fn none() -> Self {
        Self(Arc::from(b"{}".as_slice()))
    }
}

/// A message from a client with a correct signature and a readable header. Its content may be unreadable.
#[derive(Debug)]
pub(crate) struct Request {
    /// Routing frames, which go before an answer.
    pub(crate) identities: Vec<Vec<u8>>,
    /// The message type, such as `execute_request`.
    pub(crate) msg_type: String,
    /// The header of this message, which is the parent of its answers.
    pub(crate) parent: Parent,
    /// The content, or the reason why it cannot be read: the client waits for an answer in either case.
    pub(crate) content: Result<Map<String, Value>, WireError>,
    /// The id of the subshell that the message is for; none for the main shell.
    pub(crate) subshell: Option<String>,
    /// The metadata about the notebook.
    pub(crate) notebook: Notebook,
    /// Binary frames behind the content.
    pub(crate) buffers: Vec<Vec<u8>>,
}

impl Request {
    /// The fields of the content that a handler needs.
    pub(crate) fn fields<T: DeserializeOwned>(&self) -> Result<T, WireError> {
        let content = self.content.clone()?;
        serde_json::from_value(Value::Object(content)).map_err(|error| unreadable("content", &error))
    }
}

/// The notebook fields in the metadata of an `execute_request`. JupyterLab and VS Code send them; the messaging specification
/// does not define them, so metadata that cannot be read counts as empty.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Notebook {
    /// The id of the cell that runs.
    pub(crate) cell_id: Option<String>,
    /// The ids of the cells that the user has deleted since the last request.
    pub(crate) deleted_cells: Vec<String>,
}

#[derive(Deserialize)]
struct Header {
    msg_type: String,
    #[serde(default)]
    subshell_id: Option<String>,
}

/// The reader and writer of signed messages for one kernel session.
pub(crate) struct Codec {
    mac: Option<Hmac<Sha256>>,
    session: String,
    written: AtomicU64,
}

impl Codec {
    /// The codec for a connection file's key. An empty key means that messages are not signed.
    pub(crate) fn new(key: &str) -> Self {
        let mac = (!key.is_empty())
            .then(|| Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("HMAC takes a key of any length"));
        Self { mac, session: random_id(), written: AtomicU64::new(0) }
    }

    /// Reads `[identities…, <IDS|MSG>, signature, header, parent_header, metadata, content, buffers…]`.
    ///
    /// Fails only if no answer is possible: without a delimiter, a correct signature or a readable header.
    pub(crate) fn decode<F: AsRef<[u8]>>(&self, frames: &[F]) -> Result<Request, WireError> {
        let at = frames
            .iter()
            .position(|frame| frame.as_ref() == DELIMITER)
            .ok_or(WireError::NoDelimiter { frames: frames.len() })?;
        let (identities, rest) = (&frames[..at], &frames[at + 1..]);
        let [signature, header, rest @ ..] = rest else {
            return Err(WireError::Truncated { frames: rest.len() });
        };
        let parts = &frames[at + 2..frames.len().min(at + 6)];
        self.verify(signature.as_ref(), parts)?;
        let header = header.as_ref();
        let Header { msg_type, subshell_id } =
            serde_json::from_slice(header).map_err(|error| unreadable("header", &error))?;
        Ok(Request {
            identities: identities.iter().map(|frame| frame.as_ref().to_vec()).collect(),
            msg_type,
            parent: Parent(Arc::from(header)),
            content: read_content(rest),
            subshell: subshell_id,
            notebook: read_notebook(rest),
            buffers: rest.iter().skip(3).map(|frame| frame.as_ref().to_vec()).collect(),
        })
    }

    /// Writes a message; `identities` are routing frames, or the topic on IOPub.
    pub(crate) fn encode(
        &self,
        identities: &[Vec<u8>],
        msg_type: &str,
        parent: &Parent,
        metadata: &Value,
        content: &Value,
    ) -> ZmqMessage {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let header = json!({
            "msg_id": format!("{}_{number}", self.session),
            "session": self.session,
            "username": "kernel",
            "date": now(),
            "msg_type": msg_type,
            "version": PROTOCOL_VERSION,
        });
        let parts = [
            header.to_string().into_bytes(),
            parent.0.to_vec(),
            metadata.to_string().into_bytes(),
            content.to_string().into_bytes(),
        ];
        let signature = self.sign(&parts);
        let mut frames = identities.iter().cloned().chain([DELIMITER.to_vec(), signature.into_bytes()]).chain(parts);
        let mut message = ZmqMessage::from(frames.next().unwrap_or_default());
        frames.for_each(|frame| message.push_back(frame.into()));
        message
    }

    fn sign(&self, parts: &[Vec<u8>]) -> String {
        let Some(mac) = &self.mac else { return String::new() };
        let mut mac = mac.clone();
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn verify<F: AsRef<[u8]>>(&self, signature: &[u8], parts: &[F]) -> Result<(), WireError> {
        let Some(mac) = &self.mac else { return Ok(()) };
        let mut mac = mac.clone();
        parts.iter().for_each(|part| mac.update(part.as_ref()));
        let signature = from_hex(signature).ok_or(WireError::WrongSignature)?;
        mac.verify_slice(&signature).map_err(|_| WireError::WrongSignature)
    }
}

/// The present time in the form of messages: RFC 3339, UTC, microseconds.
pub(crate) fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// Reads the content in `[parent_header, metadata, content, buffers…]`. Fails if a frame up to the content is missing or
/// unreadable.
fn read_content<F: AsRef<[u8]>>(rest: &[F]) -> Result<Map<String, Value>, WireError> {
    let [parent_header, metadata, content, ..] = rest else {
        return Err(WireError::Truncated { frames: rest.len() + 2 });
    };
    for (part, frame) in [("parent header", parent_header), ("metadata", metadata)] {
        serde_json::from_slice::<IgnoredAny>(frame.as_ref()).map_err(|error| unreadable(part, &error))?;
    }
    serde_json::from_slice(content.as_ref()).map_err(|error| unreadable("content", &error))
}

/// Reads the metadata in `[parent_header, metadata, content, buffers…]`.
fn read_notebook<F: AsRef<[u8]>>(rest: &[F]) -> Notebook {
    let metadata = rest.get(1).map_or(&[][..], AsRef::as_ref);
    serde_json::from_slice(metadata).unwrap_or_else(|error| {
        tracing::debug!(%error, "metadata of a request says nothing of its notebook");
        Notebook::default()
    })
}

fn unreadable(part: &'static str, error: &serde_json::Error) -> WireError {
    WireError::Unreadable { part, reason: error.to_string() }
}

fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, []) = text.as_chunks::<2>() else {
        return None;
    };
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// A random id of 32 hexadecimal digits. Ids are not secret, so the random seeds of the standard library's hash maps suffice.
pub(super) fn random_id() -> String {
    let word = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", word(), word())
}

#[cfg(test)]
mod tests;
