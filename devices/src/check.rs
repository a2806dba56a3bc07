//! Checks before a run whether a program compiles for a TPU and fits its memory. The check needs no TPU.

mod report;
mod shortage;
mod time;

use crate::finding::one_line;
use crate::pjrt::{Code, CompileOptions, Executable, MemoryUse, Named, PjrtError, Plugin, Topology, Value};
use serde::{Deserialize, Serialize};
use std::time::Instant;
pub use time::Time;

/// The result of compiling a program for devices that this machine need not have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The devices that the program was compiled for.
    pub target: Target,
    /// Whether the program fits the devices' memory.
    pub outcome: Outcome,
    /// The time of the compilation, in seconds.
    pub seconds: f64,
}

/// Devices that a program is compiled for, by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The name in the user's request, such as `v5e:2x2`.
    pub name: String,
    /// The vendor's name for a device, such as `TPU v5 lite`.
    pub kind: String,
    /// The number of devices; the devices of a TPU are its cores.
    pub devices: usize,
    /// The memory of each device, in bytes; none if the plugin is too old to report it.
    pub memory_bytes: Option<u64>,
    /// The compiler's version.
    pub version: String,
    /// Version of PJRT's interface.
    pub api: (i32, i32),
}

/// Whether a program fits the memory of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// The program fits.
    Fits(Needs),
    /// The program needs more memory than a device has.
    DoesNotFit {
        /// The memory that the program needs, in bytes; none if the compiler does not report it.
        needed_bytes: Option<u64>,
        /// The memory that a device has, in bytes; none if the compiler does not report it.
        available_bytes: Option<u64>,
        /// The compiler's message, on one line.
        text: String,
    },
}

/// The resources that a program needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Needs {
    /// The memory that the program needs on each device.
    pub memory: MemoryUse,
    /// Floating-point operations of a run, as the compiler counts them.
    pub flops: Option<f64>,
    /// Bytes read and written in a run, as the compiler counts them.
    pub accessed_bytes: Option<f64>,
    /// The least time of a run; none if neither the compiler nor the published peaks of the chip give it.
    pub time: Option<Time>,
    /// The number of copies of the program.
    pub replicas: usize,
    /// The number of devices over which each copy is spread.
    pub partitions: usize,
}

/// Compiles a module for named devices, with the replicas and partitions in the module's attributes.
pub(crate) fn compile(plugin: Plugin, name: &str, module: &[u8]) -> Result<Check, PjrtError> {
    let bounds = host_bounds(name).map(Value::Integers);
    let options: Vec<(&str, Value)> = bounds.into_iter().map(|bounds| ("chips_per_host_bounds", bounds)).collect();
    let topology = plugin.topology(name, &options)?;
    let target = describe(plugin, &topology, name)?;
    let options = compile_options(module);
    let started = Instant::now();
    let compiled = topology.compile(module, &options);
    let seconds = started.elapsed().as_secs_f64();
    let outcome = match compiled {
        Ok(executable) => verdict(needs(&executable, &target)?, target.memory_bytes),
        Err(PjrtError::Refused { code, message, .. }) if is_shortage(code, &message) => {
            let (needed_bytes, available_bytes) = shortage::read(&message).unzip();
            let available_bytes = available_bytes.or(target.memory_bytes);
            Outcome::DoesNotFit { needed_bytes, available_bytes, text: one_line(&message) }
        }
        Err(error) => return Err(error),
    };
    Ok(Check { target, outcome, seconds })
}

/// The chips per host in each dimension, for older versions of libtpu, which assume 2×2×1 chips and refuse smaller topologies.
fn host_bounds(name: &str) -> Option<Vec<i64>> {
    let dims = layout(name)?;
    let bounds = vec![dims[0].min(2), dims[1].min(2), 1];
    (bounds != [2, 2, 1]).then_some(bounds)
}

/// The number of chips in each dimension of a name such as `v5e:2x2`.
fn layout(name: &str) -> Option<[i64; 3]> {
    let mut dims = [1; 3];
    for (index, dim) in name.split_once(':')?.1.split('x').enumerate() {
        *dims.get_mut(index)? = dim.parse().ok().filter(|dim| (1..1 << 16).contains(dim))?;
    }
    Some(dims)
}

fn describe(plugin: Plugin, topology: &Topology, name: &str) -> Result<Target, PjrtError> {
    let devices = topology.devices()?;
    let kind = devices.first().map(|device| device.kind.clone()).unwrap_or_default();
    let reported = number(&topology.attributes()?, "device_memory_bytes_limit").map(|bytes| bytes as u64);
    Ok(Target {
        name: name.to_owned(),
        devices: devices.len(),
        memory_bytes: reported.map(|bytes| device_memory(bytes, &kind, devices.len(), name)),
        kind,
        version: one_line(&topology.version()?),
        api: plugin.api_version(),
    })
}

/// The memory of one device. libtpu 0.0.51 reports the memory of a whole v4 chip, though it makes two devices of the chip, and
/// compiles for half the memory. For other generations libtpu reports the memory of a device.
fn device_memory(reported: u64, kind: &str, devices: usize, name: &str) -> u64 {
    let chips: Option<i64> = layout(name).map(|dims| dims.iter().product());
    let is_half_a_chip = kind == "TPU v4" && chips.and_then(|chips| usize::try_from(2 * chips).ok()) == Some(devices);
    if is_half_a_chip { reported / 2 } else { reported }
}

/// The options in a module's attributes `mhlo.num_replicas` and `mhlo.num_partitions`; the defaults for a module in bytecode.
fn compile_options(module: &[u8]) -> CompileOptions {
    let text = String::from_utf8_lossy(module);
    let asked = |name: &str| {
        let value = text.split_once(name)?.1.trim_start().strip_prefix('=')?.trim_start();
        value.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    CompileOptions {
        replicas: asked("mhlo.num_replicas").unwrap_or(1),
        partitions: asked("mhlo.num_partitions").unwrap_or(1),
        ..CompileOptions::default()
    }
}

fn needs(executable: &Executable, target: &Target) -> Result<Needs, PjrtError> {
    let cost = executable.cost()?;
    let (flops, accessed_bytes) = (number(&cost, "flops"), number(&cost, "bytes accessed"));
    let (replicas, partitions) = executable.replicas_and_partitions()?;
    Ok(Needs {
        memory: executable.memory()?,
        flops,
        accessed_bytes,
        time: time::estimate(target, number(&cost, "optimal_seconds"), flops.zip(accessed_bytes)),
        replicas,
        partitions,
    })
}

fn number(values: &[Named], name: &str) -> Option<f64> {
    values.iter().find(|named| named.name == name).and_then(|named| match named.value {
        Value::Integer(value) => Some(value as f64),
        Value::Float(value) => Some(value.into()),
        _ => None,
    })
}

/// The outcome of a compiled program. The compiler checks only the memory that it allocates, without the caller's arguments.
fn verdict(needs: Needs, memory_bytes: Option<u64>) -> Outcome {
    let peak = needs.memory.needed_bytes();
    match memory_bytes {
        Some(available) if peak > available => Outcome::DoesNotFit {
            needed_bytes: Some(peak),
            available_bytes: Some(available),
            text: "it compiles, but arguments, outputs and temporaries together are too much".into(),
        },
        _ => Outcome::Fits(needs),
    }
}

fn is_shortage(code: Code, message: &str) -> bool {
    code == Code::RESOURCE_EXHAUSTED || message.contains("Ran out of memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_smaller_than_usual_are_told_to_old_versions() {
        for (name, expected) in [
            ("v5e:1x1", Some(vec![1, 1, 1])),
            ("v5e:1x2", Some(vec![1, 2, 1])),
            ("v5e:2x2", None),
            ("v5e:2x4", None),
            ("v4:2x2x1", None),
            ("v4:2x2x4", None),
            ("v5e", None),
            ("v5e:ax1", None),
            ("v5e:1x1x1x1", None),
            ("v5e:0x1", None),
        ] {
            assert_eq!(host_bounds(name), expected, "{name}");
        }
    }

    #[test]
    fn the_cores_of_a_v4_share_its_memory() {
        assert_eq!(device_memory(32, "TPU v4", 8, "v4:2x2x1"), 16);
        assert_eq!(device_memory(32, "TPU v4", 4, "v4:2x2x1"), 32);
        assert_eq!(device_memory(16, "TPU v3", 8, "v3:2x2"), 16);
        assert_eq!(device_memory(16, "TPU v5 lite", 4, "v5e:2x2"), 16);
    }

    #[test]
    fn a_module_says_on_how_many_devices_it_runs() {
        let module = b"module @m attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 2 : i32} {}";
        let options = compile_options(module);
        assert_eq!((options.replicas, options.partitions), (2, 4));
        assert_eq!(compile_options(b"module @m {}"), CompileOptions::default());
        assert_eq!(compile_options(b"ML\xefR\x0dStableHLO mhlo.num_replicas\0"), CompileOptions::default());
    }

    #[test]
    fn arguments_count_even_if_the_compiler_lets_them_pass() {
        let memory = MemoryUse {
            argument_bytes: 10,
            output_bytes: 5,
            alias_bytes: 5,
            temporary_bytes: 2,
            code_bytes: 1,
            peak_bytes: None,
        };
        let needs = Needs { memory, flops: None, accessed_bytes: None, time: None, replicas: 1, partitions: 1 };
        assert!(matches!(verdict(needs.clone(), Some(12)), Outcome::Fits(_)));
        assert!(matches!(verdict(needs.clone(), None), Outcome::Fits(_)));
        let too_much = verdict(needs, Some(11));
        assert!(
            matches!(too_much, Outcome::DoesNotFit { needed_bytes: Some(12), available_bytes: Some(11), .. }),
            "{too_much:?}"
        );
    }
}
