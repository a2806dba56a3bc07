//! Writes programs as [StableHLO](https://openxla.org/stablehlo/spec) text, which every PJRT plugin compiles.
//!
//! The text follows the graph without simplification, since compilers simplify better.

mod check;
mod instruction;
mod notation;
mod region;
mod window;

use crate::graph::Node;
use crate::program::{Argument, Instruction, Program};
use ferrotune_devices::pjrt::Element;
use instruction::Line;
use notation::tensor;
use std::collections::HashSet;
use std::sync::Arc;

/// The program as a module with the function `main`.
pub(crate) fn text(program: &Program) -> String {
    let nodes = || program.results.iter().map(|place| &program.instructions[*place].node);
    let types: Vec<String> = nodes().map(|node| type_of(node)).collect();
    let results = nodes().map(|node| format!("{}{}", type_of(node), braced(sharding(program, Some(node)))));
    let results: Vec<String> = results.collect();
    let mut body = Body::new(program);
    for place in 0..program.instructions.len() {
        body.add(place);
    }
    let names: Vec<&str> = program.results.iter().map(|place| body.names[*place].as_str()).collect();
    let returned = match names.is_empty() {
        true => "    return\n".to_owned(),
        false => format!("    return {} : {}\n", names.join(", "), types.join(", ")),
    };
    format!(
        "module @ferrotune attributes {{mhlo.num_partitions = {} : i32, mhlo.num_replicas = {} : i32}} {{\n  \
         func.func public @main({}) -> ({}) {{\n{}{returned}  }}\n}}\n",
        program.cores.partitions(),
        program.cores.replicas(),
        parameters(program).join(", "),
        results.join(", "),
        body.text,
    )
}

fn parameters(program: &Program) -> Vec<String> {
    let parameter = |(place, argument): (usize, &Argument)| {
        let (of, node) = match argument {
            Argument::Node(node) | Argument::Key(node) => (type_of(node), Some(node)),
            Argument::Numbers(numbers, element) => (tensor(&[numbers.len()], *element), None),
            Argument::Starts(starts) => (tensor(&[starts.len()], Element::S32), None),
        };
        let alias = program.aliases.iter().find(|(argument, _)| *argument == place);
        let alias = alias.map(|(_, result)| format!("tf.aliasing_output = {result} : i32"));
        format!("%arg{place}: {of}{}", braced(sharding(program, node).into_iter().chain(alias)))
    };
    program.arguments.iter().enumerate().map(parameter).collect()
}

/// The attribute for the sharding of an argument or a result, if there is a mesh.
fn sharding(program: &Program, node: Option<&Arc<Node>>) -> Option<String> {
    let mesh = program.cores.mesh()?;
    Some(format!("mhlo.sharding = \"{}\"", mesh.attribute(node.and_then(|node| node.sharding.as_ref()))))
}

/// Attributes in braces, in the form that follows a type.
fn braced(attributes: impl IntoIterator<Item = String>) -> String {
    let attributes: Vec<String> = attributes.into_iter().collect();
    if attributes.is_empty() { String::new() } else { format!(" {{{}}}", attributes.join(", ")) }
}

fn type_of(node: &Node) -> String {
    tensor(&node.dims, node.element)
}

/// The text of the function's instructions.
struct Body<'a> {
    program: &'a Program,
    text: String,
    /// The name of each instruction's value.
    names: Vec<String>,
    /// The numbers of the argument that have been read, by their index and type.
    numbers: HashSet<(usize, Element)>,
}

impl Body<'_> {
    fn new(program: &Program) -> Body<'_> {
        Body { program, text: String::new(), names: Vec::new(), numbers: HashSet::new() }
    }

    fn add(&mut self, place: usize) {
        let program = self.program;
        let instruction = &program.instructions[place];
        if let Some(argument) = instruction.argument {
            self.names.push(format!("%arg{argument}"));
            return;
        }
        let name = format!("%v{place}");
        let node = &instruction.node;
        if let Some(index) = program.numbers.get(&place) {
            self.number(&name, node, *index);
            self.names.push(name);
            return;
        }
        if let Some(first) = program.moved.get(&place) {
            self.moved_slice(&name, instruction, *first);
            self.names.push(name);
            return;
        }
        let input = |place: &usize| (self.names[*place].as_str(), &program.instructions[*place].node);
        let line = Line { name: &name, node, inputs: instruction.inputs.iter().map(input).collect() };
        for statement in line.statements(&program.cores) {
            self.text.push_str("    ");
            self.text.push_str(&statement);
            self.text.push('\n');
        }
        let value = line.value();
        self.names.push(value);
    }

    /// Writes the instructions of a slice that begins where an argument says, from its number `first` on.
    fn moved_slice(&mut self, name: &str, instruction: &Instruction, first: usize) {
        let program = self.program;
        let starts = program.arguments.iter().enumerate().find_map(|(place, argument)| match argument {
            Argument::Starts(starts) => Some((place, starts.len())),
            _ => None,
        });
        // A program with an instruction of this kind has the argument and the input, so the defaults are never used.
        let (argument, count) = starts.unwrap_or((0, 1));
        let input = instruction.inputs.first().copied().unwrap_or_default();
        let dims = &instruction.node.dims;
        let starts: Vec<String> = (0..dims.len())
            .map(|dim| self.scalar(&format!("{name}_{dim}"), argument, (count, Element::S32), first + dim))
            .collect();
        let (starts, types) = (starts.join(", "), vec![tensor(&[], Element::S32); dims.len()].join(", "));
        let sizes: Vec<String> = dims.iter().map(usize::to_string).collect();
        self.text.push_str(&format!(
            "    {name} = stablehlo.dynamic_slice {}, {starts}, sizes = [{}] : ({}, {types}) -> {}\n",
            self.names[input],
            sizes.join(", "),
            type_of(&program.instructions[input].node),
            type_of(&instruction.node)
        ));
    }

    /// Writes the instructions that fill an array with a number of the argument with all numbers.
    fn number(&mut self, name: &str, node: &Arc<Node>, index: usize) {
        let numbers = self.program.arguments.iter().enumerate().find_map(|(place, argument)| match argument {
            Argument::Numbers(numbers, element) => Some((place, numbers.len(), *element)),
            _ => None,
        });
        // A program with an instruction of this kind has the argument, so the default is never used.
        let (argument, count, element) = numbers.unwrap_or((0, 1, Element::F32));
        let (scalar, converted, result) = (tensor(&[], element), tensor(&[], node.element), type_of(node));
        let number = format!("%n{index}_{:?}", node.element);
        if self.numbers.insert((index, node.element)) {
            let read = self.scalar(&number, argument, (count, element), index);
            self.text.push_str(&format!("    {number} = stablehlo.convert {read} : ({scalar}) -> {converted}\n"));
        }
        self.text.push_str(&format!(
            "    {name} = stablehlo.broadcast_in_dim {number}, dims = [] : ({converted}) -> {result}\n"
        ));
    }

    /// Writes the instructions that read one number of an argument with so many of this type. Returns the name of the number.
    fn scalar(&mut self, name: &str, argument: usize, (count, element): (usize, Element), start: usize) -> String {
        let (all, one, scalar) = (tensor(&[count], element), tensor(&[1], element), tensor(&[], element));
        let end = start + 1;
        self.text.push_str(&format!(
            "    {name}_s = stablehlo.slice %arg{argument} [{start}:{end}] : ({all}) -> {one}\n    \
             {name}_r = stablehlo.reshape {name}_s : ({one}) -> {scalar}\n"
        ));
        format!("{name}_r")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Checks;
    use crate::graph::{Array as _, Binary, Op, Reduction};
    use crate::mesh::Cores;
    use crate::program::Numbers;

    #[test]
    fn a_program_is_a_module_with_one_function() {
        let x = Node::new(Op::Described, Vec::new(), &[2, 3], Element::F32);
        let doubled = x.binary(Binary::Multiply, &Node::number(2.0, &[2, 3], Element::F32));
        let program = Program::new(
            &[doubled.reduce(Reduction::Sum, &[1])],
            &[],
            &[],
            &Cores::Replicas(2),
            Checks::Made,
            Numbers::Apart,
        );
        let expected = "\
module @ferrotune attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 2 : i32} {
  func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<1xf32>) -> (tensor<2xf32>) {
    %n0_F32_s = stablehlo.slice %arg1 [0:1] : (tensor<1xf32>) -> tensor<1xf32>
    %n0_F32_r = stablehlo.reshape %n0_F32_s : (tensor<1xf32>) -> tensor<f32>
    %n0_F32 = stablehlo.convert %n0_F32_r : (tensor<f32>) -> tensor<f32>
    %v1 = stablehlo.broadcast_in_dim %n0_F32, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %v2 = stablehlo.multiply %arg0, %v1 : tensor<2x3xf32>
    %v3_init = stablehlo.constant dense<0x00000000> : tensor<f32>
    %v3 = stablehlo.reduce(%v2 init: %v3_init) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
    return %v3 : tensor<2xf32>
  }
}
";
        assert_eq!(text(&program), expected);
    }
}
