//! The magics of a notebook cell: their names, their options, and the parser that splits a cell into magics and Rust.
//!
//! [`parse`] turns a cell into [`Step`]s, in order. One table ([`table`]) is the source of parsing, help, `%lsmagic`,
//! suggestions and completion. `%%tune` fills the tuner's own description of a search
//! ([`StudySpec`](ferrotune_space::spec::StudySpec)). This crate carries out no magic: it reads no file and starts no
//! process. The kernel and the tuner check whether an oracle or a study exists.
//!
//! A line magic is a line that begins with `%` and a letter, at a place where a Rust statement may begin. A shell command is
//! a line that begins with `!` at such a place. A `%` anywhere else is Rust's remainder operator or text:
//!
//! ```
//! use ferrotune_magics::{Action, Step, parse};
//!
//! let steps = parse("let rest = 7\n%two;\n%device")?;
//! assert_eq!(steps[0], Step::Code { source: "let rest = 7\n%two;\n".into(), first_line: 1 });
//! assert_eq!(steps[1], Step::Action(Action::Device));
//! # Ok::<(), ferrotune_magics::MagicError>(())
//! ```

mod action;
mod arguments;
mod call;
mod cell;
mod completion;
mod error;
mod magic;
mod quantity;
mod question;
mod split;
mod table;
mod values;

pub use action::{
    Action, Best, CheckedProgram, Dep, DeviceChoice, Env, Export, Folder, History, Inspect, InspectStyle, Lines, Load,
    Measure, Memory, Plot, Profile, Resume, Search, SearchVerb, Shell, Step, Study, Time, Timeit, TpuCheck, TpuConnect,
    TrialProfile, Trials, Tune, Who, WhoStyle, WriteFile,
};
pub use cell::parse;
pub use completion::{Completion, Matches, complete, rust_in};
pub use error::{MagicError, Problem};
pub use magic::{Magic, MagicOption, Values};
pub use quantity::{bytes, seconds};
pub use split::{Ending, Part, PartKind, Split, cell_magic, split};
pub use table::{help, lsmagic, table};
