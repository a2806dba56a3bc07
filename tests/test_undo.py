"""Going back: variables, their types and the definitions are those of the earlier state."""

import re


def test_undo_takes_back_variables_types_and_definitions(start):
    kernel = start()
    kernel.ok("struct P { x: f64 }\nimpl P { fn twice(&self) -> f64 { 2.0 * self.x } }\nlet p = P { x: 1.5 };")
    kernel.ok("fn f() -> i32 { 1 }\nlet mut a = 1; let text = String::from(\"kept\");")
    assert kernel.ok("f() + a").result == "2"
    # A function of another type, a struct with another field, a changed type, a moved variable, a dropped and a new one.
    kernel.ok("fn f() -> String { \"two\".into() }\nstruct Q(i32);\nimpl Q { fn g(&self) -> i32 { self.0 } }\nlet q = Q(3);")
    kernel.ok("let a = text; drop(p); let new = vec![q.g()];")
    assert kernel.ok("(a, f(), new)").result == '("kept", "two", [3])'
    assert kernel.ok("%undo 3").display == "undone: the last 3 cells; the variables are a, p, text"
    assert kernel.ok("(a + f(), &text, p.twice())").result == '(2, "kept", 3.0)'
    assert "cannot find value `new`" in kernel.fails("new").error
    assert "cannot find" in kernel.fails("Q(1).g()").error
    kernel.ok("a = 5;")
    assert "not declared as mutable" in kernel.fails("text = String::new();").error
    kernel.ok("struct P { y: Vec<i32> }\nlet p = P { y: vec![4] };")
    assert kernel.ok("p.y[0] + a").result == "9"


def test_undo_goes_back_five_cells_and_says_so_when_there_are_no_more(start):
    kernel = start()
    assert kernel.run("%undo").error == "MagicError: there is no cell that can be undone"
    kernel.ok("let mut n = 0;")
    for _ in range(7):
        kernel.ok("n += 1;")
    assert kernel.run("%undo 6").error == "MagicError: only the last 5 cells can be undone"
    kernel.ok("%undo 5")
    assert kernel.ok("n").result == "2"
    assert kernel.run("%undo 2").error == "MagicError: only the last cell can be undone"
    kernel.ok("n += 1;")
    kernel.ok("%undo 2")
    assert kernel.ok("n").result == "2"


def test_cell_that_died_needs_no_undo(start):
    kernel = start()
    kernel.ok("let mut n = 1;")
    kernel.ok("n = 2;")
    kernel.fails("n = 3; std::process::abort();")
    kernel.ok("%undo 2")
    assert kernel.ok("n").result == "1"


def test_checkpoint_comes_back_as_often_as_asked_for(start):
    kernel = start()
    kernel.ok("use candle_core::{DType, Device, Tensor, Var};\nlet weights = Var::zeros(4, DType::F32, &Device::Cpu)?;")
    assert "there is no checkpoint trained" in kernel.run("%restore trained").error
    assert kernel.ok("%checkpoint trained").display == "kept as trained; %restore trained brings it back"
    for _ in range(2):
        # A Var changes in place: only the memory of the process has its old value.
        kernel.ok("weights.set(&Tensor::ones(4, DType::F32, &Device::Cpu)?)?; let extra = 1;")
        assert kernel.ok("weights.sum_all()?.to_scalar::<f32>()?").result == "4.0"
        assert kernel.ok("%restore trained").display == "restored trained; the variables are weights"
        assert kernel.ok("weights.sum_all()?.to_scalar::<f32>()?").result == "0.0"
    kernel.ok("%undo 2")
    assert kernel.ok("extra").result == "1"
    kernel.fails("std::process::abort();")
    kernel.ok("%restore trained")
    assert kernel.ok("weights.dims().to_vec()").result == "[4]"


def test_checkpoints_tell_their_age_and_what_they_cost(start):
    kernel = start()
    assert kernel.ok("%checkpoints").display.startswith("nothing is kept yet")
    kernel.ok("let mut big = vec![1u8; 64 << 20];")
    kernel.ok("%checkpoint full")
    kernel.ok("big.fill(2);")
    kernel.ok("big.fill(3);")
    table = kernel.ok("%checkpoints").display.splitlines()
    assert table[0].split() == ["state", "age", "private", "memory", "share", "of", "memory", "fork"]
    # Memory that two snapshots share belongs to neither of them alone.
    assert [line.split()[0] for line in table[1:]] == ["%undo", "full", "%undo", "%undo"]
    (full,) = [line.split("  ") for line in table if line.startswith("full")]
    (last,) = [line for line in table if line.startswith("%undo 1")]
    assert "32." in "".join(full) or "33." in "".join(full), table
    assert " 64." in last or " 65." in last, table


def test_memory_names_its_holders_and_the_limit(start):
    kernel = start()
    kernel.ok("let big = vec![1u8; 100 << 20];")
    table = kernel.ok("%memory").display
    (row,) = [line for line in table.splitlines() if line.startswith("variables and cells")]
    assert 100 <= float(row.split()[-2]) <= 120, row
    assert "limit of the " in table
    kernel.ok("%memory limit 300MiB")
    outcome = kernel.fails("let more = vec![1u8; 400 << 20]; loop { std::hint::black_box(&more); std::thread::sleep(std::time::Duration::from_millis(1)); }")
    assert outcome.error.startswith("OutOfMemory: the cell held "), outcome.error
    assert "the limit is 300.0 MiB" in outcome.error and "every variable is as it was before the cell" in outcome.error
    assert kernel.ok("big.len()").result == str(100 << 20)
    kernel.ok("%memory limit none")
    assert kernel.ok("vec![1u8; 400 << 20].len()").result == str(400 << 20)


def test_undo_never_gives_a_variable_another_type(start):
    kernel = start()
    kernel.ok("struct P { x: u64 }\nlet p = P { x: 8 }; let kept = 1;")
    # This cell has no statement, so nothing looks at p until the next one does.
    kernel.ok("struct P { x: String }")
    kernel.ok("let after = 2;")
    assert kernel.ok("%undo").display == "undone: the last cell; the variables are kept"
    assert "cannot find value `p`" in kernel.fails("p.x.len()").error
    kernel.ok("%undo 2")
    assert kernel.ok("kept").result == "1"


def test_undo_to_a_cell_of_definitions_alone(start):
    kernel = start()
    kernel.ok("struct A(i32);")
    kernel.ok("let x = A(1);")
    kernel.ok("%undo")
    for number in range(3):
        assert kernel.ok(f"let y = A({number}); y.0").result == str(number)


def test_checkpoint_in_the_cell_that_made_the_state_holds_it(start):
    kernel = start()
    kernel.ok("let mut big = vec![0u8; 200 << 20];")
    kernel.ok("big.fill(1); let sum = 5;\n%checkpoint after")
    kernel.ok("big.fill(2); drop(sum);")
    kernel.ok("%restore after")
    assert kernel.ok("(sum, big[7])").result == "(5, 1)"


def test_thread_that_ends_the_process_at_once_leaves_a_notebook_in_step(start):
    kernel = start()
    kernel.ok("let kept = 1;")
    for _ in range(5):
        kernel.run("let new = vec![1u8; 50 << 20]; std::thread::spawn(|| std::process::abort());")
        assert kernel.ok("kept").result == "1"
    # A thread that the system starts late ends the process after its cell has ended, and the kernel tells so.
    for said, content in kernel.unclaimed():
        assert said == "stream" and content["text"].startswith("after the cell had ended, the process of the cells was ended by SIGABRT")


def test_gc_gives_freed_memory_back_and_says_how_much(start):
    kernel = start()
    kernel.ok("let mut small: Vec<Vec<u8>> = (0..100_000).map(|i| vec![1u8; 1000 + i % 7]).collect();")
    # The last one keeps the allocator from giving anything back by itself.
    kernel.ok("small.drain(..99_999); small.len()")
    shown = kernel.ok("%gc all").display
    came, unit = re.match(r"(\S+) (\S+) came back; variables and cells hold", shown).groups()
    assert unit == "MiB" and 90 <= float(came) <= 300, shown
    assert kernel.run("%undo").error == "MagicError: there is no cell that can be undone"
    # The snapshot for the next cell exists again.
    assert "CellDied" in kernel.fails("small.clear(); std::process::abort();").error
    assert kernel.ok("small.len()").result == "1"
    assert "write %gc or %gc all" in kernel.run("%gc nothing").error


def test_methods_of_a_cell_of_their_own_outlive_other_definitions(start):
    kernel = start()
    names = ["B", "C", "D", "E", "F"]
    kernel.ok("struct A(i32);\n" + "\n".join(f"struct {name}(i32);" for name in names))
    kernel.ok("impl A { fn twice(&self) -> i32 { 2 * self.0 } }\nimpl std::fmt::Display for A { fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result { write!(f, \"A{}\", self.0) } }")
    kernel.ok("let a = A(4);")
    kernel.ok("let new = 1;")
    kernel.ok("%undo")
    # evcxr forgets a definition together with everything below it.
    kernel.ok("\n".join(f"struct {name}(u8);" for name in names))
    assert kernel.ok('format!("{a} {}", a.twice())').result == '"A4 8"'


def test_cell_that_goes_on_after_undo_can_be_undone(start):
    kernel = start()
    kernel.ok("let mut n = 1;")
    kernel.ok("n = 2;")
    assert kernel.ok("%undo\nn += 10; n").result == "11"
    assert kernel.ok("%undo").display == "undone: the last cell; the variables are n"
    assert kernel.ok("n").result == "1"


def test_undo_takes_a_restore_back_and_then_the_cell_before_it(start):
    kernel = start()
    kernel.ok("let mut n = 1;")
    kernel.ok("%checkpoint one")
    kernel.ok("n = 2;")
    kernel.ok("%restore one\nn += 10;")
    kernel.ok("%undo")
    assert kernel.ok("n").result == "2"
    kernel.ok("%undo 2")
    assert kernel.ok("n").result == "1"


def test_variable_that_cannot_come_back_is_named(start):
    kernel = start()
    kernel.ok("struct P { x: u64 }\nlet p = P { x: 8 }; let kept = 1;")
    kernel.ok("struct P { x: String }")
    kernel.ok("%checkpoint mixed")
    outcome = kernel.ok("%restore mixed")
    assert "the variable p was dropped: its type has been defined anew" in outcome.stderr
    assert outcome.display == "restored mixed; the variables are kept"
