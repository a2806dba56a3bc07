//! The program that the workers of a search run, and what the search is given for them.

use super::elsewhere::Engine;
use super::{Code, Devices, Objects, SupervisorError, Trust};
use ferrotune_machine::own;
use ferrotune_space::spec::StudySpec;
use ferrotune_space::wire::PluginCopy;
use std::path::Path;

/// The program that the workers of a search run, and the host that they run on.
#[expect(missing_debug_implementations, reason = "an engine has nothing to show")]
pub enum Workers<'a> {
    /// This program, run as `PROGRAM trial …`. It loads the library that the search names, if the user trusts that library.
    Program {
        /// The path of the program.
        program: &'a Path,
        /// The rules about which code and mirror of the study's folder may be used.
        trust: &'a Trust,
        /// The object stores in which a search with `--publish` may put its files.
        objects: &'a dyn Objects,
        /// The device processes that trials share; none if each trial opens its device itself.
        devices: Option<&'static dyn Devices>,
    },
    /// This program, with code that a worker has fetched from a publication.
    Fetched {
        /// The path of the program.
        program: &'a Path,
        /// The fetched code.
        code: Code,
        /// The device processes that trials share; none if each trial opens its device itself.
        devices: Option<&'static dyn Devices>,
    },
    /// The supervisor's own program, run with its own arguments. The objective is part of that program.
    Itself,
    /// This program on other hosts, for a search that publishes.
    Elsewhere {
        /// The engine that starts the workers.
        engine: &'a mut dyn Engine,
        /// The rules about which code and mirror of the study's folder may be used.
        trust: &'a Trust,
        /// The object stores in which the search may put its files.
        objects: &'a dyn Objects,
        /// The device processes that trials share on each of the hosts; none if each trial opens its device itself.
        devices: Option<&'static dyn Devices>,
    },
}

impl Workers<'_> {
    /// The device processes, if the trials of a host share the one of this device.
    pub(super) fn devices(&self, device: &str) -> Option<&'static dyn Devices> {
        let devices = match self {
            Workers::Program { devices, .. }
            | Workers::Fetched { devices, .. }
            | Workers::Elsewhere { devices, .. } => *devices,
            Workers::Itself => None,
        };
        devices.filter(|devices| devices.is_shared(device))
    }
}

/// The program that a worker runs.
pub(super) enum Program<'a> {
    /// This program, which loads the objective's library from memory.
    Library { program: &'a Path, code: Code },
    /// The supervisor's own program, which contains the objective.
    Itself,
}

impl Program<'_> {
    /// The plugin that workers load for their device, if the study names a plugin file.
    pub(super) fn plugin(&self) -> Option<&PluginCopy> {
        match self {
            Program::Library { code, .. } => code.plugin.as_ref().map(|plugin| &plugin.copy),
            Program::Itself => None,
        }
    }
}

/// The parts of [`Workers`] after the check that their code may be run.
pub(super) struct Admitted<'a> {
    pub(super) program: Program<'a>,
    pub(super) engine: Option<&'a mut dyn Engine>,
    pub(super) objects: Option<&'a dyn Objects>,
    pub(super) devices: Option<&'static dyn Devices>,
}

impl<'a> Admitted<'a> {
    pub(super) fn of(spec: &StudySpec, workers: Workers<'a>, study: &Path) -> Result<Admitted<'a>, SupervisorError> {
        let devices = workers.devices(&spec.device);
        let alone = |program| Ok(Admitted { program, engine: None, objects: None, devices });
        let (program, trust, engine, objects) = match workers {
            Workers::Program { program, trust, objects, .. } => (program, trust, None, objects),
            Workers::Elsewhere { engine, trust, objects, .. } => {
                (Path::new(own::PROGRAM), trust, Some(engine), objects)
            }
            // The code was checked against a signature, so no question of trust remains.
            Workers::Fetched { program, code, .. } => return alone(Program::Library { program, code }),
            Workers::Itself => return alone(Program::Itself),
        };
        let code = Code::read(spec, study)?;
        trust.admit_code(&code.facts, study)?;
        spec.supervision.mirror.as_ref().map_or(Ok(()), |mirror| trust.admit_mirror(mirror, study))?;
        let program = Program::Library { program, code };
        Ok(Admitted { program, engine, objects: Some(objects), devices })
    }
}
