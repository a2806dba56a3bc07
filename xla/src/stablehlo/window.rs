//! Instructions that read windows, and those that read or write at indices.

use super::instruction::Line;
use super::notation::{list, start};
use super::region;
use crate::graph::{Convolution, Reduction, Update};
use std::fmt::Display;

impl Line<'_> {
    pub(super) fn convolution(&self, convolution: &Convolution) -> String {
        let Convolution { spatial, stride, padding, input_dilation, kernel_dilation, transposed } = convolution;
        let each = |number: &usize| list(vec![number; *spatial]);
        let space: String = (0..*spatial).map(|dim| format!(", {dim}")).collect();
        let kernel = if *transposed { "i, o" } else { "o, i" };
        let padding = list(padding.iter().map(|(low, high)| format!("[{low}, {high}]")));
        format!(
            "{} = stablehlo.convolution({}) dim_numbers = [b, f{space}]x[{kernel}{space}]->[b, f{space}], window = {{stride \
             = [{}], pad = [{padding}], lhs_dilate = [{}], rhs_dilate = [{}]}} {{batch_group_count = 1 : i64, \
             feature_group_count = 1 : i64}} : {}",
            self.name,
            self.operands(),
            each(stride),
            each(input_dilation),
            each(kernel_dilation),
            self.signature()
        )
    }

    pub(super) fn window(&self, reduction: Reduction, size: (usize, usize), stride: (usize, usize)) -> [String; 2] {
        let element = self.node.element;
        let (init, of) = self.constant("init");
        let combine = region::combine(region::reducer(reduction), element, &self.name[1..]);
        let reduced = format!(
            "{} = \"stablehlo.reduce_window\"({}, {init}) <{{{}}}> {combine} : ({}, {of}) -> {}",
            self.name,
            self.operands(),
            windows(size, stride),
            self.input_types(),
            self.result_type()
        );
        [self.constant_line("init", &start(reduction, element)), reduced]
    }

    pub(super) fn select_and_scatter(&self, size: (usize, usize), stride: (usize, usize)) -> [String; 2] {
        let (element, tag) = (self.node.element, &self.name[1..]);
        let zero = start(Reduction::Sum, element);
        let (init, of) = self.constant("init");
        let scattered = format!(
            "{} = \"stablehlo.select_and_scatter\"({}, {init}) <{{{}}}> ({}, {}) : ({}, {of}) -> {}",
            self.name,
            self.operands(),
            windows(size, stride),
            inner(&region::is_greatest(element, tag)),
            inner(&region::combine("add", element, tag)),
            self.input_types(),
            self.result_type()
        );
        [self.constant_line("init", &zero), scattered]
    }

    /// A gather of slices of size 1 in a dimension.
    pub(super) fn take(&self, dim: usize) -> String {
        let dims = &self.inputs[0].1.dims;
        let others = list((0..dims.len()).filter(|other| *other != dim));
        let sizes = list(dims.iter().enumerate().map(|(other, size)| if other == dim { 1 } else { *size }));
        self.gather(&others, &dim, &dim, 1, &sizes)
    }

    /// A gather of single elements.
    pub(super) fn take_each(&self) -> String {
        let rank = self.inputs[0].1.dims.len();
        let all = list(0..rank);
        self.gather(&"", &all, &all, self.node.dims.len(), &list(vec![1; rank]))
    }

    fn gather(
        &self,
        offset: &dyn Display,
        collapsed: &dyn Display,
        map: &dyn Display,
        vector: usize,
        sizes: &str,
    ) -> String {
        format!(
            "{} = \"stablehlo.gather\"({}) <{{dimension_numbers = #stablehlo.gather<offset_dims = [{offset}], \
             collapsed_slice_dims = [{collapsed}], start_index_map = [{map}], index_vector_dim = {vector}>, \
             indices_are_sorted = false, slice_sizes = array<i64: {sizes}>}}> : {}",
            self.name,
            self.operands(),
            self.signature()
        )
    }

    pub(super) fn put(&self, update: Update, dim: usize) -> String {
        let others = list((0..self.node.dims.len()).filter(|other| *other != dim));
        self.scatter(update, &others, &dim, 1)
    }

    pub(super) fn put_each(&self, update: Update) -> String {
        let rank = self.node.dims.len();
        // The indices have one dimension more than the source, unless an index is a single number.
        let vector = self.inputs[2].1.dims.len();
        self.scatter(update, &"", &list(0..rank), vector)
    }

    fn scatter(&self, update: Update, window: &dyn Display, inserted: &dyn Display, vector: usize) -> String {
        format!(
            "{} = \"stablehlo.scatter\"({}) <{{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = \
             [{window}], inserted_window_dims = [{inserted}], scatter_dims_to_operand_dims = [{inserted}], index_vector_dim \
             = {vector}>, indices_are_sorted = false, unique_indices = false}}> {} : {}",
            self.name,
            self.operands(),
            region::update(update, self.node.element, &self.name[1..]),
            self.signature()
        )
    }
}

/// The attributes for windows over the last two of four dimensions.
fn windows(size: (usize, usize), stride: (usize, usize)) -> String {
    format!(
        "window_dimensions = array<i64: 1, 1, {}, {}>, window_strides = array<i64: 1, 1, {}, {}>",
        size.0, size.1, stride.0, stride.1
    )
}

/// The text of a region without the parentheses around it.
fn inner(region: &str) -> &str {
    region.trim_start_matches('(').trim_end_matches(')')
}
