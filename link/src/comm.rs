//! Comms: channels with a name between cells and front ends, which also carry the state of widgets.
//!
//! The kernel keeps them. A cell process has only their ids, so crashes and snapshots change no comm.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A message on a comm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommMessage {
    /// Any JSON.
    pub data: Value,
    /// Metadata of the Jupyter message.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Binary data, each in base64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buffers: Vec<String>,
}

/// What a cell does with a comm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum CommAction {
    /// Open a comm. The answer is [`CommAnswer::Opened`].
    Open {
        /// Name of what the front end does with it.
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
    /// Take the messages that have come. The answer is [`CommAnswer::Messages`].
    Take {
        /// Id of the comm.
        comm: String,
    },
    /// Read the state of a widget, as both sides have set it. The answer is [`CommAnswer::State`].
    State {
        /// Id of the widget's comm.
        comm: String,
    },
    /// Let front ends open comms with this target from now on, and take those that they have opened. The answer is
    /// [`CommAnswer::Accepted`].
    Accept {
        /// The target.
        target: String,
    },
}

/// What a cell learns from a [`CommAction`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "comm", rename_all = "snake_case")]
pub enum CommAnswer {
    /// The comm is open.
    Opened {
        /// Its id.
        id: String,
    },
    /// The messages that no cell has taken before.
    Messages {
        /// In the order in which they came.
        messages: Vec<CommMessage>,
    },
    /// A widget's state, without its binary data.
    State {
        /// The values by their names.
        values: Map<String, Value>,
    },
    /// The comms that front ends have opened and that no cell has taken before.
    Accepted {
        /// Each one's id and first message.
        opened: Vec<(String, CommMessage)>,
    },
}
