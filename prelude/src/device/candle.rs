//! The computations of the self-test with candle, on any of its devices.

use candle_core::{Device, Error, Result, Tensor, Var};
use candle_nn::{Optimizer as _, SGD};
use ferrotune_devices::selftest::{Array, Compute, Computed, Network, SIDE, STEPS};
use std::time::Instant;

/// A device on which candle computes.
pub(super) struct Candle {
    pub(super) device: Device,
}

impl Candle {
    fn tensor(&self, (dims, values): Array<'_>) -> Result<Tensor> {
        let dims: Vec<usize> =
            dims.iter().map(|dim| usize::try_from(*dim).map_err(Error::wrap)).collect::<Result<_>>()?;
        let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
        Tensor::from_vec(values, dims, &self.device)
    }
}

impl Compute for Candle {
    type Error = Error;

    fn multiply(&mut self, a: &[f32], b: &[f32]) -> Result<Computed> {
        let mut computed = Computed { run_s: f64::INFINITY, ..Computed::default() };
        for _ in 0..3 {
            let started = Instant::now();
            let matrix = |values: &[f32]| Tensor::from_slice(values, (SIDE, SIDE), &self.device);
            computed.values = matrix(a)?.matmul(&matrix(b)?)?.flatten_all()?.to_vec1()?;
            computed.run_s = computed.run_s.min(started.elapsed().as_secs_f64());
        }
        Ok(computed)
    }

    fn train(&mut self, network: &Network) -> Result<Computed> {
        let vars = network.weights().map(|weight| Var::from_tensor(&self.tensor(weight)?));
        let vars = vars.into_iter().collect::<Result<Vec<Var>>>()?;
        let [x, y] = network.data().map(|array| self.tensor(array));
        let (x, y) = (x?, y?);
        let [w1, b1, w2, b2] = [0, 1, 2, 3].map(|index: usize| vars[index].as_tensor().clone());
        let mut optimizer = SGD::new(vars, Network::RATE)?;
        let mut computed = Computed { run_s: f64::INFINITY, ..Computed::default() };
        for _ in 0..STEPS {
            let started = Instant::now();
            let hidden = x.matmul(&w1)?.broadcast_add(&b1)?.tanh()?;
            let loss = hidden.matmul(&w2)?.broadcast_add(&b2)?.sub(&y)?.sqr()?.mean_all()?;
            optimizer.backward_step(&loss)?;
            computed.values.push(loss.to_scalar()?);
            computed.run_s = computed.run_s.min(started.elapsed().as_secs_f64());
        }
        Ok(computed)
    }
}
