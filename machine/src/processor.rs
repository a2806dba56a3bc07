//! The processor, and how much of it this process may use.

use crate::{Read, value};
use std::path::Path;

/// The processor of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processor {
    /// The name of the model; none if the system does not tell it.
    pub model: Option<String>,
    /// What the processor can do, such as `avx512f`, in one line.
    pub features: String,
    /// The number of cores that a process may run on; a quota of its cgroups is another limit.
    pub cores: usize,
}

impl Processor {
    /// The processor of the machine whose files are read.
    pub fn of(read: Read<'_>) -> Processor {
        let info = read(Path::new("/proc/cpuinfo")).unwrap_or_default();
        let status = read(Path::new("/proc/self/status")).unwrap_or_default();
        let allowed = value(&status, "Cpus_allowed_list").and_then(count);
        let present = info.lines().filter(|line| line.starts_with("processor")).count();
        Processor {
            model: value(&info, "model name").map(str::to_owned),
            // The second one is the name on ARM.
            features: value(&info, "flags").or_else(|| value(&info, "Features")).unwrap_or_default().to_owned(),
            cores: allowed.unwrap_or(present).max(1),
        }
    }
}

/// The number of entries in a list of ranges such as `0-3,8`.
fn count(list: &str) -> Option<usize> {
    list.split(',').try_fold(0_usize, |count, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<usize>().ok();
        count.checked_add(number(last)?.checked_sub(number(first)?)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_lists_are_counted() {
        for (list, expected) in [("0", Some(1)), ("0-3", Some(4)), ("0-1,4,6-7", Some(5)), ("", None), ("3-1", None)] {
            assert_eq!(count(list), expected, "{list}");
        }
    }

    #[test]
    fn a_processor_is_as_its_files_say() {
        let of = |info: &str, status: &str| {
            let read = |path: &Path| Some(if path.ends_with("cpuinfo") { info } else { status }.to_owned());
            Processor::of(&read)
        };
        let info = "processor\t: 0\nmodel name\t: A: B\nflags\t\t: avx avx2\nprocessor\t: 1\n";
        let expected = |cores| Processor { model: Some("A: B".to_owned()), features: "avx avx2".to_owned(), cores };
        assert_eq!(of(info, "Cpus_allowed_list:\t0-2\n"), expected(3));
        assert_eq!(of(info, ""), expected(2));
        let arm = of("processor\t: 0\nFeatures\t: fp asimd\n", "");
        assert_eq!((arm.model, arm.features.as_str(), arm.cores), (None, "fp asimd", 1));
    }
}
