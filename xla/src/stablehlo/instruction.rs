//! The text of one instruction.

use super::notation::{list, number, start, tensor};
use super::{region, type_of};
use crate::element::is_short_float;
use crate::graph::{Binary, Compare, Node, Op, Reduction, Unary};
use crate::mesh::Cores;
use ferrotune_devices::pjrt::Element;
use std::sync::Arc;

/// An instruction with the names of its inputs.
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) node: &'a Arc<Node>,
    pub(super) inputs: Vec<(&'a str, &'a Arc<Node>)>,
}

impl Line<'_> {
    /// The name of the instruction's value; some instructions have several values.
    pub(super) fn value(&self) -> String {
        match self.node.op {
            Op::SortPlaces { .. } => format!("{}#1", self.name),
            // A check computes nothing; its second input is a separate result.
            Op::Checked(_) => self.inputs.first().map_or_else(String::new, |(name, _)| (*name).to_owned()),
            _ => self.name.to_owned(),
        }
    }

    /// The statements that compute the value.
    pub(super) fn statements(&self, cores: &Cores) -> Vec<String> {
        let (node, element) = (self.node, self.node.element);
        let one = |statement: String| vec![statement];
        match &node.op {
            Op::Dot { .. } | Op::Convolution(_) if cores.mesh().is_some() && is_short_float(element) => {
                self.in_single_precision(cores)
            }
            // Arguments, numbers and checks are no instructions.
            Op::Data | Op::Described | Op::Key | Op::Number | Op::Checked(_) => Vec::new(),
            Op::Uninit => one(self.dense(&number(0, element))),
            Op::Constant(bits) => one(self.dense(&number(*bits, element))),
            Op::Table(bits) => one(self.dense(&format!("[{}]", list(bits.iter().map(|bits| number(*bits, element)))))),
            Op::Iota(dim) => one(format!("{} = stablehlo.iota dim = {dim} : {}", self.name, self.result_type())),
            Op::Reshape => one(self.call("reshape", "")),
            Op::Transpose(order) => one(self.call("transpose", &format!(", dims = [{}]", list(order)))),
            Op::Broadcast(at) => one(self.call("broadcast_in_dim", &format!(", dims = [{}]", list(at)))),
            Op::Slice { start, end, stride } => one(self.slice(start, end, stride)),
            Op::Concatenate(dim) => one(self.call("concatenate", &format!(", dim = {dim}"))),
            Op::Pad { low, high, between } => {
                let edges = format!(", low = [{}], high = [{}], interior = [{}]", list(low), list(high), list(between));
                one(self.call("pad", &edges))
            }
            Op::Reverse(dims) => {
                let (name, operands, dims) = (self.name, self.operands(), list(dims));
                one(format!("{name} = stablehlo.reverse {operands}, dims = [{dims}] : {}", self.result_type()))
            }
            Op::Unary(Unary::Erf) => {
                let of = self.result_type();
                one(format!("{} = chlo.erf {} : {of} -> {of}", self.name, self.operands()))
            }
            Op::Unary(unary) => one(self.same(unary_name(*unary))),
            Op::Binary(binary) => one(self.same(binary_name(*binary))),
            Op::Compare(compare) => one(self.compare(*compare)),
            Op::Select => {
                let (name, of) = (self.name, self.result_type());
                one(format!("{name} = stablehlo.select {} : {}, {of}", self.operands(), self.type_of_input(0)))
            }
            Op::Convert => one(self.call("convert", "")),
            Op::Reduce(reduction, over) => self.reduce(*reduction, over).to_vec(),
            Op::Dot { batches } => one(self.dot(*batches)),
            Op::Convolution(convolution) => one(self.convolution(convolution)),
            Op::Window { reduction, size, stride } => self.window(*reduction, *size, *stride).to_vec(),
            Op::SelectAndScatter { size, stride } => self.select_and_scatter(*size, *stride).to_vec(),
            Op::Take(dim) => one(self.take(*dim)),
            Op::Put(update, dim) => one(self.put(*update, *dim)),
            Op::TakeEach => one(self.take_each()),
            Op::PutEach(update) => one(self.put_each(*update)),
            Op::SortPlaces { ascending } => self.sort_places(*ascending).to_vec(),
            Op::OutOfRange(size) => self.out_of_range(*size),
            Op::Bits => one(self.bits()),
            Op::Shard => self.shard().to_vec(),
            Op::AllReduce => one(self.all_reduce(cores.replicas())),
            Op::Sharding => one(self.sharding(cores)),
        }
    }

    pub(super) fn operands(&self) -> String {
        list(self.inputs.iter().map(|(name, _)| name))
    }

    pub(super) fn input_types(&self) -> String {
        list(self.inputs.iter().map(|(_, node)| type_of(node)))
    }

    fn type_of_input(&self, place: usize) -> String {
        self.inputs.get(place).map_or(String::new(), |(_, node)| type_of(node))
    }

    pub(super) fn result_type(&self) -> String {
        type_of(self.node)
    }

    pub(super) fn signature(&self) -> String {
        format!("({}) -> {}", self.input_types(), self.result_type())
    }

    /// An instruction with its operands, further text, and the types of all.
    fn call(&self, instruction: &str, rest: &str) -> String {
        format!("{} = stablehlo.{instruction} {}{rest} : {}", self.name, self.operands(), self.signature())
    }

    /// An instruction whose operands and result have one type.
    fn same(&self, instruction: &str) -> String {
        format!("{} = stablehlo.{instruction} {} : {}", self.name, self.operands(), self.result_type())
    }

    fn dense(&self, numbers: &str) -> String {
        format!("{} = stablehlo.constant dense<{numbers}> : {}", self.name, self.result_type())
    }

    /// The name and type of a scalar that belongs to this instruction.
    pub(super) fn constant(&self, role: &str) -> (String, String) {
        (format!("{}_{role}", self.name), tensor(&[], self.node.element))
    }

    /// The statement for this scalar.
    pub(super) fn constant_line(&self, role: &str, number: &str) -> String {
        let (name, of) = self.constant(role);
        format!("{name} = stablehlo.constant dense<{number}> : {of}")
    }

    fn slice(&self, start: &[usize], end: &[usize], stride: &[usize]) -> String {
        let ranges = start.iter().zip(end).zip(stride).map(|((start, end), stride)| format!("{start}:{end}:{stride}"));
        self.call("slice", &format!(" [{}]", list(ranges)))
    }

    fn compare(&self, compare: Compare) -> String {
        let direction = match compare {
            Compare::Equal => "EQ",
            Compare::NotEqual => "NE",
            Compare::LessOrEqual => "LE",
            Compare::GreaterOrEqual => "GE",
            Compare::Less => "LT",
            Compare::Greater => "GT",
        };
        let kind = self.inputs.first().map_or("FLOAT", |(_, node)| region::kind(node.element));
        let (name, operands) = (self.name, self.operands());
        format!("{name} = stablehlo.compare {direction}, {operands}, {kind} : {}", self.signature())
    }

    fn reduce(&self, reduction: Reduction, over: &[usize]) -> [String; 2] {
        let (init, of) = self.constant("init");
        let line = format!(
            "{} = stablehlo.reduce({} init: {init}) applies stablehlo.{} across dimensions = [{}] : ({}, {of}) -> {}",
            self.name,
            self.operands(),
            region::reducer(reduction),
            list(over),
            self.input_types(),
            self.result_type()
        );
        [self.constant_line("init", &start(reduction, self.node.element)), line]
    }

    fn dot(&self, batches: usize) -> String {
        let batch = list(0..batches);
        let batching = if batches == 0 { String::new() } else { format!(", batching_dims = [{batch}] x [{batch}]") };
        self.call("dot_general", &format!("{batching}, contracting_dims = [{}] x [{batches}]", batches + 1))
    }

    fn sort_places(&self, ascending: bool) -> [String; 2] {
        let Some((operand, node)) = self.inputs.first() else { return [String::new(), String::new()] };
        let (name, of, places) = (self.name, type_of(node), self.result_type());
        let dim = self.node.dims.len().saturating_sub(1);
        let comparator = region::is_first(node.element, ascending, &name[1..]);
        [
            format!("{name}_iota = stablehlo.iota dim = {dim} : {places}"),
            format!(
                "{name}:2 = \"stablehlo.sort\"({operand}, {name}_iota) <{{dimension = {dim} : i64, is_stable = true}}> \
                 {comparator} : ({of}, {places}) -> ({of}, {places})"
            ),
        ]
    }

    fn bits(&self) -> String {
        let key = tensor(&[2], Element::U64);
        let (name, operands, of) = (self.name, self.operands(), self.result_type());
        format!(
            "{name}_key, {name} = stablehlo.rng_bit_generator {operands}, algorithm = THREE_FRY : ({key}) -> ({key}, {of})"
        )
    }

    fn shard(&self) -> [String; 5] {
        let (name, dims) = (&self.name, &self.node.dims);
        let rows = dims.first().copied().unwrap_or(1);
        let starts =
            list((0..dims.len()).map(|dim| if dim == 0 { format!("{name}_start") } else { format!("{name}_zero") }));
        let types = list(dims.iter().map(|_| "tensor<ui32>"));
        [
            format!("{name}_replica = stablehlo.replica_id : tensor<ui32>"),
            format!("{name}_rows = stablehlo.constant dense<{rows}> : tensor<ui32>"),
            format!("{name}_start = stablehlo.multiply {name}_replica, {name}_rows : tensor<ui32>"),
            format!("{name}_zero = stablehlo.constant dense<0> : tensor<ui32>"),
            format!(
                "{name} = stablehlo.dynamic_slice {}, {starts}, sizes = [{}] : ({}, {types}) -> {}",
                self.operands(),
                list(dims),
                self.input_types(),
                self.result_type()
            ),
        ]
    }

    /// A sum of 16-bit floats in `f32`: cores that have parts of a sum add them in this type.
    fn in_single_precision(&self, cores: &Cores) -> Vec<String> {
        let name = format!("{}_single", self.name);
        let node = Node::new(self.node.op.clone(), Vec::new(), &self.node.dims, Element::F32);
        let line = Line { name: &name, node: &node, inputs: self.inputs.clone() };
        let mut statements = line.statements(cores);
        statements.push(format!(
            "{} = stablehlo.convert {name} : ({}) -> {}",
            self.name,
            type_of(&node),
            self.result_type()
        ));
        statements
    }

    fn sharding(&self, cores: &Cores) -> String {
        // Only a device with a mesh makes this instruction.
        let sharding = cores.mesh().map_or_else(String::new, |mesh| mesh.attribute(self.node.sharding.as_ref()));
        format!(
            "{} = stablehlo.custom_call @Sharding({}) {{mhlo.sharding = \"{sharding}\"}} : {}",
            self.name,
            self.operands(),
            self.signature()
        )
    }

    fn all_reduce(&self, replicas: usize) -> String {
        let combine = region::combine("add", self.node.element, &self.name[1..]);
        format!(
            "{} = \"stablehlo.all_reduce\"({}) <{{replica_groups = dense<[[{}]]> : tensor<1x{replicas}xi64>}}> {combine} : {}",
            self.name,
            self.operands(),
            list(0..replicas),
            self.signature()
        )
    }
}

fn unary_name(unary: Unary) -> &'static str {
    match unary {
        Unary::Abs => "abs",
        Unary::Ceil => "ceil",
        Unary::Cosine => "cosine",
        Unary::Erf => "erf",
        Unary::Exponential => "exponential",
        Unary::ExponentialMinusOne => "exponential_minus_one",
        Unary::Floor => "floor",
        Unary::Log => "log",
        Unary::LogPlusOne => "log_plus_one",
        Unary::Logistic => "logistic",
        Unary::Negate => "negate",
        Unary::RoundNearestEven => "round_nearest_even",
        Unary::Rsqrt => "rsqrt",
        Unary::Sign => "sign",
        Unary::Sine => "sine",
        Unary::Sqrt => "sqrt",
        Unary::Tanh => "tanh",
    }
}

fn binary_name(binary: Binary) -> &'static str {
    match binary {
        Binary::Add => "add",
        Binary::And => "and",
        Binary::Divide => "divide",
        Binary::Maximum => "maximum",
        Binary::Minimum => "minimum",
        Binary::Multiply => "multiply",
        Binary::Or => "or",
        Binary::Power => "power",
        Binary::ShiftRightLogical => "shift_right_logical",
        Binary::Subtract => "subtract",
    }
}
