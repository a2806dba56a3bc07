//! Forecasts of final losses from losses at a stage of training, by a linear regression over finished trials. Knows no parameters,
//! and decides nothing.

use crate::student;

/// The largest number of finished trials in a regression: those whose losses at the stage are nearest. Over all losses, the relation
/// is seldom a line, and good trials vary less than bad ones.
const NEAREST: usize = 15;

/// The least scale of a forecast, as a share of the standard deviation of the final losses. Trials whose losses lie on a line, such as those that
/// improve no more, do not say that the next one lies there exactly.
const LEAST_SCALE: f64 = 0.01;

/// The finished trials on which forecasts from one stage are based: their losses at the stage, sorted, each with the final loss.
#[derive(Debug)]
pub(crate) struct Regression {
    pairs: Vec<(f64, f64)>,
}

/// A forecast of a final loss: Student's t distribution with this mean, scale and number of degrees of freedom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forecast {
    pub(crate) mean: f64,
    scale: f64,
    freedom: u64,
}

impl Regression {
    /// The regression on the losses at `stage`, an index of a [curve](crate::curve::of). Finished trials are given by their
    /// curves and their final losses.
    pub(crate) fn at<'a>(stage: usize, finished: impl Iterator<Item = (&'a [Option<f64>], f64)>) -> Regression {
        let pair = |(curve, last): (&[Option<f64>], f64)| Some(((*curve.get(stage)?)?, last));
        let mut pairs: Vec<(f64, f64)> = finished.filter_map(pair).collect();
        // Of trials with the same loss at the stage, the newest are nearest.
        pairs.reverse();
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
        Regression { pairs }
    }

    /// The forecast for a trial with this loss at the stage; `None` if fewer than three trials have finished, or if losses are so
    /// large that their squares are infinite.
    ///
    /// The predictive distribution of a regression with two coefficients, the simplest of Baker et al. (2017), Accelerating neural
    /// architecture search using performance prediction.
    pub(crate) fn forecast(&self, early: f64) -> Option<Forecast> {
        let pairs = self.nearest(early);
        let freedom = pairs.len().checked_sub(2).filter(|freedom| *freedom > 0)?;
        let count = pairs.len() as f64;
        let mean_early = pairs.iter().map(|pair| pair.0).sum::<f64>() / count;
        let mean_last = pairs.iter().map(|pair| pair.1).sum::<f64>() / count;
        let spread: f64 = pairs.iter().map(|pair| (pair.0 - mean_early).powi(2)).sum();
        let product: f64 = pairs.iter().map(|pair| (pair.0 - mean_early) * (pair.1 - mean_last)).sum();
        let slope = if spread > 0.0 { product / spread } else { 0.0 };
        let residual = |pair: &(f64, f64)| pair.1 - mean_last - slope * (pair.0 - mean_early);
        let variance = pairs.iter().map(|pair| residual(pair).powi(2)).sum::<f64>() / freedom as f64;
        let least = pairs.iter().map(|pair| (pair.1 - mean_last).powi(2)).sum::<f64>() / count * LEAST_SCALE.powi(2);
        let variance = variance.max(least);
        let distance = early - mean_early;
        let leverage = if distance == 0.0 { 0.0 } else { distance.powi(2) / spread };
        let mean = mean_last + slope * distance;
        let scale = (variance * (1.0 + 1.0 / count + leverage)).sqrt();
        (mean.is_finite() && scale.is_finite()).then_some(Forecast { mean, scale, freedom: freedom as u64 })
    }

    fn nearest(&self, early: f64) -> Vec<(f64, f64)> {
        let place = self.pairs.partition_point(|pair| pair.0 < early);
        let end = (place + NEAREST).min(self.pairs.len());
        let mut pairs = self.pairs[place.saturating_sub(NEAREST)..end].to_vec();
        pairs.sort_by(|a, b| (a.0 - early).abs().total_cmp(&(b.0 - early).abs()));
        pairs.truncate(NEAREST);
        pairs
    }
}

impl Forecast {
    /// The standard deviation of the final loss; `None` with so few trials that it is infinite.
    pub(crate) fn deviation(&self) -> Option<f64> {
        let freedom = self.freedom as f64;
        (self.freedom > 2).then(|| self.scale * (freedom / (freedom - 2.0)).sqrt())
    }

    /// The probability of a final loss below `loss`; 0.5 for exactly that loss, if the forecast is certain.
    pub(crate) fn chance_below(&self, loss: f64) -> f64 {
        if loss == self.mean { 0.5 } else { student::cumulative((loss - self.mean) / self.scale, self.freedom) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forecast(pairs: &[(f64, f64)], early: f64) -> Option<Forecast> {
        let curves: Vec<([Option<f64>; 1], f64)> = pairs.iter().map(|(early, last)| ([Some(*early)], *last)).collect();
        Regression::at(0, curves.iter().map(|(curve, last)| (curve.as_slice(), *last))).forecast(early)
    }

    /// Golden numbers from `tests/golden/forecast.py`.
    #[test]
    fn forecasts_are_those_of_scipy() {
        let finished = [(0.9, 0.5), (0.7, 0.42), (0.8, 0.45), (0.5, 0.28), (0.6, 0.35)];
        let golden = [
            (0.65, 0.373, 0.016_165_807_537_309_503, 0.240_061_161_146_806_87),
            (1.5, 0.832, 0.040_265_783_654_777_28, 0.000_667_053_185_395_593),
        ];
        for (early, mean, scale, chance) in golden {
            let ours = forecast(&finished, early).expect("enough trials");
            let differences = [ours.mean - mean, ours.scale - scale, ours.chance_below(0.36) - chance];
            assert!(differences.iter().all(|difference| difference.abs() < 1e-12), "{ours:?}");
        }
    }

    #[test]
    fn distant_trials_have_no_part_in_a_forecast() {
        let near: Vec<(f64, f64)> = (0..NEAREST).map(|k| (k as f64, 2.0 * k as f64 + (k % 3) as f64)).collect();
        let with_distant: Vec<(f64, f64)> = near.iter().copied().chain([(1e3, -1e6), (1e9, 7.0)]).collect();
        let means = [near, with_distant].map(|pairs| forecast(&pairs, 7.2).expect("enough trials").mean);
        assert_eq!(means[0], means[1]);
    }

    #[test]
    fn losses_on_a_line_leave_a_doubt() {
        let plateau = [(0.31, 0.31), (0.47, 0.47), (0.62, 0.62)];
        let chance = |early: f64| forecast(&plateau, early).map(|forecast| forecast.chance_below(0.31));
        assert!(chance(0.310_000_1).is_some_and(|chance| chance > 0.45));
        assert!(chance(0.9).is_some_and(|chance| chance < 0.05));
        assert_eq!(forecast(&plateau, 0.5).and_then(|forecast| forecast.deviation()), None);
        let five = [plateau.as_slice(), &[(0.5, 0.5), (0.6, 0.6)]].concat();
        assert!(
            forecast(&five, 0.5).and_then(|forecast| forecast.deviation()).is_some_and(|deviation| deviation > 1e-3)
        );
    }

    #[test]
    fn too_few_or_too_large_losses_give_no_forecast() {
        assert!(forecast(&[(1.0, 1.0), (2.0, 2.0)], 1.0).is_none());
        assert!(forecast(&[(1e300, 1.0), (2.0, 2.0), (3.0, 3.0)], 1.0).is_none());
        assert!(Regression::at(1, [([Some(1.0)].as_slice(), 1.0)].into_iter()).pairs.is_empty());
    }

    #[test]
    fn constant_losses_say_nothing_of_other_losses() {
        let constant = [(1.0, 0.5); 4];
        assert_eq!(forecast(&constant, 1.0).map(|forecast| forecast.chance_below(0.5)), Some(0.5));
        assert!(forecast(&constant, 2.0).is_none());
        let varying = [(1.0, 0.5), (1.0, 0.6), (1.0, 0.4)];
        assert!(forecast(&varying, 2.0).is_none(), "no slope is known");
        assert!(forecast(&varying, 1.0).is_some_and(|forecast| forecast.mean == 0.5 && forecast.scale > 0.1));
    }
}
