//! The places where Python packages are installed, and the Python that has started this process. It runs no Python.

use crate::machine::{Machine, Tree};
use ferrotune_machine::value;

/// The variable with the prefix (`sys.prefix`) of the notebook's Python, which the kernel sets for the processes that it starts.
pub const PYTHON_VARIABLE: &str = "FERROTUNE_PYTHON";

/// The prefixes of Python installations besides those that variables name and `~/.local`: Colab and Kaggle use the first, distributions
/// the second, Deep Learning VMs the third. Each contains `lib/python3*/{site,dist}-packages`.
const USUAL_PREFIXES: [&str; 3] = ["/usr/local", "/usr", "/opt/conda"];

/// The number of ancestors of a process that are looked at.
const MOST_ANCESTORS: usize = 8;

/// The prefixes of the machine's Python installations, the user's own first.
pub(crate) fn prefixes(machine: &Machine) -> Vec<String> {
    let variables = ["VIRTUAL_ENV", "CONDA_PREFIX", PYTHON_VARIABLE];
    let named = variables.into_iter().filter_map(|name| machine.variable(name));
    let home = machine.variable("HOME").map(|home| format!("{home}/.local"));
    named.chain(USUAL_PREFIXES).map(str::to_owned).chain(home).collect()
}

/// The folders of packages below a prefix, those of the newest Python first.
pub(crate) fn packages(tree: &Tree<'_>, prefix: &str) -> Vec<String> {
    let mut versions: Vec<(u32, String)> = tree
        .names(&format!("{prefix}/lib"))
        .into_iter()
        .filter_map(|name| {
            let minor = name.strip_prefix("python3")?.trim_start_matches('.');
            // The folder `python3` itself holds the packages that all versions of a distribution share.
            Some((minor.parse().unwrap_or(0), name))
        })
        .collect();
    versions.sort_by(|left, right| right.cmp(left));
    let folders = |(_, python): &(u32, String)| {
        ["site-packages", "dist-packages"].map(|kind| format!("{prefix}/lib/{python}/{kind}"))
    };
    versions.iter().flat_map(folders).collect()
}

/// The prefix (`sys.prefix`) of the Python that has started this process, directly or through other programs: Jupyter's, or that of a
/// Python notebook. None if no ancestor is a Python.
pub fn prefix_of_ancestor(machine: &Machine) -> Option<String> {
    let tree = Tree::new(&machine.root);
    let mut process = "self".to_owned();
    for _ in 0..MOST_ANCESTORS {
        let status = tree.text(&format!("/proc/{process}/status"))?;
        process = value(&status, "PPid").filter(|parent| *parent != "0")?.to_owned();
        let exe = tree.link(&format!("/proc/{process}/exe"));
        if let Some(exe) = exe.filter(|exe| is_python(exe)) {
            // A virtual environment's program is a link to that of another Python; the command has the name of the link.
            let paths = command_path(&tree, &process).into_iter().chain([exe]);
            return paths.filter_map(|path| prefix_of(&path)).find(|prefix| !packages(&tree, prefix).is_empty());
        }
    }
    None
}

/// The absolute path of the program that a process was started as, if its command or its search path has it.
fn command_path(tree: &Tree<'_>, process: &str) -> Option<String> {
    let command = tree.text(&format!("/proc/{process}/cmdline"))?;
    let program = command.split('\0').next().filter(|program| is_python(program))?;
    if program.contains('/') {
        return program.starts_with('/').then(|| program.to_owned());
    }
    let environment = tree.text(&format!("/proc/{process}/environ"))?;
    let path = environment.split('\0').find_map(|variable| variable.strip_prefix("PATH="))?;
    path.split(':').map(|folder| format!("{folder}/{program}")).find(|path| tree.is_file(path))
}

fn is_python(program: &str) -> bool {
    program.rsplit('/').next().is_some_and(|name| name.starts_with("python"))
}

/// The folder that has the program's folder `bin`.
fn prefix_of(program: &str) -> Option<String> {
    let prefix = program.rsplit_once('/')?.0.strip_suffix("/bin")?;
    Some(prefix.to_owned())
}
