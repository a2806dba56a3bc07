//! Commands as Jobs of Kubernetes, one Job each. The launcher calls `kubectl`, which knows the cluster and the user
//! (<https://kubernetes.io/docs/concepts/workloads/controllers/job/>).
//!
//! A Job's pod is started again if Kubernetes evicts or preempts the pod, but not if the command fails. The variables are
//! in a Secret that is deleted with the last of the Jobs. A Job that has ended stays for a day, with its log. A cancelled
//! Job is deleted, with its log.

mod manifest;
mod options;
mod state;

use crate::call::Programs;
use crate::job::{check_ids, is_plain, unique};
use crate::{Job, JobId, Launcher, LauncherError, Status};
use options::Options;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use state::{JobList, PodList};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::process::Command;

/// The engine's name in errors.
const ENGINE: &str = "Kubernetes";
const KUBECTL: &str = "kubectl";
const PROGRAMS: Programs = Programs {
    engine: ENGINE,
    package: "it (kubernetes-client, or from kubernetes.io)",
    check: "kubectl cluster-info",
};
/// The file with the namespace of this process' own pod.
const OF_POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// The texts in the server's answer if an object does not exist (`NOT_FOUND`), or if a container has not started
/// (`NOT_STARTED`).
const NOT_FOUND: &str = "(NotFound)";
const NOT_STARTED: &str = "(BadRequest)";

/// The launcher of Kubernetes.
#[derive(Debug)]
pub struct Kubernetes {
    options: Options,
    /// The namespace of all objects, once it is known.
    namespace: OnceCell<String>,
    /// The ids that this launcher has cancelled: a deleted Job leaves no trace.
    cancelled: HashSet<JobId>,
}

/// The server's answer with a new object.
#[derive(Deserialize)]
struct Made {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    uid: String,
}

impl Kubernetes {
    /// A launcher with options, as in `image=registry.example.org/ferrotune:1,namespace=team,claim=shared,mount=/shared`:
    ///
    /// * `image`, the container image with the command's program; it must be given.
    /// * `namespace`, by default that of kubectl's context.
    /// * `claim` and `mount`: a PersistentVolumeClaim and the path at which it is mounted, for the job's folder. Without them, each
    ///   command has an empty folder of its own as the job's folder, which is deleted with the pod.
    /// * `program`: the path of the command's program in the image, if it differs from its path on this host.
    ///
    /// # Errors
    /// If an option is unknown or missing. The cluster is not contacted.
    pub fn new(options: &str) -> Result<Self, LauncherError> {
        let options = Options::parse(options)?;
        Ok(Self { options, namespace: OnceCell::new(), cancelled: HashSet::new() })
    }

    /// The namespace of the options, of kubectl's context, or of this process' own pod.
    fn namespace(&self) -> Result<&str, LauncherError> {
        if let Some(namespace) = self.options.namespace.as_deref().or(self.namespace.get().map(String::as_str)) {
            return Ok(namespace);
        }
        let found = kubectl(&["config", "view", "--minify", "--output=jsonpath={..namespace}"], Vec::new());
        // A pod has no context: kubectl then uses the pod's service account.
        let found = found.or_else(|error| std::fs::read_to_string(OF_POD).map_err(|_| error))?;
        let namespace = if found.trim().is_empty() { "default" } else { found.trim() };
        Ok(self.namespace.get_or_init(|| namespace.to_owned()))
    }

    fn make(&self, job: &Job, run: &str, ids: &[JobId]) -> Result<(), LauncherError> {
        let namespace = self.namespace()?;
        let mut owners = Vec::new();
        for id in ids {
            let manifest = manifest::job(job, &self.options, run, id)?;
            let made: Made = create(&format!("/apis/batch/v1/namespaces/{namespace}/jobs"), &manifest)?;
            owners.push((id.clone(), made.metadata.uid));
        }
        // The pods wait for the Secret.
        let secret = manifest::secret(job, run, &owners);
        create::<Value>(&format!("/api/v1/namespaces/{namespace}/secrets"), &secret).map(drop)
    }

    /// The pods of the Jobs that match a label selector.
    fn pods(&self, selector: &str) -> Result<PodList, LauncherError> {
        let namespace = self.namespace()?;
        get(&format!("/api/v1/namespaces/{namespace}/pods?labelSelector={selector}"))
    }
}

impl Launcher for Kubernetes {
    fn submit(&mut self, job: &Job, count: u64) -> Result<Vec<JobId>, LauncherError> {
        job.check()?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let run = unique(&manifest::label(&job.name));
        let ids: Vec<JobId> = (0..count).map(|index| JobId::from(format!("{run}-{index}"))).collect();
        match self.make(job, &run, &ids) {
            Ok(()) => Ok(ids),
            Err(error) => Err(crate::taken_back(self, job, &ids, error)),
        }
    }

    fn status(&mut self, ids: &[JobId]) -> Result<Vec<Status>, LauncherError> {
        check(ids)?;
        let namespace = self.namespace()?;
        let runs: BTreeSet<&str> = ids.iter().map(run_of).collect();
        let mut statuses = BTreeMap::new();
        for run in runs {
            let selector = format!("{}%3D{run}", manifest::RUN);
            let jobs: JobList = get(&format!("/apis/batch/v1/namespaces/{namespace}/jobs?labelSelector={selector}"))?;
            statuses.extend(state::statuses(jobs, &self.pods(&selector)?));
        }
        let gone = |id: &JobId| if self.cancelled.contains(id) { Status::cancelled() } else { Status::Gone };
        Ok(ids.iter().map(|id| statuses.remove(id.as_str()).unwrap_or_else(|| gone(id))).collect())
    }

    fn cancel(&mut self, ids: &[JobId]) -> Result<(), LauncherError> {
        check(ids)?;
        let namespace = self.namespace()?.to_owned();
        for (id, status) in ids.iter().zip(self.status(ids)?) {
            if !matches!(status, Status::Waiting { .. } | Status::Running) {
                continue;
            }
            // A deleted Job exists until its pods have ended.
            let path = format!("/apis/batch/v1/namespaces/{namespace}/jobs/{id}?propagationPolicy=Foreground");
            unless(kubectl(&["delete", "--raw", &path], Vec::new()), &[NOT_FOUND])?;
            self.cancelled.insert(id.clone());
        }
        Ok(())
    }

    fn logs(&self, _job: &Job, id: &JobId) -> Result<String, LauncherError> {
        check(std::slice::from_ref(id))?;
        let pods = self.pods(&format!("job-name%3D{id}"))?;
        let Some(pod) = pods.last() else { return Ok(String::new()) };
        let namespace = self.namespace()?;
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/log");
        let log = unless(kubectl(&["get", "--raw", &path], Vec::new()), &[NOT_FOUND, NOT_STARTED])?;
        Ok(log.unwrap_or_default())
    }
}

/// The name of the run, which all commands of one submission share.
fn run_of(id: &JobId) -> &str {
    id.as_str().rsplit_once('-').map_or(id.as_str(), |(run, _)| run)
}

/// Refuses ids that would change an address.
fn check(ids: &[JobId]) -> Result<(), LauncherError> {
    check_ids(ids, ENGINE, |id| is_plain(id.as_str()))
}

fn create<T: DeserializeOwned>(path: &str, object: &Value) -> Result<T, LauncherError> {
    read(&kubectl(&["create", "--raw", path, "--filename=-"], object.to_string().into_bytes())?)
}

fn get<T: DeserializeOwned>(path: &str) -> Result<T, LauncherError> {
    read(&kubectl(&["get", "--raw", path], Vec::new())?)
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, LauncherError> {
    serde_json::from_str(text)
        .map_err(|error| LauncherError::Answer { engine: ENGINE, answer: format!("{error} in {text:.200}") })
}

fn kubectl(arguments: &[&str], input: Vec<u8>) -> Result<String, LauncherError> {
    let mut command = Command::new(PROGRAMS.path_of(KUBECTL)?);
    command.args(arguments);
    PROGRAMS.output(KUBECTL, command, input)
}

/// The server's answer; none if the server refused the request for one of these reasons.
fn unless(answer: Result<String, LauncherError>, reasons: &[&str]) -> Result<Option<String>, LauncherError> {
    match answer {
        Err(LauncherError::Failed { reason, .. }) if reasons.iter().any(|known| reason.contains(known)) => Ok(None),
        answer => answer.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_of_another_engine_is_refused() {
        let error = Kubernetes::new("image=x").unwrap().cancel(&["a/../b".into()]).unwrap_err();
        assert!(error.to_string().starts_with("`a/../b` is not a job of Kubernetes"), "{error}");
        assert_eq!(run_of(&"study-18ab-12".into()), "study-18ab");
    }
}
