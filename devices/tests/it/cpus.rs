//! Tests of the detection of cores, vector units and memory.

use crate::Described;

const X86: (&str, &str) = (
    "proc/cpuinfo",
    "processor\t: 0\nmodel name\t: Big CPU\nflags\t\t: fpu sse4_2 avx avx2 fma\n\nprocessor\t: 1\nmodel name\t: Big CPU\n",
);
const MEMORY: (&str, &str) = ("proc/meminfo", "MemTotal:       24536884 kB\nMemFree:        1 kB\n");

fn shown(files: &[(&str, &str)]) -> String {
    Described::new(files, &[]).report().cpu.to_string()
}

#[test]
fn the_cpu_is_described_in_a_few_words() {
    assert_eq!(shown(&[X86, MEMORY]), "2 cores, AVX2, 23.4 GiB");
    assert_eq!(shown(&[("proc/cpuinfo", "processor : 0\nFeatures : fp asimd\n")]), "1 core, NEON");
    assert_eq!(shown(&[]), "1 core");
}

#[test]
fn cores_are_those_that_may_be_used() {
    assert_eq!(shown(&[X86, ("proc/self/status", "Name:\tx\nCpus_allowed_list:\t1\n")]), "1 core, AVX2");
    let allowed = ("proc/self/status", "Cpus_allowed_list:\t0-7\n");
    assert_eq!(shown(&[allowed, ("sys/fs/cgroup/cpu.max", "150000 100000\n")]), "2 cores");
    assert_eq!(shown(&[allowed, ("sys/fs/cgroup/cpu.max", "max 100000\n")]), "8 cores");
    let quota = ("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "300000\n");
    let period = ("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    let group = ("proc/self/cgroup", "3:cpu,cpuacct:/a\n");
    assert_eq!(shown(&[allowed, group, quota, period]), "3 cores");
}

#[test]
fn the_lowest_memory_limit_of_all_groups_above_counts() {
    let version_2 = [
        MEMORY,
        ("proc/self/cgroup", "0::/a/b\n"),
        ("sys/fs/cgroup/a/memory.max", "1073741824\n"),
        ("sys/fs/cgroup/a/b/memory.max", "max\n"),
    ];
    assert_eq!(shown(&version_2), "1 core, limited to 1 GiB");
    let version_1 = [
        MEMORY,
        ("proc/self/cgroup", "4:memory:/docker/0123\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n"),
    ];
    assert_eq!(shown(&version_1), "1 core, limited to 2 GiB", "the host's path is not inside the container");
    let unlimited = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_eq!(shown(&[MEMORY, unlimited]), "1 core, 23.4 GiB");
    assert_eq!(shown(&[unlimited]), "1 core");
}
