//! Checks of a function with its arguments in other layouts: transposed, narrowed and broadcast views.

use super::difference::{Draws, check};
use candle_core::{Result, Tensor};

/// The layout of an argument in the memory of its variable.
#[derive(Clone, Copy, Debug)]
enum View {
    Whole,
    Transposed,
    Narrowed,
    Broadcast,
}

impl View {
    const ALL: [Self; 4] = [Self::Whole, Self::Transposed, Self::Narrowed, Self::Broadcast];

    /// The shape of the variable of an argument with the shape `dims`.
    fn variable_dims(self, dims: &[usize]) -> Vec<usize> {
        let mut dims = dims.to_vec();
        let last = dims.len() - 1;
        match self {
            Self::Whole => {}
            Self::Transposed => dims.reverse(),
            Self::Narrowed => dims[last] += 2,
            Self::Broadcast => dims[0] = 1,
        }
        dims
    }

    fn of(self, variable: &Tensor, dims: &[usize]) -> Result<Tensor> {
        let last = dims.len() - 1;
        match self {
            Self::Whole => Ok(variable.clone()),
            Self::Transposed => variable.permute((0..dims.len()).rev().collect::<Vec<_>>()),
            Self::Narrowed => variable.narrow(last, 1, dims[last]),
            Self::Broadcast => variable.broadcast_as(dims),
        }
    }
}

/// Checks the gradients of `function` for arguments of these shapes in all layouts, with elements in `range`.
pub(super) fn check_views(
    name: &str,
    shapes: &[&[usize]],
    range: (f64, f64),
    function: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    for (seed, view) in View::ALL.into_iter().enumerate() {
        let mut draws = Draws::new(seed as u64);
        let variables: Vec<Tensor> = shapes.iter().map(|dims| draws.tensor(&view.variable_dims(dims), range)).collect();
        check(&format!("{name}, {view:?}"), &variables, |variables| {
            let arguments = variables.iter().zip(shapes).map(|(variable, dims)| view.of(variable, dims));
            function(&arguments.collect::<Result<Vec<_>>>()?)
        });
    }
}
