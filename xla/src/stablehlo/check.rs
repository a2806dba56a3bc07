//! The text for a check of indexes. The check is one node of the graph, because lazy code makes the graph anew for each run.

use super::instruction::Line;
use super::notation::{list, tensor};
use crate::checks::NONE_FOUND;
use crate::element::bounds;
use ferrotune_devices::pjrt::Element;

impl Line<'_> {
    /// The statements for the greatest index that is out of a dimension of this size, or [`NONE_FOUND`]. The greatest number of the
    /// indexes' type is padding, not an index.
    pub(super) fn out_of_range(&self, size: usize) -> Vec<String> {
        let Some((given, indexes)) = self.inputs.first() else { return Vec::new() };
        let name = self.name;
        let (wide, predicate) = (tensor(&indexes.dims, Element::S64), tensor(&indexes.dims, Element::Pred));
        let padding = match indexes.element {
            Element::S64 => i64::MAX,
            element => bounds(element).1 as i64 - 1,
        };
        let constant = |role: &str, number: i64| format!("{name}_{role} = stablehlo.constant dense<{number}> : {wide}");
        let compare = |role: &str, direction: &str, with: &str| {
            format!(
                "{name}_{role} = stablehlo.compare {direction}, {name}_wide, {name}_{with}, SIGNED : ({wide}, {wide}) -> {predicate}"
            )
        };
        let mut statements = vec![
            format!("{name}_wide = stablehlo.convert {given} : ({}) -> {wide}", self.input_types()),
            constant("size", i64::try_from(size).unwrap_or(i64::MAX)),
            constant("padding", padding),
            constant("zero", 0),
            constant("none", NONE_FOUND),
            // The least `i64` as an index would be read as `NONE_FOUND`.
            constant("least", NONE_FOUND + 1),
            compare("above", "GE", "size"),
            compare("below", "LT", "zero"),
            compare("real", "NE", "padding"),
            format!("{name}_outside = stablehlo.or {name}_above, {name}_below : {predicate}"),
            format!("{name}_wrong = stablehlo.and {name}_outside, {name}_real : {predicate}"),
            format!("{name}_shown = stablehlo.maximum {name}_wide, {name}_least : {wide}"),
            format!("{name}_all = stablehlo.select {name}_wrong, {name}_shown, {name}_none : {predicate}, {wide}"),
        ];
        let (scalar, all) = (tensor(&[], Element::S64), list(0..indexes.dims.len()));
        statements.push(format!("{name}_init = stablehlo.constant dense<{NONE_FOUND}> : {scalar}"));
        statements.push(format!(
            "{name} = stablehlo.reduce({name}_all init: {name}_init) applies stablehlo.maximum across dimensions = [{all}] : \
             ({wide}, {scalar}) -> {scalar}"
        ));
        statements
    }
}
