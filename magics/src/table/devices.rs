//! The magics for devices.

use super::{Magic, MagicOption};
use crate::action::{Action, SelfTest, TpuCheck, TpuConnect};
use crate::arguments::{Arguments, Invocation};
use crate::error::MagicError;
use crate::values::text;

const TPU_TYPE: MagicOption = MagicOption::new("--tpu", "TYPE", "the TPU to compile for, such as v5e:2x2").required();
const TPU: MagicOption =
    MagicOption::new("--tpu", "NAME|local", "the TPU to use; local means one attached to this machine");
const REQUIRE: MagicOption = MagicOption::flag("--require", "fail rather than fall back to CUDA or the CPU");
const SELF_TEST: MagicOption =
    MagicOption::flag("--selftest", "compute on the device and compare with plain arithmetic");
const PLUGIN: MagicOption =
    MagicOption::new("--plugin", "FILE", "with --selftest: the PJRT plugin to test instead of libtpu");

pub(super) const DEVICE: Magic = Magic {
    forms: &["%device"],
    usage: "%device",
    summary: "show the device in use",
    help: "The device that cells and trials compute on. %tpu_connect chooses it.\n\nExample\n  %device",
    arguments: &[],
    options: &[],
    build: device,
};

pub(super) const DEVICES: Magic = Magic {
    forms: &["%devices"],
    usage: "%devices",
    summary: "list the CPU, the CUDA devices and the TPU of this machine",
    help: "With cores, vector units and memory, as far as this process may use them. No device is opened.\n\
           \n\
           Example\n  %devices",
    arguments: &[],
    options: &[],
    build: devices,
};

pub(super) const TPU_CHECK: Magic = Magic {
    forms: &["%tpu_check"],
    usage: "%tpu_check {options} FILE",
    summary: "compile a program for a TPU that need not be there, and say whether it fits",
    help: "FILE holds a StableHLO module, as text or bytecode. It is compiled by libtpu, which must be installed\n\
           (pip install libtpu), for a TYPE such as v5e:2x2, v6e:2x4 or v4:2x2x1: generation and chips. Shown are\n\
           its memory against that of a device, its operations and its traffic.\n\
           \n\
           Example\n  %tpu_check --tpu v5e:2x2 step.mlir",
    arguments: &["FILE"],
    options: &[TPU_TYPE],
    build: tpu_check,
};

pub(super) const TPU_CONNECT: Magic = Magic {
    forms: &["%tpu_connect"],
    usage: "%tpu_connect {options}",
    summary: "pick a TPU, else CUDA, else the CPU, and say why",
    help: "Shows what was found on this machine and what it means, then connects the best device that can be\n\
           driven. A TPU is opened once, in a process of its own, to say what it is. With --selftest, that process\n\
           also computes on it, and the result is what to paste into a bug report.\n\
           \n\
           Example\n  %tpu_connect --require",
    arguments: &[],
    options: &[TPU, REQUIRE, SELF_TEST, PLUGIN],
    build: tpu_connect,
};

fn device(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    Arguments::read(invocation).map(|_| Action::Device)
}

fn devices(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    Arguments::read(invocation).map(|_| Action::Devices)
}

fn tpu_check(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let tpu = arguments.required(&TPU_TYPE)?;
    let [file] = arguments.all(["with a StableHLO module"])?;
    Ok(Action::TpuCheck(TpuCheck { tpu, file }))
}

fn tpu_connect(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let self_test = match (arguments.has(&SELF_TEST), arguments.option(&PLUGIN, text)?) {
        (true, Some(plugin)) => SelfTest::Plugin(plugin),
        (true, None) => SelfTest::Tpu,
        (false, None) => SelfTest::Off,
        (false, Some(plugin)) => return Err(invocation.bad_value(PLUGIN.name, &plugin, "is for --selftest only")),
    };
    let (tpu, require) = (arguments.option(&TPU, text)?, arguments.has(&REQUIRE));
    Ok(Action::TpuConnect(TpuConnect { tpu, require, self_test }))
}
