//! Many transfers, of which some are dropped and some are kept.

use super::{Bench, Outcome, ensure};
use ferrotune_devices::pjrt::Literal;

/// The numbers of values of arrays that go to the device process with a message, in memory, and in memory that a plugin may use.
const COUNTS: [usize; 4] = [100, 5_000, 300_000, 1_500_000];
const ROUNDS: usize = 24;
const MOST_KEPT: usize = 20;

pub(super) fn tell_their_end(bench: &Bench) -> Outcome {
    let values = vec![0.5; 1 << 20];
    let literal = Literal::f32(&[1 << 20], &values)?;
    let buffer = bench.client.upload(&literal, bench.first()?)?;
    buffer.ready()?.wait()?;
    let transfer = buffer.download()?;
    let was_ready = transfer.is_ready()?;
    drop(bench.client.upload(&literal, bench.first()?)?.download()?);
    ensure(transfer.wait()? == literal, "the array changed")?;
    Ok(format!("4 MiB; ready at once: {was_ready}; one was dropped under way"))
}

pub(super) fn arrays_stay(bench: &Bench) -> Outcome {
    let mut kept = Vec::new();
    for round in 0..ROUNDS {
        for (index, count) in COUNTS.into_iter().enumerate() {
            // The last part of the arrays is shorter in some rounds, as the last batch of an epoch is.
            let count = count - round % 2;
            let literal = Literal::f32(&[i64::try_from(count)?], &vec![(10 * round + index) as f32; count])?;
            let buffer = bench.client.upload(&literal, bench.first()?)?;
            let transfer = buffer.download()?;
            match round % 3 {
                0 => drop(transfer),
                1 => ensure(transfer.wait()? == literal, format!("round {round}: {count} values have changed"))?,
                _ => kept.push((buffer, transfer.wait()?, literal)),
            }
        }
        kept.drain(..kept.len().saturating_sub(MOST_KEPT));
    }
    for (buffer, copy, literal) in &kept {
        ensure(copy == literal, "a copy on the host has changed")?;
        ensure(buffer.download()?.wait()? == *literal, "an array on the device has changed")?;
    }
    Ok(format!("{} arrays, {} kept", ROUNDS * COUNTS.len(), kept.len()))
}
