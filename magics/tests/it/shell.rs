//! Tests of the lines and cells that a shell runs.

use crate::cells::check;
use expect_test::expect;

#[test]
fn a_shell_command_stands_where_a_statement_may_begin() {
    check(
        "!ls -la | head; echo '{'\nlet a = 1;\n  ! echo a \\\n    b\n%device",
        expect![[r#"
            Shell(Shell { program: "sh", name: "!ls -la | head; echo '{'", script: "ls -la | head; echo '{'" })
            2 "let a = 1;\n"
            Shell(Shell { program: "sh", name: "!echo a \\", script: "\n\necho a \\\n    b" })
            Device"#]],
    );
    check("let a =\n!b;", expect![[r#"1 "let a =\n!b;""#]]);
    check("f(\n!b)", expect![[r#"1 "f(\n!b)""#]]);
    check("(!b)", expect![[r#"1 "(!b)""#]]);
}

#[test]
fn a_script_keeps_its_lines() {
    check(
        "%%bash\nset -e\n%!?{\n",
        expect![[r#"Shell(Shell { program: "bash", name: "%%bash", script: "\nset -e\n%!?{\n" })"#]],
    );
    check(
        "%bash ls \"a b\"",
        expect![[r#"Shell(Shell { program: "bash", name: "%bash ls \"a b\"", script: "ls \"a b\"" })"#]],
    );
}
