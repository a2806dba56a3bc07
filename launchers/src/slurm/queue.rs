//! The states of Slurm's jobs: from `squeue` for jobs that the controller remembers, and from `sacct` for older jobs, if
//! Slurm keeps accounts.
//!
//! Without accounts the controller forgets a job some minutes after its end (`MinJobAge`). The job is then
//! [`Status::Gone`].

use super::{IDS, call};
use crate::{JobId, LauncherError, Status};
use std::collections::{BTreeSet, HashMap};

/// The fields of `squeue`, each with the separator before the next.
const FIELDS: &str = "JobArrayID:|,State:|,Reason:|,exit_code:";

/// The error text of `squeue` if it knows none of the jobs.
const UNKNOWN: &str = "Invalid job id";

/// The statuses of the commands, in the order of `ids`.
pub(super) fn status(ids: &[JobId]) -> Result<Vec<Status>, LauncherError> {
    let mut known = HashMap::new();
    known.extend(ask(ids, queued)?);
    let old: Vec<_> = ids.iter().filter(|id| !known.contains_key(*id)).cloned().collect();
    if !old.is_empty() {
        match ask(&old, accounted) {
            Ok(accounted) => known.extend(accounted),
            // In most cases the cluster keeps no accounts.
            Err(error) => tracing::debug!("sacct says nothing of ended jobs: {error}"),
        }
    }
    Ok(ids.iter().map(|id| known.remove(id).unwrap_or(Status::Gone)).collect())
}

/// The number of the array to which a command belongs.
pub(super) fn array(id: &JobId) -> Option<&str> {
    let (array, task) = id.as_str().split_once('_')?;
    let is_number = |text: &str| text.parse::<u32>().is_ok_and(|number| number.to_string() == text);
    (is_number(array) && is_number(task)).then_some(array)
}

type Said = Result<Vec<(JobId, Status)>, LauncherError>;

/// The answers of `program` about the arrays of these commands.
fn ask(ids: &[JobId], program: fn(&str) -> Said) -> Said {
    let arrays: Vec<_> = ids.iter().filter_map(array).collect::<BTreeSet<_>>().into_iter().collect();
    let mut said = Vec::new();
    for arrays in arrays.chunks(IDS) {
        said.extend(program(&arrays.join(","))?);
    }
    Ok(said)
}

fn queued(arrays: &str) -> Said {
    let jobs = format!("--jobs={arrays}");
    let format = format!("--Format={FIELDS}");
    match call::run("squeue", ["--noheader", "--array", "--states=all", &jobs, &format]) {
        Ok(text) => text.lines().map(queue_line).collect(),
        Err(LauncherError::Failed { reason, .. }) if reason.contains(UNKNOWN) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn accounted(arrays: &str) -> Said {
    let jobs = format!("--jobs={arrays}");
    let options = ["--noheader", "--parsable2", "--allocations", "--array", "--format=JobID,State,ExitCode", &jobs];
    call::run("sacct", options)?.lines().map(account_line).collect()
}

/// Parses a line such as `12_0|FAILED|NonZeroExitCode|768`. The exit code is in the form of `wait`.
fn queue_line(line: &str) -> Result<(JobId, Status), LauncherError> {
    let unreadable = || LauncherError::Answer { engine: "squeue", answer: line.into() };
    let mut fields = line.split('|');
    let (Some(id), Some(state), Some(rest)) = (fields.next(), fields.next(), fields.next()) else {
        return Err(unreadable());
    };
    // A reason may contain the separator; the exit code cannot.
    let rest: Vec<_> = std::iter::once(rest).chain(fields).collect();
    let Some((code, reason)) = rest.split_last() else { return Err(unreadable()) };
    let code: i64 = code.trim().parse().map_err(|_| unreadable())?;
    let signal = Some(code & 0x7f).filter(|signal| *signal != 0);
    let status = read(state.trim(), reason.join("|").trim(), code >> 8, signal).ok_or_else(unreadable)?;
    Ok((JobId::from(id.trim()), status))
}

/// Parses a line such as `12_0|CANCELLED by 0|0:15`, with the exit status and the signal.
fn account_line(line: &str) -> Result<(JobId, Status), LauncherError> {
    let unreadable = || LauncherError::Answer { engine: "sacct", answer: line.into() };
    let [id, state, code] = line.split('|').collect::<Vec<_>>()[..] else { return Err(unreadable()) };
    let (code, signal) = code.split_once(':').ok_or_else(unreadable)?;
    let code = code.parse().map_err(|_| unreadable())?;
    let signal = signal.parse().map_err(|_| unreadable())?;
    let state = state.split(' ').next().unwrap_or(state);
    let status = read(state, "", code, Some(signal).filter(|signal| *signal != 0)).ok_or_else(unreadable)?;
    Ok((JobId::from(id), status))
}

/// The status for a state of Slurm; `None` for an unknown state, in which the command may still run.
fn read(state: &str, reason: &str, code: i64, signal: Option<i64>) -> Option<Status> {
    let failure = |words: &str| Status::Ended { failure: Some(words.into()) };
    let reason = Some(reason).filter(|reason| !["", "None"].contains(reason));
    Some(match state {
        "PENDING" | "CONFIGURING" | "POWER_UP_NODE" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "RESV_DEL_HOLD"
        | "SPECIAL_EXIT" | "SUSPENDED" => Status::Waiting { reason: reason.map(str::to_owned) },
        "RUNNING" | "COMPLETING" | "RESIZING" | "SIGNALING" | "STAGE_OUT" | "STOPPED" => Status::Running,
        "COMPLETED" => Status::Ended { failure: None },
        "CANCELLED" => Status::cancelled(),
        // For example, the log cannot be written. The code is then one of Slurm's error numbers. If there is only a signal,
        // the command itself has ended by that signal, and Slurm gives the same reason.
        "FAILED" if reason == Some("JobLaunchFailure") && code != 0 => {
            failure("not started; see slurmd's log on the host")
        }
        "LAUNCH_FAILED" => failure("not started; see slurmd's log on the host"),
        "FAILED" => Status::ended(code, signal),
        "TIMEOUT" | "DEADLINE" => failure("out of time"),
        "OUT_OF_MEMORY" => failure("out of memory"),
        "PREEMPTED" => failure("preempted"),
        "NODE_FAIL" | "BOOT_FAIL" => failure("its host has failed"),
        "REVOKED" => failure("taken by another cluster"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn all(lines: &[&str], read: fn(&str) -> Result<(JobId, Status), LauncherError>) -> String {
        lines.iter().map(|line| format!("{:?}\n", read(line).map_err(|error| error.to_string()))).collect()
    }

    #[test]
    fn lines_of_squeue_are_read() {
        let lines = [
            "12_0|PENDING|Resources|0",
            "12_1|PENDING|None|0",
            "12_2|RUNNING|None|0",
            "12_3|COMPLETING|None|0",
            "12_4|COMPLETED|None|0",
            "12_5|FAILED|NonZeroExitCode|768",
            "12_6|FAILED|JobLaunchFailure|9",
            "12_7|CANCELLED|None|15",
            "12_8|TIMEOUT|TimeLimit|0",
            "12_9|FAILED|JobLaunchFailure|4021",
            "12_10|PENDING|a|b|0",
            "12_11|NEW_STATE|None|0",
            "squeue: hello",
        ];
        expect![[r#"
            Ok((JobId("12_0"), Waiting { reason: Some("Resources") }))
            Ok((JobId("12_1"), Waiting { reason: None }))
            Ok((JobId("12_2"), Running))
            Ok((JobId("12_3"), Running))
            Ok((JobId("12_4"), Ended { failure: None }))
            Ok((JobId("12_5"), Ended { failure: Some("exit status 3") }))
            Ok((JobId("12_6"), Ended { failure: Some("signal 9") }))
            Ok((JobId("12_7"), Ended { failure: Some("cancelled") }))
            Ok((JobId("12_8"), Ended { failure: Some("out of time") }))
            Ok((JobId("12_9"), Ended { failure: Some("not started; see slurmd's log on the host") }))
            Ok((JobId("12_10"), Waiting { reason: Some("a|b") }))
            Err("the answer of squeue cannot be read: 12_11|NEW_STATE|None|0")
            Err("the answer of squeue cannot be read: squeue: hello")
        "#]]
        .assert_eq(&all(&lines, queue_line));
    }

    #[test]
    fn lines_of_sacct_are_read() {
        let lines =
            ["12_0|COMPLETED|0:0", "12_1|FAILED|3:0", "12_2|CANCELLED by 0|0:15", "12_3|OUT_OF_MEMORY|0:125", "x"];
        expect![[r#"
            Ok((JobId("12_0"), Ended { failure: None }))
            Ok((JobId("12_1"), Ended { failure: Some("exit status 3") }))
            Ok((JobId("12_2"), Ended { failure: Some("cancelled") }))
            Ok((JobId("12_3"), Ended { failure: Some("out of memory") }))
            Err("the answer of sacct cannot be read: x")
        "#]]
        .assert_eq(&all(&lines, account_line));
    }

    #[test]
    fn id_has_an_array_and_a_task() {
        let ids = ["12_0", "12", "12_", "_0", "12_0_1", "x_0", "+1_0"];
        let arrays = ids.map(|id| array(&id.into()).map(str::to_owned));
        assert_eq!(arrays, [Some("12".into()), None, None, None, None, None, None]);
    }
}
