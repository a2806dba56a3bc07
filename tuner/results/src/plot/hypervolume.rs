//! The volume that the Pareto front so far dominates, after each trial, which shows whether a search with several objectives
//! still improves.

use super::{MOST_MARKS, thinned, title};
use crate::ResultsError;
use crate::chart::{Axis, Chart, Colour, Layer, Line, Marks, Panel, Point, Scale};
use crate::values::{finished, finished_value, keeps_constraints};
use ferrotune_journal::Study;
use ferrotune_oracle::analysis::hypervolume::hypervolume;
use ferrotune_oracle::analysis::pareto;

pub(super) fn chart(study: &Study) -> Result<Chart, ResultsError> {
    let objectives = &study.spec.objectives;
    if objectives.len() < 2 {
        let need = "two objectives; %plot history shows the one";
        return Err(ResultsError::TooLittle { study: study.spec.project.clone(), need });
    }
    let losses = |trial| {
        let loss = |(index, objective): (usize, &ferrotune_space::objective::Objective)| {
            Some(objective.direction.loss(finished_value(trial, index)?))
        };
        objectives.iter().enumerate().map(loss).collect::<Option<Vec<f64>>>()
    };
    let trials =
        finished(study, 0)?.into_iter().map(|(trial, _)| trial).filter(|trial| keeps_constraints(study, trial));
    let trials: Vec<(u64, Vec<f64>)> = trials.filter_map(|trial| Some((trial.number, losses(trial)?))).collect();
    if trials.is_empty() {
        let need = "a finished trial that keeps the constraints";
        return Err(ResultsError::TooLittle { study: study.spec.project.clone(), need });
    }
    let worst: Vec<f64> = (0..objectives.len())
        .map(|index| trials.iter().map(|(_, losses)| losses[index]).fold(f64::NEG_INFINITY, f64::max))
        .collect();
    let volumes = volumes(&trials, &worst);
    let last = volumes.last().map_or(0.0, |(number, _)| *number);
    let y = Scale::around(volumes.iter().map(|(_, volume)| *volume));
    let (drawn, note) = thinned(volumes, MOST_MARKS);
    let line = Line { points: drawn.clone(), shade: 0.0, label: "hypervolume".to_owned() };
    let point = |(number, volume): (f64, f64)| {
        let label = format!("after trial {number}: {}", crate::number(volume));
        Point { x: number, y: volume, shade: 0.0, label }
    };
    let layers = vec![
        Layer { name: String::new(), colour: Colour::Series(3), marks: Marks::Lines(vec![line]) },
        Layer {
            name: String::new(),
            colour: Colour::Series(3),
            marks: Marks::Points(drawn.into_iter().map(point).collect()),
        },
    ];
    let (x, y) = (Axis::new("trial", Scale::around_whole([0.0, last])), Axis::new("hypervolume", y));
    Ok(Chart { title: title(study, "hypervolume"), panels: vec![Panel { x, y, layers }], shades: None, note })
}

/// The volume after each trial, up to the worst value of each objective. Only a trial that joins the front changes the volume.
fn volumes(trials: &[(u64, Vec<f64>)], worst: &[f64]) -> Vec<(f64, f64)> {
    let mut front: Vec<Vec<f64>> = Vec::new();
    let mut volume = 0.0;
    let mut volumes = Vec::with_capacity(trials.len());
    for (number, losses) in trials {
        let is_beaten = front.iter().any(|other| other.iter().zip(losses).all(|(other, own)| other <= own));
        if !is_beaten {
            front.push(losses.clone());
            let kept = pareto::front(&front);
            front = kept.into_iter().map(|index| front[index].clone()).collect();
            volume = hypervolume(&front, worst);
        }
        volumes.push((*number as f64, volume));
    }
    volumes
}

#[cfg(test)]
mod tests {
    use super::volumes;

    #[test]
    fn volume_grows_only_with_the_front() {
        let trials =
            [(0, vec![3.0, 3.0]), (1, vec![1.0, 2.0]), (4, vec![2.0, 2.0]), (5, vec![2.0, 0.0]), (7, vec![0.0, 0.0])];
        assert_eq!(volumes(&trials, &[3.0, 3.0]), [(0.0, 0.0), (1.0, 2.0), (4.0, 2.0), (5.0, 4.0), (7.0, 9.0)]);
    }
}
