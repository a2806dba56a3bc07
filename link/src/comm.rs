//! Comms: named channels between cells and front ends, which also carry the state of widgets.
//!
//! The kernel keeps the comms. A cell process has only their ids, so crashes and snapshots change no comm.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A message on a comm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommMessage {
    /// The content of the message: any JSON.
    pub data: Value,
    /// Metadata of the Jupyter message.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// The binary buffers of the message, each in base64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buffers: Vec<String>,
}

/// An operation of a cell on a comm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum CommAction {
    /// Open a comm. The answer is [`CommAnswer::Opened`].
    Open {
        /// The comm's target name: it selects the handler in the front end.
        target: String,
        /// The first message.
        message: CommMessage,
    },
    /// Send a message.
    Send {
        /// Id of the comm.
        comm: String,
        /// The message.
        message: CommMessage,
    },
    /// Close a comm.
    Close {
        /// Id of the comm.
        comm: String,
        /// The last message.
        message: CommMessage,
    },
    /// Take the messages that have arrived on a comm. The answer is [`CommAnswer::Messages`].
    Take {
        /// Id of the comm.
        comm: String,
    },
    /// Read the state of a widget, as both sides have set it. The answer is [`CommAnswer::State`].
    State {
        /// Id of the widget's comm.
        comm: String,
    },
    /// Accept comms that front ends open with this target from now on, and take those that are already open. The answer is
    /// [`CommAnswer::Accepted`].
    Accept {
        /// The target name.
        target: String,
    },
}

/// The answer to a [`CommAction`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "comm", rename_all = "snake_case")]
pub enum CommAnswer {
    /// The comm is open.
    Opened {
        /// Id of the new comm.
        id: String,
    },
    /// The messages of a comm that no cell has taken before.
    Messages {
        /// The messages, in the order in which they arrived.
        messages: Vec<CommMessage>,
    },
    /// A widget's state, without its binary data.
    State {
        /// The values of the state by their names.
        values: Map<String, Value>,
    },
    /// The comms that front ends have opened and that no cell has taken before.
    Accepted {
        /// The id and the first message of each comm.
        opened: Vec<(String, CommMessage)>,
    },
}
