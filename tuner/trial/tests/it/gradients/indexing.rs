//! Tests of operations that move, repeat or choose elements, also with repeated indexes.

use super::difference::{Draws, check};
use super::views::check_views;
use candle_core::{Result, Tensor};
use candle_nn::ops;

type Unary = fn(&Tensor) -> Result<Tensor>;

const RANGE: (f64, f64) = (-1., 1.);

#[test]
fn shapes() {
    let cases: &[(&str, Unary)] = &[
        ("narrow", |x| x.narrow(1, 1, 2)),
        ("overlapping narrows", |x| x.narrow(2, 0, 3)?.mul(&x.narrow(2, 1, 3)?)),
        ("chunks", |x| {
            let chunks = x.chunk(2, 2)?;
            chunks[0].mul(&chunks[1].exp()?)
        }),
        ("reshape", |x| x.sqr()?.reshape((4, ()))),
        ("transpose", |x| x.transpose(0, 2)?.sqr()),
        ("permute", |x| x.permute((1, 2, 0))?.contiguous()?.sqr()),
        ("cat with itself", |x| Tensor::cat(&[x, &x.sqr()?, x], 1)),
        ("stack", |x| Tensor::stack(&[x, &x.sqr()?], 1)),
        ("unsqueeze and squeeze", |x| x.unsqueeze(0)?.sqr()?.squeeze(0)),
        ("broadcast", |x| x.unsqueeze(1)?.broadcast_as((2, 5, 3, 4))?.sqr()),
        ("repeat", |x| x.repeat((2, 1, 3))?.sqr()),
        ("pad_with_zeros", |x| x.pad_with_zeros(2, 1, 2)?.exp()),
        ("pad_with_same", |x| x.pad_with_same(1, 2, 1)?.sqr()),
        ("roll", |x| x.roll(1, 2)?.mul(x)),
        ("flip", |x| x.contiguous()?.flip(&[0, 2])?.mul(x)),
        ("flatten", |x| x.flatten_all()?.sqr()),
        ("copy", |x| x.copy()?.sqr()),
        ("slice_scatter", |x| x.slice_scatter(&x.narrow(1, 0, 2)?.sqr()?, 1, 1)),
        ("slice_assign", |x| x.slice_assign(&[0..2, 1..2, 0..4], &x.narrow(1, 2, 1)?.sqr()?)),
        ("pixel_shuffle", |x| ops::pixel_shuffle(&x.reshape((1, 4, 3, 2))?, 2)?.sqr()),
        ("replication_pad2d", |x| ops::replication_pad2d(&x.unsqueeze(0)?, 1)?.sqr()),
        ("swiglu", ops::swiglu),
    ];
    for (name, function) in cases {
        check_views(name, &[&[2, 3, 4]], RANGE, |arguments| function(&arguments[0]));
    }
}

#[test]
fn indexed_reads() {
    for dim in 0..3 {
        let mut draws = Draws::new(dim as u64);
        let indexes = draws.indexes(&[7], 2);
        check_views(&format!("index_select {dim}"), &[&[2, 3, 4]], RANGE, |arguments| {
            arguments[0].sqr()?.index_select(&indexes, dim)
        });
        let mut dims = [2, 3, 4];
        dims[dim] = 6;
        let indexes = draws.indexes(&dims, 2);
        check_views(&format!("gather {dim}"), &[&[2, 3, 4]], RANGE, |arguments| {
            arguments[0].contiguous()?.gather(&indexes, dim)?.add(&arguments[0].sum_all()?.broadcast_as(&dims)?)
        });
    }
    let ids = Draws::new(3).indexes(&[6], 5);
    check_views("embedding", &[&[5, 3]], RANGE, |arguments| arguments[0].contiguous()?.embedding(&ids)?.sqr());
    check_views("sort", &[&[3, 5]], RANGE, |arguments| arguments[0].contiguous()?.sort_last_dim(true)?.0.sqr());
}

#[test]
fn indexed_writes() {
    for dim in 0..2 {
        let mut dims = [3, 4];
        dims[dim] = 6;
        let mut draws = Draws::new(dim as u64);
        let indexes = draws.indexes(&dims, 3);
        let rows = draws.indexes(&[6], 3);
        let inputs = [draws.tensor(&[3, 4], RANGE), draws.tensor(&dims, RANGE)];
        check(&format!("scatter {dim}"), &inputs, |inputs| inputs[0].scatter(&indexes, &inputs[1], dim)?.sqr());
        check(&format!("scatter_add {dim}"), &inputs, |inputs| inputs[0].scatter_add(&indexes, &inputs[1], dim)?.sqr());
        check(&format!("index_add {dim}"), &inputs, |inputs| inputs[0].index_add(&rows, &inputs[1], dim)?.sqr());
    }
}
