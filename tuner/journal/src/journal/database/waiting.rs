//! What goes on while a database does not answer: whoever waits for it looks, again and again, at what cannot wait.

use super::error::DatabaseError;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// How often is looked at what cannot wait.
const TICK: Duration = Duration::from_millis(100);
/// A server that has not answered for so long is taken for gone. A transaction waits half as long for one that was cut off.
const SILENCE: Duration = Duration::from_secs(60);

/// Looks at what cannot wait; gives for how long is waited in all, if that is shorter than usual.
pub type Look = Box<dyn FnMut() -> Option<Duration> + Send>;

/// The look of a search, once it has one. Clones are one.
#[derive(Clone, Default)]
pub(crate) struct Waiting(Arc<Mutex<Option<Look>>>);

impl Waiting {
    /// Looks like this from now on.
    pub(crate) fn set(&self, look: Look) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(look);
    }

    /// Looks once, in a wait that has begun then; whether to go on waiting.
    fn look(&self, since: Instant) -> bool {
        let mut look = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        look.as_mut().and_then(|look| look()).is_none_or(|longest| since.elapsed() < longest)
    }

    /// Waits for so long, in a wait that has begun then; whether to go on waiting.
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
