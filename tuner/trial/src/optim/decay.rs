//! Decays of the learning rate: schedules as shares of an optimiser's rate and of a training's length. A training that knows both makes
//! the rates of its steps.

use super::Schedule;
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// A decay of the learning rate over a whole training, from the optimiser's rate to a share of it. Of the functions [`cosine`],
/// [`linear`] and [`constant`].
///
/// ```
/// use ferrotune_trial::optim;
/// let decay = optim::linear(0.5).warm_up(0.2);
/// let rates: Vec<f64> = [0, 1, 2, 6, 10, 99].map(|step| decay.at(step, 10)).to_vec();
/// assert_eq!(rates, [0.5, 1.0, 1.0, 0.75, 0.5, 0.5]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decay {
    end: f64,
    warm_up: f64,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Shape {
    Constant,
    Linear,
    Cosine,
}

/// The same rate in each step.
pub fn constant() -> Decay {
    Decay { end: 1.0, warm_up: 0.0, shape: Shape::Constant }
}

/// A straight line from the rate to the share `end` of it.
pub fn linear(end: f64) -> Decay {
    Decay { end, warm_up: 0.0, shape: Shape::Linear }
}

/// Half a cosine from the rate to the share `end` of it (Loshchilov and Hutter 2017, arXiv:1608.03983, equation 5).
pub fn cosine(end: f64) -> Decay {
    Decay { end, warm_up: 0.0, shape: Shape::Cosine }
}

impl Decay {
    /// Adds a warm-up: in this share of the steps the rate grows in a straight line to the optimiser's rate.
    #[must_use]
    pub fn warm_up(self, share: f64) -> Decay {
        Decay { warm_up: share, ..self }
    }

    /// Whether the rate is the same in each step.
    pub fn is_constant(&self) -> bool {
        self.shape == Shape::Constant && self.warm_up == 0.0
    }

    /// The share of the optimiser's rate in this step, counted from 0, of so many steps.
    pub fn at(&self, step: u64, steps: u64) -> f64 {
        let warm_up = (self.warm_up.clamp(0.0, 1.0) * steps as f64).round() as u64;
        if step < warm_up {
            return Schedule::constant(1.0).warm_up(warm_up).at(step);
        }
        let length = steps.saturating_sub(warm_up);
        let done = if length == 0 { 1.0 } else { (step - warm_up).min(length) as f64 / length as f64 };
        match self.shape {
            Shape::Constant => 1.0,
            Shape::Linear => 1.0 - done * (1.0 - self.end),
            Shape::Cosine => self.end + (1.0 - self.end) * (1.0 + (PI * done).cos()) / 2.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_their_shape() {
        let shares = |decay: Decay, steps: &[u64]| -> Vec<f64> {
            steps.iter().map(|step| (decay.at(*step, 100) * 1e6).round() / 1e6).collect()
        };
        assert_eq!(shares(constant(), &[0, 50, 200]), [1.0; 3]);
        assert_eq!(shares(linear(0.2), &[0, 50, 100, 101]), [1.0, 0.6, 0.2, 0.2]);
        // cos(π/4) is 0.707107.
        assert_eq!(shares(cosine(0.5), &[0, 25, 50, 75, 100, 500]), [1.0, 0.926777, 0.75, 0.573223, 0.5, 0.5]);
        assert_eq!(shares(cosine(0.0).warm_up(0.2), &[0, 9, 19, 20, 60, 100]), [0.05, 0.5, 1.0, 1.0, 0.5, 0.0]);
        assert_eq!(linear(0.0).at(3, 0), 0.0);
        assert_eq!(constant().warm_up(7.0).at(9, 10), 1.0);
    }
}
