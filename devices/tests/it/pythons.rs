//! Tests of the search for the Python that has started a process.

use crate::Described;
use ferrotune_devices::{find_plugin, prefix_of_ancestor};

/// A machine on which the process 30 has started this one; the process 20 has started 30.
fn started_by(command: &str, exe: &str, folders: &[&str]) -> Described {
    let described = Described::new(
        &[
            ("proc/self/status", "Name:\tferrotune\nPPid:\t30\n"),
            ("proc/30/status", "Name:\tsh\nPPid:\t20\n"),
            ("proc/30/cmdline", "sh\0-c\0ferrotune kernel\0"),
            ("proc/20/status", "Name:\tjupyter-lab\nPPid:\t1\n"),
            ("proc/20/cmdline", command),
            ("proc/20/environ", "HOME=/root\0PATH=/nowhere:/venv/bin\0"),
            ("proc/1/status", "Name:\tinit\nPPid:\t0\n"),
        ],
        &[],
    );
    described.link("proc/30/exe", "/usr/bin/dash");
    described.link("proc/20/exe", exe);
    described.link("proc/1/exe", "/usr/lib/systemd/systemd");
    for folder in folders {
        described.write(&format!("{folder}/bin/python3"), "");
        described.write(&format!("{folder}/lib/python3.12/site-packages/README.txt"), "");
    }
    described
}

#[test]
fn a_virtual_environment_is_known_by_the_command_and_another_python_by_its_program() {
    let base = "/opt/python/bin/python3.12";
    let prefix = |command: &str, exe: &str| {
        prefix_of_ancestor(&started_by(command, exe, &["venv", "opt/python"]).machine).unwrap_or_default()
    };
    assert_eq!(prefix("/venv/bin/python3\0/venv/bin/jupyter-lab\0", base), "/venv");
    assert_eq!(prefix("python3\0-m\0jupyterlab\0", base), "/venv");
    // A program may change how its command is shown, and a path may be relative to a folder that the program has left.
    assert_eq!(prefix("jupyter-lab: idle\0", base), "/opt/python");
    assert_eq!(prefix("./venv/bin/python\0", base), "/opt/python");
    assert_eq!(prefix("/gone/bin/python3\0", base), "/opt/python");
    assert_eq!(prefix("node\0server.js\0", "/usr/bin/node"), "");
}

#[test]
fn the_notebooks_python_is_searched_for_plugins() {
    let file = "opt/python/lib/python3.12/site-packages/jax_plugins/xla_cuda12/xla_cuda_plugin.so";
    let described = Described::new(&[(file, "")], &[("FERROTUNE_PYTHON", "/opt/python")]);
    assert_eq!(find_plugin(&described.machine, "cuda").ok(), Some(described.folder.path().join(file)));
}
