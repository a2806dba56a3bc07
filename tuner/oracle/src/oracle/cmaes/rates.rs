//! The strategy's constants, which depend only on its dimensions and population. Adapts nothing.

/// Weights and learning rates, with Hansen's (2016) names and defaults (table 1).
#[derive(Clone, Debug)]
pub(super) struct Rates {
    /// Weight of each draw of a generation, best first; the second half is negative.
    pub(super) weights: Vec<f64>,
    /// Variance-effective number of the draws with a positive weight.
    pub(super) mu_eff: f64,
    /// Learning rate of the covariance from the path.
    pub(super) c_1: f64,
    /// Learning rate of the covariance from the draws.
    pub(super) c_mu: f64,
    /// Decay rate of the covariance's path.
    pub(super) c_c: f64,
    /// Decay rate of the step size's path.
    pub(super) c_sigma: f64,
    /// Damping of the step size.
    pub(super) d_sigma: f64,
}

impl Rates {
    /// The rates for `size` dimensions and a population of at least 2.
    pub(super) fn new(size: usize, population: usize) -> Rates {
        let n = size as f64;
        let raw: Vec<f64> =
            (1..=population).map(|rank| ((population + 1) as f64 / 2.0).ln() - (rank as f64).ln()).collect();
        let (best, rest) = raw.split_at(population / 2);
        let effective = |weights: &[f64]| {
            let (sum, squares) = (weights.iter().sum::<f64>(), weights.iter().map(|w| w * w).sum::<f64>());
            sum * sum / squares
        };
        let (mu_eff, mu_eff_rest) = (effective(best), effective(rest));
        let c_1 = 2.0 / ((n + 1.3).powi(2) + mu_eff);
        let c_mu =
            (2.0 * (mu_eff - 2.0 + 1.0 / mu_eff) / ((n + 2.0).powi(2) + mu_eff)).min(1.0 - c_1 - 1e-8).max(1e-12);
        let alpha = [1.0 + c_1 / c_mu, 1.0 + 2.0 * mu_eff_rest / (mu_eff + 2.0), (1.0 - c_1 - c_mu) / (n * c_mu)];
        let alpha = alpha.into_iter().fold(f64::INFINITY, f64::min);
        let positive: f64 = raw.iter().filter(|weight| **weight > 0.0).sum();
        let negative: f64 = -raw.iter().filter(|weight| **weight < 0.0).sum::<f64>();
        let scaled = |weight: &f64| if *weight >= 0.0 { weight / positive } else { alpha * weight / negative };
        let c_sigma = (mu_eff + 2.0) / (n + mu_eff + 5.0);
        Rates {
            weights: raw.iter().map(scaled).collect(),
            mu_eff,
            c_1,
            c_mu,
            c_c: (4.0 + mu_eff / n) / (n + 4.0 + 2.0 * mu_eff / n),
            c_sigma,
            d_sigma: 1.0 + 2.0 * (((mu_eff - 1.0) / (n + 1.0)).sqrt() - 1.0).max(0.0) + c_sigma,
        }
    }

    /// The rates of a strategy with a diagonal covariance: it has fewer numbers to learn, so the rates are higher by (n + 2) / 3
    /// (Ros and Hansen 2008, section 4), as long as the sum of both rates stays below 1.
    pub(super) fn separable(self, size: usize) -> Rates {
        let sum = self.c_1 + self.c_mu;
        let factor = ((size as f64 + 2.0) / 3.0).min((1.0 - 1e-8) / sum);
        // Negative weights keep the covariance positive definite only at the slower rates.
        let weights = self.weights.iter().map(|weight| weight.max(0.0)).collect();
        Rates { c_1: self.c_1 * factor, c_mu: self.c_mu * factor, weights, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden numbers from `tests/golden/cmaes_rates.py`.
    #[test]
    fn rates_are_those_of_the_tutorial() {
        let rates = Rates::new(5, 8);
        let golden = [
            (rates.mu_eff, 2.600_178_826_113_179_3),
            (rates.c_1, 0.047_292_304_159_400_896),
            (rates.c_mu, 0.038_169_160_703_857_81),
            (rates.c_c, 0.450_199_557_992_807_9),
            (rates.c_sigma, 0.365_088_376_093_485_4),
            (rates.d_sigma, 1.365_088_376_093_485_3),
            (rates.weights[0], 0.529_930_18),
            (rates.weights[7], -0.913_498_1),
        ];
        for (ours, theirs) in golden {
            assert!((ours - theirs).abs() < 5e-9, "{ours} for {theirs}");
        }
        assert!((rates.weights[..4].iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}
