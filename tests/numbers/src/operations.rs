//! The table of operations: a name, a closure, and the closure's text, which the suite prints for a case that differs.
//!
//! The name is that of the suite's list of public operations, with the variant in parentheses.

mod attention;
mod convolutions;
mod elementwise;
mod indexing;
mod layers;
mod losses;
mod optimisers;
mod reductions;
mod shapes;

use crate::numbers::Numbers;
use candle_core::{Device, Result, Tensor};
use std::sync::LazyLock;

/// An operation: tensors, numbers and a device for what is made from numbers alone.
type Compute = fn(&[Tensor], &Numbers, &Device) -> Result<Vec<Tensor>>;

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    pub(crate) compute: Compute,
}

/// What an operation returns: a tensor, or several.
pub(crate) trait Outputs {
    /// All of them in order.
    fn tensors(self) -> Vec<Tensor>;
}

impl Outputs for Tensor {
    fn tensors(self) -> Vec<Tensor> {
        vec![self]
    }
}

impl Outputs for Vec<Tensor> {
    fn tensors(self) -> Vec<Tensor> {
        self
    }
}

impl Outputs for (Tensor, Tensor) {
    fn tensors(self) -> Vec<Tensor> {
        vec![self.0, self.1]
    }
}

/// Rows of the table: `"name" => |x, n, device| expression`, where `x` are the tensors and `n` the numbers.
macro_rules! operations {
    ($($name:literal => |$x:ident, $n:ident, $device:ident| $body:expr;)*) => {
        vec![$($crate::operations::Operation {
            name: $name,
            text: stringify!($body),
            compute: |$x, $n, $device| {
                // Not every operation takes tensors, numbers and a device.
                let _ = ($x, $n, $device);
                Ok($crate::operations::Outputs::tensors($body?))
            },
        }),*]
    };
    ($($name:literal => |$x:ident, $n:ident| $body:expr;)*) => {
        vec![$($crate::operations::Operation {
            name: $name,
            text: stringify!($body),
            compute: |$x, $n, _| {
                let _ = ($x, $n);
                Ok($crate::operations::Outputs::tensors($body?))
            },
        }),*]
    };
    ($($name:literal => |$x:ident| $body:expr;)*) => {
        vec![$($crate::operations::Operation {
            name: $name,
            text: stringify!($body),
            compute: |$x, _, _| Ok($crate::operations::Outputs::tensors($body?)),
        }),*]
    };
}
pub(crate) use operations;

/// The whole table.
pub(crate) fn all() -> &'static [Operation] {
    static ALL: LazyLock<Vec<Operation>> = LazyLock::new(|| {
        let topics =
            [elementwise::all(), reductions::all(), shapes::all(), indexing::all(), convolutions::all(), layers::all()];
        let others = [losses::all(), attention::all(), optimisers::all()];
        topics.into_iter().chain(others).flatten().collect()
    });
    &ALL
}
