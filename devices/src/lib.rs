//! Detects the accelerators of a machine, and chooses the one that a notebook uses.
//!
//! [`detect`] examines the machine and [`connect`] chooses a device; [`pjrt`] drives an accelerator, and [`probe`] tries whether
//! an accelerator can be driven. Detection reads `/sys`, `/proc`, `/dev`, the environment and, on Google Cloud, one answer of the
//! metadata server. Detection opens no device and loads no driver library, so the cell process stays as it is. All files that
//! detection reads lie below [`Machine::root`], so that a folder can describe any machine.
//!
//! ```
//! use ferrotune_devices::{Machine, connect, detect};
//!
//! let report = detect(&Machine::this(), None);
//! let connection = connect(&report, false)?;
//! println!("{}: {}", connection.device, connection.reason);
//! # Ok::<(), ferrotune_devices::ConnectError>(())
//! ```

mod cards;
mod check;
mod connect;
mod cpu;
mod cuda;
mod finding;
pub mod fork;
mod joint;
mod machine;
mod memory;
mod names;
mod opened;
mod packaged;
pub mod pjrt;
pub mod probe;
pub mod process;
mod python;
mod report;
pub mod runtime;
pub mod selftest;
mod shortage;
mod strategy;
mod tpu;

pub use cards::Cards;
pub use check::{Check, Needs, Outcome, Target, Time};
pub use connect::{ConnectError, Connection, connect};
pub use cpu::Cpu;
pub use cuda::CudaDevice;
pub use finding::Finding;
pub use joint::{JointError, open_jointly};
pub use machine::{Machine, Metadata};
pub use names::{DeviceName, NoPlugin, find_plugin, name_of_plugin};
pub use opened::identity;
pub use python::{PYTHON_VARIABLE, prefix_of_ancestor};
pub use report::Report;
pub use shortage::Shortage;
pub use strategy::{
    Cluster, Precision, Reduce, Replica, Store, StoreError, Strategy, StrategyError, count_scopes_anew,
};
pub use tpu::{Generation, Tpu};

/// Detects TPUs, cards and the CPU. `tpu` is a TPU's name or `local`, as in `%tpu_connect --tpu`.
///
/// Detection never fails: a file that cannot be read becomes a finding. It takes about a millisecond, and at most a second more
/// for a question to the metadata server.
pub fn detect(machine: &Machine, tpu: Option<&str>) -> Report {
    let tree = machine::Tree::new(&machine.root);
    let mut findings = Vec::new();
    let tpu::Detected { tpu, absence: no_tpu, libtpu, suspects: tpu_suspects } =
        tpu::detect(machine, &tree, tpu, &mut findings);
    let (cuda, no_cuda) = cuda::detect(machine, &tree, &mut findings);
    let cards = cards::detect(machine, &tree, &cuda, &mut findings);
    let cpu = cpu::detect(&tree, &mut findings);
    findings.extend(tree.into_problems());
    Report { findings, tpu, no_tpu, libtpu, tpu_suspects, tpu_failure: None, cuda, no_cuda, cards, cpu }
}
