//! The programs that the device process has compiled, for all its clients. Each is compiled once, also where two clients ask for it at
//! the same time, or where the client that has asked no longer waits.

use super::protocol::Compiled;
use crate::pjrt::{Client, CompileOptions, LoadedExecutable, OutputShape, PjrtError};
use sha2::{Digest as _, Sha256};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The greatest number of programs that are kept without a client that has them.
const MOST: usize = 256;

/// A compiled program with its facts.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) executable: LoadedExecutable,
    pub(super) facts: Compiled,
    /// The bytes of each output on a device; none if the plugin does not report the outputs.
    pub(super) output_bytes: Option<Vec<u64>>,
}

impl Program {
    /// The bytes that a run needs beside its inputs, on all its devices.
    pub(super) fn needed_bytes(&self, devices: usize) -> u64 {
        let each = self.facts.memory.as_ref().map_or(0, |memory| memory.output_bytes + memory.temporary_bytes);
        each * devices as u64
    }
}

type Key = [u8; 32];
type Slot = Arc<OnceLock<Result<Arc<Program>, PjrtError>>>;

/// The compiled programs, those that were used last at the end.
#[derive(Debug, Default)]
pub(super) struct Programs {
    slots: Mutex<VecDeque<(Key, Slot)>>,
}

impl Programs {
    /// The program of a StableHLO module. Compiles it, or waits for another thread that compiles it.
    ///
    /// # Errors
    /// The errors of the compiler.
    pub(super) fn compiled(
        &self,
        client: &Client,
        module: &[u8],
        options: &CompileOptions,
    ) -> Result<Arc<Program>, PjrtError> {
        let mut hasher = Sha256::new_with_prefix(format!("{options:?}\n"));
        hasher.update(module);
        self.program(hasher.finalize().into(), || client.compile(module, options), client)
    }

    /// The program of a serialized executable.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub(super) fn loaded(&self, client: &Client, serialized: &[u8]) -> Result<Arc<Program>, PjrtError> {
        let mut hasher = Sha256::new_with_prefix("serialized\n");
        hasher.update(serialized);
        self.program(hasher.finalize().into(), || client.load(serialized), client)
    }

    fn program(
        &self,
        key: Key,
        make: impl FnOnce() -> Result<LoadedExecutable, PjrtError>,
        client: &Client,
    ) -> Result<Arc<Program>, PjrtError> {
        let slot = self.slot(key);
        let made = slot.get_or_init(|| make().and_then(|executable| Program::new(executable, client).map(Arc::new)));
        if made.is_err() {
            // A compilation may fail for a lack of memory, and succeed later.
            self.slots().retain(|(_, known)| !Arc::ptr_eq(known, &slot));
        }
        made.clone()
    }

    /// The place of a program, which becomes the one that was used last.
    fn slot(&self, key: Key) -> Slot {
        let mut slots = self.slots();
        let place = slots.iter().position(|(known, _)| *known == key);
        let entry = place.and_then(|place| slots.remove(place)).unwrap_or_else(|| (key, Slot::default()));
        let slot = entry.1.clone();
        slots.push_back(entry);
        if slots.len() > MOST {
            slots.pop_front();
        }
        slot
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, VecDeque<(Key, Slot)>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Program {
    fn new(executable: LoadedExecutable, client: &Client) -> Result<Program, PjrtError> {
        let description = executable.executable();
        let numbers = |devices: Vec<crate::pjrt::Device>| {
            devices.iter().map(|device| Ok(device.description()?.id)).collect::<Result<Vec<_>, PjrtError>>()
        };
        let (all, own) = (numbers(client.devices()?)?, numbers(executable.devices()?)?);
        let place = |number| all.iter().position(|known| *known == number).and_then(|place| u32::try_from(place).ok());
        let devices: Option<Vec<u32>> = own.into_iter().map(place).collect();
        let elsewhere = || PjrtError::Mismatch { what: "a program runs on devices of another process".to_owned() };
        let facts = Compiled {
            // The name is only for messages.
            name: description.name().unwrap_or_default(),
            devices: devices.ok_or_else(elsewhere)?,
            outputs: description.output_count()?,
            replicas_and_partitions: description.replicas_and_partitions()?,
            memory: description.memory(),
        };
        let bytes = |outputs: Vec<OutputShape>| outputs.iter().map(OutputShape::bytes).collect();
        let output_bytes = description.outputs().ok().map(bytes);
        Ok(Program { executable, facts, output_bytes })
    }
}
