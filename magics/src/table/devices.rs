//! The magics for devices.

use super::results::{DIRECTORY, study};
use crate::magic::{Argument, Invocation, Magic, MagicOption, Values};

use crate::action::{Action, CheckedProgram, DeviceChoice, TpuCheck, TpuConnect};
use crate::arguments::Arguments;
use crate::error::MagicError;
use crate::values::{number, text};

const TPU_TYPE: MagicOption = MagicOption::new("--tpu", "TYPE", "the TPU to compile for, such as v5e:2x2").required();
const PROJECT: MagicOption =
    MagicOption::new("--project", "NAME", "check the objective of this study").taking(Values::Study);
const TRIAL: MagicOption =
    MagicOption::new("--trial", "ID", "with the parameters of this trial; without it the best one's");
const TPU: MagicOption =
    MagicOption::new("--tpu", "NAME|local", "the TPU to use; local means one attached to this machine")
        .taking(Values::Words(&["local"]));
const REQUIRE: MagicOption = MagicOption::flag("--require", "fail rather than fall back to a card or the CPU");
const SELF_TEST: MagicOption =
    MagicOption::flag("--selftest", "compute on the device and compare with plain arithmetic");
const PLUGIN: MagicOption = MagicOption::new(
    "--plugin",
    "cuda|rocm|oneapi|cpu|FILE",
    "the plugin of a card, XLA's own for the CPU, or another's library",
)
.taking(Values::Path);
const REPORT: MagicOption = MagicOption::flag("--report", "show what was compiled, and what crossed to the host");

pub(super) const DEVICE: Magic = Magic {
    forms: &["%device"],
    usage: "%device [close] {options}",
    summary: "show the device in use, or close it",
    help: "The device that cells and trials compute on. %tpu_connect chooses it. With --report: how many programs a\n\
           plugin's device has compiled since it was opened, which arrays were copied to the host, and who holds how\n\
           much of its memory. Each such copy waits until all that it needs is computed.\n\
           \n\
           The plugin of a device runs in a process of its own, which also has the tensors there. With close, it ends\n\
           at once and frees the device, and the notebook goes on: the values that were there are gone, and the next\n\
           use opens the device again. It is an error while another notebook or a search uses the device.\n\
           \n\
           Example\n  %device --report",
    arguments: &[Argument::new("close", Values::Words(&["close"]))],
    options: &[REPORT],
    runs_line: false,
    build: device,
};

pub(super) const DEVICES: Magic = Magic {
    forms: &["%devices"],
    usage: "%devices",
    summary: "list the CPU, the cards and the TPU of this machine",
    help: "With cores, vector units and memory, as far as this process may use them. No device is opened.\n\
           \n\
           Example\n  %devices",
    arguments: &[],
    options: &[],
    runs_line: false,
    build: devices,
};

pub(super) const TPU_CHECK: Magic = Magic {
    forms: &["%tpu_check"],
    usage: "%tpu_check {options} [STEP|FILE]",
    summary: "compile a program for a TPU that need not be there, and say whether it fits",
    help: "STEP is a variable with a compiled step (ferrotune::compile) of a device with a compiler, such as xla:cpu:\n\
           each program is checked that it has had so far, one for each set of shapes with which it was run. To check\n\
           it before it runs, call step.stablehlo(&[x, y])?, which runs nothing. What has no lowering is an error.\n\
           FILE holds a StableHLO module, as text or bytecode. A variable goes before a file of its name: write ./step\n\
           for the file.\n\
           \n\
           With --project, the program is the first compiled step that the objective of a search runs. The objective runs\n\
           up to there on the CPU, in a worker, with the parameters of a trial; it computes no step, and the study stays\n\
           as it is.\n\
           \n\
           The program is compiled by libtpu, which must be installed (pip install libtpu), for a TYPE such as v5e:2x2,\n\
           v6e:2x4 or v4:2x2x1: generation and chips. Shown are its memory against that of a device, its operations,\n\
           its traffic, and the least time that a run takes, which is an estimate.\n\
           \n\
           Example\n  %tpu_check --tpu v5e:2x2 step\n  %tpu_check --tpu v5e:2x2 --project digits",
    arguments: &[Argument::new("STEP|FILE", Values::Path)],
    options: &[TPU_TYPE, PROJECT, TRIAL, DIRECTORY],
    runs_line: false,
    build: tpu_check,
};

pub(super) const TPU_CONNECT: Magic = Magic {
    forms: &["%tpu_connect"],
    usage: "%tpu_connect {options}",
    summary: "pick a TPU, else a card, else the CPU, and say why",
    help: "Shows what was found on this machine and what it means, then connects the best device that can be\n\
           driven: a TPU, else a card (a GPU) whose PJRT plugin is installed beside the notebook's Python, else the\n\
           CPU. It says what is missing. With --plugin, it connects a plugin's device instead: cuda or cuda:1 is an\n\
           NVIDIA card, rocm AMD's, oneapi Intel's, and cpu stands for XLA's compiler for the CPU (pip install\n\
           fastatomstruct-xla-cpu). A plugin is first opened in a process of its own, so that one that hangs or\n\
           crashes costs nothing. With --selftest, that process also computes on it, and the result is what to\n\
           paste into a bug report.\n\
           \n\
           ferrotune::device::current()? is the connected device, and tensors made on it compute there. A function\n\
           of tensors becomes one program with ferrotune::compile:\n\
           \n  \
             let mut step = ferrotune::compile(|args: &[Tensor]| Ok(vec![args[0].sqr()?]));\n  \
             let squares = step.run(&[x])?;\n\
           \n\
           Example\n  %tpu_connect --plugin cuda",
    arguments: &[],
    options: &[TPU, REQUIRE, PLUGIN, SELF_TEST],
    runs_line: false,
    build: tpu_connect,
};

fn device(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    Ok(match arguments.first(text)?.as_deref() {
        Some("close") => Action::DeviceClose,
        Some(other) => return Err(invocation.bad_value("close", other, "%device takes `close`, --report, or nothing")),
        None if arguments.has(&REPORT) => Action::DeviceReport,
        None => Action::Device,
    })
}

fn devices(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    Arguments::read(invocation).map(|_| Action::Devices)
}

fn tpu_check(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let tpu = arguments.required(&TPU_TYPE)?;
    let program = if arguments.has(&PROJECT) {
        if let Some(program) = arguments.first(text)? {
            return Err(invocation.bad_value("STEP|FILE", &program, "cannot be used with --project"));
        }
        CheckedProgram::Objective { study: study(&arguments)?, trial: arguments.option(&TRIAL, number)? }
    } else {
        for option in [&TRIAL, &DIRECTORY] {
            if let Some(value) = arguments.option(option, text)? {
                return Err(invocation.bad_value(
                    option.name,
                    &value,
                    "says more of a study; name that with --project",
                ));
            }
        }
        let [program] = arguments.all(["to compile"])?;
        CheckedProgram::Named(program)
    };
    Ok(Action::TpuCheck(TpuCheck { tpu, program }))
}

fn tpu_connect(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let (tpu, require) = (arguments.option(&TPU, text)?, arguments.has(&REQUIRE));
    let choice = match (arguments.option(&PLUGIN, text)?, &tpu) {
        (Some(plugin), Some(_)) => return Err(invocation.bad_value(PLUGIN.name, &plugin, "cannot be used with --tpu")),
        (Some(plugin), None) => DeviceChoice::Plugin(plugin),
        (None, _) => DeviceChoice::Best { tpu, require },
    };
    Ok(Action::TpuConnect(TpuConnect { choice, self_test: arguments.has(&SELF_TEST) }))
}
