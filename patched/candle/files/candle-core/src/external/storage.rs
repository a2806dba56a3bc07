//! What candle asks a storage for, as operations of the backend.

use super::{MetalDevice, MetalStorage, Op, Rows};
use crate::backend::BackendStorage;
use crate::conv::{ParamsConv1D, ParamsConv2D, ParamsConvTranspose1D, ParamsConvTranspose2D};
use crate::op::{BinaryOpT, CmpOp, ReduceOp, UnaryOpT};
use crate::scalar::Scalar;
use crate::{CpuStorage, DType, Layout, Result, Shape};

impl BackendStorage for MetalStorage {
    type Device = MetalDevice;

    fn try_clone(&self, _: &Layout) -> Result<Self> {
        self.apply(Op::ToDType, &[(self, &self.all())], self.count, self.dtype)
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    fn device(&self) -> &MetalDevice {
        &self.device
    }

    fn to_cpu_storage(&self) -> Result<CpuStorage> {
        self.device.backend.download(&self.slot.value(), self.dtype)
    }

    fn affine(&self, l: &Layout, mul: f64, add: f64) -> Result<Self> {
        self.apply(Op::Affine { mul, add }, &[(self, l)], l.shape(), self.dtype)
    }

    fn powf(&self, l: &Layout, exponent: f64) -> Result<Self> {
        self.apply(Op::Powf(exponent), &[(self, l)], l.shape(), self.dtype)
    }

    fn elu(&self, l: &Layout, alpha: f64) -> Result<Self> {
        self.apply(Op::Elu { alpha }, &[(self, l)], l.shape(), self.dtype)
    }

    fn reduce_op(&self, op: ReduceOp, l: &Layout, dims: &[usize]) -> Result<Self> {
        let mut shape = l.dims().to_vec();
        for dim in dims {
            shape[*dim] = 1;
        }
        let is_index = matches!(op, ReduceOp::ArgMin | ReduceOp::ArgMax);
        let dtype = if is_index { DType::U32 } else { self.dtype };
        self.apply(Op::Reduce(op, dims.to_vec()), &[(self, l)], shape, dtype)
    }

    fn cmp(&self, op: CmpOp, rhs: &Self, l: &Layout, rhs_l: &Layout) -> Result<Self> {
        self.apply(Op::Cmp(op), &[(self, l), (rhs, rhs_l)], l.shape(), DType::U8)
    }

    fn to_dtype(&self, l: &Layout, dtype: DType) -> Result<Self> {
        self.apply(Op::ToDType, &[(self, l)], l.shape(), dtype)
    }

    fn unary_impl<B: UnaryOpT>(&self, l: &Layout) -> Result<Self> {
        self.apply(Op::Unary(B::NAME), &[(self, l)], l.shape(), self.dtype)
    }

    fn binary_impl<B: BinaryOpT>(&self, rhs: &Self, l: &Layout, rhs_l: &Layout) -> Result<Self> {
        self.apply(Op::Binary(B::NAME), &[(self, l), (rhs, rhs_l)], l.shape(), self.dtype)
    }

    fn where_cond(&self, l: &Layout, t: &Self, t_l: &Layout, f: &Self, f_l: &Layout) -> Result<Self> {
        self.apply(Op::WhereCond, &[(self, l), (t, t_l), (f, f_l)], l.shape(), t.dtype)
    }

    fn conv1d(&self, l: &Layout, kernel: &Self, kernel_l: &Layout, p: &ParamsConv1D) -> Result<Self> {
        let op = Op::Conv { spatial: 1, stride: p.stride, padding: p.padding, dilation: p.dilation };
        self.apply(op, &[(self, l), (kernel, kernel_l)], p.out_dims(), self.dtype)
    }

    fn conv_transpose1d(&self, l: &Layout, kernel: &Self, kernel_l: &Layout, p: &ParamsConvTranspose1D) -> Result<Self> {
        let (stride, padding, dilation) = (p.stride, p.padding, p.dilation);
        let op = Op::ConvTranspose { spatial: 1, stride, padding, output_padding: p.output_padding, dilation };
        self.apply(op, &[(self, l), (kernel, kernel_l)], p.out_dims(), self.dtype)
    }

    fn conv2d(&self, l: &Layout, kernel: &Self, kernel_l: &Layout, p: &ParamsConv2D) -> Result<Self> {
        let op = Op::Conv { spatial: 2, stride: p.stride, padding: p.padding, dilation: p.dilation };
        self.apply(op, &[(self, l), (kernel, kernel_l)], p.out_dims(), self.dtype)
    }

    fn conv_transpose2d(&self, l: &Layout, kernel: &Self, kernel_l: &Layout, p: &ParamsConvTranspose2D) -> Result<Self> {
        let (stride, padding, dilation) = (p.stride, p.padding, p.dilation);
        let op = Op::ConvTranspose { spatial: 2, stride, padding, output_padding: p.output_padding, dilation };
        self.apply(op, &[(self, l), (kernel, kernel_l)], p.out_dims(), self.dtype)
    }

    fn avg_pool2d(&self, l: &Layout, kernel: (usize, usize), stride: (usize, usize)) -> Result<Self> {
        self.apply(Op::AvgPool2d { kernel, stride }, &[(self, l)], pooled(l, kernel, stride)?, self.dtype)
    }

    fn max_pool2d(&self, l: &Layout, kernel: (usize, usize), stride: (usize, usize)) -> Result<Self> {
        self.apply(Op::MaxPool2d { kernel, stride }, &[(self, l)], pooled(l, kernel, stride)?, self.dtype)
    }

    fn upsample_nearest1d(&self, l: &Layout, size: usize) -> Result<Self> {
        let (batch, channels, _) = l.shape().dims3()?;
        self.apply(Op::UpsampleNearest(vec![size]), &[(self, l)], (batch, channels, size), self.dtype)
    }

    fn upsample_nearest2d(&self, l: &Layout, height: usize, width: usize) -> Result<Self> {
        let (batch, channels, _, _) = l.shape().dims4()?;
        let op = Op::UpsampleNearest(vec![height, width]);
        self.apply(op, &[(self, l)], (batch, channels, height, width), self.dtype)
    }

    fn upsample_bilinear2d(
        &self,
        l: &Layout,
        height: usize,
        width: usize,
        align_corners: bool,
        scale_h: Option<f64>,
        scale_w: Option<f64>,
    ) -> Result<Self> {
        let (batch, channels, _, _) = l.shape().dims4()?;
        let op = Op::UpsampleBilinear2d { size: (height, width), align_corners, scale: (scale_h, scale_w) };
        self.apply(op, &[(self, l)], (batch, channels, height, width), self.dtype)
    }

    fn gather(&self, l: &Layout, ids: &Self, ids_l: &Layout, dim: usize) -> Result<Self> {
        self.apply(Op::Gather { dim }, &[(self, l), (ids, ids_l)], ids_l.shape(), self.dtype)
    }

    fn scatter_set(
        &mut self,
        l: &Layout,
        ids: &Self,
        ids_l: &Layout,
        src: &Self,
        src_l: &Layout,
        dim: usize,
    ) -> Result<()> {
        self.change(Op::Scatter { dim }, &[(self, l), (ids, ids_l), (src, src_l)], l.shape())
    }

    fn scatter_add_set(
        &mut self,
        l: &Layout,
        ids: &Self,
        ids_l: &Layout,
        src: &Self,
        src_l: &Layout,
        dim: usize,
    ) -> Result<()> {
        self.change(Op::ScatterAdd { dim }, &[(self, l), (ids, ids_l), (src, src_l)], l.shape())
    }

    fn index_select(&self, ids: &Self, l: &Layout, ids_l: &Layout, dim: usize) -> Result<Self> {
        let mut shape = l.dims().to_vec();
        shape[dim] = ids_l.shape().elem_count();
        self.apply(Op::IndexSelect { dim }, &[(self, l), (ids, ids_l)], shape, self.dtype)
    }

    fn index_add(
        &self,
        l: &Layout,
        ids: &Self,
        ids_l: &Layout,
        src: &Self,
        src_l: &Layout,
        dim: usize,
    ) -> Result<Self> {
        self.apply(Op::IndexAdd { dim }, &[(self, l), (ids, ids_l), (src, src_l)], l.shape(), self.dtype)
    }

    fn matmul(
        &self,
        rhs: &Self,
        (_, m, n, _): (usize, usize, usize, usize),
        l: &Layout,
        rhs_l: &Layout,
    ) -> Result<Self> {
        let batches = &l.dims()[..l.dims().len() - 2];
        let shape = [batches, &[m, n]].concat();
        self.apply(Op::Matmul, &[(self, l), (rhs, rhs_l)], shape, self.dtype)
    }

    fn copy_strided_src(&self, dst: &mut Self, offset: usize, l: &Layout) -> Result<()> {
        dst.change(Op::Copy { offset }, &[(dst, &dst.all()), (self, l)], dst.count)
    }

    fn copy2d(
        &self,
        dst: &mut Self,
        rows: usize,
        columns: usize,
        src_stride: usize,
        dst_stride: usize,
        src_offset: usize,
        dst_offset: usize,
    ) -> Result<()> {
        let source = Rows { offset: src_offset, stride: src_stride };
        let target = Rows { offset: dst_offset, stride: dst_stride };
        let op = Op::Copy2d { rows, columns, source, target };
        dst.change(op, &[(dst, &dst.all()), (self, &self.all())], dst.count)
    }

    fn const_set(&mut self, number: Scalar, l: &Layout) -> Result<()> {
        self.change(Op::Set(number), &[(self, l)], self.count)
    }
}

/// The shape after pooling without padding.
fn pooled(l: &Layout, kernel: (usize, usize), stride: (usize, usize)) -> Result<Shape> {
    let (batch, channels, height, width) = l.shape().dims4()?;
    if kernel.0 > height || kernel.1 > width {
        crate::bail!("a pooling window of {kernel:?} does not fit into {height} by {width} elements");
    }
    let size = |size: usize, kernel: usize, stride: usize| (size - kernel) / stride + 1;
    Ok((batch, channels, size(height, kernel.0, stride.0), size(width, kernel.1, stride.1)).into())
}
