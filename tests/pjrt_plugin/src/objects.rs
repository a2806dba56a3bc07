//! Events, the client and its devices.

use crate::abi::{Arguments, Function, NamedValue, made};
use crate::error::{Failure, answer};
use crate::fault;
use crate::helper::{Helper, number};
use crate::shared::{Desk, Store};
use serde_json::{Value, json};
use std::ffi::c_void;
use std::fs::File;
use std::ptr::null_mut;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Places in the table.
pub(crate) const FUNCTIONS: &[(usize, Function)] = &[
    (3, plugin_initialize),
    (4, plugin_attributes),
    (5, event_destroy),
    (6, event_is_ready),
    (8, event_await),
    (10, client_create),
    (11, client_destroy),
    (12, client_platform_name),
    (13, client_process),
    (14, client_platform_version),
    (15, client_devices),
    (16, client_addressable_devices),
    (23, description_id),
    (24, description_process),
    (25, description_attributes),
    (26, description_kind),
    (27, description_text),
    (29, device_description),
    (34, device_memory),
    (82, topology_create),
];

/// The end of asynchronous work.
#[derive(Clone, Default)]
pub(crate) struct Event {
    state: Arc<(Mutex<Ending>, Condvar)>,
}

/// None as long as the work goes on.
type Ending = Option<Result<(), Failure>>;

impl Event {
    /// Of work that is done.
    pub(crate) fn done() -> Event {
        let event = Event::default();
        event.end(Ok(()));
        event
    }

    pub(crate) fn end(&self, result: Result<(), Failure>) {
        *self.state.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.state.1.notify_all();
    }

    fn wait(&self) -> Result<(), Failure> {
        let mut result = self.state.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = &*result {
                return result.clone();
            }
            result = self.state.1.wait(result).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_ready(&self) -> bool {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

pub(crate) struct Client {
    pub(crate) helper: Arc<Helper>,
    version: String,
    /// Those of all processes.
    devices: Vec<*mut Device>,
    addressable: Vec<*mut Device>,
    process: i32,
    /// Where there are other processes. Dropped with the client, whose caller's store it uses.
    _desk: Option<Desk>,
    _lock: Option<File>,
}

impl Client {
    /// The devices with these numbers.
    pub(crate) fn numbered(&self, numbers: &[i64]) -> Vec<*mut Device> {
        // SAFETY: the devices live as long as the client.
        let find = |number: &i64| self.devices.iter().find(|device| i64::from(unsafe { &***device }.index) == *number);
        numbers.iter().filter_map(find).copied().collect()
    }
}

pub(crate) struct Device {
    pub(crate) index: i32,
    process: i32,
    text: String,
}

impl Drop for Client {
    fn drop(&mut self) {
        for device in &self.devices {
            // SAFETY: made by `client_create`, and used by nobody once the client goes.
            drop(unsafe { Box::from_raw(*device) });
        }
    }
}

unsafe extern "C" fn plugin_initialize(_: Arguments) -> *mut c_void {
    fault::strike("initialize");
    null_mut()
}

unsafe extern "C" fn plugin_attributes(arguments: Arguments) -> *mut c_void {
    static VERSION: [i64; 3] = [1, 10, 10];
    const NAME: &str = "stablehlo_current_version";
    let value = VERSION.as_ptr() as u64;
    let attribute = NamedValue {
        size: size_of::<NamedValue>(),
        extension: 0,
        name: NAME.as_ptr(),
        name_length: NAME.len(),
        kind: 2,
        value,
        length: VERSION.len(),
    };
    // Attributes live as long as the process.
    arguments.set(0, made(attribute));
    arguments.set(1, 1_usize);
    null_mut()
}

unsafe extern "C" fn event_destroy(arguments: Arguments) -> *mut c_void {
    arguments.free::<Event>(0);
    null_mut()
}

unsafe extern "C" fn event_is_ready(arguments: Arguments) -> *mut c_void {
    arguments.set(1, u8::from(arguments.object::<Event>(0).is_ready()));
    null_mut()
}

unsafe extern "C" fn event_await(arguments: Arguments) -> *mut c_void {
    answer(arguments.object::<Event>(0).wait())
}

unsafe extern "C" fn client_create(arguments: Arguments) -> *mut c_void {
    fault::strike("client");
    answer(open(arguments.list(0, 1), Store::of(arguments)).map(|client| arguments.set(6, made(client))))
}

/// The helper's place is in the options, or else in the environment.
fn open(options: &[NamedValue], store: Option<Store>) -> Result<Client, Failure> {
    let lock = fault::lock()?;
    let text = |name: &str| {
        let option = options.iter().find(|option| option.kind == 0 && option_name(option) == name);
        let text = option.map(|option| bytes_of(option.value as *const u8, option.length));
        let variable = format!("FERROTUNE_PJRT_{}", name.to_uppercase());
        text.or_else(|| std::env::var(&variable).ok())
            .ok_or_else(|| Failure::invalid(format!("needs the option {name} or {variable}")))
    };
    let whole = |name: &str, otherwise| {
        let option = options.iter().find(|option| option.kind == 1 && option_name(option) == name);
        option.map_or(otherwise, |option| option.value.cast_signed())
    };
    let (process, processes) = (whole("node_id", 0), whole("num_nodes", 1));
    let mut words = vec![whole("devices", 2)];
    let desk = match store {
        _ if processes == 1 => None,
        None => return Err(Failure::invalid("several processes need a key-value store")),
        Some(store) => Some(Desk::open(store).map_err(|error| Failure::internal(error.to_string()))?),
    };
    if let Some(desk) = &desk {
        words.extend([desk.port.into(), process, processes]);
    }
    let helper = Helper::start(&text("python")?, &text("helper")?, &words)?;
    let (hello, _) = helper.ask(json!({"op": "hello"}), &[])?;
    let device = |pair: &Value| {
        let (index, process) = (number(&pair[0]), number(&pair[1]));
        (process, made(Device { index, process, text: format!("CpuDevice(id={index})") }))
    };
    let devices: Vec<(i32, *mut Device)> = hello["devices"].as_array().into_iter().flatten().map(device).collect();
    let process = process as i32;
    let own = devices.iter().filter(|(of, _)| *of == process);
    let (addressable, devices) = (own.map(|(_, device)| *device).collect(), devices.iter().map(|(_, device)| *device));
    let (helper, version) = (Arc::new(helper), hello["version"].as_str().unwrap_or_default().to_owned());
    Ok(Client { helper, version, devices: devices.collect(), addressable, process, _desk: desk, _lock: lock })
}

fn option_name(option: &NamedValue) -> String {
    bytes_of(option.name, option.name_length)
}

fn bytes_of(address: *const u8, length: usize) -> String {
    String::from_utf8_lossy(crate::abi::slice(address, length)).into_owned()
}

unsafe extern "C" fn client_destroy(arguments: Arguments) -> *mut c_void {
    arguments.free::<Client>(0);
    null_mut()
}

unsafe extern "C" fn client_platform_name(arguments: Arguments) -> *mut c_void {
    arguments.set_text(1, "cpu");
    null_mut()
}

unsafe extern "C" fn client_platform_version(arguments: Arguments) -> *mut c_void {
    arguments.set_text(1, &arguments.object::<Client>(0).version);
    null_mut()
}

unsafe extern "C" fn client_devices(arguments: Arguments) -> *mut c_void {
    let devices = &arguments.object::<Client>(0).devices;
    arguments.set(1, devices.as_ptr());
    arguments.set(2, devices.len());
    null_mut()
}

unsafe extern "C" fn client_addressable_devices(arguments: Arguments) -> *mut c_void {
    let devices = &arguments.object::<Client>(0).addressable;
    arguments.set(1, devices.as_ptr());
    arguments.set(2, devices.len());
    null_mut()
}

unsafe extern "C" fn client_process(arguments: Arguments) -> *mut c_void {
    arguments.set(1, arguments.object::<Client>(0).process);
    null_mut()
}

unsafe extern "C" fn description_id(arguments: Arguments) -> *mut c_void {
    arguments.set(1, arguments.object::<Device>(0).index);
    null_mut()
}

unsafe extern "C" fn description_process(arguments: Arguments) -> *mut c_void {
    arguments.set(1, arguments.object::<Device>(0).process);
    null_mut()
}

unsafe extern "C" fn description_attributes(arguments: Arguments) -> *mut c_void {
    arguments.set(1, 0_usize);
    null_mut()
}

unsafe extern "C" fn description_kind(arguments: Arguments) -> *mut c_void {
    arguments.set_text(1, "XLA:CPU");
    null_mut()
}

unsafe extern "C" fn description_text(arguments: Arguments) -> *mut c_void {
    arguments.set_text(1, &arguments.object::<Device>(0).text);
    null_mut()
}

/// A device describes itself.
unsafe extern "C" fn device_description(arguments: Arguments) -> *mut c_void {
    arguments.set(1, arguments.get::<usize>(0));
    null_mut()
}

/// 1 GiB in use beside the arrays, 3 GiB at most and 16 GiB in all, to have some figures; the number of allocations is not told.
unsafe extern "C" fn device_memory(arguments: Arguments) -> *mut c_void {
    arguments.set(1, (1_usize << 30) + fault::live_bytes());
    arguments.set(2, 3_i64 << 30);
    arguments.set(3, 1_u8);
    arguments.set(8, 16_i64 << 30);
    arguments.set(9, 1_u8);
    null_mut()
}

unsafe extern "C" fn topology_create(arguments: Arguments) -> *mut c_void {
    let name = String::from_utf8_lossy(arguments.list(0, 1)).into_owned();
    answer(Err(Failure { code: 12, message: format!("XLA:CPU has no topology {name}") }))
}
