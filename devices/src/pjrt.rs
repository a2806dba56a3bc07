//! Drives accelerators through their PJRT plugins: shared libraries that export `GetPjrtApi`, such as libtpu.
//!
//! PJRT's C interface is a table of functions; newer versions only add functions at its end. Each function takes one structure that
//! begins with the structure's size. These bindings identify the functions by their index in the table, and make every structure
//! longer than in any known version, filled with zeros. So one build works with old and new plugins (0.69 and 0.116 in
//! `tests/test_devices.py`).
//! The interface is `xla/pjrt/c/pjrt_c_api.h` in OpenXLA.
//!
//! A plugin may hang or abort the process that loads it: [`crate::probe`] tries an unknown plugin in a child process. A
//! plugin is never unloaded, since it starts threads that never end.

mod abi;
mod api;
mod buffer;
mod client;
mod compile_options;
mod description;
mod error;
mod event;
mod executable;
mod literal;
mod named;
mod object;
mod plugin;
mod profiler;
mod program;
mod run;
mod shared;
mod topology;

pub use buffer::{Buffer, Transfer};
pub use client::{Client, Device, DeviceMemory};
pub use compile_options::{CompileOptions, Override};
pub use description::Description;
pub use error::{Code, PjrtError};
pub(crate) use event::Ends;
pub use event::Event;
pub use executable::{Executable, MemoryUse, OutputShape};
pub(crate) use literal::check_length;
pub use literal::{Element, Literal};
pub use named::{Named, Value};
pub use plugin::Plugin;
pub use profiler::Profiler;
pub use run::{Input, Launch, LoadedExecutable, Refused};
pub(crate) use run::{Wrapped, check_inputs};
pub use topology::Topology;
