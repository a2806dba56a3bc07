//! The functions inside instructions, which combine two elements in a reduction or compare them in a sort.

use super::notation::{name, number};
use crate::element::is_float;
use crate::graph::{Reduction, Update};
use ferrotune_devices::pjrt::Element;

/// StableHLO's name of the function that combines two elements in a reduction.
pub(super) fn reducer(reduction: Reduction) -> &'static str {
    match reduction {
        Reduction::Sum => "add",
        Reduction::Maximum => "maximum",
        Reduction::Minimum => "minimum",
    }
}

/// A function of two elements. Names end with `tag`, which is unique in the program.
pub(super) fn combine(operation: &str, element: Element, tag: &str) -> String {
    let e = name(element);
    format!(
        "({{\n    ^bb0(%a{tag}: tensor<{e}>, %b{tag}: tensor<{e}>):\n      \
         %c{tag} = stablehlo.{operation} %a{tag}, %b{tag} : tensor<{e}>\n      \
         stablehlo.return %c{tag} : tensor<{e}>\n    }})"
    )
}

/// The function that updates an old element with a new one.
pub(super) fn update(update: Update, element: Element, tag: &str) -> String {
    let e = name(element);
    match update {
        Update::Add => combine("add", element, tag),
        Update::Set => format!(
            "({{\n    ^bb0(%a{tag}: tensor<{e}>, %b{tag}: tensor<{e}>):\n      stablehlo.return %b{tag} : tensor<{e}>\n    }})"
        ),
    }
}

/// The function that tells whether the first element is greater than or equal to the second, or a NaN.
pub(super) fn is_greatest(element: Element, tag: &str) -> String {
    let (e, kind) = (name(element), kind(element));
    let compare = format!("(tensor<{e}>, tensor<{e}>) -> tensor<i1>");
    let (nan, mut result) = (format!("%n{tag} = stablehlo.compare NE, %x{tag}, %x{tag}, {kind} : {compare}"), "z");
    let mut body = format!("      %z{tag} = stablehlo.compare GE, %x{tag}, %y{tag}, {kind} : {compare}\n");
    if is_float(element) {
        body += &format!("      {nan}\n      %w{tag} = stablehlo.or %z{tag}, %n{tag} : tensor<i1>\n");
        result = "w";
    }
    format!(
        "({{\n    ^bb0(%x{tag}: tensor<{e}>, %y{tag}: tensor<{e}>):\n{body}      \
         stablehlo.return %{result}{tag} : tensor<i1>\n    }})"
    )
}

/// The kind of comparison for this element type.
pub(super) fn kind(element: Element) -> &'static str {
    match element {
        element if is_float(element) => "FLOAT",
        element if crate::element::is_unsigned(element) => "UNSIGNED",
        _ => "SIGNED",
    }
}

/// The function that tells which of two elements, with their indices, comes first. Zeros are equal whatever their sign, and a NaN is
/// greater than every number.
pub(super) fn is_first(element: Element, ascending: bool, tag: &str) -> String {
    let (e, direction) = (name(element), if ascending { "LT" } else { "GT" });
    let head = format!(
        "({{\n    ^bb0(%a{tag}: tensor<{e}>, %b{tag}: tensor<{e}>, %i{tag}: tensor<ui32>, %j{tag}: tensor<ui32>):\n"
    );
    let (mut body, mut kind) = (String::new(), kind(element));
    let (mut left, mut right) = (format!("%a{tag}"), format!("%b{tag}"));
    if is_float(element) {
        kind = "TOTALORDER";
        let constant = |number: u64| {
            format!("stablehlo.constant dense<{number}> : tensor<{e}>", number = self::number(number, element))
        };
        body = format!(
            "      %zero{tag} = {}\n      %nan{tag} = {}\n{}{}",
            constant(0),
            constant(f64::NAN.to_bits()),
            canonical(&left, e, tag),
            canonical(&right, e, tag)
        );
        (left, right) = (format!("{left}_k"), format!("{right}_k"));
    }
    format!(
        "{head}{body}      \
         %f{tag} = stablehlo.compare {direction}, {left}, {right}, {kind} : (tensor<{e}>, tensor<{e}>) -> tensor<i1>\n      \
         stablehlo.return %f{tag} : tensor<i1>\n    }})"
    )
}

/// The statements that give a float one form of zero and one of NaN.
fn canonical(x: &str, e: &str, tag: &str) -> String {
    let compare = "(tensor<{e}>, tensor<{e}>) -> tensor<i1>".replace("{e}", e);
    format!(
        "      {x}_z = stablehlo.compare EQ, {x}, %zero{tag}, FLOAT : {compare}\n      \
         {x}_n = stablehlo.compare NE, {x}, {x}, FLOAT : {compare}\n      \
         {x}_s = stablehlo.select {x}_z, %zero{tag}, {x} : tensor<i1>, tensor<{e}>\n      \
         {x}_k = stablehlo.select {x}_n, %nan{tag}, {x}_s : tensor<i1>, tensor<{e}>\n"
    )
}
