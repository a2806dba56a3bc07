//! Finds reasons why an attached TPU may fail to open: settings that do not fit the machine, and other processes. The reasons are
//! known from Colab and Kaggle. Each has its cure. None is certain: some versions of libtpu work all the same, so the TPU is tried anyway.

use super::chips;
use crate::finding::Finding;
use crate::machine::{Machine, Tree, numbered};

/// Variables with the number of chips that libtpu expects in each dimension; the second one is for each process.
const BOUNDS: [&str; 2] = ["TPU_CHIPS_PER_HOST_BOUNDS", "TPU_CHIPS_PER_PROCESS_BOUNDS"];

/// The variable that lets a process load libtpu while another process has loaded it.
const MULTIPLE_LOAD: &str = "ALLOW_MULTIPLE_LIBTPU_LOAD";

/// The variable that keeps libtpu, and this crate, from asking the metadata server.
pub(super) const SKIP_METADATA: &str = "TPU_SKIP_MDS_QUERY";

/// Parts of libtpu's messages when a TPU does not open, in lower case, each with its cure.
const MESSAGES: [(&str, &str); 6] = [
    ("already in use by", "only one process can use a TPU; end the other one, or restart its notebook"),
    ("resource busy", "only one process can use a TPU; end the other one, or restart its notebook"),
    ("lockfile", "remove /tmp/libtpu_lockfile, which is another user's, if no process uses the TPU"),
    ("metadata", "start the kernel with TPU_SKIP_MDS_QUERY=1 where there is no metadata server, as on Colab"),
    ("host bounds", "start the kernel without TPU_CHIPS_PER_HOST_BOUNDS and TPU_CHIPS_PER_PROCESS_BOUNDS"),
    ("not permitted", "the device nodes are not yours; a container needs --privileged"),
];

/// The cure for a message of libtpu, if it is known.
pub(crate) fn cure_of(message: &str) -> Option<&'static str> {
    let message = message.to_lowercase();
    MESSAGES.into_iter().find(|(words, _)| message.contains(words)).map(|(_, cure)| cure)
}

/// Reasons why `count` attached chips may fail to open, each with its cure.
pub(super) fn find(machine: &Machine, tree: &Tree<'_>, count: usize, findings: &mut Vec<Finding>) -> Vec<String> {
    let mut suspects: Vec<String> = BOUNDS.into_iter().filter_map(|name| wrong_bounds(machine, name, count)).collect();
    if let Some((process, node)) = holder(tree) {
        findings.push(Finding::new(&node, &process, "has the TPU open, which only one process can use"));
        suspects.push(format!("{process} has {node} open; end it, or restart its notebook"));
    }
    let is_set = |name: &str| machine.variable(name).is_some_and(|value| !matches!(value, "0" | "false"));
    if is_set(MULTIPLE_LOAD) {
        let meaning = "libtpu does not look whether another process has the TPU";
        findings.push(Finding::new(MULTIPLE_LOAD, machine.variable(MULTIPLE_LOAD).unwrap_or_default(), meaning));
        suspects.push(format!("{MULTIPLE_LOAD} is set, so {meaning}; start the kernel without it"));
    }
    if !is_set(SKIP_METADATA) {
        suspects.push(format!(
            "libtpu may wait for a metadata server; start the kernel with {SKIP_METADATA}=1 where there is none"
        ));
    }
    suspects
}

/// The suspect for a variable with more or fewer chips than this machine has, if the variable is wrong.
fn wrong_bounds(machine: &Machine, name: &str, count: usize) -> Option<String> {
    let value = machine.variable(name)?;
    let mut bounds = value.split(',').map(|bound| bound.trim().parse::<usize>().ok());
    let product = bounds.try_fold(1_usize, |product, bound| product.checked_mul(bound?));
    // Several processes may share the chips of a machine.
    let fits = product.is_some_and(|product| product == count || (name == BOUNDS[1] && product < count));
    let own = chips(count);
    (!fits).then(|| format!("{name} is {value}, and this machine has {own}; start the kernel without it"))
}

/// Another process that has a TPU open, and the device node. Snapshots of this process also have its open files, but they
/// do not use the TPU; they are recognised as children of this process or of its parent.
fn holder(tree: &Tree<'_>) -> Option<(String, String)> {
    let own = std::process::id().to_string();
    let parent = |process: &str| {
        let status = tree.text(&format!("/proc/{process}/stat"))?;
        status.rsplit_once(')')?.1.split_whitespace().nth(1).map(str::to_owned)
    };
    let own_parent = parent(&own);
    let is_own = |process: &String| {
        *process == own || parent(process).is_some_and(|parent| parent == own || Some(parent) == own_parent)
    };
    let processes = tree.names("/proc").into_iter().filter(|name| numbered(name, "").is_some() && !is_own(name));
    processes.into_iter().find_map(|process| {
        let folder = format!("/proc/{process}/fd");
        let node = tree
            .links(&folder)
            .into_iter()
            .find(|target| numbered(target, "/dev/accel").is_some() || numbered(target, "/dev/vfio/").is_some())?;
        let name = tree.text(&format!("/proc/{process}/comm")).map(|name| format!(" ({name})")).unwrap_or_default();
        Some((format!("process {process}{name}"), node))
    })
}
