"""The `jupyter_kernel_test` suite over tcp and ipc, which checks every message against the specification's schema.

Every property of the suite is set, so that it skips nothing.
"""

import os
import shutil
import tempfile

import jupyter_kernel_test
from jupyter_client.manager import KernelManager

from front_end import KERNEL, TIMEOUT_S


class Suite:
    """What the suite runs; `transport` is that of the kernel."""

    kernel_name = KERNEL
    language_name = "rust"
    file_extension = ".rs"
    code_hello_world = 'println!("hello, world");'
    code_stderr = 'eprintln!("on stderr");'
    code_execute_result = [{"code": "1 + 2", "result": "3"}, {"code": '"a".len()', "result": "1"}]
    code_generate_error = "panic!();"
    code_display_data = [{"code": 'ferrotune::display::text("shown");', "mime": "text/plain"}]
    code_page_something = "%lsmagic?"
    code_clear_output = "ferrotune::display::clear_output(false);"
    code_inspect_sample = "Vec"
    completion_samples = [{"text": "%tpu_con", "matches": {"%tpu_connect"}}, {"text": "%no_such_magic", "matches": set()}]
    code_history_pattern = "1 ? 2"
    supported_history_operations = ("tail", "search", "range")
    complete_code_samples = ["1 + 1", "fn f() {}", "let a = 1;"]
    incomplete_code_samples = ["fn f() {", "1 +", 'let s = "abc']
    invalid_code_samples = ["foo(]", "let a = 1\nlet b = 2;"]

    @classmethod
    def setUpClass(cls):
        # The suite counts the cells that its pattern finds, so the history begins empty. A socket's path has to be short.
        cls.folder = tempfile.mkdtemp(prefix="suite-")
        options = {"ip": f"{cls.folder}/socket"} if cls.transport == "ipc" else {}
        cls.km = KernelManager(kernel_name=cls.kernel_name, transport=cls.transport, **options)
        cls.km.start_kernel(env={**os.environ, "XDG_DATA_HOME": cls.folder})
        cls.kc = cls.km.client()
        cls.kc.start_channels()
        cls.kc.wait_for_ready(timeout=TIMEOUT_S)

    @classmethod
    def tearDownClass(cls):
        cls.kc.stop_channels()
        cls.km.shutdown_kernel()
        shutil.rmtree(cls.folder)


class TestOverTcp(Suite, jupyter_kernel_test.KernelTests):
    transport = "tcp"


class TestOverIpc(Suite, jupyter_kernel_test.KernelTests):
    transport = "ipc"


def test_every_property_of_the_suite_is_set():
    suite = vars(jupyter_kernel_test.KernelTests)
    properties = {name for name, value in suite.items() if not name.startswith("_") and value in ("", [], ())}
    assert len(properties) >= 14
    assert {name for name in properties if not vars(Suite).get(name)} == set()
