//! The phases of a search from its first trial to its last, as a pure state machine: a search begins trials, or it stops.

use crate::search::SearchError;
use ferrotune_space::event::Finish;
use std::time::{Duration, Instant};

/// The shortest time that a trial has to reach its next report after the search begins to stop.
const GRACE: Duration = Duration::from_secs(2);

/// The phase of a search.
#[derive(Debug, Default)]
pub(super) enum Phase {
    /// New trials begin as others end.
    #[default]
    Running,
    /// No trial begins, and running trials stop at their next report.
    Stopping(Stop),
}

/// The state of a search that is stopping.
#[derive(Debug)]
pub(super) struct Stop {
    reason: Reason,
    since: Instant,
    /// The number of requests to stop received so far.
    interrupts: usize,
    /// Whether the watcher, which could stop the search at once, is gone.
    is_abandoned: bool,
}

/// The reason why a search stops.
#[derive(Debug)]
pub(super) enum Reason {
    /// A signal asks the search to stop, or its watcher is gone.
    Interrupted,
    /// The search's time limit is reached.
    Timeout,
    /// A trial cannot continue now.
    Obstacle(SearchError),
}

/// The events outside a search that can end it, at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outside {
    /// The number of requests to stop since the last step.
    pub(super) interrupts: usize,
    /// Whether a search in the foreground has lost its watcher. Nobody could stop such a search, and it would keep the
    /// study locked; it can be continued later.
    pub(super) is_abandoned: bool,
    /// Whether the search's time limit is reached.
    pub(super) is_timed_out: bool,
}

impl Phase {
    pub(super) fn is_stopping(&self) -> bool {
        matches!(self, Phase::Stopping(_))
    }

    /// Whether running trials must end without delay.
    pub(super) fn is_urgent(&self) -> bool {
        matches!(self, Phase::Stopping(stop) if stop.is_urgent())
    }

    /// The phase after the events of `Outside`.
    pub(super) fn step(self, Outside { interrupts, is_abandoned, is_timed_out }: Outside, now: Instant) -> Phase {
        match self {
            Phase::Running if interrupts > 0 || is_abandoned => {
                Phase::Stopping(Stop { reason: Reason::Interrupted, since: now, interrupts, is_abandoned })
            }
            Phase::Running if is_timed_out => {
                Phase::Stopping(Stop { reason: Reason::Timeout, since: now, interrupts, is_abandoned })
            }
            Phase::Running => Phase::Running,
            Phase::Stopping(stop) => {
                Phase::Stopping(Stop { interrupts: stop.interrupts + interrupts, is_abandoned, ..stop })
            }
        }
    }

    /// The phase after a trial that cannot continue. The first such error is the search's result, even if the search is
    /// already stopping.
    pub(super) fn obstructed(self, error: SearchError, now: Instant) -> Phase {
        let reason = Reason::Obstacle(error);
        Phase::Stopping(match self {
            Phase::Running => Stop { reason, since: now, interrupts: 0, is_abandoned: false },
            Phase::Stopping(stop @ Stop { reason: Reason::Obstacle(_), .. }) => stop,
            Phase::Stopping(stop) => Stop { reason, ..stop },
        })
    }

    /// Whether a trial has had enough time to end the step that began at `step_began`. The search's longest step so far is
    /// the estimate of a step's length.
    pub(super) fn is_out_of_grace(&self, step_began: Instant, longest_step: Duration, now: Instant) -> bool {
        let Phase::Stopping(stop) = self else { return false };
        // A step that takes minutes is worth waiting for, because it ends with a checkpoint. A step gets
        // twice the time of the longest one.
        let grace = GRACE.max((2 * longest_step).saturating_sub(stop.since.saturating_duration_since(step_began)));
        stop.is_urgent() || now.saturating_duration_since(stop.since) >= grace
    }

    /// The result of a search in which no trial runs any more. `over` is the reason why no trial could begin.
    pub(super) fn result(self, over: Finish) -> Result<Finish, SearchError> {
        match self {
            Phase::Running => Ok(over),
            Phase::Stopping(Stop { reason: Reason::Interrupted, .. }) => Ok(Finish::Interrupted),
            Phase::Stopping(Stop { reason: Reason::Timeout, .. }) => Ok(Finish::Timeout),
            Phase::Stopping(Stop { reason: Reason::Obstacle(error), .. }) => Err(error),
        }
    }
}

impl Stop {
    /// Whether running trials are killed without delay.
    fn is_urgent(&self) -> bool {
        match self.reason {
            Reason::Timeout => self.interrupts > 0,
            Reason::Interrupted | Reason::Obstacle(_) => self.interrupts > 1 || self.is_abandoned,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERRUPT: Outside = Outside { interrupts: 1, is_abandoned: false, is_timed_out: false };
    const ABANDONED: Outside = Outside { interrupts: 0, is_abandoned: true, is_timed_out: false };
    const TIMEOUT: Outside = Outside { interrupts: 0, is_abandoned: false, is_timed_out: true };
    const QUIET: Outside = Outside { interrupts: 0, is_abandoned: false, is_timed_out: false };

    fn after(steps: &[Outside], now: Instant) -> Phase {
        steps.iter().fold(Phase::Running, |phase, outside| phase.step(*outside, now))
    }

    fn disk_full(number: u64) -> SearchError {
        SearchError::DiskFull { number, reason: "no space".to_owned() }
    }

    #[test]
    fn search_stops_for_what_comes_first_and_hurries_when_it_is_asked_twice() {
        let now = Instant::now();
        for (steps, finish, is_urgent) in [
            (vec![QUIET], None, false),
            (vec![INTERRUPT], Some(Finish::Interrupted), false),
            (vec![INTERRUPT, QUIET, TIMEOUT], Some(Finish::Interrupted), false),
            (vec![INTERRUPT, INTERRUPT], Some(Finish::Interrupted), true),
            (vec![Outside { interrupts: 2, ..QUIET }], Some(Finish::Interrupted), true),
            (vec![ABANDONED], Some(Finish::Interrupted), true),
            (vec![INTERRUPT, ABANDONED], Some(Finish::Interrupted), true),
            (vec![TIMEOUT], Some(Finish::Timeout), false),
            (vec![TIMEOUT, ABANDONED], Some(Finish::Timeout), false),
            (vec![TIMEOUT, INTERRUPT], Some(Finish::Timeout), true),
            (vec![Outside { is_timed_out: true, ..INTERRUPT }], Some(Finish::Interrupted), false),
        ] {
            let phase = after(&steps, now);
            assert_eq!(phase.is_stopping(), finish.is_some(), "{steps:?}");
            assert_eq!(phase.is_out_of_grace(now, Duration::ZERO, now), is_urgent, "{steps:?}");
            assert_eq!(phase.result(Finish::Exhausted).ok(), finish.or(Some(Finish::Exhausted)), "{steps:?}");
        }
    }

    #[test]
    fn first_obstacle_is_the_result_of_a_search_that_stops_anyway() {
        let now = Instant::now();
        for steps in [vec![], vec![INTERRUPT], vec![TIMEOUT]] {
            let phase =
                after(&steps, now).obstructed(disk_full(3), now).obstructed(disk_full(4), now).step(TIMEOUT, now);
            assert!(
                matches!(phase.result(Finish::MaxTrials), Err(SearchError::DiskFull { number: 3, .. })),
                "{steps:?}"
            );
        }
    }

    #[test]
    fn trial_has_time_for_its_step_as_long_as_steps_take() {
        let now = Instant::now();
        let seconds = Duration::from_secs;
        let phase = after(&[INTERRUPT], now + seconds(10));
        let killed_after = |longest_s: u64| {
            (0..60).find(|late| phase.is_out_of_grace(now, seconds(longest_s), now + seconds(10 + late)))
        };
        assert_eq!(killed_after(0), Some(2));
        assert_eq!(killed_after(20), Some(30), "two steps of 20 s, of which 10 s had passed");
    }
}
