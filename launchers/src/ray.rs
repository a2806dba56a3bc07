//! Commands as jobs of a Ray cluster, through the REST API of its dashboard
//! (<https://docs.ray.io/en/latest/cluster/running-applications/job-submission/rest.html>).
//!
//! Ray does not remove a waiting command from its queue: a cancelled command starts when there is room, and gets the signal
//! TERM at once. Ray gives up a command that has waited for 15 minutes (`RAY_JOB_START_TIMEOUT_SECONDS` of its head).
//!
//! Ray stores the output on the host that runs the command, and forgets all jobs when its head ends. Everyone who can reach
//! the dashboard sees a job's variables. A dashboard that requires a token is not supported.

mod http;

use crate::job::{check_ids, is_plain, unique};
use crate::{Job, JobId, Launcher, LauncherError, Status, shell};
use http::Dashboard;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::ffi::OsString;

/// The engine's name in errors.
const ENGINE: &str = "Ray";
/// The environment variable with Ray's time between the signals TERM and KILL, and its value here; Ray's default is 3 s.
const GRACE: (&str, &str) = ("RAY_JOB_STOP_WAIT_TIME_S", "20");
const NOT_FOUND: u16 = 404;

/// The launcher of Ray.
#[derive(Debug)]
pub struct Ray {
    dashboard: Dashboard,
}

/// Ray's details of a job.
#[derive(Debug, Deserialize)]
struct Details {
    status: String,
    message: Option<String>,
    driver_exit_code: Option<i64>,
}

/// Ray's answer with the log of a job.
#[derive(Debug, Deserialize)]
struct Logs {
    logs: String,
}

impl Ray {
    /// A launcher for the dashboard at an address, which is `http://HOST:8265` in most cases.
    ///
    /// # Errors
    /// If the text is not an address.
    pub fn new(address: &str) -> Result<Self, LauncherError> {
        Ok(Self { dashboard: Dashboard::new(address)? })
    }

    /// The text of an answer about one job; none if Ray does not know the job.
    fn of_job(answer: http::Answer, what: &str) -> Result<Option<String>, LauncherError> {
        if answer.status == NOT_FOUND { Ok(None) } else { answer.text_of(what).map(Some) }
    }
}

impl Launcher for Ray {
    fn submit(&mut self, job: &Job, count: u64) -> Result<Vec<JobId>, LauncherError> {
        job.check()?;
        let body = body(job)?;
        let run = unique(&job.name);
        let mut ids = Vec::new();
        for index in 0..count {
            let id = JobId::from(format!("{run}-{}-{index}", std::process::id()));
            let mut body = body.clone();
            body.insert("submission_id".into(), id.as_str().into());
            // A submission that failed without an answer may still have reached Ray.
            ids.push(id);
            let answer = self.dashboard.post("/api/jobs/", &Value::Object(body));
            if let Err(error) = answer.and_then(|answer| answer.text_of("a job")) {
                return Err(crate::taken_back(self, job, &ids, error));
            }
        }
        Ok(ids)
    }

    fn status(&mut self, ids: &[JobId]) -> Result<Vec<Status>, LauncherError> {
        check(ids)?;
        let mut statuses = Vec::new();
        for id in ids {
            let answer = self.dashboard.get(&format!("/api/jobs/{id}"))?;
            let details = Self::of_job(answer, "the status of a job")?;
            statuses.push(details.map_or(Ok(Status::Gone), |text| read(parsed(&text)?))?);
        }
        Ok(statuses)
    }

    fn cancel(&mut self, ids: &[JobId]) -> Result<(), LauncherError> {
        check(ids)?;
        for id in ids {
            let answer = self.dashboard.post(&format!("/api/jobs/{id}/stop"), &Value::Null)?;
            Self::of_job(answer, "to stop a job")?;
        }
        Ok(())
    }

    fn logs(&self, _job: &Job, id: &JobId) -> Result<String, LauncherError> {
        check(std::slice::from_ref(id))?;
        let answer = self.dashboard.get(&format!("/api/jobs/{id}/logs"))?;
        let text = Self::of_job(answer, "the log of a job")?;
        text.map_or(Ok(String::new()), |text| Ok(parsed::<Logs>(&text)?.logs))
    }
}

/// The body of the request that submits a job, without the job's id.
fn body(job: &Job) -> Result<Map<String, Value>, LauncherError> {
    let grace = job.environment.iter().all(|(name, _)| name != GRACE.0).then_some(GRACE);
    let mut variables = Map::new();
    variables.extend(grace.map(|(name, value)| (name.into(), value.into())));
    variables.extend(job.environment.iter().map(|(name, value)| (name.clone(), value.as_str().into())));
    let mut body = Map::new();
    body.insert("entrypoint".into(), entrypoint(job)?.into());
    body.insert("runtime_env".into(), json!({ "env_vars": variables }));
    body.insert("metadata".into(), json!({ "name": job.name }));
    let resources = [
        ("entrypoint_num_cpus", job.resources.cpus),
        ("entrypoint_num_gpus", job.resources.gpus),
        ("entrypoint_memory", job.resources.memory_bytes),
    ];
    body.extend(resources.into_iter().filter_map(|(name, value)| Some((name.into(), value?.into()))));
    Ok(body)
}

/// The text for Ray's shell. The command replaces the shell, so that the command gets the signals itself.
fn entrypoint(job: &Job) -> Result<String, LauncherError> {
    let folder: OsString = job.folder.clone().into();
    let mut line = b"cd ".to_vec();
    line.extend(shell::quoted(&folder));
    line.extend(b" && exec ");
    line.extend(shell::words(&job.command));
    String::from_utf8(line).map_err(|_| LauncherError::Job {
        name: job.name.clone(),
        problem: "its command or its folder is not UTF-8, which Ray needs; rename the file".into(),
    })
}

fn parsed<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, LauncherError> {
    serde_json::from_str(text)
        .map_err(|error| LauncherError::Answer { engine: ENGINE, answer: format!("{error} in {text:.200}") })
}

/// The status in Ray's details of a job.
fn read(details: Details) -> Result<Status, LauncherError> {
    Ok(match (details.status.as_str(), details.driver_exit_code) {
        ("PENDING", _) => Status::Waiting { reason: details.message },
        ("RUNNING", _) => Status::Running,
        ("SUCCEEDED", _) => Status::Ended { failure: None },
        ("STOPPED", _) => Status::cancelled(),
        // Python returns a negative code for a process that a signal has ended.
        ("FAILED", Some(code @ ..=-1)) => Status::ended(0, Some(-code)),
        ("FAILED", Some(code @ 1..)) => Status::ended(code, None),
        ("FAILED", _) => Status::Ended { failure: Some(last_line(&details.message.unwrap_or_default())) },
        // A command with an unknown status may still run.
        (other, _) => {
            return Err(LauncherError::Answer { engine: ENGINE, answer: format!("a job's status is {other}") });
        }
    })
}

/// The last non-empty line of a text. Ray's texts are often stack traces of Python exceptions.
fn last_line(text: &str) -> String {
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    last.unwrap_or("Ray gives no reason").into()
}

/// Refuses ids that would change an address.
fn check(ids: &[JobId]) -> Result<(), LauncherError> {
    check_ids(ids, ENGINE, |id| is_plain(id.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Resources;
    use expect_test::expect;

    #[test]
    fn job_is_sent_with_its_command_quoted() {
        let job = Job {
            name: "study".into(),
            command: ["/a b/run", "it's"].map(Into::into).into(),
            environment: vec![("TOKEN".into(), "a b".into())],
            folder: "/shared/50 %".into(),
            resources: Resources { cpus: Some(4), memory_bytes: Some(5), gpus: None },
        };
        expect![[r#"
            {
              "entrypoint": "cd '/shared/50 %' && exec '/a b/run' 'it'\\''s'",
              "entrypoint_memory": 5,
              "entrypoint_num_cpus": 4,
              "metadata": {
                "name": "study"
              },
              "runtime_env": {
                "env_vars": {
                  "RAY_JOB_STOP_WAIT_TIME_S": "20",
                  "TOKEN": "a b"
                }
              }
            }"#]]
        .assert_eq(&serde_json::to_string_pretty(&body(&job).unwrap()).unwrap());
    }

    #[test]
    fn answers_of_ray_are_read() {
        let answers = [
            r#"{"status": "PENDING", "message": "Job has not started yet.", "driver_exit_code": null, "type": "SUBMISSION"}"#,
            r#"{"status": "RUNNING", "message": "Job is currently running."}"#,
            r#"{"status": "SUCCEEDED", "message": "Job finished successfully.", "driver_exit_code": 0}"#,
            r#"{"status": "STOPPED", "message": "Job was intentionally stopped."}"#,
            r#"{"status": "FAILED", "message": "Job entrypoint command failed with exit code 3", "driver_exit_code": 3}"#,
            r#"{"status": "FAILED", "driver_exit_code": -9}"#,
            r#"{"status": "FAILED", "message": "Traceback\n  x\nNo resources.\n"}"#,
            r#"{"status": "NEW"}"#,
            "<html>",
        ];
        let read = |text: &&str| format!("{:?}\n", parsed(text).and_then(read).map_err(|error| error.to_string()));
        expect![[r#"
            Ok(Waiting { reason: Some("Job has not started yet.") })
            Ok(Running)
            Ok(Ended { failure: None })
            Ok(Ended { failure: Some("cancelled") })
            Ok(Ended { failure: Some("exit status 3") })
            Ok(Ended { failure: Some("signal 9") })
            Ok(Ended { failure: Some("No resources.") })
            Err("the answer of Ray cannot be read: a job's status is NEW")
            Err("the answer of Ray cannot be read: expected value at line 1 column 1 in <html>")
        "#]]
        .assert_eq(&answers.iter().map(read).collect::<String>());
    }

    #[test]
    fn wrong_addresses_and_ids_are_refused() {
        for address in ["", "127.0.0.1:8265", "ray://host:10001", "http://", "http://a b", "http://host:8265/api?x"] {
            let error = Ray::new(address).unwrap_err().to_string();
            assert!(error.ends_with("write it as ray:http://HOST:8265"), "{error}");
        }
        for id in ["", "..", "a/b", "a?b", "12_0 "] {
            let error = Ray::new("http://127.0.0.1:1/").unwrap().cancel(&[id.into()]).unwrap_err();
            assert!(matches!(error, LauncherError::Id { .. }), "{error}");
        }
    }

    #[test]
    fn address_where_nothing_listens_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let error = Ray::new(&address).unwrap().status(&["a".into()]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("Ray does not answer at {address}: ")), "{error}");
        assert!(error.contains("Connection refused") && error.contains("ray start --head"), "{error}");
    }
}
