//! Tests of detection over described machines: folders in the place of `/`, with an environment and a metadata server.

mod choice;
mod cpus;
mod cudas;
mod metadata;
mod named_tpus;
mod names;
mod pythons;
mod stores;
mod strategies;
mod suspects;
mod tpus;
mod workers;

use ferrotune_devices::{Machine, Metadata, Report, connect, detect};
use tempfile::TempDir;

/// A described machine, with its temporary folder.
struct Described {
    folder: TempDir,
    machine: Machine,
}

impl Described {
    /// A machine with these files below its root, with their texts, and these environment variables.
    fn new(files: &[(&str, &str)], variables: &[(&str, &str)]) -> Described {
        let folder = TempDir::new().expect("a temporary folder");
        let described = Described {
            machine: Machine {
                root: folder.path().to_owned(),
                environment: variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
                metadata: Metadata::Skip,
            },
            folder,
        };
        files.iter().for_each(|(path, text)| described.write(path, text));
        described
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("inside the folder")).expect("folders");
        std::fs::write(path, text).expect("a file");
    }

    /// Makes a link below the root to an absolute path, in the form in which the system shows the open files of a process.
    fn link(&self, path: &str, target: &str) {
        let path = self.folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("inside the folder")).expect("folders");
        std::os::unix::fs::symlink(target, path).expect("a link");
    }

    /// Adds `count` PCI devices of Google's.
    fn with_pci(self, device: &str, subsystem: &str, count: usize) -> Described {
        for index in 0..count {
            let folder = format!("sys/bus/pci/devices/0000:00:{:02x}.0", 4 + index);
            self.write(&format!("{folder}/vendor"), "0x1ae0\n");
            self.write(&format!("{folder}/device"), &format!("{device}\n"));
            self.write(&format!("{folder}/subsystem_device"), &format!("{subsystem}\n"));
        }
        self
    }

    /// Adds device nodes `prefix0`, `prefix1`, ….
    fn with_nodes(self, prefix: &str, count: usize) -> Described {
        (0..count).for_each(|index| self.write(&format!("{prefix}{index}"), ""));
        self
    }

    fn with_metadata(mut self, host: String) -> Described {
        self.machine.metadata = Metadata::Host(host);
        self
    }

    fn report(&self) -> Report {
        detect(&self.machine, None)
    }

    /// The text of the table, the TPU and the choice, without the temporary folder's path.
    fn shown(&self, tpu: Option<&str>) -> String {
        let report = detect(&self.machine, tpu);
        let choice = connect(&report, false).expect("there is a CPU");
        let libtpu = report.libtpu.as_ref().map(|path| format!("libtpu: {}\n", path.display())).unwrap_or_default();
        let text = format!("{}{libtpu}{}: {}\n", report.table_text(), choice.device, choice.reason);
        let text = text.replace(&self.folder.path().display().to_string(), "");
        text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }
}
