//! The trials over pairs of parameters, coloured by the rank of their values: unlike the values themselves, ranks are not
//! dominated by a few bad trials.

use super::parameter::{ParameterAxis, chosen};
use super::{MOST_MARKS, joined, label, metric, thinned, title};
use crate::ResultsError;
use crate::chart::{Chart, Colour, Layer, Marks, Panel, Point, Shades};
use crate::values::finished;
use ferrotune_journal::Study;
use ferrotune_space::record::TrialRecord;

/// The largest number of parameters, of which the plot shows all pairs.
const MOST: usize = 4;

pub(super) fn chart(study: &Study, objective: usize, named: Option<&str>) -> Result<Chart, ResultsError> {
    let finished = finished(study, objective)?;
    let mut names = chosen(study, objective, named, (2, 2))?;
    let left_out = names.split_off(names.len().min(MOST));
    let axes: Vec<ParameterAxis> = names.iter().map(|name| ParameterAxis::of(name, &finished)).collect();
    let direction = study.spec.objectives[objective].direction;
    let losses: Vec<f64> = finished.iter().map(|(_, value)| direction.loss(*value)).collect();
    let ranked: Vec<Ranked<'_>> =
        finished.into_iter().zip(ranks(&losses)).map(|((trial, value), rank)| Ranked { trial, value, rank }).collect();
    let last = losses.len() as f64;
    let (drawn, note) = thinned(ranked, MOST_MARKS / (axes.len() - 1));
    let pairs = (0..axes.len()).flat_map(|x| (x + 1..axes.len()).map(move |y| (x, y)));
    let metric = metric(study, objective);
    let panels = pairs.map(|(x, y)| panel((&axes[x], &axes[y]), &drawn, metric)).collect();
    let of_names = (!left_out.is_empty()).then(|| format!("without {}: {MOST} parameters fit", left_out.join(", ")));
    let shades = Some(Shades { title: format!("rank of {metric}"), low: 1.0, high: last });
    Ok(Chart { title: title(study, "rank"), panels, shades, note: joined(note, of_names) })
}

/// A trial with its value and the rank of that value.
struct Ranked<'a> {
    trial: &'a TrialRecord,
    value: f64,
    rank: f64,
}

fn panel((x, y): (&ParameterAxis, &ParameterAxis), trials: &[Ranked<'_>], metric: &str) -> Panel {
    let point = |ranked: &Ranked<'_>| {
        let label = format!("rank {}, {}", ranked.rank, label(ranked.trial, metric, ranked.value));
        Some(Point { x: x.coordinate(ranked.trial)?, y: y.coordinate(ranked.trial)?, shade: ranked.rank, label })
    };
    let marks = Marks::Points(trials.iter().filter_map(point).collect());
    let layers = vec![Layer { name: String::new(), colour: Colour::Shade, marks }];
    Panel { x: x.axis.clone(), y: y.axis.clone(), layers }
}

/// The rank of each loss, the smallest first, counted from 1. Equal losses have the mean of their ranks.
fn ranks(losses: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..losses.len()).collect();
    order.sort_by(|a, b| losses[*a].total_cmp(&losses[*b]));
    let mut ranks = vec![0.0; losses.len()];
    let mut before = 0;
    for group in order.chunk_by(|a, b| losses[*a] == losses[*b]) {
        let mean = before as f64 + (group.len() + 1) as f64 / 2.0;
        group.iter().for_each(|index| ranks[*index] = mean);
        before += group.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::ranks;

    #[test]
    fn equal_losses_have_the_mean_of_their_places() {
        assert_eq!(ranks(&[3.0, 1.0, 2.0, 1.0]), [4.0, 1.5, 3.0, 1.5]);
        assert_eq!(ranks(&[]), [0.0; 0]);
    }
}
