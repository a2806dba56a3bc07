//! The cgroups of this process, in both of Linux' versions, and their limits. Creates and changes none.

use crate::{Read, field, file};
use std::path::{Component, Path, PathBuf};

/// The folder in which Linux shows cgroups.
const ROOT: &str = "/sys/fs/cgroup";

/// The least value that means "no limit". Version 1 writes the largest number of whole pages that fits into 63 bits, and
/// pages have at most 64 KiB.
const UNLIMITED_BYTES: u64 = i64::MAX as u64 - 0xffff;

/// The two versions of Linux' cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy for each controller.
    One,
    /// One hierarchy for all controllers.
    Two,
}

impl Version {
    /// The file with the limit on memory.
    pub fn memory_limit_file(self) -> &'static str {
        match self {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        }
    }

    fn memory_usage_file(self) -> &'static str {
        match self {
            Version::One => "memory.usage_in_bytes",
            Version::Two => "memory.current",
        }
    }

    /// The line of `memory.stat` with the file pages that the system drops first, for this cgroup and those below it.
    fn droppable_field(self) -> &'static str {
        match self {
            Version::One => "total_inactive_file",
            Version::Two => "inactive_file",
        }
    }

    fn oom_kills_file(self) -> &'static str {
        match self {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        }
    }

    fn mount(self, controller: &str) -> PathBuf {
        match self {
            Version::One => Path::new(ROOT).join(controller),
            Version::Two => PathBuf::from(ROOT),
        }
    }

    /// The path of this process in the hierarchy of a controller, from the text of `/proc/self/cgroup`. The path is
    /// relative to the mount. It is empty if it leads out of the mount, because the container's own cgroup is then mounted.
    fn path(self, own: &str, controller: &str) -> Option<PathBuf> {
        let is_of_this = |controllers: &str| match self {
            Version::One => controllers.split(',').any(|name| name == controller),
            Version::Two => controllers.is_empty(),
        };
        let path = own.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            is_of_this(controllers).then(|| Path::new(path.trim_start_matches('/')))
        })?;
        let leads_out = path.components().any(|component| component == Component::ParentDir);
        Some(if leads_out { PathBuf::new() } else { path.to_path_buf() })
    }
}

/// The folders of this process' cgroups that can limit memory.
pub fn own_memory_cgroups() -> Vec<(Version, PathBuf)> {
    named_cgroups(&file(Path::new("/proc/self/cgroup")).unwrap_or_default())
}

/// The folders of the memory cgroups, version 1 first: a controller with a hierarchy of its own is absent from the common
/// one.
fn named_cgroups(own: &str) -> Vec<(Version, PathBuf)> {
    let versions = [Version::One, Version::Two].into_iter();
    versions.filter_map(|version| Some((version, version.mount("memory").join(version.path(own, "memory")?)))).collect()
}

/// The lowest limit on the memory of this process' cgroups, in bytes.
pub fn memory_limit_bytes(read: Read<'_>) -> Option<u64> {
    own_and_above(read, "memory").iter().filter_map(|(version, folder)| memory_limit_of(read, *version, folder)).min()
}

/// The memory that the limits of this process' cgroups leave, in bytes. File pages that the system can drop count as free.
pub fn memory_available_bytes(read: Read<'_>) -> Option<u64> {
    let available = |(version, folder): &(Version, PathBuf)| {
        let limit = memory_limit_of(read, *version, folder)?;
        let used = number(&read(&folder.join(version.memory_usage_file()))?)?;
        let droppable = field(&read(&folder.join("memory.stat"))?, version.droppable_field()).unwrap_or(0);
        Some(limit.saturating_sub(used.saturating_sub(droppable)))
    };
    own_and_above(read, "memory").iter().filter_map(available).min()
}

/// The number of cores whose time the quotas of this process' cgroups grant, rounded up.
pub fn core_quota(read: Read<'_>) -> Option<u64> {
    let quota = |(version, folder): &(Version, PathBuf)| {
        let (quota, period) = match version {
            Version::One => (read(&folder.join("cpu.cfs_quota_us"))?, read(&folder.join("cpu.cfs_period_us"))?),
            Version::Two => {
                let text = read(&folder.join("cpu.max"))?;
                let (quota, period) = text.split_once(' ')?;
                (quota.to_owned(), period.to_owned())
            }
        };
        Some(number(&quota)?.div_ceil(number(&period)?.max(1)))
    };
    own_and_above(read, "cpu").iter().filter_map(quota).min()
}

/// The number of processes of a cgroup that the system has killed because the cgroup exceeded its limit.
pub fn oom_kills(version: Version, folder: &Path) -> u64 {
    let counters = file(&folder.join(version.oom_kills_file())).unwrap_or_default();
    field(&counters, "oom_kill").unwrap_or(0)
}

/// The cgroups of this process and all cgroups above them, in both versions. A container may show its cgroup as the mount
/// itself, under a path that exists only outside the container. So the mount is always included.
fn own_and_above(read: Read<'_>, controller: &str) -> Vec<(Version, PathBuf)> {
    let own = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let mut folders = Vec::new();
    for version in [Version::One, Version::Two] {
        let path = version.path(&own, controller).unwrap_or_default();
        folders.extend(path.ancestors().map(|path| (version, version.mount(controller).join(path))));
    }
    folders
}

fn memory_limit_of(read: Read<'_>, version: Version, folder: &Path) -> Option<u64> {
    let limit = number(&read(&folder.join(version.memory_limit_file()))?)?;
    (limit < UNLIMITED_BYTES).then_some(limit)
}

/// Parses a number; none for `max`, `-1` and similar texts, which mean no limit.
fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit and the available memory of a process in a tree of these files.
    fn memory(files: &[(&str, &str)]) -> (Option<u64>, Option<u64>) {
        let read =
            |path: &Path| files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned());
        (memory_limit_bytes(&read), memory_available_bytes(&read))
    }

    #[test]
    fn the_tightest_cgroup_of_version_2_limits() {
        let own = ("/proc/self/cgroup", "0::/user.slice/job\n");
        let outer = [
            ("/sys/fs/cgroup/user.slice/memory.max", "1000\n"),
            ("/sys/fs/cgroup/user.slice/memory.current", "700\n"),
            ("/sys/fs/cgroup/user.slice/memory.stat", "anon 1\ninactive_file 200\n"),
        ];
        let inner = |limit| {
            [
                ("/sys/fs/cgroup/user.slice/job/memory.max", limit),
                ("/sys/fs/cgroup/user.slice/job/memory.current", "100\n"),
                ("/sys/fs/cgroup/user.slice/job/memory.stat", "inactive_file 300\n"),
            ]
        };
        let files = |limit| [&[own][..], &outer, &inner(limit)].concat();
        assert_eq!(memory(&files("max\n")), (Some(1000), Some(500)));
        assert_eq!(memory(&files("400\n")), (Some(400), Some(400)));
        assert_eq!(memory(&[own]), (None, None));
    }

    #[test]
    fn the_tightest_cgroup_of_version_1_limits() {
        let own = ("/proc/self/cgroup", "8:pids:/x\n4:cpu,memory:/docker/1\n1:name=systemd:/\n0::/docker/1\n");
        let files = |limit| {
            [
                own,
                ("/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", limit),
                ("/sys/fs/cgroup/memory/docker/1/memory.usage_in_bytes", "900\n"),
                ("/sys/fs/cgroup/memory/docker/1/memory.stat", "inactive_file 1\ntotal_inactive_file 400\n"),
                ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                // In version 1, the pids controller has a hierarchy of its own.
                ("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1\n"),
            ]
        };
        assert_eq!(memory(&files("1000\n")), (Some(1000), Some(500)));
        assert_eq!(memory(&files("9223372036854771712\n")), (None, None));
        assert_eq!(memory(&files("9223372036854710272\n")), (None, None), "pages of 64 KiB");
        let largest = 1_u64 << 62;
        assert_eq!(memory(&files(&format!("{largest}\n"))).0, Some(largest));
    }

    #[test]
    fn the_mount_is_the_cgroup_where_the_path_is_that_of_the_host() {
        for own in ["4:memory:/docker/0123\n", "4:memory:/../other\n", ""] {
            let files = [
                ("/proc/self/cgroup", own),
                ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n"),
                ("/sys/fs/cgroup/other/memory.limit_in_bytes", "1\n"),
            ];
            assert_eq!(memory(&files).0, Some(1000), "{own}");
        }
        for own in ["0::/host/path\n", "0::/../../other\n", ""] {
            let files = [("/proc/self/cgroup", own), ("/sys/fs/cgroup/memory.max", "1000\n")];
            assert_eq!(memory(&files).0, Some(1000), "{own}");
        }
    }

    #[test]
    fn quotas_grant_whole_cores() {
        let cores = |files: &[(&str, &str)]| {
            core_quota(&|path| {
                files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned())
            })
        };
        assert_eq!(cores(&[("/sys/fs/cgroup/cpu.max", "150000 100000\n")]), Some(2));
        assert_eq!(cores(&[("/sys/fs/cgroup/cpu.max", "max 100000\n")]), None);
        let version_1 = [
            ("/proc/self/cgroup", "3:cpu,cpuacct:/a\n"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100\n"),
            ("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "300000\n"),
            ("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(cores(&version_1), Some(3));
    }

    #[test]
    fn own_cgroup_is_found_in_either_hierarchy() {
        let two = |path: &str| vec![(Version::Two, PathBuf::from(path))];
        assert_eq!(named_cgroups("0::/user.slice/a\n"), two("/sys/fs/cgroup/user.slice/a"));
        assert_eq!(
            named_cgroups("8:pids:/x\n4:cpu,memory:/docker/1\n1:name=systemd:/\n"),
            [(Version::One, PathBuf::from("/sys/fs/cgroup/memory/docker/1"))]
        );
        assert_eq!(named_cgroups("nonsense\n"), []);
    }
}
