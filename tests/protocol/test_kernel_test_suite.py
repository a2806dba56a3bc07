"""The `jupyter_kernel_test` suite, which checks every message against the specification's schema."""

import jupyter_kernel_test


class TestFerrotune(jupyter_kernel_test.KernelTests):
    kernel_name = "ferrotune"
    language_name = "rust"
    file_extension = ".rs"
    code_hello_world = 'println!("hello, world");'
    code_stderr = 'eprintln!("on stderr");'
    code_execute_result = [{"code": "1 + 2", "result": "3"}]
    code_generate_error = "panic!();"
    code_display_data = [{"code": 'ferrotune::display::text("shown");', "mime": "text/plain"}]
    code_page_something = "%lsmagic?"
    code_clear_output = "ferrotune::display::clear_output(false);"
    code_inspect_sample = "Vec"
    completion_samples = [{"text": "%tpu_con", "matches": {"%tpu_connect"}}]
    code_history_pattern = "1 ? 2"
    supported_history_operations = ("tail", "search", "range")
    complete_code_samples = ["1 + 1", "fn f() {}", "let a = 1;"]
    incomplete_code_samples = ["fn f() {", "1 +", 'let s = "abc']
    invalid_code_samples = ["foo(]", "let a = 1\nlet b = 2;"]
