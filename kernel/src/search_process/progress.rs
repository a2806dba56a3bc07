//! Where a search stands, for people: one line for the study, one for the best trial, and one for each running trial.

use ferrotune_display::{Bundle, escape};
use ferrotune_machine::format;
use ferrotune_results::number;
use ferrotune_tuner::event::{Finish, Front, Progress, Running};
use ferrotune_tuner::record::TrialRecord;
use ferrotune_tuner::spec::StudySpec;

/// The progress of a search that no process runs any more.
pub(crate) fn at_rest(progress: Progress) -> Progress {
    Progress { running: Vec::new(), stopping: false, eta_s: None, ..progress }
}

/// Where the search stands, as text and as HTML.
pub(super) fn shown(progress: &Progress, spec: &StudySpec, finish: Option<&Finish>) -> Bundle {
    bundle(progress, &lines(progress, spec, finish))
}

/// Where the search stands, in lines.
pub(crate) fn lines(progress: &Progress, spec: &StudySpec, finish: Option<&Finish>) -> Vec<String> {
    let mut lines = vec![headline(progress, spec, finish)];
    if let Some(best) = &progress.best {
        lines.push(format!("best: {}", trial_line(best, spec)));
    }
    lines.extend(progress.front.as_ref().filter(|front| front.trials > 0).map(|front| front_line(front, spec)));
    if !progress.unasked.is_empty() {
        lines.push(format!(
            "no trial has asked for {} so far, which --fix, --tune-only or --enqueue names",
            progress.unasked.join(", ")
        ));
    }
    if finish.is_none() {
        lines.extend(progress.running.iter().map(|running| running_line(running, spec)));
    }
    lines
}

/// Lines about a search, as text and as HTML with a progress bar.
pub(crate) fn bundle(progress: &Progress, lines: &[String]) -> Bundle {
    let bar = format!("<progress value=\"{}\" max=\"{}\"></progress>", progress.done, progress.max_trials);
    let html: String = lines.iter().map(|line| format!("<div>{}</div>", escape::html(line))).collect();
    Bundle::text(lines.join("\n")).with("text/html", format!("<div>{bar}</div>{html}"))
}

fn headline(progress: &Progress, spec: &StudySpec, finish: Option<&Finish>) -> String {
    let mut line = format!("{}: {}/{} trials", spec.project, progress.done, progress.max_trials);
    if progress.pruned > 0 {
        line.push_str(&format!(", {} pruned", progress.pruned));
    }
    if progress.failed > 0 {
        line.push_str(&format!(", {} failed", progress.failed));
    }
    if progress.infeasible > 0 {
        line.push_str(&format!(", {} that break a constraint", progress.infeasible));
    }
    line.push_str(&format!(", {}", format::long_duration(progress.elapsed_s)));
    match (finish, progress.eta_s) {
        (Some(Finish::MaxTrials), _) => line.push_str(", done"),
        (Some(Finish::Exhausted), _) => line.push_str(", done: nothing is left to try"),
        (Some(Finish::Timeout), _) => line.push_str(", stopped: the time is over"),
        (Some(Finish::Interrupted), _) => line.push_str(", stopped"),
        (None, _) if progress.stopping => {
            line.push_str(", stopping after the current step; interrupt again to stop at once");
        }
        (None, Some(eta)) => line.push_str(&format!(", about {} to go", format::long_duration(eta))),
        (None, None) => {}
    }
    line
}

fn trial_line(trial: &TrialRecord, spec: &StudySpec) -> String {
    let mut value = trial.value().map_or_else(|| "none".to_owned(), number);
    value.extend(trial.spreads().first().map(|spread| format!(" ± {}", number(*spread))));
    let parameters = trial.parameters.iter().map(|(name, parameter)| format!("{name}={}", parameter.value));
    let parameters: Vec<_> = parameters.collect();
    format!("{} = {value} in trial {} ({})", spec.objective().metric, trial.number, parameters.join(", "))
}

/// The trade-offs so far: their number, and the best and worst value of each objective among them.
fn front_line(front: &Front, spec: &StudySpec) -> String {
    let ranges = spec
        .objectives
        .iter()
        .zip(&front.ranges)
        .map(|(objective, (best, worst))| format!("{} {} to {}", objective.metric, number(*best), number(*worst)));
    let trials = if front.trials == 1 { "trial" } else { "trials" };
    format!("best trade-offs: {} {trials}, {}", front.trials, ranges.collect::<Vec<_>>().join(", "))
}

fn running_line(running: &Running, spec: &StudySpec) -> String {
    let parameters: Vec<_> = running.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let step = match (running.step, running.epochs) {
        (Some(step), Some(epochs)) => format!(", epoch {}/{epochs}", step + 1),
        (Some(step), None) => format!(", step {}", step + 1),
        (None, _) => String::new(),
    };
    let execution = match spec.executions {
        1 => String::new(),
        executions => format!(", execution {}/{executions}", running.execution + 1),
    };
    let memory = format::bytes(running.memory_bytes);
    format!("trial {}{execution}{step}, {memory} ({})", running.trial, parameters.join(", "))
}
