//! The Kubernetes objects of a job (<https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/>).

use super::options::Options;
use crate::{Job, JobId, LauncherError};
use serde_json::{Map, Value, json};
use std::ffi::OsStr;

/// The label that all objects of one submission share.
pub(super) const RUN: &str = "ferrotune-run";
/// The seconds between the signal TERM and the signal KILL to a pod.
const GRACE_S: u64 = 30;
/// The seconds for which a Job stays after its end.
const KEPT_S: u64 = 86_400;
/// The number of characters of a job's name in a label. The time and a number follow, and 63 characters are allowed.
const LABEL: usize = 36;

/// A name in the form of a label: lower-case letters, digits and `-`.
pub(super) fn label(name: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let label: String = name.chars().map(letter).take(LABEL).collect();
    label.trim_matches('-').to_owned()
}

/// The Job of one command.
pub(super) fn job(job: &Job, options: &Options, run: &str, id: &JobId) -> Result<Value, LauncherError> {
    let text = |word: &OsStr| {
        word.to_str().map(str::to_owned).ok_or_else(|| LauncherError::Job {
            name: job.name.clone(),
            problem: "its command or its folder is not UTF-8, which Kubernetes needs; rename the file".into(),
        })
    };
    let mut command = job.command.iter().map(|word| text(word)).collect::<Result<Vec<String>, _>>()?;
    command[0] = options.program.clone().unwrap_or(command[0].clone());
    let folder = text(job.folder.as_os_str())?;
    let (volume, mount) = match &options.volume {
        Some((claim, mount)) => (json!({ "persistentVolumeClaim": { "claimName": claim } }), mount.clone()),
        None => (json!({ "emptyDir": {} }), folder.clone()),
    };
    let mut volume = volume;
    volume["name"] = "folder".into();
    let labels = json!({ "app.kubernetes.io/managed-by": "ferrotune", RUN: run });
    Ok(json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": id.as_str(), "labels": labels },
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": KEPT_S,
            // A pod that is evicted or preempted has not failed; another pod replaces it.
            "podFailurePolicy": {
                "rules": [{ "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] }]
            },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": GRACE_S,
                    "containers": [{
                        "name": "command",
                        "image": options.image,
                        "command": command,
                        "workingDir": folder,
                        "envFrom": [{ "secretRef": { "name": run } }],
                        "resources": { "requests": resources(job), "limits": resources(job) },
                        "volumeMounts": [{ "name": "folder", "mountPath": mount }],
                    }],
                    "volumes": [volume],
                },
            },
        },
    }))
}

fn resources(job: &Job) -> Map<String, Value> {
    let resources = job.resources;
    let named = [("cpu", resources.cpus), ("memory", resources.memory_bytes), ("nvidia.com/gpu", resources.gpus)];
    named.into_iter().filter_map(|(name, value)| Some((name.into(), value?.to_string().into()))).collect()
}

/// The Secret with the job's variables. It is deleted with the last of the Jobs.
pub(super) fn secret(job: &Job, run: &str, owners: &[(JobId, String)]) -> Value {
    let owner = |(id, uid): &(JobId, String)| json!({ "apiVersion": "batch/v1", "kind": "Job", "name": id.as_str(), "uid": uid });
    let variables = job.environment.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": run, "labels": { RUN: run }, "ownerReferences": owners.iter().map(owner).collect::<Vec<_>>() },
        "stringData": variables.collect::<Map<String, Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Resources;
    use expect_test::expect;

    fn study() -> Job {
        Job {
            name: "Study_1.".into(),
            command: ["/a b/run", "it's"].map(Into::into).into(),
            environment: vec![("TOKEN".into(), "secret".into())],
            folder: "/shared/x".into(),
            resources: Resources { cpus: Some(4), memory_bytes: Some(1 << 30), gpus: Some(1) },
        }
    }

    #[test]
    fn job_has_what_was_asked_for_and_no_secret() {
        let options = Options::parse("image=reg/a:1,claim=disk,mount=/shared,program=/bin/run").unwrap();
        let made = job(&study(), &options, "study-1-ab", &"study-1-ab-0".into()).unwrap();
        expect![[r#"{"containers":[{"command":["/bin/run","it's"],"envFrom":[{"secretRef":{"name":"study-1-ab"}}],"image":"reg/a:1","name":"command","resources":{"limits":{"cpu":"4","memory":"1073741824","nvidia.com/gpu":"1"},"requests":{"cpu":"4","memory":"1073741824","nvidia.com/gpu":"1"}},"volumeMounts":[{"mountPath":"/shared","name":"folder"}],"workingDir":"/shared/x"}],"restartPolicy":"Never","terminationGracePeriodSeconds":30,"volumes":[{"name":"folder","persistentVolumeClaim":{"claimName":"disk"}}]}"#]]
            .assert_eq(&made["spec"]["template"]["spec"].to_string());
        assert!(!made.to_string().contains("secret\""));
        let made = secret(&study(), "study-1-ab", &[("study-1-ab-0".into(), "u".into())]);
        assert_eq!(made["stringData"], json!({ "TOKEN": "secret" }));
    }

    #[test]
    fn names_become_labels() {
        assert_eq!(label("Study_1."), "study-1");
        assert_eq!(label(&"x".repeat(80)).len(), LABEL);
    }
}
