"""Gradients across cells.

candle numbers its tensors with a counter. Under plain evcxr each cell is a library with a copy of candle of its own,
so that the counter begins anew in every cell, two tensors get the same number, and `backward` adds up what belongs to
different variables without a word. Here all cells share the prelude's one candle.
"""

USE = """
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{AdamW, Module, Optimizer, VarBuilder, VarMap};
"""


def test_gradients_over_four_cells_are_those_of_one_program(kernel):
    kernel.ok(USE)
    kernel.ok("let w = Var::new(&[2f32, 3.0], &Device::Cpu)?;")
    kernel.ok("let b = Var::new(&[5f32, 7.0], &Device::Cpu)?;")
    kernel.ok("let loss = ((w.as_tensor() * 10.0)? * b.as_tensor())?.sum_all()?;")
    shown = kernel.ok("""
        let gradients = loss.backward()?;
        for var in [&w, &b] {
            println!("{:?}", gradients.get(var).unwrap().to_vec1::<f32>()?);
        }
    """)
    # dL/dw = 10 b and dL/db = 10 w. Plain evcxr, with candle linked statically, gives [70, 100] for dL/dw.
    assert shown.stdout == "[50.0, 70.0]\n[20.0, 30.0]\n"


SETUP = """
let x = Tensor::new(&[[0f32, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], &Device::Cpu)?;
let y = Tensor::new(&[[0f32], [1.0], [1.0], [0.0]], &Device::Cpu)?;
"""
MODEL = """
let vars = VarMap::new();
let (hidden, output) = {
    let builder = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
    (candle_nn::linear(2, 8, builder.pp("hidden"))?, candle_nn::linear(8, 1, builder.pp("output"))?)
};
"""
# candle would draw random weights; these are the same in every run.
WEIGHTS = """
for (name, var) in vars.data().lock().unwrap().iter() {
    let first = name.len() as f32;
    let values: Vec<f32> = (0..var.elem_count()).map(|i| (first + 1.7 * i as f32).sin()).collect();
    var.set(&Tensor::from_vec(values, var.shape(), &Device::Cpu)?)?;
}
"""
OPTIMIZER = "let mut optimizer = AdamW::new_lr(vars.all_vars(), 0.05)?;"
LOSS = """
let predicted = output.forward(&hidden.forward(&x)?.tanh()?)?;
let loss = candle_nn::loss::mse(&predicted, &y)?;
"""
STEP = "optimizer.backward_step(&loss)?;"
HUNDRED_EPOCHS = f"""
for _ in 0..100 {{
    {LOSS}
    {STEP}
}}
{LOSS}
println!("{{:08x}} {{}}", loss.to_scalar::<f32>()?.to_bits(), loss.to_scalar::<f32>()?);
"""


def test_xor_learns_across_cells_exactly_as_in_one_cell(kernel):
    kernel.ok(USE)
    for cell in (SETUP, MODEL, WEIGHTS, OPTIMIZER):
        kernel.ok(cell)
    across = [kernel.ok(HUNDRED_EPOCHS).stdout for _ in range(5)]
    # Tensors of one cell, used in the backward pass of another, and a step of the optimiser in a third.
    kernel.ok(LOSS)
    kernel.ok(STEP)

    whole = "\n".join([SETUP, MODEL, WEIGHTS, OPTIMIZER] + 5 * [HUNDRED_EPOCHS])
    alone = kernel.ok(f"{{ {whole} }}").stdout
    assert "".join(across) == alone
    losses = [float(line.split()[1]) for line in alone.splitlines()]
    assert losses[0] > losses[-1] < 1e-3, losses
