//! The verbs that choose elements and their order, and neither read nor change an element. On rows of tensors they work
//! with the numbers of the rows.

mod shuffle;

use crate::stream::{BoxStream, Open, Pass, Stream};
use crate::{DataError, Result};
use ferrotune_state::current_seed;
use rand::SeedableRng as _;
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use shuffle::Shuffled;
use std::sync::Arc;

/// A verb with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Verb {
    Take(u64),
    Skip(u64),
    Shard {
        index: u64,
        count: u64,
    },
    Shuffle {
        buffer: usize,
        seed: Option<u64>,
    },
    /// A shuffle with the same order in each pass.
    ShuffleOnce {
        buffer: usize,
        seed: u64,
    },
    Repeat(u64),
    RepeatForever,
}

impl Verb {
    /// The number of elements after this verb, if the number before it is known.
    pub(crate) fn len(self, before: Option<u64>) -> Option<u64> {
        match self {
            Verb::Take(count) => before.map(|before| before.min(count)),
            Verb::Skip(count) => before.map(|before| before.saturating_sub(count)),
            Verb::Shard { index, count } => before.map(|before| before.saturating_sub(index).div_ceil(count.max(1))),
            Verb::Shuffle { .. } | Verb::ShuffleOnce { .. } => before,
            Verb::Repeat(count) => before.and_then(|before| before.checked_mul(count)),
            Verb::RepeatForever => before.filter(|before| *before == 0),
        }
    }

    /// Whether the first element before the verb is also the first one after it.
    pub(crate) fn begins_at_once(self) -> bool {
        matches!(self, Verb::Take(_) | Verb::Repeat(_) | Verb::RepeatForever)
    }

    /// Applies the verb to a function that opens streams.
    pub(crate) fn apply<X: Send + 'static>(self, open: Open<X>) -> Open<X> {
        Arc::new(move |pass| self.open(&open, pass))
    }

    fn open<X: Send + 'static>(self, open: &Open<X>, pass: Pass) -> Result<BoxStream<X>> {
        Ok(match self {
            Verb::Take(count) => Box::new(Taken { stream: open(pass)?, left: count }),
            Verb::Skip(count) => {
                let mut stream = open(pass)?;
                stream.skip(count)?;
                stream
            }
            Verb::Shard { index, count } if index < count => {
                let mut stream = open(pass)?;
                stream.skip(index)?;
                Box::new(Shard { stream, between: count - 1, is_first: true })
            }
            Verb::Shard { index, count } => {
                let reason = format!("shard {index} of {count} does not exist; the first one is shard 0");
                return Err(DataError::argument("shard", reason));
            }
            Verb::Shuffle { buffer, .. } | Verb::ShuffleOnce { buffer, .. } => {
                let generator = self.generator(buffer, pass)?;
                Box::new(Shuffled::new(open(pass)?, buffer, generator))
            }
            Verb::Repeat(count) => Box::new(Repeated::new(Arc::clone(open), pass, Some(count))),
            Verb::RepeatForever => Box::new(Repeated::new(Arc::clone(open), pass, None)),
        })
    }
}

impl Verb {
    /// A shuffle whose order does not change with a later seed.
    pub(crate) fn once(buffer: usize, seed: Option<u64>) -> Verb {
        Verb::ShuffleOnce { buffer, seed: seed.unwrap_or_else(current_seed) }
    }

    /// The random numbers of a shuffle in this pass. Separate from the generic code above, which each cell compiles.
    fn generator(self, buffer: usize, pass: Pass) -> Result<Pcg64> {
        let (verb, seed) = match self {
            Verb::ShuffleOnce { seed, .. } => ("shuffle_once", seed),
            Verb::Shuffle { seed, .. } => ("shuffle", pass.seed(seed.unwrap_or_else(current_seed))),
            _ => ("shuffle", pass.seed(current_seed())),
        };
        if buffer == 0 {
            return Err(DataError::argument(verb, "the buffer needs at least one element"));
        }
        Ok(Pcg64::seed_from_u64(seed))
    }
}

struct Taken<X> {
    stream: BoxStream<X>,
    left: u64,
}

impl<X> Stream<X> for Taken<X> {
    fn next(&mut self) -> Option<Result<X>> {
        self.left = self.left.checked_sub(1)?;
        self.stream.next()
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let skipped = self.stream.skip(count.min(self.left))?;
        self.left -= skipped;
        Ok(skipped)
    }
}

/// A stream that gives one element and then skips `between` elements, repeatedly.
struct Shard<X> {
    stream: BoxStream<X>,
    between: u64,
    is_first: bool,
}

impl<X> Stream<X> for Shard<X> {
    fn next(&mut self) -> Option<Result<X>> {
        if !self.is_first
            && let Err(error) = self.stream.skip(self.between)
        {
            return Some(Err(error));
        }
        self.is_first = false;
        self.stream.next()
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        if count == 0 {
            return Ok(0);
        }
        // The stream is then directly after the last skipped element of the shard.
        let before = if self.is_first { 0 } else { self.between };
        let elements = (count - 1).saturating_mul(self.between + 1).saturating_add(1 + before);
        let skipped = self.stream.skip(elements)?;
        self.is_first = false;
        Ok((skipped + self.between - before) / (self.between + 1))
    }
}

/// A stream that opens its input for each repetition.
struct Repeated<X> {
    open: Open<X>,
    pass: Pass,
    /// The number of repetitions, or `None` without an end.
    count: Option<u64>,
    /// The number of repetitions that have begun.
    begun: u64,
    stream: Option<BoxStream<X>>,
    is_empty: bool,
}

impl<X> Repeated<X> {
    fn new(open: Open<X>, pass: Pass, count: Option<u64>) -> Repeated<X> {
        Repeated { open, pass, count, begun: 0, stream: None, is_empty: true }
    }

    /// The stream of the present repetition, which is opened if needed; `None` after the last repetition.
    fn stream(&mut self) -> Result<Option<&mut BoxStream<X>>> {
        if self.stream.is_none() && self.count.is_none_or(|count| self.begun < count) {
            self.stream = Some((self.open)(self.pass.child(self.begun))?);
            self.begun += 1;
            self.is_empty = true;
        }
        Ok(self.stream.as_mut())
    }

    /// Ends the present repetition. If it had no elements, no other has any, so this one is the last.
    fn end_repetition(&mut self) {
        self.stream = None;
        if self.is_empty {
            self.count = Some(0);
        }
    }
}

impl<X> Stream<X> for Repeated<X> {
    fn next(&mut self) -> Option<Result<X>> {
        loop {
            let element = match self.stream() {
                Ok(stream) => stream?.next(),
                Err(error) => return Some(Err(error)),
            };
            if element.is_some() {
                self.is_empty = false;
                return element;
            }
            self.end_repetition();
        }
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let mut skipped = 0;
        while skipped < count
            && let Some(stream) = self.stream()?
        {
            let now = stream.skip(count - skipped)?;
            skipped += now;
            self.is_empty &= now == 0;
            if skipped < count {
                self.end_repetition();
            }
        }
        Ok(skipped)
    }
}
