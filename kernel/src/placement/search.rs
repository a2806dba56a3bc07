//! The workers of `%%tune --on`, for the supervisor that follows them.

use super::{Placed, described, job};
use ferrotune_launchers::{Launcher, LauncherError, Resources, Status, launcher};
use ferrotune_space::spec::{Placement, PublishTo, StudySpec};
use ferrotune_tuner::supervisor::{Crew, Engine, Token, Which};
use std::path::Path;

/// The engine on which a search places its workers; none for a search without `--on`.
pub(crate) fn engine_of(spec: &StudySpec) -> Result<Option<Box<dyn Engine>>, String> {
    let Some(placement) = &spec.placement else { return Ok(None) };
    let launcher = launcher(&placement.engine).map_err(in_words)?;
    let workers = SearchWorkers {
        spec: spec.clone(),
        placement: placement.clone(),
        launcher: Some(launcher),
        placed: None,
        failure: None,
    };
    Ok(Some(Box::new(workers)))
}

struct SearchWorkers {
    spec: StudySpec,
    placement: Placement,
    /// The launcher, until the workers are submitted.
    launcher: Option<Box<dyn Launcher>>,
    placed: Option<Placed>,
    /// The text about the first worker that has failed.
    failure: Option<String>,
}

impl SearchWorkers {
    /// The options of each worker, which follow from the search's options. A worker shares its resources between its trials.
    fn options(&self) -> [(&'static str, Option<String>); 4] {
        let (spec, concurrency) = (&self.spec, self.spec.supervision.concurrency.max(1));
        let threads = spec.supervision.threads.or(self.placement.cpus.map(|cpus| (cpus / concurrency).max(1)));
        // The worker itself needs some of its memory, and an engine kills a worker that takes more than its share.
        let memory = spec.memory_budget_bytes.map(|bytes| bytes / 16 * 15 / concurrency);
        [
            ("--concurrency", Some(concurrency.to_string())),
            ("--threads", threads.map(|threads| threads.to_string())),
            ("--memory", memory.map(|bytes| format!("{bytes}B"))),
            ("--timeout", spec.timeout_s.map(|seconds| format!("{seconds}s"))),
        ]
    }
}

impl Engine for SearchWorkers {
    fn start(&mut self, folder: &Path, token: &Token) -> Result<(), String> {
        let Some(launcher) = self.launcher.take() else { return Ok(()) };
        let (spec, storage) = (&self.spec, self.spec.storage.as_deref().unwrap_or_default());
        let Placement { cpus, gpus, workers, .. } = self.placement;
        let resources = Resources { cpus, memory_bytes: spec.memory_budget_bytes, gpus };
        let store = match &spec.supervision.publish {
            Some(PublishTo::Store(address)) => Some(address.as_str()),
            Some(PublishTo::Database) | None => None,
        };
        let job = job((storage, &spec.project, store), &self.options(), token, folder, resources);
        let job = job.map_err(|error| format!("{error:#}"))?;
        self.placed = Some(Placed::submit(launcher, job, workers.unwrap_or(1)).map_err(in_words)?);
        Ok(())
    }

    fn look(&mut self) -> Result<Crew, String> {
        let Some(placed) = &mut self.placed else { return Ok(Crew::default()) };
        for (index, status) in placed.look().map_err(in_words)? {
            if let Some(reason) = placed.reason(index).map_err(in_words)? {
                let failure = format!("worker {} {}: {reason}", placed.ids[index], described(&status));
                self.failure.get_or_insert(failure);
            }
        }
        Ok(crew(&placed.known, placed.have_ended(), self.failure.as_deref()))
    }

    fn cancel(&mut self, which: Which) -> Result<(), String> {
        let Some(placed) = &mut self.placed else { return Ok(()) };
        let is_meant = |status: &Option<Status>| which == Which::All || matches!(status, Some(Status::Waiting { .. }));
        placed.cancel(is_meant).map_err(in_words)
    }
}

/// The summary of the workers' known states.
fn crew(known: &[Option<Status>], have_ended: bool, failure: Option<&str>) -> Crew {
    let count = |is_so: fn(&Status) -> bool| known.iter().flatten().filter(|status| is_so(status)).count();
    let waiting = count(|status| matches!(status, Status::Waiting { .. }));
    let done = count(|status| matches!(status, Status::Ended { failure: None }));
    let failed = count(|status| matches!(status, Status::Ended { failure: Some(_) } | Status::Gone));
    let reason = known.iter().flatten().find_map(|status| match status {
        Status::Waiting { reason } => reason.clone(),
        _ => None,
    });
    let parts = [
        (count(|status| matches!(status, Status::Running)), "running", None),
        (waiting, "waiting", reason.as_deref()),
        (done, "done", None),
        (failed, "failed", failure),
    ];
    let parts = parts.iter().filter(|(count, ..)| *count > 0).map(|(count, word, reason)| {
        reason.map_or_else(|| format!("{count} {word}"), |reason| format!("{count} {word} ({reason})"))
    });
    let text = format!("workers: {}", parts.collect::<Vec<_>>().join(", "));
    let failure = failure.filter(|_| have_ended && done == 0);
    Crew { text, have_ended, failure: failure.map(|reason| format!("all workers have failed: {reason}")) }
}

fn in_words(error: LauncherError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_workers_do_is_one_line() {
        let ended = |failure: Option<&str>| Some(Status::Ended { failure: failure.map(str::to_owned) });
        let waiting = Some(Status::Waiting { reason: Some("Resources".to_owned()) });
        let known = [Some(Status::Running), waiting.clone(), waiting, ended(None), ended(Some("signal 9"))];
        let shown = crew(&known, false, Some("worker 4 ended: signal 9: killed"));
        let text = "workers: 1 running, 2 waiting (Resources), 1 done, 1 failed (worker 4 ended: signal 9: killed)";
        assert_eq!(shown, Crew { text: text.to_owned(), have_ended: false, failure: None });
        let failed = crew(&[ended(Some("exit status 1"))], true, Some("why"));
        assert_eq!(failed.failure.as_deref(), Some("all workers have failed: why"));
        assert_eq!(crew(&[ended(Some("exit status 1")), ended(None)], true, Some("why")).failure, None);
    }
}
