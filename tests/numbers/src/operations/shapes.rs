//! Tensors from numbers, views, and what only moves elements.

use super::{Operation, operations};
use candle_core::{Device, IndexOp as _, Result, Tensor};

pub(super) fn all() -> Vec<Operation> {
    [made(), changed_in_place(), shaped(), moved(), read()].into_iter().flatten().collect()
}

fn made() -> Vec<Operation> {
    operations! {
        "Tensor::ones" => |x, n, device| Tensor::ones(n.sizes(0), n.dtype(1), device);
        "Tensor::zeros" => |x, n, device| Tensor::zeros(n.sizes(0), n.dtype(1), device);
        "Tensor::ones_like" => |x, n, device| x[0].ones_like();
        "Tensor::zeros_like" => |x, n, device| x[0].zeros_like();
        "Tensor::full" => |x, n, device| Tensor::full(n.float(0) as f32, n.sizes(1), device);
        "Tensor::full (i64)" => |x, n, device| Tensor::full(n.int(0), n.sizes(1), device);
        "Tensor::arange" => |x, n, device| Tensor::arange(n.float(0) as f32, n.float(1) as f32, device);
        "Tensor::arange (f64)" => |x, n, device| Tensor::arange(n.float(0), n.float(1), device);
        "Tensor::arange (u8)" => |x, n, device| Tensor::arange(n.int(0) as u8, n.int(1) as u8, device);
        "Tensor::arange (i64)" => |x, n, device| Tensor::arange(n.int(0), n.int(1), device);
        "Tensor::arange_step" => |x, n, device| {
            Tensor::arange_step(n.float(0) as f32, n.float(1) as f32, n.float(2) as f32, device)
        };
        "Tensor::arange_step (f64)" => |x, n, device| Tensor::arange_step(n.float(0), n.float(1), n.float(2), device);
        "Tensor::arange_step (f16)" => |x, n, device| Tensor::arange_step(half::f16::from_f64(n.float(0)), half::f16::from_f64(n.float(1)), half::f16::from_f64(n.float(2)), device);
        "Tensor::arange_step (u8)" => |x, n, device| {
            Tensor::arange_step(n.int(0) as u8, n.int(1) as u8, n.int(2) as u8, device)
        };
        "Tensor::arange_step (i64)" => |x, n, device| Tensor::arange_step(n.int(0), n.int(1), n.int(2), device);
        "Tensor::eye" => |x, n, device| Tensor::eye(n.size(0), n.dtype(1), device);
        "Tensor::tril2" => |x, n, device| Tensor::tril2(n.size(0), n.dtype(1), device);
        "Tensor::triu2" => |x, n, device| Tensor::triu2(n.size(0), n.dtype(1), device);
        "Tensor::new" => |x, n, device| Tensor::new(&[[1f32, f32::NAN, -0.], [f32::INFINITY, 1e-45, f32::MIN]], device);
        "Tensor::from_vec" => |x, n, device| Tensor::from_vec(vec![1f64, f64::NAN, -0., f64::MAX], (2, 2), device);
        "Tensor::from_slice" => |x, n, device| Tensor::from_slice(&[i64::MIN, 0, i64::MAX], 3, device);
        "Tensor::from_iter" => |x, n, device| Tensor::from_iter([0u8, 1, 255], device);
    }
}

/// A copy that is then changed in place.
fn changed(x: &Tensor, change: impl FnOnce(&Tensor) -> Result<()>) -> Result<Tensor> {
    let copy = x.copy()?;
    change(&copy)?;
    Ok(copy)
}

fn changed_in_place() -> Vec<Operation> {
    operations! {
        "Tensor::const_set" => |x, n| changed(&x[0], |x| x.const_set(n.float(0).into()));
        "Tensor::zero_set" => |x, n| changed(&x[0], |x| x.zero_set());
        "Tensor::one_set" => |x, n| changed(&x[0], |x| x.one_set());
        "Tensor::slice_set" => |x, n| changed(&x[0], |y| y.slice_set(&x[1], n.size(0), n.size(1)));
        "Tensor::scatter_set" => |x, n| changed(&x[0], |y| y.scatter_set(&x[1], &x[2], n.size(0)));
        "Tensor::scatter_add_set" => |x, n| changed(&x[0], |y| y.scatter_add_set(&x[1], &x[2], n.size(0)));
    }
}

fn shaped() -> Vec<Operation> {
    operations! {
        "Tensor::reshape" => |x, n| x[0].reshape(n.sizes(0));
        "Tensor::flatten" => |x, n| x[0].flatten(n.size(0), n.size(1));
        "Tensor::flatten_to" => |x, n| x[0].flatten_to(n.size(0));
        "Tensor::flatten_from" => |x, n| x[0].flatten_from(n.size(0));
        "Tensor::flatten_all" => |x, n| x[0].flatten_all();
        "Tensor::squeeze" => |x, n| x[0].squeeze(n.size(0));
        "Tensor::unsqueeze" => |x, n| x[0].unsqueeze(n.size(0));
        "Tensor::t" => |x, n| x[0].t();
        "Tensor::transpose" => |x, n| x[0].transpose(n.size(0), n.size(1));
        "Tensor::permute" => |x, n| x[0].permute(n.sizes(0));
        "Tensor::narrow" => |x, n| x[0].narrow(n.size(0), n.size(1), n.size(2));
        "Tensor::chunk" => |x, n| x[0].chunk(n.size(0), n.size(1));
        "Tensor::get" => |x, n| x[0].get(n.size(0));
        "Tensor::get_on_dim" => |x, n| x[0].get_on_dim(n.size(0), n.size(1));
        "Tensor::i" => |x, n| x[0].i((.., n.size(0)..n.size(1)));
        "Tensor::i (index)" => |x, n| x[0].i(n.size(0));
        "Tensor::i (tensor)" => |x, n| x[0].i((.., &x[1]));
        "Tensor::broadcast_as" => |x, n| x[0].broadcast_as(n.sizes(0));
        "Tensor::broadcast_left" => |x, n| x[0].broadcast_left(n.sizes(0));
        "Tensor::expand" => |x, n| x[0].expand(n.sizes(0));
        "Tensor::unfold" => |x, n| x[0].unfold(n.size(0), n.size(1), n.size(2));
    }
}

fn moved() -> Vec<Operation> {
    operations! {
        "Tensor::copy" => |x, n, device| x[0].copy();
        "Tensor::detach" => |x, n, device| Ok::<_, candle_core::Error>(x[0].detach());
        "Tensor::contiguous" => |x, n, device| x[0].contiguous();
        "Tensor::force_contiguous" => |x, n, device| x[0].force_contiguous();
        "Tensor::to_device" => |x, n, device| x[0].to_device(device);
        "Tensor::cat" => |x, n, device| Tensor::cat(x, n.size(0));
        "Tensor::stack" => |x, n, device| Tensor::stack(x, n.size(0));
        "Tensor::repeat" => |x, n, device| x[0].repeat(n.sizes(0));
        "Tensor::meshgrid" => |x, n, device| Tensor::meshgrid(x, n.flag(0));
        "Tensor::roll" => |x, n, device| x[0].roll(n.int(0) as i32, n.size(1));
        "Tensor::flip" => |x, n, device| x[0].flip(&n.sizes(0));
        "Tensor::pad_with_zeros" => |x, n, device| x[0].pad_with_zeros(n.size(0), n.size(1), n.size(2));
        "Tensor::pad_with_same" => |x, n, device| x[0].pad_with_same(n.size(0), n.size(1), n.size(2));
        "Tensor::slice_assign" => |x, n, device| x[0].slice_assign(&[n.size(0)..n.size(1), n.size(2)..n.size(3)], &x[1]);
        "Tensor::slice_scatter" => |x, n, device| x[0].slice_scatter(&x[1], n.size(0), n.size(1));
        "Tensor::slice_scatter0" => |x, n, device| x[0].slice_scatter0(&x[1], n.size(0));
    }
}

/// What reads values, which become a tensor again.
fn read() -> Vec<Operation> {
    operations! {
        "Tensor::to_scalar" => |x, n| Tensor::new(x[0].to_scalar::<f32>()?, &Device::Cpu);
        "Tensor::to_vec0" => |x, n| Tensor::new(x[0].to_vec0::<f32>()?, &Device::Cpu);
        "Tensor::to_vec1" => |x, n| Tensor::new(x[0].to_vec1::<f32>()?, &Device::Cpu);
        "Tensor::to_vec2" => |x, n| Tensor::new(x[0].to_vec2::<f32>()?, &Device::Cpu);
        "Tensor::to_vec3" => |x, n| Tensor::new(x[0].to_vec3::<f32>()?, &Device::Cpu);
    }
}
