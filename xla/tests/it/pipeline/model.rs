//! Models in four stages, with the same weights on every device.

use candle_core::backprop::GradStore;
use candle_core::{D, DType, Device, Result, Tensor, Var};
use candle_nn::{LayerNorm, Linear, Module, VarBuilder, VarMap, embedding, layer_norm, linear, ops};

pub(crate) const STAGES: usize = 4;
const ROWS: usize = 16;
const WIDTH: usize = 8;
const CLASSES: usize = 3;
const LENGTH: usize = 5;

pub(crate) type Layers = Box<dyn Fn(&Tensor) -> Result<Tensor>>;

/// The layers of a stage and their variables, by name.
pub(crate) struct Layer {
    pub(crate) vars: Vec<Var>,
    pub(crate) layers: Layers,
}

/// Makes the layers of a stage.
pub(crate) type Maker = fn(usize, &VarBuilder<'_>) -> Result<Layers>;

pub(crate) fn layer(make: Maker, stage: usize, device: &Device, dtype: DType) -> Result<Layer> {
    let map = VarMap::new();
    let layers = make(stage, &VarBuilder::from_varmap(&map, dtype, device))?;
    let mut named: Vec<_> = map.data().lock().expect("no test panics with it").clone().into_iter().collect();
    named.sort_by(|left, right| left.0.cmp(&right.0));
    for (name, var) in &named {
        let start = (stage * 7 + name.len()) as f64;
        let values = Tensor::arange(0f64, var.elem_count() as f64, &Device::Cpu)?.affine(1.7, start)?.sin()?;
        var.set(&values.affine(0.4, 0.05)?.reshape(var.shape())?.to_dtype(dtype)?.to_device(device)?)?;
    }
    Ok(Layer { vars: named.into_iter().map(|(_, var)| var).collect(), layers })
}

pub(crate) fn perceptron(stage: usize, builder: &VarBuilder<'_>) -> Result<Layers> {
    let layer = linear(WIDTH, if stage + 1 == STAGES { CLASSES } else { WIDTH }, builder.pp("layer"))?;
    Ok(Box::new(move |x| if stage + 1 == STAGES { layer.forward(x) } else { layer.forward(x)?.tanh() }))
}

/// One block in each stage: attention of two heads and a perceptron, each behind a norm. The first stage has the embedding, the
/// last one the head.
pub(crate) fn transformer(stage: usize, builder: &VarBuilder<'_>) -> Result<Layers> {
    let table = (stage == 0).then(|| embedding(11, WIDTH, builder.pp("table"))).transpose()?;
    let head = (stage + 1 == STAGES).then(|| linear(WIDTH, CLASSES, builder.pp("head"))).transpose()?;
    let norms = [layer_norm(WIDTH, 1e-5, builder.pp("norm_a"))?, layer_norm(WIDTH, 1e-5, builder.pp("norm_b"))?];
    let attention = [linear(WIDTH, 3 * WIDTH, builder.pp("mix"))?, linear(WIDTH, WIDTH, builder.pp("out"))?];
    let wide = [linear(WIDTH, 2 * WIDTH, builder.pp("up"))?, linear(2 * WIDTH, WIDTH, builder.pp("down"))?];
    Ok(Box::new(move |x| {
        let x = table.as_ref().map_or_else(|| Ok(x.clone()), |table| table.forward(x))?;
        let x = (&x + attended(&normed(&x, &norms[0])?, &attention)?)?;
        let inner = wide[1].forward(&wide[0].forward(&normed(&x, &norms[1])?)?.gelu()?)?;
        let x = (x + inner)?;
        head.as_ref().map_or_else(|| Ok(x.clone()), |head| head.forward(&x.mean(1)?))
    }))
}

/// A layer norm, which candle has in its own kernel, but not in `f64`.
fn normed(x: &Tensor, norm: &LayerNorm) -> Result<Tensor> {
    let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let deviation = (centred.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?.sqrt()?;
    let bias = norm.bias().expect("a layer norm of candle has one");
    centred.broadcast_div(&deviation)?.broadcast_mul(norm.weight())?.broadcast_add(bias)
}

fn attended(x: &Tensor, [mix, out]: &[Linear; 2]) -> Result<Tensor> {
    let (rows, length, width) = x.dims3()?;
    let mixed = mix.forward(x)?.reshape((rows, length, 3, 2, width / 2))?.permute((2, 0, 3, 1, 4))?.contiguous()?;
    let [q, k, v] = [mixed.get(0)?, mixed.get(1)?, mixed.get(2)?];
    let weights = ops::softmax(&(q.matmul(&k.t()?)? * 0.5)?, D::Minus1)?;
    out.forward(&weights.matmul(&v)?.transpose(1, 2)?.reshape((rows, length, width))?)
}

/// Numbers for the perceptron.
pub(crate) fn numbers(dtype: DType) -> Result<Tensor> {
    let numbers = Tensor::arange(0f64, (ROWS * WIDTH) as f64, &Device::Cpu)?.cos()?;
    numbers.reshape((ROWS, WIDTH))?.to_dtype(dtype)
}

/// Tokens for the transformer.
pub(crate) fn tokens() -> Result<Tensor> {
    let tokens: Vec<u32> = (0..(ROWS * LENGTH) as u32).map(|place| place * place % 11).collect();
    Tensor::from_vec(tokens, (ROWS, LENGTH), &Device::Cpu)
}

pub(crate) fn classes(device: &Device) -> Result<Tensor> {
    Tensor::from_vec((0..ROWS as u32).map(|row| row * 7 % CLASSES as u32).collect::<Vec<_>>(), ROWS, device)
}

/// AdamW with its moments and the number of steps in variables, as a compiled step needs them.
pub(crate) struct Adam {
    vars: Vec<(Var, [Var; 2])>,
    steps: Var,
}

impl Adam {
    pub(crate) const LR: f64 = 0.01;
    pub(crate) const DECAY: f64 = 0.1;
    const BETAS: [f64; 2] = [0.9, 0.999];

    pub(crate) fn new(vars: &[Var]) -> Result<Adam> {
        let zeros = |var: &Var| Var::from_tensor(&var.zeros_like()?);
        let with_moments = |var: &Var| Ok((var.clone(), [zeros(var)?, zeros(var)?]));
        let steps = Var::zeros((), vars[0].dtype(), vars[0].device())?;
        Ok(Adam { vars: vars.iter().map(with_moments).collect::<Result<_>>()?, steps })
    }

    pub(crate) fn step(&mut self, gradients: &GradStore) -> Result<()> {
        self.steps.set(&(self.steps.as_detached_tensor() + 1.)?)?;
        for (var, moments) in &self.vars {
            let Some(gradient) = gradients.get(var) else { continue };
            let mut scaled = Vec::new();
            for ((moment, beta), value) in moments.iter().zip(Adam::BETAS).zip([gradient.clone(), gradient.sqr()?]) {
                moment.set(&((moment.as_detached_tensor() * beta)? + (value * (1. - beta))?)?)?;
                let power = (self.steps.as_detached_tensor() * beta.ln())?.exp()?;
                scaled.push(moment.as_detached_tensor().broadcast_div(&(1. - power)?)?);
            }
            let change = (&scaled[0] / (scaled[1].sqrt()? + 1e-8)?)?;
            let kept = (var.as_detached_tensor() * (1. - Adam::LR * Adam::DECAY))?;
            var.set(&(kept - (change * Adam::LR)?)?)?;
        }
        Ok(())
    }
}
