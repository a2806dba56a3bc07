//! Finds the names and lines of recorded addresses in the symbols and the debug information of their files.

use crate::error::SamplerError;
use crate::samples::{Place, Samples};
use addr2line::Context;
use addr2line::gimli::{self, EndianSlice, LittleEndian};
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use rustc_demangle::demangle;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::Path;

/// A function that contains an address: the compiled function, or a function that is inlined there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The function's name, without the compiler's hash; the file's name in brackets where the function has no name.
    pub function: String,
    /// The location `file:line`, if the file has debug information.
    pub location: Option<String>,
    /// Whether the function is inlined in its caller.
    pub is_inlined: bool,
}

/// The names of all places in some samples.
pub struct Symbols {
    found: HashMap<(u32, u64), Vec<Frame>>,
}

impl Symbols {
    /// Looks up the names of all places in their files.
    pub fn of(samples: &Samples) -> Self {
        let mut places: HashMap<u32, BTreeSet<u64>> = HashMap::new();
        for node in &samples.nodes {
            if let Place::Code { module, address } = &node.place {
                places.entry(*module).or_default().insert(*address);
            }
        }
        let mut found = HashMap::new();
        for (module, addresses) in places {
            let path = samples.modules.get(module as usize).map(String::as_str).unwrap_or_default();
            // A file that cannot be read, such as the code that the kernel maps, gives only its own name.
            let frames = look_up(Path::new(path), &addresses).unwrap_or_default();
            for (address, mut frames) in addresses.iter().zip(frames.into_iter().chain(std::iter::repeat(Vec::new()))) {
                if frames.is_empty() {
                    frames.push(Frame {
                        function: format!("[{}]", file_name(path)),
                        location: None,
                        is_inlined: false,
                    });
                }
                found.insert((module, *address), frames);
            }
        }
        Self { found }
    }

    /// The functions at an address of the samples, from the outermost to the innermost; there are several where some have been
    /// inlined.
    pub fn frames(&self, module: u32, address: u64) -> &[Frame] {
        self.found.get(&(module, address)).map_or(&[], Vec::as_slice)
    }
}

/// The functions at each address of a file; none at an address that has no name.
fn look_up(path: &Path, addresses: &BTreeSet<u64>) -> Result<Vec<Vec<Frame>>, SamplerError> {
    let library = |reason: String| SamplerError::Library { path: path.to_owned(), reason };
    let file = File::open(path).map_err(|error| library(error.to_string()))?;
    let cache = ReadCache::new(file);
    let object = object::File::parse(&cache).map_err(|error| library(error.to_string()))?;
    let symbols = symbols(&object);
    let section = |id: gimli::SectionId| -> Result<Cow<'_, [u8]>, object::Error> {
        let bytes = object.section_by_name(id.name()).map(|section| section.uncompressed_data()).transpose()?;
        Ok(bytes.unwrap_or_default())
    };
    let sections = gimli::DwarfSections::load(section).map_err(|error| library(error.to_string()))?;
    let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
    let lines = Context::from_dwarf(dwarf).map_err(|error| library(error.to_string()))?;
    let at = |address: &u64| {
        let mut frames = with_lines(&lines, *address).map_err(|error| library(error.to_string()))?;
        frames.reverse();
        frames.iter_mut().take(1).for_each(|outermost| outermost.is_inlined = false);
        let symbol = symbol(&symbols, *address);
        if frames.is_empty() {
            frames.extend(symbol.map(|function| Frame { function, location: None, is_inlined: false }));
        } else if let Some((outermost, symbol)) = frames.first_mut().zip(symbol) {
            // Debug information that has only lines gives names without their modules.
            outermost.function = symbol;
        }
        Ok(frames)
    };
    addresses.iter().map(at).collect()
}

/// The start, end and mangled name of each function of a file, by address.
fn symbols<'data>(object: &impl Object<'data>) -> Vec<(u64, u64, String)> {
    let code = object.symbols().chain(object.dynamic_symbols()).filter(|symbol| symbol.kind() == SymbolKind::Text);
    let code = code.filter(|symbol| symbol.is_definition() && symbol.size() > 0);
    let mut symbols: Vec<(u64, u64, String)> = code
        .filter_map(|symbol| {
            let (start, name) = (symbol.address(), symbol.name().ok()?);
            Some((start, start.checked_add(symbol.size())?, name.to_owned()))
        })
        .collect();
    symbols.sort_unstable();
    symbols
}

fn symbol(symbols: &[(u64, u64, String)], address: u64) -> Option<String> {
    let after = symbols.partition_point(|(start, ..)| *start <= address);
    let (_, end, name) = symbols.get(after.checked_sub(1)?)?;
    (address < *end).then(|| readable(name))
}

/// The functions at an address, from the innermost to the outermost; empty where the debug information has no unit for it.
fn with_lines<R: gimli::Reader>(lines: &Context<R>, address: u64) -> Result<Vec<Frame>, gimli::Error> {
    let mut found = lines.find_frames(address).skip_all_loads()?;
    let mut frames = Vec::new();
    while let Some(frame) = found.next()? {
        let function = match &frame.function {
            Some(name) => readable(&name.raw_name()?),
            None => String::new(),
        };
        let location = frame.location.and_then(|at| Some(format!("{}:{}", at.file?, at.line?)));
        frames.push(Frame { function, location, is_inlined: true });
    }
    Ok(frames)
}

fn readable(name: &str) -> String {
    // The alternate form leaves the hash out.
    format!("{:#}", demangle(name))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path).trim_matches(['[', ']'])
}
