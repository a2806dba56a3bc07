//! The text of a check's result.

use super::{Check, Needs, Outcome, Target};
use crate::pjrt::MemoryUse;
use ferrotune_machine::format::precise_bytes;
use std::fmt;

impl fmt::Display for Target {
    /// Writes one line such as `v5e:2x2: 4 × TPU v5 lite with 15.75 GiB each`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} × {}", self.name, self.devices, self.kind)?;
        match self.memory_bytes {
            Some(bytes) => write!(f, " with {} each", precise_bytes(bytes)),
            None => f.write_str(", whose memory this version of the plugin does not tell"),
        }
    }
}

impl fmt::Display for Check {
    /// Writes several lines, with the verdict last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Target { api: (major, minor), version, .. } = &self.target;
        writeln!(f, "{}\ncompiled in {:.2} s with PJRT {major}.{minor}, {version}", self.target, self.seconds)?;
        match &self.outcome {
            Outcome::Fits(needs) => {
                write!(f, "{needs}")?;
                let peak = needs.memory.needed_bytes();
                match self.target.memory_bytes {
                    Some(available) => write!(f, "fits: needs {} of {}", precise_bytes(peak), precise_bytes(available)),
                    None => write!(f, "fits, as the compiler says: needs {}", precise_bytes(peak)),
                }
            }
            Outcome::DoesNotFit { needed_bytes: Some(needed), available_bytes: Some(available), .. } => {
                write!(f, "does not fit: needs {} of {}", precise_bytes(*needed), precise_bytes(*available))
            }
            Outcome::DoesNotFit { text, .. } => write!(f, "does not fit: {text}"),
        }
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.replicas * self.partitions > 1 {
            writeln!(f, "  replicas    {}, of {} partitions", self.replicas, self.partitions)?;
        }
        let MemoryUse { argument_bytes, output_bytes, alias_bytes, temporary_bytes, code_bytes, .. } = self.memory;
        let (peak, is_told) = (self.memory.needed_bytes(), self.memory.peak_bytes.is_some());
        writeln!(f, "  arguments   {}", precise_bytes(argument_bytes))?;
        let donated = if alias_bytes > 0 {
            format!(", {} in donated arguments", precise_bytes(alias_bytes))
        } else {
            String::new()
        };
        writeln!(f, "  outputs     {}{donated}", precise_bytes(output_bytes))?;
        writeln!(f, "  temporary   {}", precise_bytes(temporary_bytes))?;
        writeln!(f, "  code        {}", precise_bytes(code_bytes))?;
        writeln!(f, "  peak        {}{}", precise_bytes(peak), if is_told { "" } else { ", as the sum of the above" })?;
        if let Some(flops) = self.flops {
            writeln!(f, "  flops       {flops:.3e} a run")?;
        }
        if let Some(bytes) = self.accessed_bytes {
            writeln!(f, "  traffic     {} a run", precise_bytes(bytes as u64))?;
        }
        if let Some(time) = &self.time {
            writeln!(f, "  time        {time}")?;
        }
        Ok(())
    }
}
