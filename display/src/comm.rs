//! Comms: named channels over which a cell and code in the front end exchange messages.
//!
//! The kernel keeps the comms, so a [`Comm`] stays valid after a crash, `%undo` or `%restore`. Messages that the front end sends while no
//! cell runs wait for the next cell that calls [`Comm::receive`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ferrotune_link::{Answer, CommAction, CommAnswer, CommMessage, KernelFrame, connection};
use serde_json::Map;
use std::collections::BTreeSet;
use std::{fmt, io};

pub use serde_json::{Value, json};

/// The id of the comm on which a cell process reports the ids of the widgets that its variables hold, as `{"held": [id, …]}`. The
/// kernel keeps this comm, and no front end knows it.
pub const HOLDER: &str = "ferrotune.widget.holder";

/// One end of a channel to the front end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comm {
    id: String,
}

/// A message of a comm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// The content, any JSON value.
    pub data: Value,
    /// The metadata of the Jupyter message.
    pub metadata: Map<String, Value>,
    /// The binary data of the message.
    pub buffers: Vec<Vec<u8>>,
}

impl From<Value> for Message {
    fn from(data: Value) -> Self {
        Self { data, ..Self::default() }
    }
}

impl Comm {
    /// Opens a comm at the front end, in which code must be registered for this target.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotConnected`] if there is no kernel, as in a trial or a plain program.
    ///
    /// ```no_run
    /// use ferrotune_display::comm::{Comm, json};
    /// let comm = Comm::open("my.target", json!({"hello": "front end"}))?;
    /// for message in comm.receive()? {
    ///     println!("{}", message.data);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open(target: &str, first: impl Into<Message>) -> io::Result<Self> {
        let message = encoded(first.into());
        match ask(CommAction::Open { target: target.to_owned(), message })? {
            Some(CommAnswer::Opened { id }) => Ok(Self { id }),
            other => Err(unexpected(&other)),
        }
    }

    /// Allows front ends to open comms with this target, and returns the comms that were opened since the last call,
    /// each with its first message. The kernel closes comms of other targets at once.
    ///
    /// # Errors
    /// The errors of [`Comm::open`].
    pub fn accept(target: &str) -> io::Result<Vec<(Self, Message)>> {
        match ask(CommAction::Accept { target: target.to_owned() })? {
            Some(CommAnswer::Accepted { opened }) => {
                opened.into_iter().map(|(id, message)| Ok((Self { id }, decoded(message)?))).collect()
            }
            other => Err(unexpected(&other)),
        }
    }

    /// The comm's id in Jupyter's messages; for a widget also the id of its model.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Sends a message.
    ///
    /// # Errors
    /// If the comm is closed, and the errors of [`Comm::open`].
    pub fn send(&self, message: impl Into<Message>) -> io::Result<()> {
        done(CommAction::Send { comm: self.id.clone(), message: encoded(message.into()) })
    }

    /// The messages that have arrived since the last call, in order. Does not wait. For a widget, these are its
    /// custom messages.
    ///
    /// # Errors
    /// If the comm is closed and its last messages were received, and the errors of [`Comm::open`].
    pub fn receive(&self) -> io::Result<Vec<Message>> {
        match ask(CommAction::Take { comm: self.id.clone() })? {
            Some(CommAnswer::Messages { messages }) => messages.into_iter().map(decoded).collect(),
            other => Err(unexpected(&other)),
        }
    }

    /// Closes the comm on both sides.
    ///
    /// # Errors
    /// If the comm is closed already, and the errors of [`Comm::open`].
    pub fn close(&self) -> io::Result<()> {
        let message = CommMessage { data: json!({}), ..CommMessage::default() };
        done(CommAction::Close { comm: self.id.clone(), message })
    }

    /// Reports the ids of all widgets' comms that this process holds.
    pub(crate) fn report_held(ids: &BTreeSet<String>) -> io::Result<()> {
        let message = CommMessage { data: json!({"held": ids}), ..CommMessage::default() };
        done(CommAction::Send { comm: HOLDER.to_owned(), message })
    }

    /// The state of a widget, as the cell and the front end have set it.
    pub(crate) fn state(&self) -> io::Result<Map<String, Value>> {
        match ask(CommAction::State { comm: self.id.clone() })? {
            Some(CommAnswer::State { values }) => Ok(values),
            other => Err(unexpected(&other)),
        }
    }
}

fn ask(action: CommAction) -> io::Result<Option<CommAnswer>> {
    match connection::send(&KernelFrame::Comm { action })? {
        Answer::Comm { learned } => Ok(Some(learned)),
        Answer::Refused { reason } => Err(io::Error::other(reason)),
        Answer::Done => Ok(None),
        line @ Answer::Line { .. } => Err(unexpected(&line)),
    }
}

/// Sends an action that has no answer.
fn done(action: CommAction) -> io::Result<()> {
    match ask(action)? {
        None => Ok(()),
        learned => Err(unexpected(&learned)),
    }
}

fn unexpected(answer: &impl fmt::Debug) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the kernel's answer about a comm is not understood: {answer:?}"),
    )
}

fn encoded(Message { data, metadata, buffers }: Message) -> CommMessage {
    CommMessage { data, metadata, buffers: buffers.iter().map(|bytes| STANDARD.encode(bytes)).collect() }
}

fn decoded(CommMessage { data, metadata, buffers }: CommMessage) -> io::Result<Message> {
    let decode = |text: &String| STANDARD.decode(text).map_err(io::Error::other);
    Ok(Message { data, metadata, buffers: buffers.iter().map(decode).collect::<io::Result<_>>()? })
}
