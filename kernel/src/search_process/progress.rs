//! The progress of a search for the user: one line for the study, one for the best trial, and one for each running trial.

use ferrotune_display::{Bundle, escape};
use ferrotune_machine::format;
use ferrotune_results::number;
use ferrotune_space::event::{Finish, Front, Progress, Running};
use ferrotune_space::record::TrialRecord;
use ferrotune_space::spec::StudySpec;

/// The most running trials that have their own line.
const MOST_LINES: usize = 16;

/// The display before the search begins. A terminal may not show the display that replaces it, so the text names the magics that
/// show the progress.
pub(crate) fn compiling(project: &str) -> Bundle {
    let line = format!("{project}: compiling the objective");
    let html = format!("<div><progress></progress></div><div>{}</div>", escape::html(&line));
    Bundle::text(format!("{line}; where this line stays, see %tune status and %best")).with("text/html", html)
}

/// The progress of the search, as text and as HTML.
pub(super) fn shown(progress: &Progress, spec: &StudySpec, finish: Option<&Finish>) -> Bundle {
    bundle(progress, &lines(progress, spec, finish))
}

/// The lines about the progress of the search.
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
        lines.extend(progress.workers.clone());
        lines.extend(progress.running.iter().take(MOST_LINES).map(|running| running_line(running, spec)));
        let more = progress.running.len().saturating_sub(MOST_LINES);
        if more > 0 {
            lines.push(format!("and {more} more trials that run"));
        }
    }
    lines
}

/// The MIME bundle of lines about a search: text, and HTML with a progress bar.
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
    line.push_str(&time(progress));
    match (finish, progress.eta_s) {
        (Some(Finish::MaxTrials), _) => line.push_str(", done"),
        (Some(Finish::Exhausted), _) => line.push_str(", done: nothing is left to try"),
        (Some(Finish::Timeout), _) => line.push_str(", stopped: the time is over"),
        (Some(Finish::Interrupted), _) => line.push_str(", stopped"),
        (Some(Finish::Stopped), _) => line.push_str(", done: a trial has stopped the search"),
        (None, _) if progress.stopping => {
            line.push_str(", stopping after the current step; interrupt again to stop at once");
        }
        (None, Some(eta)) => line.push_str(&format!(", about {} to go", format::long_duration(eta))),
        (None, None) => {}
    }
    line
}

/// The time of this search, or of the study's trials if this search has begun none.
fn time(progress: &Progress) -> String {
    let elapsed = format::long_duration(progress.elapsed_s);
    match progress.earlier {
        0 => format!(", {elapsed}"),
        earlier if earlier == progress.done && progress.running.is_empty() => {
            format!(", which took {} together", format::long_duration(progress.trials_s))
        }
        earlier => format!(", {earlier} of them earlier, {elapsed}"),
    }
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
    let value =
        running.value.map_or_else(String::new, |value| format!(", {}={}", spec.objective().metric, number(value)));
    let execution = match spec.executions {
        1 => String::new(),
        executions => format!(", execution {}/{executions}", running.execution + 1),
    };
    let memory = running.memory_bytes.map_or_else(String::new, |bytes| format!(", {}", format::bytes(bytes)));
    format!("trial {}{execution}{step}{value}{memory} ({})", running.trial, parameters.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrotune_space::objective::{Direction, Objective};

    fn spec() -> StudySpec {
        StudySpec::new("digits", vec![Objective::new("loss", Direction::Min)])
    }

    #[test]
    fn search_that_begins_no_trial_shows_what_the_study_holds() {
        let progress = Progress { done: 20, earlier: 20, max_trials: 20, trials_s: 12.3, ..Progress::default() };
        let lines = lines(&progress, &spec(), Some(&Finish::MaxTrials));
        assert_eq!(lines, ["digits: 20/20 trials, which took 12.3 s together, done"]);
    }

    #[test]
    fn running_trial_shows_its_step_its_value_and_its_parameters() {
        let running = Running {
            trial: 4,
            parameters: [("lr".to_owned(), ferrotune_space::Value::Float(0.5))].into(),
            step: Some(2),
            value: Some(0.25),
            epochs: Some(9),
            execution: 0,
            memory_bytes: Some(1 << 20),
        };
        let progress = Progress {
            done: 4,
            earlier: 3,
            max_trials: 20,
            running: vec![running],
            elapsed_s: 2.0,
            eta_s: Some(30.0),
            ..Progress::default()
        };
        let lines = lines(&progress, &spec(), None);
        let expected = [
            "digits: 4/20 trials, 3 of them earlier, 2.0 s, about 30.0 s to go",
            "trial 4, epoch 3/9, loss=0.25, 1.0 MiB (lr=0.5)",
        ];
        assert_eq!(lines, expected);
    }
}
