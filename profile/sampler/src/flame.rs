//! The call tree of a cell for its author: named lines of the notebook's cells, with the functions of crates and of the standard
//! library below them, and without the code that the notebook itself generates or runs.

mod svg;

use crate::samples::{Place, Samples};
use crate::symbols::{Frame, Symbols};
use std::collections::{HashMap, HashSet};

/// The function that evcxr generates around the statements of a cell.
const STATEMENTS: &str = "run_user_code_";

/// Prefix of the paths in the crate that evcxr generates.
const CELLS: &str = "ctx::";

/// Parts of the paths of the standard library's sources in debug information, without and with `rust-src`.
const STANDARD_LIBRARY: [&str; 2] = ["/rustc/", "/lib/rustlib/src/rust/library/"];

/// Prefix of the names of rayon's threads in the cell process.
const POOL: &str = "ferrotune-";

/// Functions that only call the function that they are given; backtraces leave them out, too.
const CALLERS: [&str; 16] = [
    "<alloc::boxed::Box<F,A> as core::ops::function::",
    "<core::panic::unwind_safe::",
    "<rayon::iter::",
    "<rayon_core::job::",
    "__rust_try",
    "core::ops::function::",
    "core::panic::unwind_safe::",
    "rayon::iter::",
    "rayon_core::job::",
    "rayon_core::join::",
    "rayon_core::registry::",
    "rayon_core::thread_pool::",
    "rayon_core::unwind::",
    "std::panic::",
    "std::panicking::",
    "std::sys::backtrace::__rust_",
];

/// Functions at the outermost end of a thread's stack: the code of the system, of the standard library and of rayon.
const BEGINNINGS: [&str; 13] = [
    "<alloc::",
    "<core::",
    "<rayon",
    "<std::",
    "[",
    "_",
    "alloc::",
    "clone",
    "core::",
    "crossbeam_",
    "rayon",
    "start_thread",
    "std::",
];

/// The call tree of the samples.
#[derive(Clone, Debug, Default)]
pub struct Flame {
    /// The nodes of the tree; every node comes after its caller.
    boxes: Vec<Call>,
    /// The duration of the recording, in microseconds.
    pub wall_us: u64,
    /// The number of samples.
    pub samples: u64,
}

/// A node of the call tree: a function or a line, under one of its callers.
#[derive(Clone, Debug)]
struct Call {
    caller: Option<usize>,
    name: String,
    kind: Kind,
    own_us: u64,
    total_us: u64,
    called: Vec<usize>,
}

/// The kind of a node of the call tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Thread,
    Line,
    Function,
}

/// A row of the table of the hottest lines or functions: a name, and its CPU time in microseconds.
pub type Hot = (String, u64);

/// The position in the call tree where the callees of a node are added.
#[derive(Clone, Copy)]
enum At {
    /// Only the outermost frames of the thread's stack have been added; the first of them has this index.
    Beginning(usize),
    In(usize),
}

impl Flame {
    /// Adds samples. `place` returns the place in the notebook and the text of the line for a location, `file:line`.
    pub fn add(&mut self, samples: &Samples, mut place: impl FnMut(&str) -> Option<(String, String)>) {
        self.wall_us += samples.wall_us;
        self.samples += samples.count;
        let symbols = Symbols::of(samples);
        let mut known: HashMap<(Option<usize>, Kind, String), usize> = HashMap::new();
        for (number, call) in self.boxes.iter().enumerate() {
            known.insert((call.caller, call.kind, call.name.clone()), number);
        }
        let mut places: Vec<At> = Vec::with_capacity(samples.nodes.len());
        for node in &samples.nodes {
            let caller = node.parent.and_then(|parent| places.get(parent as usize).copied());
            let at = match (&node.place, caller) {
                (Place::Thread { name }, _) => At::Beginning(self.call(&mut known, None, Kind::Thread, thread(name))),
                (_, None) => continue,
                (Place::Unknown, Some(At::Beginning(thread))) => At::Beginning(thread),
                (Place::Unknown, Some(At::In(at))) => {
                    At::In(self.call(&mut known, Some(at), Kind::Function, "[unknown]".to_owned()))
                }
                (Place::Code { module, address }, Some(mut at)) => {
                    for frame in symbols.frames(*module, *address) {
                        at = self.enter(&mut known, at, frame, &mut place);
                    }
                    at
                }
            };
            let (At::Beginning(own) | At::In(own)) = at;
            self.boxes[own].own_us += node.own_us;
            places.push(at);
        }
        self.sum_up();
    }

    fn enter(
        &mut self,
        known: &mut HashMap<(Option<usize>, Kind, String), usize>,
        at: At,
        frame: &Frame,
        place: &mut impl FnMut(&str) -> Option<(String, String)>,
    ) -> At {
        let function = frame.function.as_str();
        let is_statement = function.contains(STATEMENTS);
        // The callers of a cell's statements are only the code that runs cells.
        let at = match at {
            at if is_statement && !self.is_in_cell(at) => {
                At::In(self.call(known, None, Kind::Thread, "cell".to_owned()))
            }
            at => at,
        };
        let location = frame.location.as_deref();
        // Inlined code of the standard library counts as part of its caller.
        let is_of_standard_library =
            location.is_some_and(|location| STANDARD_LIBRARY.iter().any(|part| location.contains(part)));
        if frame.is_inlined && is_of_standard_library {
            return at;
        }
        let is_closure = function.contains("{{closure}}") || function.contains("{closure");
        let (kind, name) = match location.and_then(place) {
            Some((place, line)) if is_statement || is_closure => (Kind::Line, format!("{place}: {}", line.trim())),
            Some((place, line)) => {
                (Kind::Line, format!("{}, {place}: {}", function.trim_start_matches(CELLS), line.trim()))
            }
            None if is_statement || CALLERS.iter().any(|caller| function.starts_with(caller)) => return at,
            None => (Kind::Function, function.to_owned()),
        };
        match at {
            At::Beginning(_) if kind == Kind::Function && BEGINNINGS.iter().any(|name| function.starts_with(name)) => {
                at
            }
            At::In(present) if self.boxes[present].name == name => at,
            At::Beginning(present) | At::In(present) => At::In(self.call(known, Some(present), kind, name)),
        }
    }

    fn is_in_cell(&self, at: At) -> bool {
        let At::In(mut at) = at else { return false };
        while let Some(caller) = self.boxes[at].caller {
            at = caller;
        }
        self.boxes[at].name == "cell"
    }

    fn call(
        &mut self,
        known: &mut HashMap<(Option<usize>, Kind, String), usize>,
        caller: Option<usize>,
        kind: Kind,
        name: String,
    ) -> usize {
        *known.entry((caller, kind, name.clone())).or_insert_with(|| {
            let number = self.boxes.len();
            if let Some(caller) = caller {
                self.boxes[caller].called.push(number);
            }
            self.boxes.push(Call { caller, name, kind, own_us: 0, total_us: 0, called: Vec::new() });
            number
        })
    }

    fn sum_up(&mut self) {
        for call in &mut self.boxes {
            call.total_us = call.own_us;
        }
        for number in (0..self.boxes.len()).rev() {
            if let Some(caller) = self.boxes[number].caller {
                self.boxes[caller].total_us += self.boxes[number].total_us;
            }
        }
    }

    /// The CPU time of all threads, in microseconds.
    pub fn cpu_us(&self) -> u64 {
        self.boxes.iter().map(|call| call.own_us).sum()
    }

    /// The lines of cells with the most CPU time, including that of their callees.
    pub fn hottest_lines(&self, count: usize) -> Vec<Hot> {
        self.hottest(count, |call| call.kind == Kind::Line, true)
    }

    /// The functions and lines with the most CPU time of their own, without that of their callees.
    pub fn hottest_functions(&self, count: usize) -> Vec<Hot> {
        self.hottest(count, |call| call.kind != Kind::Thread, false)
    }

    fn hottest(&self, count: usize, is_wanted: impl Fn(&Call) -> bool, with_callers: bool) -> Vec<Hot> {
        let mut times: HashMap<&str, u64> = HashMap::new();
        for call in self.boxes.iter().filter(|call| call.own_us > 0) {
            let mut names = HashSet::new();
            let mut at = Some(call);
            while let Some(call) = at {
                if is_wanted(call) {
                    names.insert(call.name.as_str());
                }
                at = call.caller.filter(|_| with_callers).map(|caller| &self.boxes[caller]);
            }
            names.into_iter().for_each(|name| *times.entry(name).or_default() += call.own_us);
        }
        let mut hottest: Vec<Hot> = times.into_iter().map(|(name, time)| (name.to_owned(), time)).collect();
        hottest.sort_by(|(a, of_a), (b, of_b)| of_b.cmp(of_a).then_with(|| a.cmp(b)));
        hottest.truncate(count);
        hottest
    }
}

/// The displayed name of a thread.
fn thread(name: &str) -> String {
    match name.trim_end_matches(|character: char| character.is_ascii_digit()) {
        POOL => "rayon's threads".to_owned(),
        group if group.ends_with('-') => format!("threads {group}…"),
        _ => format!("thread {name}"),
    }
}

#[cfg(test)]
mod tests;
