//! The checks that go on while a database does not answer: the waiting code runs them again and again.

use super::error::DatabaseError;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// The interval of the checks.
const TICK: Duration = Duration::from_millis(100);
/// The time without an answer after which a server counts as unavailable. A transaction of a supervisor that was cut off
/// blocks others for half that time.
const SILENCE: Duration = Duration::from_secs(60);

/// A callback that runs the checks, and returns the longest wait if that is shorter than usual.
pub type Look = Box<dyn FnMut() -> Option<Duration> + Send>;

/// The callback of a search, once the search has set one. Clones share the callback.
#[derive(Clone, Default)]
pub(crate) struct Waiting(Arc<Mutex<Option<Look>>>);

impl Waiting {
    /// Sets the callback.
    pub(crate) fn set(&self, look: Look) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(look);
    }

    /// Runs the callback once, during a wait that began at `since`. Returns whether to continue the wait.
    fn look(&self, since: Instant) -> bool {
        let mut look = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        look.as_mut().and_then(|look| look()).is_none_or(|longest| since.elapsed() < longest)
    }

    /// Waits for `pause`, during a wait that began at `since`. Returns whether to continue the wait.
    pub(super) fn pause(&self, pause: Duration, since: Instant) -> bool {
        let end = Instant::now() + pause;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if !self.look(since) {
                return false;
            }
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(TICK));
        }
    }

    /// Waits for an answer of a server.
    pub(super) fn wait_for<T>(
        &self,
        runtime: &Runtime,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, DatabaseError> {
        let asked = Instant::now();
        runtime.block_on(async {
            let mut answer = pin!(answer);
            loop {
                if let Ok(answer) = tokio::time::timeout(TICK, &mut answer).await {
                    return Ok(answer?);
                }
                if !self.look(asked) || asked.elapsed() >= SILENCE {
                    return Err(DatabaseError::Silent { seconds: asked.elapsed().as_secs() });
                }
            }
        })
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Waiting")
    }
}
