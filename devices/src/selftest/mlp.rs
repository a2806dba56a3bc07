//! The network of the self-test: 8 inputs, 16 hidden units with tanh, one output, mean squared error, gradient descent.
//! The network is implemented twice: in StableHLO with a derivative by hand, and as plain loops in double precision.

const BATCH: usize = 32;
const INPUTS: usize = 8;
const HIDDEN: usize = 16;

/// The program of one step: from weights and data to new weights and the loss before the step, in the order of [`Network`]. Sizes and
/// rate are those of this module; 0.0625 is 2 / BATCH, and 0.03125 is 1 / BATCH.
pub(super) const MODULE: &str = "module @step {
  func.func public @main(
      %w1: tensor<8x16xf32>, %b1: tensor<16xf32>, %w2: tensor<16x1xf32>, %b2: tensor<1xf32>,
      %x: tensor<32x8xf32>, %y: tensor<32x1xf32>)
      -> (tensor<8x16xf32>, tensor<16xf32>, tensor<16x1xf32>, tensor<1xf32>, tensor<f32>) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>

    %xw = stablehlo.dot_general %x, %w1, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST]
        : (tensor<32x8xf32>, tensor<8x16xf32>) -> tensor<32x16xf32>
    %b1s = stablehlo.broadcast_in_dim %b1, dims = [1] : (tensor<16xf32>) -> tensor<32x16xf32>
    %a = stablehlo.add %xw, %b1s : tensor<32x16xf32>
    %h = stablehlo.tanh %a : tensor<32x16xf32>
    %hw = stablehlo.dot_general %h, %w2, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST]
        : (tensor<32x16xf32>, tensor<16x1xf32>) -> tensor<32x1xf32>
    %b2s = stablehlo.broadcast_in_dim %b2, dims = [1] : (tensor<1xf32>) -> tensor<32x1xf32>
    %p = stablehlo.add %hw, %b2s : tensor<32x1xf32>
    %e = stablehlo.subtract %p, %y : tensor<32x1xf32>
    %e2 = stablehlo.multiply %e, %e : tensor<32x1xf32>
    %sum = stablehlo.reduce(%e2 init: %zero) applies stablehlo.add across dimensions = [0, 1]
        : (tensor<32x1xf32>, tensor<f32>) -> tensor<f32>
    %share = stablehlo.constant dense<0.03125> : tensor<f32>
    %loss = stablehlo.multiply %sum, %share : tensor<f32>

    %twice = stablehlo.constant dense<0.0625> : tensor<32x1xf32>
    %dp = stablehlo.multiply %e, %twice : tensor<32x1xf32>
    %dw2 = stablehlo.dot_general %h, %dp, contracting_dims = [0] x [0], precision = [HIGHEST, HIGHEST]
        : (tensor<32x16xf32>, tensor<32x1xf32>) -> tensor<16x1xf32>
    %db2 = stablehlo.reduce(%dp init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<32x1xf32>, tensor<f32>) -> tensor<1xf32>
    %dh = stablehlo.dot_general %dp, %w2, contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST]
        : (tensor<32x1xf32>, tensor<16x1xf32>) -> tensor<32x16xf32>
    %h2 = stablehlo.multiply %h, %h : tensor<32x16xf32>
    %one = stablehlo.constant dense<1.0> : tensor<32x16xf32>
    %slope = stablehlo.subtract %one, %h2 : tensor<32x16xf32>
    %da = stablehlo.multiply %dh, %slope : tensor<32x16xf32>
    %dw1 = stablehlo.dot_general %x, %da, contracting_dims = [0] x [0], precision = [HIGHEST, HIGHEST]
        : (tensor<32x8xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
    %db1 = stablehlo.reduce(%da init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<32x16xf32>, tensor<f32>) -> tensor<16xf32>

    %r1 = stablehlo.constant dense<0.1> : tensor<8x16xf32>
    %r2 = stablehlo.constant dense<0.1> : tensor<16xf32>
    %r3 = stablehlo.constant dense<0.1> : tensor<16x1xf32>
    %r4 = stablehlo.constant dense<0.1> : tensor<1xf32>
    %s1 = stablehlo.multiply %dw1, %r1 : tensor<8x16xf32>
    %s2 = stablehlo.multiply %db1, %r2 : tensor<16xf32>
    %s3 = stablehlo.multiply %dw2, %r3 : tensor<16x1xf32>
    %s4 = stablehlo.multiply %db2, %r4 : tensor<1xf32>
    %n1 = stablehlo.subtract %w1, %s1 : tensor<8x16xf32>
    %n2 = stablehlo.subtract %b1, %s2 : tensor<16xf32>
    %n3 = stablehlo.subtract %w2, %s3 : tensor<16x1xf32>
    %n4 = stablehlo.subtract %b2, %s4 : tensor<1xf32>
    return %n1, %n2, %n3, %n4, %loss
        : tensor<8x16xf32>, tensor<16xf32>, tensor<16x1xf32>, tensor<1xf32>, tensor<f32>
  }
}";

/// An array by its dimensions and values.
pub type Array<'a> = (&'static [i64], &'a [f64]);

/// The network in double precision, with its data: two layers with tanh between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    w1: Vec<f64>,
    b1: Vec<f64>,
    w2: Vec<f64>,
    b2: f64,
    x: Vec<f64>,
    y: Vec<f64>,
}

impl Default for Network {
    /// The network and data of the self-test, with the same values on every machine.
    fn default() -> Network {
        let x: Vec<f64> = (0..BATCH * INPUTS).map(|index| wave(index, 0.37)).collect();
        let y = x.chunks(INPUTS).map(|row| (row[0] + row[1] * row[2]).sin()).collect();
        Network {
            w1: (0..INPUTS * HIDDEN).map(|index| 0.5 * wave(index, 1.7)).collect(),
            b1: vec![0.0; HIDDEN],
            w2: (0..HIDDEN).map(|index| 0.5 * wave(index, 2.9)).collect(),
            b2: 0.0,
            x,
            y,
        }
    }
}

impl Network {
    /// The learning rate.
    pub const RATE: f64 = 0.1;

    /// The weights and biases of the first layer, then of the second.
    pub fn weights(&self) -> [Array<'_>; 4] {
        [(&[8, 16], &self.w1), (&[16], &self.b1), (&[16, 1], &self.w2), (&[1], std::slice::from_ref(&self.b2))]
    }

    /// The inputs and the targets.
    pub fn data(&self) -> [Array<'_>; 2] {
        [(&[32, 8], &self.x), (&[32, 1], &self.y)]
    }

    /// Takes a step of gradient descent, and returns the loss before it.
    pub fn step(&mut self) -> f64 {
        let mut hidden = product(&self.x, &self.w1, BATCH, INPUTS, HIDDEN);
        for (index, value) in hidden.iter_mut().enumerate() {
            *value = (*value + self.b1[index % HIDDEN]).tanh();
        }
        let predicted = product(&hidden, &self.w2, BATCH, HIDDEN, 1);
        let errors: Vec<f64> = predicted.iter().zip(&self.y).map(|(p, y)| p + self.b2 - y).collect();
        let loss = errors.iter().map(|error| error * error).sum::<f64>() / BATCH as f64;
        let w2 = self.w2.clone();
        for (row, error) in errors.iter().enumerate() {
            let slope = Self::RATE * 2.0 * error / BATCH as f64;
            self.b2 -= slope;
            for unit in 0..HIDDEN {
                let value = hidden[row * HIDDEN + unit];
                self.w2[unit] -= slope * value;
                let back = slope * w2[unit] * (1.0 - value * value);
                self.b1[unit] -= back;
                for input in 0..INPUTS {
                    self.w1[input * HIDDEN + unit] -= back * self.x[row * INPUTS + input];
                }
            }
        }
        loss
    }
}

/// A value between -1 and 1 that is the same on every machine, to single precision.
pub(super) fn wave(index: usize, seed: f64) -> f64 {
    f64::from((index as f64 * seed + seed).sin() as f32)
}

/// The product of an `m`×`k` and a `k`×`n` matrix.
pub(super) fn product(a: &[f64], b: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for row in 0..m {
        for inner in 0..k {
            let factor = a[row * k + inner];
            for column in 0..n {
                c[row * n + column] += factor * b[inner * n + column];
            }
        }
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_falls_in_every_step() {
        let mut network = Network::default();
        let losses: Vec<f64> = (0..20).map(|_| network.step()).collect();
        assert!(losses.windows(2).all(|pair| pair[1] < pair[0]), "{losses:?}");
        assert!(losses[19] < losses[0] / 2.0, "{losses:?}");
    }

    #[test]
    fn the_gradient_is_that_of_finite_differences() {
        let loss = |change: f64| {
            let mut network = Network::default();
            network.w1[5] += change;
            network.step()
        };
        let mut network = Network::default();
        let before = network.w1[5];
        network.step();
        let gradient = (before - network.w1[5]) / Network::RATE;
        let difference = (loss(1e-5) - loss(-1e-5)) / 2e-5;
        assert!((gradient - difference).abs() < 1e-8, "{gradient} {difference}");
    }
}
