"""XLA:CPU behind pipes, for the test plugin: compiles StableHLO and runs it with jaxlib.

Both ways a frame is the length of its JSON as four bytes, the JSON, and the `bytes` bytes that it announces. A request
gets one answer: an object, or `{"code": N, "error": TEXT}` with PJRT's code.

With a port it is one of several processes, whose XLA:CPU finds the others with jaxlib's own store of keys and values. That store is
this process' alone, and what comes into it goes to the plugin, behind the port, and on to the helpers of the other processes.
"""

import json
import os
import re
import socket
import struct
import sys
import threading
import time

REQUESTS = os.fdopen(os.dup(0), "rb")
ANSWERS = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # what libraries print must not get between the frames
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import ml_dtypes
import numpy as np
from jax._src import distributed
from jaxlib import _jax, xla_client

CODES = {"RESOURCE_EXHAUSTED": 8, "INVALID_ARGUMENT": 3, "UNIMPLEMENTED": 12, "NOT_FOUND": 5}
# In the order of PJRT's numbers, which start at 1.
TYPES = [np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
TYPES += [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, np.complex64, np.complex128]
TYPES += [ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3b11fnuz]
TYPES += [ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e4m3fnuz, ml_dtypes.int4, ml_dtypes.uint4]
TYPES = [np.dtype(kind) for kind in TYPES]


class Server:
    """Devices, programs and arrays, by number."""

    def __init__(self, device_count):
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_num_cpu_devices", device_count)
        self.devices = {device.id: device for device in jax.devices("cpu")}
        self.client = next(iter(self.devices.values())).client
        self.programs = {}
        self.arrays = {}
        self.last = 0

    def number(self):
        self.last += 1
        return self.last

    def hello(self, request, raw):
        devices = [[device.id, device.process_index] for device in self.devices.values()]
        return {"devices": devices, "version": f"jaxlib {xla_client._version}"}

    def compile(self, request, raw):
        module, options = raw[: request["module"]], raw[request["module"] :]
        options = xla_client.CompileOptions.ParseFromString(options)
        build = options.executable_build_options
        ids = assigned(build) or list(self.devices)[: build.num_replicas * build.num_partitions]
        if missing := [number for number in ids if number not in self.devices]:
            raise ValueError(f"INVALID_ARGUMENT: there is no device {missing[0]}, only {len(self.devices)} in all")
        devices = [self.devices[number] for number in ids]
        listed = _jax.DeviceList(tuple(devices))
        if request["serialized"]:
            program = self.client.deserialize_executable(module, listed, options)
        else:
            program = self.client.compile_and_load(module.decode(), listed, options)
        number = self.number()
        self.programs[number] = (program, devices)
        (hlo,) = program.hlo_modules()
        shape = xla_client.XlaComputation(hlo.as_serialized_hlo_module_proto()).program_shape().result_shape()
        shapes = shape.tuple_shapes() if shape.is_tuple() else [shape]
        memory = program.get_compiled_memory_stats()
        cost = program.cost_analysis()
        return {
            "program": number,
            "name": hlo.name,
            "replicas": build.num_replicas,
            "partitions": build.num_partitions,
            "devices": [device.id for device in here(devices)],
            "outputs": [[TYPES.index(one.element_type()) + 1, list(one.dimensions())] for one in shapes],
            "memory": [
                memory.generated_code_size_in_bytes,
                memory.argument_size_in_bytes,
                memory.output_size_in_bytes,
                memory.alias_size_in_bytes,
                memory.temp_size_in_bytes,
            ],
            "cost": {name: value for name, value in cost.items() if "{" not in name},
        }

    def serialize(self, request, raw):
        return {}, self.programs[request["program"]][0].serialize()

    def put(self, request, raw):
        array = np.frombuffer(raw, TYPES[request["type"] - 1]).reshape(request["dims"])
        number = self.number()
        self.arrays[number] = jax.device_put(array, self.devices[request["device"]])
        return {"array": number}

    def get(self, request, raw):
        return {}, np.ascontiguousarray(np.asarray(self.arrays[request["array"]])).tobytes()

    def run(self, request, raw):
        program, devices = self.programs[request["program"]]
        arguments = []
        for index, numbers in enumerate(zip(*request["inputs"])):
            arrays = [self.arrays[number] for number in numbers]
            if index in request["kept"]:
                # jaxlib donates what the program says; a copy keeps the original.
                arrays = [jax.device_put(np.array(array), device) for array, device in zip(arrays, here(devices))]
            arguments.append(joined(arrays, devices))
        rows = program.execute_sharded(arguments).disassemble_into_single_device_arrays()
        outputs = []
        for device in range(len(here(devices))):
            numbers = [self.number() for _ in rows]
            self.arrays.update(zip(numbers, (row[device] for row in rows)))
            outputs.append(numbers)
        inputs = [number for row in request["inputs"] for number in row]
        return {"outputs": outputs, "deleted": [number for number in inputs if self.arrays[number].is_deleted()]}

    def free(self, request, raw):
        self.arrays.pop(request["array"], None)
        return {}


def assigned(build):
    """The numbers of the devices of a program: those of the first copy, then those of the second; none if it does not say."""
    if build.device_assignment is None:
        return []
    # jaxlib shows an assignment, but does not let it be read: Computation0{1 0} has the copies of the first part.
    parts = re.findall(r"Computation\d+\{([^}]*)\}", str(build.device_assignment))
    return [int(number) for copy in zip(*(part.split() for part in parts)) for number in copy]


def here(devices):
    """Those of this process."""
    return [device for device in devices if device.process_index == device.client.process_index()]


def joined(arrays, devices):
    """One array for each device of this process as the one array that jaxlib takes."""
    if len(devices) == 1:
        return arrays[0]
    mesh = jax.sharding.Mesh(np.array(devices), ("device",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return jax.make_array_from_single_device_arrays(arrays[0].shape, sharding, arrays)


def read(length):
    data = REQUESTS.read(length)
    if len(data) != length:
        os._exit(0)  # the plugin is gone
    return data


class Store:
    """What all processes know, asked of the plugin."""

    def __init__(self, port):
        self.stream = socket.create_connection(("127.0.0.1", port)).makefile("rwb")

    def ask(self, op, key, value=b"", **more):
        head = json.dumps({"op": op, "key": len(key.encode()), "bytes": len(key.encode()) + len(value)} | more).encode()
        try:
            self.stream.write(struct.pack("<I", len(head)) + head + key.encode() + value)
            self.stream.flush()
            length = self.stream.read(4) or os._exit(0)  # the plugin is gone
            answer = json.loads(self.stream.read(struct.unpack("<I", length)[0]))
            return answer.get("code", 0), self.stream.read(answer["bytes"]), answer.get("error")
        except ConnectionError:
            os._exit(0)


class Meeting:
    """Lets XLA:CPU of this process and those of others meet."""

    # Where XLA:CPU and Gloo keep their keys.
    FOLDERS = ("cpu:local_topology", "cpu:global_topology", "cpu:gloo")

    def __init__(self, port, process, processes):
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = "127.0.0.1:%d" % free.getsockname()[1]
        self.service = _jax.get_distributed_runtime_service(address, 1)
        self.client = _jax.get_distributed_runtime_client(address, 0, shutdown_on_destruction=False)
        self.client.connect()
        self.process, self.known = process, set()
        others = [other for other in range(processes) if other != process]
        for run, argument in [(self.tell, Store(port)), *((self.hear, (Store(port), other)) for other in others)]:
            threading.Thread(target=self.until_failure, args=(run, argument), daemon=True).start()
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        state = distributed.global_state
        state.client, state.process_id, state.num_processes = self.client, process, processes

    def until_failure(self, run, argument):
        try:
            run(argument)
        except Exception as error:
            print(f"the helper of process {self.process} cannot go on: {error}", file=sys.stderr)
            os._exit(1)

    def tell(self, store):
        """Stores what XLA:CPU of this process stores, and its names as `helper/PROCESS/NUMBER`."""
        number = 0
        while True:
            pairs = [pair for folder in self.FOLDERS for pair in self.client.key_value_dir_get_bytes(folder)]
            for key, value in pairs:
                if key not in self.known:
                    self.known.add(key)
                    for name, content in [(key, value), (f"helper/{self.process}/{number}", key.encode())]:
                        code, _, error = store.ask("put", name, content)
                        if code:
                            raise RuntimeError(error)
                    number += 1
            time.sleep(0.01)

    def hear(self, argument):
        """Takes over what another process stores."""
        (store, other), number = argument, 0
        while True:
            code, key, error = store.ask("get", f"helper/{other}/{number}", wait_ms=1000)
            if code == 4:  # nothing new
                continue
            failed, value, why = (code, b"", error) if code else store.ask("get_now", key.decode())
            if failed:
                raise RuntimeError(why)
            self.known.add(key.decode())
            self.client.key_value_set_bytes(key.decode(), value)
            number += 1


def main():
    device_count, *meeting = map(int, sys.argv[1:])
    if meeting:
        Meeting(*meeting)
    server = Server(device_count)
    while True:
        request = json.loads(read(struct.unpack("<I", read(4))[0]))
        raw = read(request["bytes"])
        try:
            answer = getattr(server, request["op"])(request, raw)
            answer, raw = answer if isinstance(answer, tuple) else (answer, b"")
        except Exception as error:
            text = str(error)
            code = next((code for name, code in CODES.items() if text.startswith(name)), 13)
            answer, raw = {"code": code, "error": text[:4000]}, b""
        head = json.dumps(answer | {"bytes": len(raw)}).encode()
        ANSWERS.write(struct.pack("<I", len(head)) + head + raw)
        ANSWERS.flush()


if __name__ == "__main__":
    main()
