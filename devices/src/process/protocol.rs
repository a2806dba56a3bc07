//! The messages between a client and the device process. The client chooses the ids of all results, so that a request that makes
//! buffers needs no reply: an error comes with the first question about a buffer that depends on it.

use crate::memory::places::Number;
use crate::opened::Opened;
use crate::pjrt::{CompileOptions, Description, DeviceMemory, Element, MemoryUse, OutputShape, PjrtError};
use ferrotune_machine::format::precise_bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The version of these messages. A client and a device process with different versions refuse each other.
pub(crate) const VERSION: u32 = 3;

/// A client's number for a buffer, an executable or a run.
pub(crate) type Id = u64;

/// A number that no other state of a client has, for the buffers that a client has at a moment.
pub(crate) type Generation = u128;

/// The first message of a client.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    /// The client in messages, such as `notebook 4711`.
    pub(crate) name: String,
    /// The generation whose buffers and executables the client goes on with.
    pub(crate) resume: Option<Generation>,
    /// How much of the device's memory the client may use.
    #[serde(default)]
    pub(crate) memory: MemoryClaim,
}

/// How much of a device's memory a client of the device process may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryClaim {
    /// What is free.
    #[default]
    Free,
    /// So many bytes.
    Bytes(u64),
    /// An equal part, with so many parts, of what clients without a claim have left.
    Part(u64),
}

/// The answer to a [`Hello`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Welcome {
    /// The device process serves this client.
    Ready {
        /// The plugin's devices.
        opened: Opened,
        /// The platform's version, on all its lines.
        version: String,
        /// The description of each device.
        descriptions: Vec<Description>,
        /// Whether the buffers of the generation are there, if the client has named one.
        has_resumed: bool,
    },
    /// The device process does not serve this client.
    Refused {
        /// The reason and the cure, on one line.
        reason: String,
    },
}

/// The bytes of an array or a program, which follow a message.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Payload {
    /// So many bytes directly behind the message.
    Inline(usize),
    /// So many bytes in the next memory file that came with the packet.
    File(usize),
    /// So many bytes in a place of the sender, whose file comes with the packet if the place is new. Those in `gone` are no more.
    Place { number: Number, length: usize, is_new: bool, gone: Vec<Number> },
}

/// A message of a client.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Copies an array to the device with this place in the list of devices.
    Upload { buffer: Id, device: u32, element: Element, dims: Vec<i64>, bytes: Payload },
    /// Copies a buffer to another device.
    Copy { buffer: Id, source: Id, device: u32 },
    /// Starts a run with the inputs of each device, each with whether the client gives it away.
    Execute { executable: Id, inputs: Vec<Vec<(Id, bool)>>, outputs: Vec<Vec<Id>>, run: Id },
    /// Frees the memory of a buffer, which the client still knows.
    Delete { buffer: Id },
    /// Forgets these objects.
    Free { ids: Vec<Id> },
    /// The client reads these places of the device process no more.
    Return { places: Vec<Number> },
    /// Keeps all buffers and executables that the client has now, until all copies of the descriptor that comes with the
    /// packet are closed. Both sides forget their places.
    Mark { generation: Generation },
    /// Asks for a reply with this number.
    Ask { ticket: u64, question: Question },
}

impl Payload {
    /// Whether a descriptor comes with it.
    pub(super) fn has_file(&self) -> bool {
        matches!(self, Payload::File(_) | Payload::Place { is_new: true, .. })
    }
}

impl Request {
    /// The bytes that follow the request, if there are any.
    pub(super) fn payload(&self) -> Option<&Payload> {
        match self {
            Request::Upload { bytes, .. }
            | Request::Ask { question: Question::Compile { module: bytes, .. }, .. }
            | Request::Ask { question: Question::Load { serialized: bytes, .. }, .. } => Some(bytes),
            _ => None,
        }
    }
}

/// A question to the device process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Question {
    /// Compiles a program under this id.
    Compile { executable: Id, options: CompileOptions, module: Payload },
    /// Loads a serialized program under this id.
    Load { executable: Id, serialized: Payload },
    /// The program's serialized form.
    Serialize { executable: Id },
    /// The compiler's estimate of a run's cost, as JSON: a floating-point number may be NaN.
    Cost { executable: Id },
    /// The types and dimensions of the program's outputs.
    Outputs { executable: Id },
    /// The content of a buffer, once it is there.
    Download { buffer: Id },
    /// The end of what makes a buffer, or of a run.
    End { of: Id },
    /// Whether what makes a buffer, or a run, has ended.
    IsOver { of: Id },
    /// The element type, the dimensions and the size of a buffer.
    Shape { buffer: Id },
    /// Whether a buffer's memory was freed.
    IsDeleted { buffer: Id },
    /// The use of a device's memory.
    Memory { device: u32 },
    /// Begins a profile.
    BeginProfile,
    /// Ends the profile.
    EndProfile,
    /// What the process holds, and for whom.
    Report,
    /// Ends the device process.
    Close,
}

/// The ticket of the replies to no question, by which the device process returns places.
pub(crate) const UNASKED: u64 = 0;

/// A reply to a question.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) ticket: u64,
    pub(crate) answer: Result<Answer, PjrtError>,
}

/// The answer to a question.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Is(bool),
    Compiled(Compiled),
    Outputs(Vec<OutputShape>),
    Bytes(Payload),
    Array {
        element: Element,
        dims: Vec<i64>,
        bytes: Payload,
    },
    Shape {
        element: Element,
        dims: Vec<i64>,
        device_bytes: u64,
    },
    Memory(DeviceMemory),
    Report(ProcessReport),
    /// The device process reads this place of the client no more.
    Returned(Number),
}

impl Answer {
    /// The bytes that follow the reply, if there are any.
    pub(crate) fn payload(&self) -> Option<&Payload> {
        match self {
            Answer::Bytes(bytes) | Answer::Array { bytes, .. } => Some(bytes),
            _ => None,
        }
    }
}

/// The facts of a compiled program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Compiled {
    pub(crate) name: String,
    /// The places of the program's devices in the list of devices.
    pub(crate) devices: Vec<u32>,
    pub(crate) outputs: usize,
    pub(crate) replicas_and_partitions: (usize, usize),
    /// The memory that the program needs; the plugin's error if it does not report the memory.
    pub(crate) memory: Result<MemoryUse, PjrtError>,
}

/// What the device process holds, and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessReport {
    /// The process id.
    pub process: u32,
    /// The name of the plugin's first device in messages, such as `cuda`.
    pub device: String,
    /// The bytes of all buffers.
    pub held_bytes: u64,
    /// The bytes that are free; none if they are unknown.
    pub free_bytes: Option<u64>,
    /// The clients.
    pub clients: Vec<ClientReport>,
    /// The number of states of notebooks whose buffers are kept, and the bytes that only they keep.
    pub kept: (usize, u64),
}

impl ProcessReport {
    /// The clients with a name. A client without a name only asks, and is over when it has its answer.
    pub fn named_clients(&self) -> impl Iterator<Item = &ClientReport> {
        self.clients.iter().filter(|client| !client.name.is_empty())
    }
}

impl fmt::Display for ProcessReport {
    /// Writes a text such as `holds 1.2 GiB: notebook 4711 1 GiB (1.1 GiB at most); 2 earlier states of notebooks 200 MiB more`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clients = self.named_clients().map(|client| {
            let ClientReport { name, bytes, peak_bytes } = client;
            format!("{name} {} ({} at most)", precise_bytes(*bytes), precise_bytes(*peak_bytes))
        });
        let clients = clients.collect::<Vec<_>>().join(", ");
        write!(f, "holds {}", precise_bytes(self.held_bytes))?;
        if let Some(bytes) = self.free_bytes {
            write!(f, ", and {} are free", precise_bytes(bytes))?;
        }
        if !clients.is_empty() {
            write!(f, ": {clients}")?;
        }
        match self.kept {
            (0, _) => Ok(()),
            (1, bytes) => write!(f, "; an earlier state of a notebook {} more", precise_bytes(bytes)),
            (count, bytes) => write!(f, "; {count} earlier states of notebooks {} more", precise_bytes(bytes)),
        }
    }
}

/// What a client of the device process holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientReport {
    /// The client's name, such as `notebook 4711`.
    pub name: String,
    /// The bytes of the client's buffers.
    pub bytes: u64,
    /// The greatest number of these bytes so far.
    pub peak_bytes: u64,
}
