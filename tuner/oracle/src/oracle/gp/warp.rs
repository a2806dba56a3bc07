//! Transforms losses for a Gaussian process: to mean 0 and variance 1, on a linear or logarithmic scale, whichever
//! makes them most likely. Early losses of a search often span several orders of magnitude.

/// The transformation of losses before they are scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Warp {
    /// No transformation.
    Linear,
    /// The logarithm of the distance from the best loss, in units of the median's distance, plus this number.
    Log(f64),
}

/// The transformations from which the model chooses.
pub(super) const WARPS: [Warp; 4] = [Warp::Linear, Warp::Log(1.0), Warp::Log(0.1), Warp::Log(0.01)];

/// Transformed losses.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Warped {
    pub(super) values: Vec<f64>,
    /// The variance of each value's error, to first order.
    pub(super) errors: Vec<f64>,
    /// Logarithm of the determinant of the change of variables, up to a constant that all warps share. Subtract it from the
    /// likelihoods of the values to compare warps.
    pub(super) log_stretch: f64,
    /// The loss that one unit of the values is worth near the best loss, in units of the median's distance from the best.
    pub(super) worth: f64,
    /// The way back.
    pub(super) scaling: Scaling,
}

/// The numbers with which losses were transformed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scaling {
    warp: Warp,
    best: f64,
    unit: f64,
    mean: f64,
    deviation: f64,
}

impl Scaling {
    /// The loss that has this value.
    pub(super) fn restore(&self, value: f64) -> f64 {
        let warped = self.mean + self.deviation * value;
        let distance = match self.warp {
            Warp::Linear => warped,
            Warp::Log(shift) => warped.exp() - shift,
        };
        self.best + self.unit * distance
    }
}

impl Warp {
    /// Transforms and scales losses and the standard deviations of their errors. There must be at least one loss, and all must be
    /// finite.
    pub(super) fn apply(self, losses: &[f64], deviations: &[f64]) -> Warped {
        let mut sorted = losses.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (best, median) = (sorted[0], sorted[sorted.len() / 2]);
        let unit = [median - best, sorted[sorted.len() - 1] - best].into_iter().find(|unit| *unit > 0.0).unwrap_or(1.0);
        let (mut values, mut errors, mut log_stretch) = (Vec::with_capacity(losses.len()), Vec::new(), 0.0);
        for (loss, error) in losses.iter().zip(deviations) {
            let distance = (loss - best) / unit;
            match self {
                Warp::Linear => {
                    values.push(distance);
                    errors.push(error / unit);
                }
                Warp::Log(shift) => {
                    values.push((distance + shift).ln());
                    errors.push(error / unit / (distance + shift));
                    log_stretch -= (distance + shift).ln();
                }
            }
        }
        let size = values.len() as f64;
        let mean = values.iter().sum::<f64>() / size;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / size;
        let deviation = if variance > 0.0 { variance.sqrt() } else { 1.0 };
        values.iter_mut().for_each(|value| *value = (*value - mean) / deviation);
        errors.iter_mut().for_each(|error| *error = (*error / deviation).powi(2));
        let worth = match self {
            Warp::Linear => deviation,
            Warp::Log(shift) => deviation * shift,
        };
        let scaling = Scaling { warp: self, best, unit, mean, deviation };
        Warped { values, errors, log_stretch: log_stretch - size * deviation.ln(), worth, scaling }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_warp_keeps_the_order_and_scales() {
        let losses = [3.0, 1.0, 1e6, 20.0, 1.5];
        for warp in WARPS {
            let Warped { values, scaling, .. } = warp.apply(&losses, &[0.0; 5]);
            assert!(values[1] < values[4] && values[4] < values[0] && values[0] < values[3] && values[3] < values[2]);
            assert!(values.iter().sum::<f64>().abs() < 1e-9);
            assert!((values.iter().map(|value| value * value).sum::<f64>() - 5.0).abs() < 1e-9);
            let restored = values.iter().zip(losses).map(|(value, loss)| (scaling.restore(*value) - loss).abs() / loss);
            assert!(restored.into_iter().all(|difference| difference < 1e-9));
        }
    }

    #[test]
    fn losses_that_are_all_equal_are_all_zero() {
        for warp in WARPS {
            assert_eq!(warp.apply(&[2.0; 3], &[0.0; 3]).values, [0.0; 3]);
        }
    }
}
