//! Schedules of the learning rate. A schedule keeps no state: its rate depends only on the step, so that a resumed trial
//! has the same rates as a trial that never stopped.

use std::f64::consts::PI;

/// A schedule: the learning rate of each step, counted from 0.
///
/// ```
/// use ferrotune_trial::optim::Schedule;
/// let schedule = Schedule::linear(1.0, 14).warm_up(4);
/// let rates: Vec<f64> = [0, 1, 3, 4, 9, 14, 99].map(|step| schedule.at(step)).to_vec();
/// assert_eq!(rates, [0.25, 0.5, 1.0, 1.0, 0.5, 0.0, 0.0]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    lr: f64,
    warm_up: u64,
    shape: Shape,
}

#[derive(Clone, Debug, PartialEq)]
enum Shape {
    Constant,
    Linear { steps: u64 },
    Cosine { steps: u64 },
    Step { every: u64, factor: f64 },
}

impl Schedule {
    /// A schedule with the same rate at each step.
    pub fn constant(lr: f64) -> Schedule {
        Schedule::new(lr, Shape::Constant)
    }

    /// A schedule that falls in a straight line from `lr` to 0 at step `steps`, the length of the whole training.
    pub fn linear(lr: f64, steps: u64) -> Schedule {
        Schedule::new(lr, Shape::Linear { steps })
    }

    /// A schedule along half a cosine from `lr` to 0 at step `steps`, the length of the whole training (Loshchilov and Hutter 2017,
    /// arXiv:1608.03983, equation 5).
    pub fn cosine(lr: f64, steps: u64) -> Schedule {
        Schedule::new(lr, Shape::Cosine { steps })
    }

    /// A schedule that begins at `lr` and multiplies the rate by `factor` after each `every` steps. If `every` is 0, the rate is constant.
    pub fn step(lr: f64, every: u64, factor: f64) -> Schedule {
        Schedule::new(lr, Shape::Step { every, factor })
    }

    /// Adds a warm-up: in the first `steps` steps the rate grows in a straight line to `lr`.
    #[must_use]
    pub fn warm_up(self, steps: u64) -> Schedule {
        Schedule { warm_up: steps, ..self }
    }

    /// The learning rate of this step.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warm_up {
            return self.lr * (step + 1) as f64 / self.warm_up as f64;
        }
        let step = step - self.warm_up;
        // The remaining share of the training, from 1 to 0.
        let rest = |steps: u64| match steps.saturating_sub(self.warm_up) {
            0 => 0.0,
            steps => 1.0 - step.min(steps) as f64 / steps as f64,
        };
        self.lr
            * match self.shape {
                Shape::Constant | Shape::Step { every: 0, .. } => 1.0,
                Shape::Linear { steps } => rest(steps),
                Shape::Cosine { steps } => (1.0 - (PI * rest(steps)).cos()) / 2.0,
                Shape::Step { every, factor } => factor.powf((step / every) as f64),
            }
    }

    fn new(lr: f64, shape: Shape) -> Schedule {
        Schedule { lr, warm_up: 0, shape }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_their_shape() {
        let rates = |schedule: Schedule, steps: &[u64]| -> Vec<f64> {
            steps.iter().map(|step| (schedule.at(*step) * 1e6).round() / 1e6).collect()
        };
        assert_eq!(rates(Schedule::constant(0.5), &[0, 1, u64::MAX]), [0.5; 3]);
        assert_eq!(
            rates(Schedule::cosine(2.0, 100), &[0, 25, 50, 75, 100, 101]),
            [2.0, 1.707107, 1.0, 0.292893, 0.0, 0.0]
        );
        assert_eq!(rates(Schedule::step(1.0, 10, 0.5), &[0, 9, 10, 19, 20]), [1.0, 1.0, 0.5, 0.5, 0.25]);
        assert_eq!(rates(Schedule::step(1.0, 0, 0.5), &[0, 99]), [1.0; 2]);
        assert_eq!(rates(Schedule::cosine(1.0, 110).warm_up(10), &[0, 9, 10, 60, 110]), [0.1, 1.0, 1.0, 0.5, 0.0]);
        assert_eq!(rates(Schedule::linear(1.0, 5).warm_up(10), &[4, 9, 10]), [0.5, 1.0, 0.0]);
        assert_eq!(rates(Schedule::linear(1.0, 0), &[0]), [0.0]);
    }
}
