//! The server's answers about Jobs and their pods.

use crate::Status;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
pub(super) struct JobList {
    items: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    metadata: Metadata,
    #[serde(default)]
    status: JobStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    creation_timestamp: String,
    deletion_timestamp: Option<String>,
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct JobStatus {
    succeeded: u64,
    conditions: Vec<Condition>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
}

#[derive(Deserialize)]
pub(super) struct PodList {
    items: Vec<Pod>,
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    phase: String,
    conditions: Vec<Condition>,
    container_statuses: Vec<Container>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Container {
    state: State,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct State {
    waiting: Option<Reason>,
    terminated: Option<Terminated>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Reason {
    reason: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Terminated {
    exit_code: i64,
    reason: String,
}

/// The statuses of Jobs, by the Jobs' names.
pub(super) fn statuses(jobs: JobList, pods: &PodList) -> BTreeMap<String, Status> {
    jobs.items.into_iter().map(|job| (job.metadata.name.clone(), status(&job, pods.of(&job.metadata.name)))).collect()
}

impl PodList {
    /// The name of the newest pod.
    pub(super) fn last(&self) -> Option<&str> {
        let last = self.items.iter().max_by(|a, b| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp));
        last.map(|pod| pod.metadata.name.as_str())
    }

    /// The newest pod of a Job.
    fn of(&self, job: &str) -> Option<&Pod> {
        let is_its = |pod: &&Pod| pod.metadata.labels.get("job-name").is_some_and(|name| name == job);
        let pods = self.items.iter().filter(is_its);
        pods.max_by(|a, b| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp))
    }
}

fn status(job: &Job, pod: Option<&Pod>) -> Status {
    match state(job, pod) {
        // A cancelled Job exists until its pod has been deleted.
        Status::Ended { .. } if job.metadata.deletion_timestamp.is_some() => Status::cancelled(),
        status => status,
    }
}

fn state(job: &Job, pod: Option<&Pod>) -> Status {
    let failed =
        job.status.conditions.iter().find(|condition| condition.kind == "Failed" && condition.status == "True");
    match (failed, pod) {
        _ if job.status.succeeded > 0 => Status::Ended { failure: None },
        (Some(failed), pod) => {
            let words = || Status::Ended { failure: Some(one_of(&failed.message, &failed.reason)) };
            pod.and_then(Pod::end).unwrap_or_else(words)
        }
        (None, Some(pod)) if pod.status.phase != "Pending" => Status::Running,
        (None, pod) => Status::Waiting { reason: pod.and_then(Pod::reason) },
    }
}

impl Pod {
    fn end(&self) -> Option<Status> {
        let ended = self.status.container_statuses.first()?.state.terminated.as_ref()?;
        Some(match ended.exit_code {
            _ if ended.reason == "OOMKilled" => Status::Ended { failure: Some("out of memory".into()) },
            // As in a shell, this exit status contains the number of the signal that ended the process.
            code @ 129..=192 => Status::ended(0, Some(code - 128)),
            code => Status::ended(code, None),
        })
    }

    /// The reason why the pod does not run.
    fn reason(&self) -> Option<String> {
        let waiting = self.status.container_statuses.iter().find_map(|container| container.state.waiting.as_ref());
        let unscheduled = self.status.conditions.iter().find(|it| it.kind == "PodScheduled" && it.status == "False");
        let reason = waiting.map(|waiting| waiting.reason.clone());
        reason.or_else(|| unscheduled.map(|it| one_of(&it.message, &it.reason))).filter(|reason| !reason.is_empty())
    }
}

fn one_of(message: &str, reason: &str) -> String {
    if message.is_empty() { reason } else { message }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use serde_json::{Value, json};

    #[test]
    fn answers_of_the_server_are_read() {
        let job = |name: &str, status: Value| json!({ "metadata": { "name": name }, "status": status });
        let failed = json!({ "failed": 1, "conditions": [{ "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded" }] });
        let jobs = json!({ "items": [
            job("a", json!({ "succeeded": 1 })), job("b", failed.clone()), job("c", failed.clone()), job("d", failed),
            job("e", json!({ "active": 1 })), job("f", json!({ "active": 1 })), job("g", json!({ "active": 1 })), job("h", json!({})),
        ]});
        let pod = |job: &str, at: &str, status: Value| json!({ "metadata": { "name": job, "creationTimestamp": at, "labels": { "job-name": job } }, "status": status });
        let ended = |code: u64, reason: &str| json!({ "phase": "Failed", "containerStatuses": [{ "state": { "terminated": { "exitCode": code, "reason": reason } } }] });
        let unscheduled = json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False", "message": "0/1 nodes" }] });
        let pulling = json!({ "phase": "Pending", "containerStatuses": [{ "state": { "waiting": { "reason": "ImagePullBackOff" } } }] });
        let pods = json!({ "items": [
            pod("b", "2026-01-01T00:00:00Z", ended(3, "Error")), pod("c", "2026-01-01T00:00:00Z", ended(137, "Error")),
            pod("e", "2026-01-01T00:00:00Z", ended(143, "Error")), pod("e", "2026-01-01T00:00:09Z", json!({ "phase": "Running" })),
            pod("f", "2026-01-01T00:00:00Z", unscheduled), pod("g", "2026-01-01T00:00:00Z", pulling),
        ]});
        let found = statuses(serde_json::from_value(jobs).unwrap(), &serde_json::from_value(pods).unwrap());
        expect![[r#"
            a Ended { failure: None }
            b Ended { failure: Some("exit status 3") }
            c Ended { failure: Some("signal 9") }
            d Ended { failure: Some("BackoffLimitExceeded") }
            e Running
            f Waiting { reason: Some("0/1 nodes") }
            g Waiting { reason: Some("ImagePullBackOff") }
            h Waiting { reason: None }
        "#]]
        .assert_eq(&found.iter().map(|(name, status)| format!("{name} {status:?}\n")).collect::<String>());
    }
}
