//! Programs: the part of the graph that some results need, in an order in which inputs come first.

use crate::checks::{Check, Checks, Fault};
use crate::graph::{Array as _, Node, Op};
use crate::mesh::Cores;
use crate::random;
use candle_core::Result;
use ferrotune_devices::pjrt::Element;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

/// An argument of a program, in the order of its inputs.
pub(crate) enum Argument {
    /// The value of a node, or a value that replaces it.
    Node(Arc<Node>),
    /// A key for random bits, which the node's numbers identify.
    Key(Arc<Node>),
    /// The numbers of all nodes [`Op::Number`], in this type.
    Numbers(Vec<f64>, Element),
    /// The places at which slices begin, for [`Program::move_slices`].
    Starts(Vec<i32>),
}

/// The most slices of a program that begin at arguments of it.
const MOST_MOVED: usize = 16;

/// How nodes [`Op::Number`] with the same number share it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Numbers {
    /// Each has its own: lazily computed code may have other numbers in its next run, and then two of them are not the same any more.
    Apart,
    /// They share one: the numbers of a step stay what they are. A model has few different numbers, each in many places, and each number
    /// of a program costs its compiler time. A step in which two numbers become equal is another program.
    Shared,
}

/// A node that is not placed in the order yet, with its inputs once they have been visited.
type Open = (Arc<Node>, Option<Vec<Arc<Node>>>);

/// A node that the program computes, or takes as an argument.
pub(crate) struct Instruction {
    pub(crate) node: Arc<Node>,
    /// The indices of the instructions that compute the node's inputs.
    pub(crate) inputs: Vec<usize>,
    /// The index of the argument, if the node is not computed.
    pub(crate) argument: Option<usize>,
}

pub(crate) struct Program {
    pub(crate) arguments: Vec<Argument>,
    pub(crate) instructions: Vec<Instruction>,
    /// The indices of the instructions whose values the program returns.
    pub(crate) results: Vec<usize>,
    /// The instructions that check indexes. If there are any, the last result of the program has the result of each check, one number each.
    pub(crate) checks: Vec<(usize, Check)>,
    /// The index of the number of each node [`Op::Number`] among the argument's.
    pub(crate) numbers: BTreeMap<usize, usize>,
    /// The slices that begin where an argument says, each with the index of its first number there.
    pub(crate) moved: BTreeMap<usize, usize>,
    /// The arguments whose memory a result reuses: pairs of argument and result.
    pub(crate) aliases: Vec<(usize, usize)>,
    pub(crate) cores: Cores,
}

impl Program {
    /// The program that computes `results`. `donors` are arguments, each with the index of the result that reuses its memory. A node
    /// with a value is an argument, and so is a `given` node, even if its value is not computed yet.
    pub(crate) fn new(
        results: &[Arc<Node>],
        donors: &[(Arc<Node>, usize)],
        given: &[Arc<Node>],
        cores: &Cores,
        checks: Checks,
        shared: Numbers,
    ) -> Program {
        let mut program = Program {
            arguments: Vec::new(),
            instructions: Vec::new(),
            results: Vec::new(),
            checks: Vec::new(),
            numbers: BTreeMap::new(),
            moved: BTreeMap::new(),
            aliases: Vec::new(),
            cores: cores.clone(),
        };
        let given: HashSet<*const Node> = given.iter().map(Arc::as_ptr).collect();
        let is_argument = |node: &Node| is_argument(node) || given.contains(&std::ptr::from_ref(node));
        let mut places = HashMap::new();
        program.order(&mut places, results, checks, &is_argument);
        program.results = results.iter().map(|node| places[&Arc::as_ptr(node)]).collect();
        if let Some(found) = program.found(checks) {
            program.order(&mut places, std::slice::from_ref(&found), checks, &is_argument);
            program.results.push(places[&Arc::as_ptr(&found)]);
        }
        program.number(shared);
        let argument = |node: &Arc<Node>| program.instructions[*places.get(&Arc::as_ptr(node))?].argument;
        program.aliases = donors.iter().filter_map(|(node, result)| Some((argument(node)?, *result))).collect();
        program
    }

    /// Makes the numbers an argument.
    fn number(&mut self, shared: Numbers) {
        let (mut numbers, mut known) = (Vec::new(), HashMap::new());
        for (place, Instruction { node, argument, .. }) in self.instructions.iter().enumerate() {
            if node.op != Op::Number || argument.is_some() {
                continue;
            }
            let [number] = node.numbers.as_slice() else { continue };
            let next = numbers.len();
            let index = match shared {
                Numbers::Apart => next,
                Numbers::Shared => *known.entry(number.to_bits()).or_insert(next),
            };
            if index == next {
                numbers.push(*number);
            }
            self.numbers.insert(place, index);
        }
        if !numbers.is_empty() {
            let is_wide = self.instructions.iter().any(|instruction| instruction.node.element == Element::F64);
            self.arguments.push(Argument::Numbers(numbers, if is_wide { Element::F64 } else { Element::F32 }));
        }
    }

    /// Records the instructions that check indexes. Returns the node with the results of the checks.
    fn found(&mut self, checks: Checks) -> Option<Arc<Node>> {
        if checks == Checks::LeftOut {
            return None;
        }
        let computed = self.instructions.iter().enumerate().filter(|(_, instruction)| instruction.argument.is_none());
        let check = |(place, instruction): (usize, &Instruction)| Some((place, instruction.node.check()?.clone()));
        self.checks = computed.filter_map(check).collect();
        let found = |(place, _): &(usize, Check)| Some(self.instructions[*place].node.inputs().get(1)?.reshape(&[1]));
        let found: Vec<Arc<Node>> = self.checks.iter().filter_map(found).collect();
        match found.as_slice() {
            [] => None,
            [only] => Some(only.clone()),
            _ => Some(Node::new(Op::Concatenate(0), found, &[self.checks.len()], Element::S64)),
        }
    }

    /// Makes the places an argument at which slices of arguments begin, so that the batches which `narrow` cuts out of a dataset are
    /// computed by one program. A program with many slices stays as it is: they would take long to compile.
    pub(crate) fn move_slices(&mut self) {
        let slices = self.instructions.iter().enumerate().filter(|(_, instruction)| self.cuts_argument(instruction));
        let slices: Vec<usize> = slices.map(|(place, _)| place).collect();
        if slices.is_empty() || slices.len() > MOST_MOVED || self.cores.mesh().is_some() {
            return;
        }
        let mut starts = Vec::new();
        for place in slices {
            self.moved.insert(place, starts.len());
            starts.extend(starts_of(&self.instructions[place].node.op).into_iter().flatten());
        }
        self.arguments.push(Argument::Starts(starts));
    }

    /// Whether an instruction cuts a part out of an argument, or out of an argument in another shape.
    fn cuts_argument(&self, instruction: &Instruction) -> bool {
        let input = |instruction: &Instruction| instruction.inputs.first().map(|place| &self.instructions[*place]);
        let Some(mut from) = input(instruction).filter(|_| instruction.argument.is_none()) else { return false };
        while from.argument.is_none() && from.node.op == Op::Reshape {
            let Some(before) = input(from) else { return false };
            from = before;
        }
        from.argument.is_some() && starts_of(&instruction.node.op).is_some()
    }

    /// Also returns the values of the held nodes that it computes on the way to its results. A value that follows from another one, or
    /// from numbers, without computation is left out.
    pub(crate) fn return_held(&mut self, is_held: impl Fn(&Arc<Node>) -> Result<bool>) -> Result<()> {
        let end = self.values();
        let mut is_there = vec![false; self.instructions.len()];
        for place in &self.results[..end] {
            is_there[*place] = true;
        }
        let mut held = Vec::new();
        for (place, Instruction { node, inputs, argument }) in self.instructions.iter().enumerate() {
            let follows = node.op.is_literal() || (node.op.is_view() && inputs.iter().all(|input| is_there[*input]));
            is_there[place] |= follows || argument.is_some();
            if !is_there[place] && is_held(node)? {
                is_there[place] = true;
                held.push(place);
            }
        }
        self.results.splice(end..end, held);
        Ok(())
    }

    /// The number of results without that of the checks, which is the last one.
    fn values(&self) -> usize {
        self.results.len() - usize::from(!self.checks.is_empty())
    }

    /// The nodes whose values the program returns, without the results of the checks.
    pub(crate) fn returned(&self) -> Vec<Arc<Node>> {
        self.results[..self.values()].iter().map(|place| self.instructions[*place].node.clone()).collect()
    }

    /// Adds all nodes that `results` need, and that are not placed yet, in an order in which inputs come first.
    fn order(
        &mut self,
        places: &mut HashMap<*const Node, usize>,
        results: &[Arc<Node>],
        checks: Checks,
        is_argument: &dyn Fn(&Node) -> bool,
    ) {
        // A graph is deep, so a recursive function would use up the stack.
        let mut open: Vec<Open> = results.iter().rev().map(|node| (node.clone(), None)).collect();
        while let Some((node, inputs)) = open.pop() {
            if places.contains_key(&Arc::as_ptr(&node)) {
                continue;
            }
            match inputs {
                None => {
                    let mut inputs = if is_argument(&node) { Vec::new() } else { node.inputs() };
                    if checks == Checks::LeftOut && node.check().is_some() {
                        inputs.truncate(1);
                    }
                    let missing: Vec<_> = inputs
                        .iter()
                        .rev()
                        .filter(|input| !places.contains_key(&Arc::as_ptr(input)))
                        .cloned()
                        .collect();
                    open.push((node, Some(inputs)));
                    open.extend(missing.into_iter().map(|input| (input, None)));
                }
                Some(inputs) => {
                    places.insert(Arc::as_ptr(&node), self.instructions.len());
                    let inputs = inputs.iter().map(|input| places[&Arc::as_ptr(input)]).collect();
                    let is_argument = is_argument(&node);
                    self.add(node, inputs, is_argument);
                }
            }
        }
    }

    fn add(&mut self, node: Arc<Node>, inputs: Vec<usize>, is_argument: bool) {
        let argument = match (&node.op, is_argument) {
            (Op::Key, _) => Some(Argument::Key(node.clone())),
            (_, true) => Some(Argument::Node(node.clone())),
            _ => None,
        };
        let place = argument.is_some().then_some(self.arguments.len());
        self.arguments.extend(argument);
        self.instructions.push(Instruction { node, inputs, argument: place });
    }

    /// The index of each instruction, by the number of its node.
    pub(crate) fn places(&self) -> HashMap<u64, usize> {
        self.instructions.iter().enumerate().map(|(place, instruction)| (instruction.node.id, place)).collect()
    }

    /// The floating-point operations of the program's matrix products and convolutions.
    pub(crate) fn products_flops(&self) -> f64 {
        let computed = self.instructions.iter().filter(|instruction| instruction.argument.is_none());
        let flops = computed.map(|Instruction { node, inputs, .. }| {
            let input = |index: usize| inputs.get(index).map(|place| &self.instructions[*place].node.dims);
            // The elements of the inputs that each element of the result sums up.
            let summed = match node.op {
                Op::Dot { .. } => input(0).and_then(|left| left.last().copied()),
                Op::Convolution(_) => input(1).map(|kernel| kernel.iter().skip(1).product()),
                _ => None,
            };
            summed.map_or(0.0, |summed| 2.0 * node.count() as f64 * summed as f64)
        });
        flops.sum()
    }

    /// Whether the program reads or writes at indexes.
    pub(crate) fn has_indexes(&self) -> bool {
        self.instructions.iter().any(|instruction| instruction.node.check().is_some())
    }

    /// For each result, the first fault that it depends on, among the faults of the program's own checks and of its arguments.
    pub(crate) fn faults_of_results(&self, own: &[(usize, Arc<Fault>)]) -> Vec<Option<Arc<Fault>>> {
        let faulty = |argument: &Argument| matches!(argument, Argument::Node(node) if node.fault().is_some());
        if own.is_empty() && !self.arguments.iter().any(faulty) {
            return vec![None; self.results.len()];
        }
        let mut faults: Vec<Option<Arc<Fault>>> = Vec::new();
        for (place, instruction) in self.instructions.iter().enumerate() {
            let checked = own.iter().find(|(checked, _)| *checked == place).map(|(_, fault)| fault);
            let inherited = || instruction.inputs.iter().find_map(|input| faults[*input].as_ref());
            let fault = instruction.node.fault().or_else(inherited).or(checked).cloned();
            faults.push(fault);
        }
        self.results.iter().map(|place| faults[*place].clone()).collect()
    }

    /// Whether another program has the same instructions as this one, and the same arguments, numbers included.
    pub(crate) fn is_same(&self, other: &Program) -> bool {
        let bits = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect();
        let numbers = |program: &Program| -> Vec<Vec<u64>> {
            let of = |argument: &Argument| match argument {
                Argument::Numbers(numbers, _) => bits(numbers),
                Argument::Node(node) if node.op == Op::Described => Vec::new(),
                // Data that the step itself has made is a new node in each call, with the same content.
                Argument::Node(node) if !node.numbers.is_empty() => bits(&node.numbers),
                Argument::Node(node) => vec![node.id],
                Argument::Key(node) => vec![random::place_of(&node.numbers)],
                Argument::Starts(starts) => starts.iter().map(|start| u64::from(start.unsigned_abs())).collect(),
            };
            program.arguments.iter().map(of).collect()
        };
        self.fingerprint() == other.fingerprint() && numbers(self) == numbers(other)
    }

    /// A fingerprint of the program: programs with the same fingerprint have the same text.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (place, Instruction { node, inputs, argument }) in self.instructions.iter().enumerate() {
            let (moved, number) = (self.moved.get(&place), self.numbers.get(&place));
            (&node.dims, node.element, &node.sharding, inputs, argument, moved, number).hash(&mut hasher);
            if argument.is_none() && moved.is_none() {
                node.op.hash(&mut hasher);
            }
        }
        (&self.results, &self.aliases).hash(&mut hasher);
        hasher.finish()
    }
}

/// Where a slice of neighbours begins in each dimension; none for other operations.
fn starts_of(op: &Op) -> Option<Vec<i32>> {
    let Op::Slice { start, stride, .. } = op else { return None };
    let all: Option<Vec<i32>> = start.iter().map(|start| i32::try_from(*start).ok()).collect();
    all.filter(|_| stride.iter().all(|stride| *stride == 1))
}

fn is_argument(node: &Node) -> bool {
    node.value().is_some() || matches!(node.op, Op::Described | Op::Key)
}
