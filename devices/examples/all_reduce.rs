//! A benchmark of workers that average values: `all_reduce INDEX BYTES ROUNDS WORKER…`. The first worker prints the seconds of
//! each round. `benchmarks/bench_cluster.py` runs it.

use ferrotune_devices::Strategy;
use std::error::Error;
use std::io::Write as _;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [index, bytes, rounds, workers @ ..] = arguments.as_slice() else {
        return Err("usage: all_reduce INDEX BYTES ROUNDS WORKER...".into());
    };
    let (index, bytes, rounds): (usize, usize, usize) = (index.parse()?, bytes.parse()?, rounds.parse()?);
    let strategy = Strategy::multi_worker(workers, index)?;
    let seconds = strategy.scope(|replica| {
        let mut values = vec![index as f32; bytes / size_of::<f32>()];
        (0..rounds)
            .map(|_| {
                let begin = Instant::now();
                replica.all_reduce_mean(&mut values).map(|()| begin.elapsed().as_secs_f64())
            })
            .collect::<Result<Vec<f64>, _>>()
    });
    if index == 0 {
        for round in seconds.into_iter().next().ok_or("no replica")?? {
            writeln!(std::io::stdout(), "{round}")?;
        }
    }
    Ok(())
}
