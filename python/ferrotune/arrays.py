"""Variables that travel between Python and Rust: arrays through sealed memory files, numbers and texts as Rust source.

A memory file is in safetensors layout, with one tensor. Rust maps it, so that neither side sees later changes of the other, and
each may outlive the other. An array of `empty` is in such a file already and travels without a copy; another one is copied once.
"""

import ctypes
import errno
import fcntl
import json
import math
import mmap
import os
import sys

from .errors import FerrotuneError, RustError

# glibc puts a large vector 16 bytes behind the beginning of a page, so that Rust can put these pages under it.
DATA_OFFSET = mmap.PAGESIZE + 16

# NumPy's names of the types that candle has, and those of safetensors.
DTYPES = {
    "uint8": "U8",
    "uint32": "U32",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}
# Those that NumPy knows only with the package ml_dtypes, by the names of safetensors.
OF_ML_DTYPES = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn"}
# What holds the values of a type that candle lacks.
WIDER = {"bool": "uint8", "int8": "int16", "uint16": "int32", "uint64": "int64"}

MAP_FIXED = 0x10
# Linux 5.1; the fcntl module has no name for it.
F_SEAL_FUTURE_WRITE = 0x10
OTHER_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

# A longer text travels in a memory file rather than in the source of a cell.
LONGEST_LITERAL = 1 << 16

DLPACK_CPU = 1
I64 = range(-(2**63), 2**63)


def empty(shape, dtype="float32"):
    """An array of zeros in shared memory, which the next `%%rust -i` passes to Rust without a copy.

    Once passed, the array is an ordinary one: it stays as it is when Rust changes its tensor, the other way round too, and passing
    it again is a copy.
    """
    import numpy

    dtype = numpy.dtype(dtype)
    _check_dtype("the array", dtype)
    shape = tuple(shape) if hasattr(shape, "__iter__") else (shape,)
    memory = SharedMemory.of(math.prod(shape) * dtype.itemsize)
    return numpy.ndarray(shape, dtype, memory, DATA_OFFSET)


class SharedMemory(mmap.mmap):
    """A memory file that is mapped whole; `file` is its descriptor until the file has travelled."""

    @classmethod
    def of(cls, data_bytes):
        file = File()
        os.ftruncate(file.descriptor, DATA_OFFSET + data_bytes)
        memory = cls(file.descriptor, DATA_OFFSET + data_bytes)
        memory.file = file
        return memory

    def take_file(self):
        """The file, sealed. The mapping stays where it is, writable, and makes pages of its own."""
        length = len(self)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self))
        access = mmap.PROT_READ | mmap.PROT_WRITE
        file, self.file = self.file, None
        mapped = _libc_mmap()(start, length, access, mmap.MAP_PRIVATE | MAP_FIXED, file.descriptor, 0)
        if mapped != start:
            raise OSError(ctypes.get_errno(), "cannot map the shared memory again")
        file.seal()
        return file


class File:
    """A memory file of this process, which ends with this object and the mappings of all processes."""

    def __init__(self):
        self.descriptor = os.memfd_create("ferrotune-array", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)

    def __del__(self):
        os.close(self.descriptor)

    @property
    def path(self):
        """How the process of the Rust cells opens it, for as long as this object exists."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    def seal(self):
        """Takes from everyone the right to change the file. A process that has it mapped, such as one that was forked, keeps that right:
        then Rust sees it by the seals, and reads the file in place of mapping it. The system itself holds pages for a moment, too."""
        try:
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, OTHER_SEALS | fcntl.F_SEAL_WRITE)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, OTHER_SEALS | F_SEAL_FUTURE_WRITE)


def declaration(name, value):
    """Rust that makes a variable of a Python value, and what has to exist until it has run."""
    if _is_scalar(value):
        value = value.item()
    if isinstance(value, bool):
        return f"let {name}: bool = {str(value).lower()};", None
    if isinstance(value, int):
        if int(value) not in I64:
            raise FerrotuneError(f"-i {name}: {value} is larger than a Rust i64; pass it as a float or a str")
        return f"let {name}: i64 = {int(value)};", None
    if isinstance(value, float):
        return f"let {name}: f64 = {_float(float(value))};", None
    if isinstance(value, str):
        return _text(name, str.__str__(value))
    file = _travelling(_array(name, value))
    return f'let {name}: candle_core::Tensor = ferrotune::python::take("{file.path}")?;', file


def _text(name, value):
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        cure = f"{name}.encode(errors='replace').decode() replaces it"
        raise FerrotuneError(f"-i {name}: the text has half of a surrogate pair, which Rust's String cannot hold; {cure}") from None
    if len(encoded) <= LONGEST_LITERAL:
        return f'let {name}: String = String::from("{_escaped(value)}");', None
    import numpy

    file = _travelling(numpy.frombuffer(encoded, "uint8"))
    bytes_ = f'ferrotune::python::take("{file.path}")?.to_vec1::<u8>()?'
    return f"let {name}: String = String::from_utf8({bytes_})?;", file


class Results:
    """The files into which Rust writes the variables of `-o`."""

    def __init__(self, names):
        self._files = {name: File() for name in names}
        self._values = {}

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self._files.clear()

    def expressions(self):
        """Rust that writes each variable, by the variable's name."""
        return {name: f'ferrotune::python::give(&{name}, "{file.path}")?' for name, file in self._files.items()}

    def check(self, replies):
        """Raises the error of the first variable that could not be written."""
        for name in self._files:
            reply = replies[name]
            if reply["status"] != "ok":
                raise RustError(reply["ename"], f"-o {name}: {reply['evalue']}", reply["traceback"])

    def variables(self):
        return {name: _value(file) for name, file in self._files.items()}


def _value(file):
    """The variable that Rust has written into a file. An array is over the file's memory, and changes pages of its own."""
    length = os.fstat(file.descriptor).st_size
    file.seal()
    memory = mmap.mmap(file.descriptor, length, access=mmap.ACCESS_COPY)
    header_bytes = int.from_bytes(memory[:8], "little")
    header = json.loads(memory[8 : 8 + header_bytes])
    texts = header["__metadata__"]
    if texts["kind"] == "array":
        return _mapped(memory, 8 + header_bytes, header["value"])
    text = texts["value"]
    if texts["kind"] == "bool":
        return text == "true"
    return {"int": int, "float": float, "str": str}[texts["kind"]](text)


def _mapped(memory, data, info):
    import numpy

    short = info["dtype"]
    cure = "convert the tensor with .to_dtype(DType::F32)?"
    if short in OF_ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            raise FerrotuneError(f"NumPy has no {OF_ML_DTYPES[short]}; install ml_dtypes, or {cure}") from None
        dtype = numpy.dtype(getattr(ml_dtypes, OF_ML_DTYPES[short]))
    else:
        name = next((name for name, known in DTYPES.items() if known == short), None)
        if name is None:
            raise FerrotuneError(f"NumPy has no type for {short}; {cure}")
        dtype = numpy.dtype(name)
    if 0 in info["shape"]:
        return numpy.zeros(info["shape"], dtype)
    return numpy.ndarray(info["shape"], dtype, memory, data + info["data_offsets"][0])


def _array(name, value):
    """The value as a NumPy array over the same memory; an error if it is none or candle lacks its type."""
    import numpy

    if isinstance(value, numpy.ma.MaskedArray):
        cure = f"{name}.filled(VALUE) gives them one"
        raise FerrotuneError(f"-i {name}: the masked elements of an array have no value for Rust; {cure}")
    if isinstance(value, numpy.ndarray):
        array = value
    elif hasattr(value, "__dlpack__"):
        array = _from_dlpack(name, value)
    else:
        try:
            array = numpy.asarray(memoryview(value))
        except TypeError:
            kind = type(value).__name__
            cure = "pass an array, a number, a str or a bool; numpy.asarray makes an array of a list"
            raise FerrotuneError(f"-i {name}: a {kind} cannot travel to Rust; {cure}") from None
    _check_dtype(f"-i {name}: the array", array.dtype)
    return array


def _from_dlpack(name, value):
    import numpy

    if value.__dlpack_device__()[0] != DLPACK_CPU:
        raise FerrotuneError(f"-i {name}: the array is on another device; copy it to the CPU first")
    # A tensor of PyTorch that takes part in gradients.
    value = value.detach() if hasattr(value, "detach") else value
    try:
        return numpy.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as error:
        cure = "convert it to a type that NumPy has, such as float32"
        raise FerrotuneError(f"-i {name}: NumPy does not take this {type(value).__name__}: {error}; {cure}") from None


def _check_dtype(what, dtype):
    if dtype.name not in DTYPES:
        known = ", ".join(DTYPES)
        cure = f"convert it with .astype('{WIDER[dtype.name]}')" if dtype.name in WIDER else f"candle has {known}"
        raise FerrotuneError(f"{what} is of {dtype.name}, which candle has not; {cure}")
    if not dtype.isnative:
        raise FerrotuneError(f"{what} has the bytes of another machine's order; convert it with .astype('{dtype.name}')")


def _travelling(array):
    """A sealed file with the array's values in C order: the file in which it is, or a new one."""
    memory = _memory_of(array)
    if memory is None:
        copy = empty(array.shape, array.dtype)
        copy[...] = array
        array, memory = copy, _memory_of(copy)
    header = json.dumps(
        {"value": {"dtype": DTYPES[array.dtype.name], "shape": array.shape, "data_offsets": [0, array.nbytes]}}
    )
    os.pwrite(memory.file.descriptor, (DATA_OFFSET - 8).to_bytes(8, "little") + header.ljust(DATA_OFFSET - 8).encode(), 0)
    return memory.take_file()


def _memory_of(array):
    """The shared memory that the array fills; None if it is elsewhere, is a part, or has travelled."""
    base = array
    while base is not None and not isinstance(base, SharedMemory):
        base = getattr(base, "base", None)
    is_whole = base is not None and base.file and array.nbytes == len(base) - DATA_OFFSET and array.flags.c_contiguous
    return base if is_whole else None


def _is_scalar(value):
    """Whether this is one of NumPy's numbers, without loading NumPy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def _float(value):
    if math.isnan(value):
        return "f64::NAN"
    if math.isinf(value):
        return "f64::INFINITY" if value > 0 else "f64::NEG_INFINITY"
    return f"{value!r}_f64"


def _escaped(text):
    escapes = {"\\": "\\\\", '"': '\\"'}
    return "".join(escapes.get(one, one if one.isprintable() else f"\\u{{{ord(one):x}}}") for one in text)


def _libc_mmap():
    function = ctypes.CDLL(None, use_errno=True).mmap
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    return function
