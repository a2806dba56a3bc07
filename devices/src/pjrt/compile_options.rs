//! Options of a compilation. They are encoded by hand as the protocol buffer `xla.CompileOptionsProto`, since a few
//! numbers need no code generator.

use super::error::PjrtError;
use serde::{Deserialize, Serialize};

/// The options with which a program is compiled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompileOptions {
    /// The number of copies of the program, each with arguments of its own.
    pub replicas: u32,
    /// The number of devices over which each copy is spread.
    pub partitions: u32,
    /// The devices to run on, by their number ([`super::Description::id`]): the devices of the first copy, then those of the
    /// second. With an empty list, the plugin chooses.
    pub device_ids: Vec<i32>,
    /// Settings of the compiler by name, such as `xla_dump_to`.
    pub overrides: Vec<(String, Override)>,
}

/// The value of a compiler's setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Override {
    /// A string.
    Text(String),
    /// A Boolean value.
    Flag(bool),
    /// A whole number.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
}

impl Default for CompileOptions {
    /// Options for one device.
    fn default() -> CompileOptions {
        CompileOptions { replicas: 1, partitions: 1, device_ids: Vec::new(), overrides: Vec::new() }
    }
}

/// Field numbers of `CompileOptionsProto`.
mod options_field {
    pub(super) const BUILD_OPTIONS: u32 = 3;
    pub(super) const OVERRIDES: u32 = 7;
}

/// Field numbers of `ExecutableBuildOptionsProto`.
mod build_field {
    pub(super) const DEVICE: u32 = 1;
    pub(super) const REPLICAS: u32 = 4;
    pub(super) const PARTITIONS: u32 = 5;
    pub(super) const USE_SPMD: u32 = 6;
    pub(super) const ASSIGNMENT: u32 = 9;
}

/// Field numbers of `DeviceAssignmentProto` and of the `ComputationDevice` in it, which stands for one partition.
mod assignment_field {
    pub(super) const REPLICAS: u32 = 1;
    pub(super) const PARTITIONS: u32 = 2;
    pub(super) const PARTITION: u32 = 3;
    pub(super) const DEVICES_OF_REPLICAS: u32 = 1;
}

/// The device number -1, which leaves the choice of the device to the compiler.
const ANY_DEVICE: u64 = u64::MAX;

impl CompileOptions {
    /// Options for `replicas` devices that each run the whole program.
    pub fn replicated(replicas: u32) -> CompileOptions {
        CompileOptions { replicas, ..CompileOptions::default() }
    }

    /// The same options for these devices, by number.
    #[must_use]
    pub fn on(self, device_ids: impl Into<Vec<i32>>) -> CompileOptions {
        CompileOptions { device_ids: device_ids.into(), ..self }
    }

    /// Options for `partitions` devices over which the program is spread, following its sharding annotations.
    pub fn partitioned(partitions: u32) -> CompileOptions {
        CompileOptions { partitions, ..CompileOptions::default() }
    }

    /// The options as the protocol buffer `CompileOptionsProto`.
    ///
    /// # Errors
    /// If the list of devices is not empty, and their number differs from the number of parts of all copies.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, PjrtError> {
        let mut build = Vec::new();
        put_number(&mut build, build_field::DEVICE, ANY_DEVICE);
        put_number(&mut build, build_field::REPLICAS, self.replicas.into());
        put_number(&mut build, build_field::PARTITIONS, self.partitions.into());
        if self.partitions > 1 {
            put_number(&mut build, build_field::USE_SPMD, 1);
        }
        if !self.device_ids.is_empty() {
            put_bytes(&mut build, build_field::ASSIGNMENT, &self.assignment()?);
        }
        let mut bytes = Vec::new();
        put_bytes(&mut bytes, options_field::BUILD_OPTIONS, &build);
        for (name, value) in &self.overrides {
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, name.as_bytes());
            put_bytes(&mut entry, 2, &override_bytes(value));
            put_bytes(&mut bytes, options_field::OVERRIDES, &entry);
        }
        Ok(bytes)
    }

    fn assignment(&self) -> Result<Vec<u8>, PjrtError> {
        let (given, needed) = (self.device_ids.len(), u64::from(self.replicas) * u64::from(self.partitions));
        if given as u64 != needed {
            let what = format!("the program is compiled for {needed} devices, and {given} are named");
            return Err(PjrtError::Mismatch { what });
        }
        let mut bytes = Vec::new();
        put_number(&mut bytes, assignment_field::REPLICAS, self.replicas.into());
        put_number(&mut bytes, assignment_field::PARTITIONS, self.partitions.into());
        let partitions = self.partitions as usize;
        for partition in 0..partitions {
            let mut ids = Vec::new();
            for id in self.device_ids.iter().skip(partition).step_by(partitions) {
                put_varint(&mut ids, i64::from(*id).cast_unsigned());
            }
            let mut computation = Vec::new();
            put_bytes(&mut computation, assignment_field::DEVICES_OF_REPLICAS, &ids);
            put_bytes(&mut bytes, assignment_field::PARTITION, &computation);
        }
        Ok(bytes)
    }
}

/// The protocol buffer `OptionOverrideProto`, in which the field number determines the type.
fn override_bytes(value: &Override) -> Vec<u8> {
    let mut bytes = Vec::new();
    match value {
        Override::Text(text) => put_bytes(&mut bytes, 1, text.as_bytes()),
        Override::Flag(flag) => put_number(&mut bytes, 2, u64::from(*flag)),
        Override::Integer(value) => put_number(&mut bytes, 3, value.cast_unsigned()),
        Override::Float(value) => {
            put_varint(&mut bytes, 4 << 3 | 1);
            bytes.extend_from_slice(&value.to_le_bytes());
        }
    }
    bytes
}

fn put_number(bytes: &mut Vec<u8>, field: u32, value: u64) {
    put_varint(bytes, u64::from(field) << 3);
    put_varint(bytes, value);
}

fn put_bytes(bytes: &mut Vec<u8>, field: u32, content: &[u8]) {
    put_varint(bytes, u64::from(field) << 3 | 2);
    put_varint(bytes, content.len() as u64);
    bytes.extend_from_slice(content);
}

/// Appends a number in groups of seven bits, lowest first; the high bit of a byte is set if more bytes follow.
fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected bytes are those that `jaxlib.xla_client.CompileOptions.ParseFromString` reads back to the same options.
    #[test]
    fn options_are_the_protocol_buffer_that_xla_reads() {
        let device = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        let plain = [&[0x1a, 0x0f][..], &device, &[0x20, 1, 0x28, 1]].concat();
        assert_eq!(CompileOptions::default().to_bytes().as_deref(), Ok(&*plain));
        let partitioned = [&[0x1a, 0x11][..], &device, &[0x20, 1, 0x28, 4, 0x30, 1]].concat();
        assert_eq!(CompileOptions::partitioned(4).to_bytes().as_deref(), Ok(&*partitioned));
        let many = [&[0x1a, 0x10][..], &device, &[0x20, 0xac, 0x02, 0x28, 1]].concat();
        assert_eq!(CompileOptions::replicated(300).to_bytes().as_deref(), Ok(&*many));
    }

    /// The expected bytes are those that `executable_build_options.device_assignment` of jaxlib writes: 4a …
    #[test]
    fn devices_are_assigned_to_parts_of_copies() {
        let options = CompileOptions { replicas: 2, partitions: 2, ..CompileOptions::default() };
        let bytes = options.clone().on([3, 1, 0, 300]).to_bytes().unwrap_or_default();
        let assignment = [0x4a, 17, 8, 2, 16, 2, 0x1a, 4, 0x0a, 2, 3, 0, 0x1a, 5, 0x0a, 3, 1, 0xac, 2];
        assert!(bytes.ends_with(&assignment), "{bytes:x?}");
        let error = options.on([3, 1]).to_bytes().expect_err("two are missing").to_string();
        assert_eq!(error, "the program is compiled for 4 devices, and 2 are named");
    }

    #[test]
    fn overrides_carry_their_type() {
        let options = |value| CompileOptions { overrides: vec![("a".into(), value)], ..CompileOptions::default() };
        let tail = |value| options(value).to_bytes().map(|bytes| bytes[17..].to_vec()).unwrap_or_default();
        assert_eq!(tail(Override::Text("b".into())), [0x3a, 8, 0x0a, 1, b'a', 0x12, 3, 0x0a, 1, b'b']);
        assert_eq!(tail(Override::Flag(true)), [0x3a, 7, 0x0a, 1, b'a', 0x12, 2, 0x10, 1]);
        assert_eq!(tail(Override::Integer(300)), [0x3a, 8, 0x0a, 1, b'a', 0x12, 3, 0x18, 0xac, 2]);
        let float = tail(Override::Float(1.0));
        assert_eq!(float, [0x3a, 14, 0x0a, 1, b'a', 0x12, 9, 0x21, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
    }
}
