//! The user's options of `sbatch`.

use crate::LauncherError;

/// The options that the launcher sets itself, and those that change what `sbatch` prints or does.
const OURS: [&str; 21] = [
    "array",
    "chdir",
    "clusters",
    "error",
    "export",
    "export-file",
    "help",
    "input",
    "job-name",
    "nodes",
    "ntasks",
    "open-mode",
    "output",
    "parsable",
    "quiet",
    "test-only",
    "usage",
    "verbose",
    "version",
    "wait",
    "wrap",
];

/// The arguments of `sbatch` for the text `name=value,flag,…`.
pub(super) fn parse(text: &str) -> Result<Vec<String>, LauncherError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    text.split(',').map(argument).collect()
}

fn argument(item: &str) -> Result<String, LauncherError> {
    let wrong = |problem| Err(LauncherError::Option { engine: "slurm", option: item.into(), problem });
    let name = item.split_once('=').map_or(item, |(name, _)| name);
    let is_name = |name: &str| name.chars().all(|character| character.is_ascii_lowercase() || character == '-');
    if name.is_empty() || name.starts_with('-') || !is_name(name) {
        return wrong("write the long name of an option of sbatch without its dashes, as in partition=debug");
    }
    // `sbatch` accepts the beginning of an option's name as its name.
    if OURS.iter().any(|ours| ours.starts_with(name)) {
        return wrong("the launcher sets it itself; leave it out");
    }
    if item.chars().any(char::is_control) {
        return wrong("its value has a control character; remove it");
    }
    Ok(format!("--{item}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn options_become_arguments() {
        let arguments = parse("partition=debug,time=2:00:00,exclusive,gres=gpu:a100:2,constraint=a=b").unwrap();
        let expected = ["--partition=debug", "--time=2:00:00", "--exclusive", "--gres=gpu:a100:2", "--constraint=a=b"];
        assert_eq!(arguments, expected);
        assert!(parse("").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_option_or_ours_is_refused() {
        let refused: String = ["--time=1", "Time=1", "a b=1", "=1", "", "output=x", "out=x", "arr=0", "time=1\n"]
            .map(|item| format!("{}\n", argument(item).unwrap_err()))
            .concat();
        expect![[r#"
            the option `--time=1` of slurm is wrong: write the long name of an option of sbatch without its dashes, as in partition=debug
            the option `Time=1` of slurm is wrong: write the long name of an option of sbatch without its dashes, as in partition=debug
            the option `a b=1` of slurm is wrong: write the long name of an option of sbatch without its dashes, as in partition=debug
            the option `=1` of slurm is wrong: write the long name of an option of sbatch without its dashes, as in partition=debug
            the option `` of slurm is wrong: write the long name of an option of sbatch without its dashes, as in partition=debug
            the option `output=x` of slurm is wrong: the launcher sets it itself; leave it out
            the option `out=x` of slurm is wrong: the launcher sets it itself; leave it out
            the option `arr=0` of slurm is wrong: the launcher sets it itself; leave it out
            the option `time=1
            ` of slurm is wrong: its value has a control character; remove it
        "#]].assert_eq(&refused);
    }
}
