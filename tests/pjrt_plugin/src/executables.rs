//! Programs: compiled, asked, run, written down and loaded again.

use crate::abi::{Arguments, Function, NamedValue, made, slice};
use crate::error::{Failure, answer};
use crate::fault;
use crate::helper::{Helper, number};
use crate::objects::{Client, Device, Event};
use crate::profiler;
use crate::transfers::Buffer;
use serde_json::{Value, json};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

/// Places in the table. A loaded executable and an executable are the same object here, apart from who frees it.
pub(crate) const FUNCTIONS: &[(usize, Function)] = &[
    (20, client_compile),
    (40, executable_destroy),
    (41, executable_name),
    (42, executable_replicas),
    (43, executable_partitions),
    (44, executable_output_count),
    (46, executable_cost),
    (49, executable_serialize),
    (50, executable_destroy),
    (51, loaded_get_executable),
    (52, loaded_devices),
    (55, loaded_execute),
    (56, deserialize_and_load),
    (90, executable_output_types),
    (91, executable_output_dims),
    (96, executable_memory),
];

/// What the compile options are written behind, in a serialised program.
const MAGIC: &[u8] = b"ferrotune test program\0";

type Executable = Arc<Program>;

pub(crate) struct Program {
    helper: Arc<Helper>,
    number: i64,
    name: String,
    replicas: usize,
    partitions: usize,
    types: Vec<i32>,
    /// Of all outputs, one after the other.
    dims: Vec<i64>,
    ranks: Vec<usize>,
    memory: Vec<i64>,
    cost: Vec<NamedValue>,
    devices: Vec<*mut Device>,
    options: Vec<u8>,
}

// SAFETY: devices and names stay where they are, unchanged, for as long as the client does.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

impl Program {
    fn new(client: &Client, answer: &Value, options: &[u8]) -> Program {
        let outputs: Vec<&Value> = answer["outputs"].as_array().into_iter().flatten().collect();
        let dims = |output: &&Value| integers(&output[1]);
        let (replicas, partitions) = (number(&answer["replicas"]), number(&answer["partitions"]));
        let cost = answer["cost"].as_object().into_iter().flatten().filter_map(|(name, value)| {
            // Names are kept for good: there are three of them.
            let name: &'static str = String::leak(name.clone());
            let bytes = (value.as_f64()? as f32).to_ne_bytes();
            let value = u64::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3], 0, 0, 0, 0]);
            let (size, name_length) = (size_of::<NamedValue>(), name.len());
            Some(NamedValue { size, extension: 0, name: name.as_ptr(), name_length, kind: 3, value, length: 1 })
        });
        Program {
            helper: client.helper.clone(),
            number: number(&answer["program"]),
            name: answer["name"].as_str().unwrap_or_default().to_owned(),
            replicas,
            partitions,
            types: outputs.iter().map(|output| number(&output[0])).collect(),
            dims: outputs.iter().flat_map(dims).collect(),
            ranks: outputs.iter().map(|output| dims(output).len()).collect(),
            memory: integers(&answer["memory"]),
            cost: cost.collect(),
            devices: client.numbered(&integers(&answer["devices"])),
            options: options.to_vec(),
        }
    }

    fn output_dims(&self, index: usize) -> Vec<i64> {
        let start: usize = self.ranks[..index].iter().sum();
        self.dims[start..start + self.ranks[index]].to_vec()
    }
}

fn integers(value: &Value) -> Vec<i64> {
    value.as_array().into_iter().flatten().map(number).collect()
}

fn compile(client: &Client, module: &[u8], options: &[u8], serialized: bool) -> Result<*mut Executable, Failure> {
    let request = json!({"op": "compile", "module": module.len(), "serialized": serialized});
    let (answer, _) = client.helper.ask(request, &[module, options])?;
    Ok(made(Arc::new(Program::new(client, &answer, options))))
}

/// Fields: client, program, options, their length, and the output.
unsafe extern "C" fn client_compile(arguments: Arguments) -> *mut c_void {
    let client: &Client = arguments.object(0);
    // The program's fields: size, extension, code, its length, format, its length.
    let program = slice(arguments.get::<*const usize>(1), 6);
    if slice(program[4] as *const u8, program[5]) != b"mlir" {
        return answer(Err(Failure::invalid("only mlir is taken")));
    }
    let code = program[2] as *const u8;
    // As older versions of libtpu do, this one reads the text up to a NUL.
    if slice(code, program[3] + 1).last() != Some(&0) {
        return answer(Err(Failure::invalid("the text has no NUL behind it")));
    }
    let made = compile(client, slice(code, program[3]), arguments.list(2, 3), false);
    answer(made.map(|executable| arguments.set(4, executable)))
}

unsafe extern "C" fn executable_destroy(arguments: Arguments) -> *mut c_void {
    arguments.free::<Executable>(0);
    null_mut()
}

unsafe extern "C" fn executable_name(arguments: Arguments) -> *mut c_void {
    arguments.set_text(1, &arguments.object::<Executable>(0).name);
    null_mut()
}

unsafe extern "C" fn executable_replicas(arguments: Arguments) -> *mut c_void {
    arguments.set(1, arguments.object::<Executable>(0).replicas);
    null_mut()
}

unsafe extern "C" fn executable_partitions(arguments: Arguments) -> *mut c_void {
    arguments.set(1, arguments.object::<Executable>(0).partitions);
    null_mut()
}

unsafe extern "C" fn executable_output_count(arguments: Arguments) -> *mut c_void {
    arguments.set(1, arguments.object::<Executable>(0).types.len());
    null_mut()
}

unsafe extern "C" fn executable_cost(arguments: Arguments) -> *mut c_void {
    let cost = &arguments.object::<Executable>(0).cost;
    arguments.set(1, cost.len());
    arguments.set(2, cost.as_ptr());
    null_mut()
}

unsafe extern "C" fn executable_output_types(arguments: Arguments) -> *mut c_void {
    let types = &arguments.object::<Executable>(0).types;
    arguments.set(1, types.as_ptr());
    arguments.set(2, types.len());
    null_mut()
}

unsafe extern "C" fn executable_output_dims(arguments: Arguments) -> *mut c_void {
    let program = arguments.object::<Executable>(0);
    arguments.set(1, program.ranks.len());
    arguments.set(2, program.dims.as_ptr());
    arguments.set(3, program.ranks.as_ptr());
    null_mut()
}

/// Fields: executable, code, arguments, outputs, aliases, temporaries; the peak stays 0, as in versions that have none.
unsafe extern "C" fn executable_memory(arguments: Arguments) -> *mut c_void {
    for (index, bytes) in arguments.object::<Executable>(0).memory.iter().enumerate() {
        arguments.set(1 + index, *bytes);
    }
    null_mut()
}

/// Fields: executable, and the outputs bytes, their length, their owner and what frees it.
unsafe extern "C" fn executable_serialize(arguments: Arguments) -> *mut c_void {
    let program = arguments.object::<Executable>(0);
    let request = json!({"op": "serialize", "program": program.number});
    answer(program.helper.ask(request, &[]).map(|(_, raw)| {
        let options_length = program.options.len().to_le_bytes();
        let owner = made([MAGIC, &options_length, &program.options, &raw].concat());
        // SAFETY: just made.
        let bytes = unsafe { &*owner };
        arguments.set(1, bytes.as_ptr());
        arguments.set(2, bytes.len());
        arguments.set(3, owner);
        arguments.set(4, free_serialized as unsafe extern "C" fn(*mut Vec<u8>));
    }))
}

unsafe extern "C" fn free_serialized(owner: *mut Vec<u8>) {
    // SAFETY: made by `executable_serialize`, and freed once.
    drop(unsafe { Box::from_raw(owner) });
}

/// Fields: client, bytes, their length, and the output.
unsafe extern "C" fn deserialize_and_load(arguments: Arguments) -> *mut c_void {
    let parts = arguments.list::<u8>(1, 2).strip_prefix(MAGIC).and_then(|rest| {
        let (length, rest) = rest.split_first_chunk()?;
        rest.split_at_checked(usize::from_le_bytes(*length))
    });
    let Some((options, module)) = parts else {
        return answer(Err(Failure::invalid("this is no program of this plugin's")));
    };
    let made = compile(arguments.object(0), module, options, true);
    answer(made.map(|executable| arguments.set(3, executable)))
}

unsafe extern "C" fn loaded_get_executable(arguments: Arguments) -> *mut c_void {
    arguments.set(1, made(arguments.object::<Executable>(0).clone()));
    null_mut()
}

unsafe extern "C" fn loaded_devices(arguments: Arguments) -> *mut c_void {
    let devices = &arguments.object::<Executable>(0).devices;
    arguments.set(1, devices.as_ptr());
    arguments.set(2, devices.len());
    null_mut()
}

/// Fields: executable, options, inputs by device, device count, input count, outputs by device, events, device.
unsafe extern "C" fn loaded_execute(arguments: Arguments) -> *mut c_void {
    fault::strike("execute");
    answer(fault::refuse_if_full().and_then(|()| execute(arguments)))
}

fn execute(arguments: Arguments) -> Result<(), Failure> {
    let program = arguments.object::<Executable>(0);
    // The options' fields: size, extension, four of callbacks, launch, the kept inputs and their count.
    let options = slice(arguments.get::<*const usize>(1), 9);
    let kept = slice(options[7] as *const i64, options[8]);
    let (device_count, input_count): (usize, usize) = (arguments.get(3), arguments.get(4));
    let rows = slice(arguments.get::<*const *const *const Buffer>(2), device_count);
    // SAFETY: the caller gives as many buffers as it says, alive.
    let row = |row: &*const *const Buffer| slice(*row, input_count).iter().map(|buffer| unsafe { &**buffer });
    if rows.iter().flat_map(row).any(Buffer::is_deleted) {
        return Err(Failure::invalid("an input has been deleted or donated"));
    }
    let inputs: Vec<Vec<i64>> = rows.iter().map(|one| row(one).map(|buffer| buffer.array).collect()).collect();
    let request = json!({"op": "run", "program": program.number, "inputs": inputs, "kept": kept});
    let (ran, _) = profiler::during(|| program.helper.ask(request, &[]))?;
    let deleted = integers(&ran["deleted"]);
    rows.iter().flat_map(row).filter(|buffer| deleted.contains(&buffer.array)).for_each(Buffer::mark_deleted);
    let targets = slice(arguments.get::<*const *mut *mut Buffer>(5), device_count);
    let events: *mut *mut Event = arguments.get(6);
    for (device, target) in targets.iter().enumerate() {
        for (index, array) in integers(&ran["outputs"][device]).into_iter().enumerate() {
            let (element, dims) = (program.types[index], program.output_dims(index));
            // SAFETY: the caller has room for as many outputs as the program has.
            unsafe { target.add(index).write(made(Buffer::new(&program.helper, array, element, dims))) };
        }
        if !events.is_null() {
            // SAFETY: where the caller wants events, it has room for one of each device.
            unsafe { events.add(device).write(made(Event::done())) };
        }
    }
    Ok(())
}
