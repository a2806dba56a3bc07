"""Comms, widgets and subshells: what front ends and cells say to each other beside cells and their outputs."""

import pytest

from front_end import IDLE
from session import wait_for

WIDGET, VIEW = "jupyter.widget", "application/vnd.jupyter.widget-view+json"
SLEEP = 'println!("asleep"); ferrotune::sleep(std::time::Duration::from_secs(60))?;'


class Watch:
    """The comm messages and displays of a cell, which `Outcome` does not take."""

    def __init__(self, kernel):
        self.kernel, self.comms, self.bundles, self.models = kernel, [], [], {}

    def run(self, code, cell=None):
        """Runs a cell that must not fail, in a front end that says which one it is if `cell` is given; returns its result."""
        msg_id = self.kernel.begin(code) if cell is None else begin_cell(self.kernel, cell, code)
        result, content = None, None
        while content != IDLE[1]:
            message = self.kernel.next_published(msg_id)
            msg_type, content = message["msg_type"], message["content"]
            if msg_type.startswith("comm_"):
                self.comms.append(message)
                if msg_type == "comm_open" and content["target_name"] == WIDGET:
                    self.models[content["comm_id"]] = content["data"]["state"]
            elif msg_type in ("display_data", "execute_result"):
                self.bundles.append(content["data"])
                result = content["data"].get("text/plain")
            assert msg_type != "error", content
        assert self.kernel.reply(msg_id)["content"]["status"] == "ok"
        return result

    def id_of(self, model):
        """The id of the last widget with this model."""
        return [id for id, state in self.models.items() if state["_model_name"] == model][-1]

    def listed(self):
        """How many of the widgets that were ever opened a front end finds, and the last values of their sliders."""
        found = self.kernel.ask("comm_info_request", {"target_name": WIDGET})["comms"].keys() & self.models.keys()
        return len(found), sorted(self.models[id]["value"] for id in found if "value" in self.models[id])


def begin_cell(kernel, cell, code):
    """Sends a cell as JupyterLab does, which names it; returns the id of the request."""
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": False}
    message = kernel.client.session.msg("execute_request", content, metadata={"cellId": cell, "deletedCells": []})
    kernel.client.shell_channel.send(message)
    return message["header"]["msg_id"]


@pytest.fixture
def watch(kernel):
    return Watch(kernel)


def send(kernel, comm_id, data, msg_type="comm_msg", buffers=None, **content):
    """Sends a message of a comm as a front end; returns all that is published for it."""
    session = kernel.client.session
    message = session.msg(msg_type, {"comm_id": comm_id, "data": data, **content})
    session.send(kernel.client.shell_channel.socket, message, buffers=buffers)
    return kernel.published(message["header"]["msg_id"])


def set_value(kernel, comm_id, value):
    """Moves a slider as a front end does; the kernel has its value when this returns."""
    state = {"state": {"value": value}, "buffer_paths": []}
    echo = {"comm_id": comm_id, "data": {"method": "echo_update", **state}}
    assert send(kernel, comm_id, {"method": "update", **state}) == [("comm_msg", echo)]


# Widgets


def test_slider_is_opened_shown_moved_between_cells_and_read_by_the_next_one(kernel, watch):
    watch.run('let mut epochs = ferrotune::widget::int_slider("epochs", 1..=50, 10)?; epochs.show();')
    layout, style, slider = watch.models
    assert [watch.models[part]["_model_name"] for part in (layout, style)] == ["LayoutModel", "SliderStyleModel"]
    assert watch.models[style]["description_width"] == "initial"
    assert watch.models[slider] == {
        "_model_module": "@jupyter-widgets/controls",
        "_model_module_version": "2.0.0",
        "_model_name": "IntSliderModel",
        "_view_module": "@jupyter-widgets/controls",
        "_view_module_version": "2.0.0",
        "_view_name": "IntSliderView",
        "description": "epochs",
        "layout": f"IPY_MODEL_{layout}",
        "max": 50,
        "min": 1,
        "style": f"IPY_MODEL_{style}",
        "value": 10,
    }
    assert {message["metadata"]["version"] for message in watch.comms} == {"2.1.0"}
    assert watch.bundles == [
        {
            VIEW: {"model_id": slider, "version_major": 2, "version_minor": 0},
            "text/html": "<div>epochs: <b>10</b></div>",
            "text/plain": "epochs: 10 (a widget, which this front end does not show)",
        }
    ]
    set_value(kernel, slider, 23)
    assert watch.run("epochs.value()?") == "23"
    watch.run("epochs.set(7)?;")
    update = {"method": "update", "state": {"value": 7}, "buffer_paths": []}
    assert watch.comms[-1]["content"] == {"comm_id": slider, "data": update}
    assert watch.run("epochs.value()?") == "7"


def test_controls_are_those_of_ipywidgets(kernel, watch):
    watch.run(
        """use ferrotune::widget::*;
        (int_slider("a", 0..=1, 0)?, float_slider("b", 0.0..=1.0, 0.0)?, int_box("c", 0)?, float_box("d", 0.0)?);
        (text_box("e", "")?, checkbox("f", false)?, button("g")?, bar("h", 3)?);"""
    )
    styles = {id: state["_model_name"] for id, state in watch.models.items() if state["_view_name"] == "StyleView"}
    controls = [state for state in watch.models.values() if "style" in state]
    # From ipywidgets 8.1.9: type(widget)().get_state(), and the same of its style.
    assert [(s["_model_name"], s["_view_name"], styles[s["style"].removeprefix("IPY_MODEL_")]) for s in controls] == [
        ("IntSliderModel", "IntSliderView", "SliderStyleModel"),
        ("FloatSliderModel", "FloatSliderView", "SliderStyleModel"),
        ("IntTextModel", "IntTextView", "DescriptionStyleModel"),
        ("FloatTextModel", "FloatTextView", "DescriptionStyleModel"),
        ("TextModel", "TextView", "TextStyleModel"),
        ("CheckboxModel", "CheckboxView", "CheckboxStyleModel"),
        ("ButtonModel", "ButtonView", "ButtonStyleModel"),
        ("IntProgressModel", "ProgressView", "ProgressStyleModel"),
    ]


def test_bar_sends_its_end_and_skips_what_comes_too_fast(kernel, watch):
    watch.run('let mut bar = ferrotune::widget::bar("steps", 1000)?; for step in 1..=1000 { bar.set(step)?; }')
    values = [m["content"]["data"]["state"]["value"] for m in watch.comms if m["msg_type"] == "comm_msg"]
    assert (values[0], values[-1]) == (1, 1000) and len(values) < 20, values


def test_bar_sends_what_a_cell_has_set_last_when_the_cell_ends(kernel, watch):
    watch.run('let mut rows = ferrotune::widget::bar("rows", 1000)?; for row in 0..=500 { rows.set(row)?; }')
    values = [m["content"]["data"]["state"]["value"] for m in watch.comms if m["msg_type"] == "comm_msg"]
    assert (values[0], values[-1]) == (0, 500) and len(values) < 20, values


def test_list_offers_words_of_which_the_front_end_chooses_one(kernel, watch):
    watch.run('let mut pick = ferrotune::widget::dropdown("pick", &["sgd", "adam"], "adam")?; pick.show();')
    box = watch.id_of("DropdownModel")
    state = watch.models[box]
    assert (state["_options_labels"], state["index"], state["_view_name"]) == (["sgd", "adam"], 1, "DropdownView")
    send(kernel, box, {"method": "update", "state": {"index": 0}, "buffer_paths": []})
    assert watch.run("pick.value()?") == '"sgd"'
    assert 'the list "pick" offers "sgd", "adam", but its value is "x"' in kernel.fails('pick.set("x")?;').error
    assert 'the control "rate" cannot hold NaN' in kernel.fails('ferrotune::widget::float_box("rate", f64::NAN)?;').error


def test_slider_that_moves_while_a_cell_runs_is_read_by_that_cell(kernel, watch):
    watch.run('let rate = ferrotune::widget::float_slider("rate", 0.0..=1.0, 0.5)?;')
    msg_id = kernel.begin('println!("reads"); while rate.value()? < 0.75 {} rate.value()?')
    while kernel.next_published(msg_id)["msg_type"] != "stream":
        pass
    set_value(kernel, watch.id_of("FloatSliderModel"), 1)
    assert kernel.end_of(msg_id).result == "1.0"


def test_widgets_stay_as_they_are_after_a_crash_and_after_undo(kernel, watch):
    watch.run('let depth = ferrotune::widget::int_box("depth", 3)?; let kept = 1;')
    set_value(kernel, watch.id_of("IntTextModel"), 4)
    kernel.fails("std::process::abort();")
    assert watch.run("depth.value()?") == "4"
    watch.run("let kept = 2;")
    set_value(kernel, watch.id_of("IntTextModel"), 5)
    kernel.ok("%undo")
    assert watch.run("(kept, depth.value()?)") == "(1, 5)"


def test_button_counts_its_presses(kernel, watch):
    watch.run('let go = ferrotune::widget::button("Go")?; go.presses()?;')
    button = watch.id_of("ButtonModel")
    for _ in range(3):
        assert send(kernel, button, {"method": "custom", "content": {"event": "click"}}) == []
    assert watch.run("(go.presses()?, go.presses()?)") == "(3, 0)"


def test_closed_widget_says_so(kernel, watch):
    watch.run('let name = ferrotune::widget::text_box("name", "Ada")?; name.close()?;')
    box = watch.id_of("TextModel")
    closed = [message["content"]["comm_id"] for message in watch.comms if message["msg_type"] == "comm_close"]
    assert box in closed and len(closed) == 3
    assert f"the comm {box} is not open" in kernel.fails("name.value()?").error
    assert box not in kernel.ask("comm_info_request")["comms"]


def test_widget_that_a_front_end_without_widgets_closes_keeps_its_state(kernel, watch):
    watch.run('let mut rows = ferrotune::widget::int_box("rows", 3)?;')
    box = watch.id_of("IntTextModel")
    for model in watch.models:
        assert send(kernel, model, {}, "comm_close") == []
    assert kernel.ask("comm_info_request")["comms"].keys().isdisjoint(watch.models)
    assert watch.run("rows.value()?") == "3"
    watch.run("rows.set(4)?;")
    assert watch.run("rows.value()?") == "4"
    set_value(kernel, box, 5)
    assert watch.run("rows.value()?") == "5"
    watch.run("rows.close()?;")
    assert f"the comm {box} is not open" in kernel.fails("rows.value()?").error


def test_widget_closes_all_its_comms_even_if_one_is_closed_already(kernel, watch):
    watch.run('let part = ferrotune::widget::text_box("part", "")?; part.close()?;')
    watch.run('use ferrotune::display::comm::Comm; Comm::accept("again")?;')
    layout = watch.id_of("LayoutModel")
    assert send(kernel, layout, {}, "comm_open", target_name="again") == []
    assert layout in kernel.ask("comm_info_request")["comms"]
    watch.run("assert!(part.close().is_err());")
    assert layout not in kernel.ask("comm_info_request")["comms"]


def test_new_front_end_gets_the_state_of_all_widgets(kernel, watch):
    watch.run('let note = ferrotune::widget::checkbox("on", true)?;')
    box = watch.id_of("CheckboxModel")
    assert kernel.ask("comm_info_request", {"target_name": WIDGET})["comms"][box] == {"target_name": WIDGET}
    ((msg_type, content),) = send(kernel, box, {"method": "request_state"})
    assert (msg_type, content["data"]["method"], content["data"]["state"]) == ("comm_msg", "update", watch.models[box])
    assert send(kernel, "control", {}, "comm_open", target_name="jupyter.widget.control") == []
    ((_, content),) = send(kernel, "control", {"method": "request_states"})
    assert content["comm_id"] == "control" and content["data"]["method"] == "update_states"
    model = content["data"]["states"][box]
    assert (model["model_name"], model["state"]) == ("CheckboxModel", watch.models[box])
    assert send(kernel, "control", {}, "comm_close") == []


def test_value_that_is_none_is_an_error_that_names_its_control(kernel, watch):
    watch.run('let count = ferrotune::widget::int_box("count", 1)?;')
    set_value(kernel, watch.id_of("IntTextModel"), None)
    assert 'the control "count" holds null; set another value' in kernel.fails("count.value()?").error
    error = kernel.fails('ferrotune::widget::int_slider("n", 1..=3, 4)?;').error
    assert 'the slider "n" goes from 1 to 3, but its value is 4' in error


def slider(name, value, end=""):
    return f'{name}ferrotune::widget::int_slider("released", 0..=50, {value})?{end}'


@pytest.mark.parametrize("cell", [None, "a-cell"], ids=["by code", "by id"])
def test_ten_runs_of_a_cell_leave_the_slider_of_the_last_one(kernel, watch, cell):
    for run in range(10):
        # With an id, it is the same cell after an edit, too.
        watch.run(slider("let released = ", 7 if cell is None else run, "; released.show();"), cell)
    assert len(watch.models) == 30
    assert watch.listed() == (3, [7 if cell is None else 9])
    set_value(kernel, watch.id_of("IntSliderModel"), 23)
    assert watch.run("released.value()?") == "23"


def test_slider_without_a_variable_stays_until_its_cell_runs_again(watch):
    watch.run(slider("", 1, ".show();"), "first")
    watch.run(slider("", 2, ".show();"), "second")
    assert watch.listed() == (6, [1, 2])
    watch.run(slider("", 3, ".show();"), "first")
    assert watch.listed() == (6, [2, 3])


def test_slider_of_a_variable_works_until_the_variable_is_declared_anew(kernel, watch):
    watch.run(slider("let kept = ", 1, ";"), "maker")
    watch.run("1", "maker")
    assert watch.listed() == (3, [1])
    set_value(kernel, watch.id_of("IntSliderModel"), 5)
    assert watch.run("let copy = kept.clone(); kept.value()?") == "5"
    watch.run("let kept = 1;")
    assert watch.listed() == (3, [1]), "the copy holds it"
    watch.run("drop(copy);")
    assert watch.listed() == (0, [])


def test_slider_whose_variable_comes_back_is_opened_again(kernel, watch):
    watch.run(slider("let back = ", 1, ";"), "back")
    first = watch.id_of("IntSliderModel")
    set_value(kernel, first, 5)
    watch.run(slider("let back = ", 2, ";"), "back")
    assert watch.listed() == (3, [2])
    opened = len(watch.comms)
    watch.run("%undo")
    assert watch.run("back.value()?") == "5"
    *parts, model = [message["content"] for message in watch.comms[opened:] if message["msg_type"] == "comm_open"]
    assert (len(parts), model["comm_id"], model["data"]["state"]["value"]) == (2, first, 5)
    assert watch.listed()[0] == 6, "the user sees the other one"
    watch.run(slider("let back = ", 3, ";"), "back")
    assert watch.listed() == (3, [3])


def test_slider_of_a_run_that_crashes_is_closed_by_the_next_run(kernel, watch):
    watch.run(slider("let crashed = ", 1, ";"), "crash")
    msg_id = begin_cell(kernel, "crash", slider("let crashed = ", 2, "; std::process::abort();"))
    lost = [content["comm_id"] for msg_type, content in kernel.published(msg_id) if msg_type == "comm_open"]
    assert kernel.reply(msg_id)["content"]["status"] == "error"
    assert watch.run("crashed.value()?") == "1"
    watch.run(slider("let crashed = ", 3, ";"), "crash")
    assert watch.listed() == (3, [3])
    assert len(lost) == 3 and kernel.ask("comm_info_request")["comms"].keys().isdisjoint(lost)


# Comms


def test_comm_of_a_cell_carries_json_and_buffers_both_ways(kernel, watch):
    watch.run(
        """use ferrotune::display::comm::{Comm, Message, json};
        let mut first = Message::from(json!({"n": 1}));
        first.buffers.push(vec![0, 255]);
        let comm = Comm::open("my.target", first)?;"""
    )
    (opened,) = watch.comms
    comm_id = opened["content"]["comm_id"]
    assert opened["content"] == {"comm_id": comm_id, "target_name": "my.target", "data": {"n": 1}}
    assert [bytes(buffer) for buffer in opened["buffers"]] == [b"\x00\xff"]
    assert kernel.ask("comm_info_request", {"target_name": "my.target"})["comms"] == {comm_id: {"target_name": "my.target"}}
    assert send(kernel, comm_id, {"a": "é"}, buffers=[b"\x01", b""]) == []
    assert send(kernel, comm_id, [1.5]) == []
    got = watch.run("comm.receive()?.iter().map(|m| format!(\"{} {:?}\", m.data, m.buffers)).collect::<Vec<_>>().join(\" | \")")
    assert got == '"{\\"a\\":\\"é\\"} [[1], []] | [1.5] []"'
    assert send(kernel, comm_id, {"last": 1}) == []
    assert send(kernel, comm_id, {}, "comm_close") == []
    assert kernel.ask("comm_info_request", {"target_name": "my.target"})["comms"] == {}
    assert watch.run("comm.receive()?.len()") == "1"
    assert f"the comm {comm_id} is not open" in kernel.fails("comm.receive()?;").error


def test_message_that_does_not_fit_beside_its_number_is_refused_and_costs_no_variables(kernel, watch):
    watch.run('use ferrotune::display::comm::{Comm, json}; let kept = 1;')
    assert "at most 256 MiB" in kernel.fails('Comm::open("t", json!("x".repeat((256 << 20) - 100)))?;').error
    assert watch.run("kept") == "1"


def test_front_end_opens_a_comm_that_a_cell_accepts(kernel, watch):
    assert send(kernel, "early", {}, "comm_open", target_name="offered") == [("comm_close", {"comm_id": "early", "data": {}})]
    watch.run('use ferrotune::display::comm::{Comm, json}; assert!(Comm::accept("offered")?.is_empty());')
    assert send(kernel, "late", {"x": 1}, "comm_open", target_name="offered") == []
    code = """{ let opened = Comm::accept("offered")?;
        opened[0].0.send(json!({"answer": 42}))?;
        format!("{} {} {}", opened.len(), opened[0].0.id(), opened[0].1.data) }"""
    assert watch.run(code) == '"1 late {\\"x\\":1}"'
    assert watch.comms[-1]["content"] == {"comm_id": "late", "data": {"answer": 42}}


def test_comm_that_is_closed_before_a_cell_has_taken_it_is_not_given_to_cells(kernel, watch):
    watch.run('use ferrotune::display::comm::{Comm, json}; Comm::accept("brief")?;')
    for comm_id in ("dead", "alive"):
        assert send(kernel, comm_id, {}, "comm_open", target_name="brief") == []
        assert send(kernel, comm_id, {"n": 1}) == []
    assert send(kernel, "dead", {}, "comm_close") == []
    code = 'Comm::accept("brief")?.iter().map(|(comm, _)| comm.id().to_owned()).collect::<Vec<_>>().join(" ")'
    assert watch.run(code) == '"alive"'


@pytest.mark.parametrize("content", [{}, {"comm_id": 1}, {"comm_id": "x", "target_name": WIDGET, "data": 3}])
def test_comm_message_that_cannot_be_read_changes_nothing(kernel, content):
    before = kernel.ask("comm_info_request")
    for msg_type in ("comm_open", "comm_msg", "comm_close"):
        published = kernel.published(kernel.request(msg_type, content))
        assert published in ([], [("comm_close", {"comm_id": "x", "data": {}})])
    assert kernel.ask("comm_info_request") == before
    assert kernel.ok("40 + 2").result == "42"


# Subshells


def in_subshell(kernel, subshell_id, msg_type, content, channel="shell"):
    """Sends a request to a subshell; returns its id."""
    message = kernel.client.session.msg(msg_type, content)
    message["header"]["subshell_id"] = subshell_id
    getattr(kernel.client, f"{channel}_channel").send(message)
    return message["header"]["msg_id"]


@pytest.fixture
def subshell(kernel):
    reply = kernel.ask("create_subshell_request", channel="control")
    assert reply.keys() == {"status", "subshell_id"} and reply["status"] == "ok"
    yield reply["subshell_id"]
    kernel.ask("delete_subshell_request", {"subshell_id": reply["subshell_id"]}, channel="control")


def test_subshells_are_announced_made_listed_and_deleted(kernel):
    info = kernel.ask("kernel_info_request")
    assert (info["supported_features"], info["debugger"]) == (["kernel subshells"], False)
    ids = [kernel.ask("create_subshell_request", channel="control")["subshell_id"] for _ in range(2)]
    assert kernel.ask("list_subshell_request", channel="control") == {"status": "ok", "subshell_id": sorted(ids)}
    for id in ids:
        assert kernel.ask("delete_subshell_request", {"subshell_id": id}, channel="control") == {"status": "ok"}
    assert kernel.ask("list_subshell_request", channel="control")["subshell_id"] == []
    reply = kernel.ask("delete_subshell_request", {"subshell_id": ids[0]}, channel="control")
    assert reply["ename"] == "UnknownSubshell" and repr(ids[0])[1:-1] in reply["evalue"]
    for msg_type, content in [("comm_info_request", {}), ("execute_request", {"code": "1"})]:
        msg_id = in_subshell(kernel, "none", msg_type, content)
        assert kernel.reply(msg_id)["content"]["ename"] == "UnknownSubshell"
        assert kernel.published(msg_id) == []
    for msg_type, channel in [("kernel_info_request", "shell"), ("list_subshell_request", "control")]:
        msg_id = in_subshell(kernel, "none", msg_type, {}, channel)
        assert kernel.reply(msg_id, channel)["content"]["status"] == "ok"
        assert kernel.published(msg_id) == []


def test_comm_is_closed_by_a_message_for_a_subshell_that_was_deleted_before(kernel, watch):
    watch.run('use ferrotune::display::comm::{Comm, json}; Comm::open("short.lived", json!({}))?;')
    comm_id = watch.comms[-1]["content"]["comm_id"]
    msg_id = in_subshell(kernel, "deleted", "comm_close", {"comm_id": comm_id, "data": {}})
    assert kernel.published(msg_id) == []
    # This finds no reply before its own.
    assert comm_id not in kernel.ask("comm_info_request")["comms"]


def test_requests_and_widgets_of_a_subshell_are_served_while_a_cell_runs(kernel, watch, subshell):
    watch.run('let beside = ferrotune::widget::int_box("beside", 1)?;')
    box = watch.id_of("IntTextModel")
    cell = kernel.begin(SLEEP)
    while kernel.next_published(cell)["msg_type"] != "stream":
        pass
    for msg_type in ("kernel_info_request", "comm_info_request"):
        msg_id = in_subshell(kernel, subshell, msg_type, {})
        assert kernel.reply(msg_id)["content"]["status"] == "ok"
        assert kernel.published(msg_id) == []
    update = {"method": "update", "state": {"value": 2}, "buffer_paths": []}
    msg_id = in_subshell(kernel, subshell, "comm_msg", {"comm_id": box, "data": update})
    assert [msg_type for msg_type, _ in kernel.published(msg_id)] == ["comm_msg"]
    kernel.ask("interrupt_request", channel="control")
    assert "interrupted" in kernel.end_of(cell).error
    assert watch.run("beside.value()?") == "2"


def test_cell_of_a_subshell_waits_for_the_running_cell_and_says_so(kernel, subshell):
    mark = kernel.folder / "go on"
    wait = f'while !std::path::Path::new("{mark}").exists() {{}} 1'
    first = kernel.begin(wait)
    while kernel.next_published(first)["msg_type"] != "execute_input":
        pass
    second = in_subshell(kernel, subshell, "execute_request", {"code": "40 + 2"})
    said = [kernel.next_published(second) for _ in range(2)]
    assert said[0]["content"] == {"execution_state": "busy"}
    text = "another cell runs; this one runs after it, since all cells share one process and its variables\n"
    assert said[1]["content"] == {"name": "stderr", "text": text}
    silent = in_subshell(kernel, subshell, "execute_request", {"code": "1", "silent": True})
    unknown = in_subshell(kernel, "none", "execute_request", {"code": "1"})
    assert kernel.reply(unknown)["content"]["ename"] == "UnknownSubshell", "it does not wait"
    assert kernel.published(unknown) == []
    mark.touch()
    assert kernel.end_of(first).result == "1"
    outcome = kernel.end_of(second)
    assert (outcome.result, outcome.stderr, outcome.error) == ("42", "", None)
    assert kernel.reply(silent)["content"]["status"] == "ok"
    assert kernel.published(silent) == []
    for _ in range(20):
        after = in_subshell(kernel, subshell, "execute_request", {"code": "%env"})
        assert kernel.end_of(after).stderr == "", "no cell runs any more"


def test_failed_cell_aborts_only_cells_of_its_own_shell(kernel, subshell):
    mark = kernel.folder / "fail"
    first = kernel.begin(f'while !std::path::Path::new("{mark}").exists() {{}} panic!("on purpose");', stop_on_error=True)
    aborted = kernel.begin("1")
    spared = in_subshell(kernel, subshell, "execute_request", {"code": "2"})
    assert [kernel.next_published(spared)["msg_type"] for _ in range(2)] == ["status", "stream"]
    mark.touch()
    assert kernel.end_of(first).error == "Panic: on purpose (line 1 of the cell)"
    assert kernel.reply(aborted)["content"] == {"status": "aborted"}
    assert kernel.published(aborted) == []
    assert kernel.end_of(spared).result == "2"


def test_interrupt_stops_what_waits_in_the_shell_of_the_running_cell_and_in_no_other(kernel, subshell):
    first = kernel.begin(SLEEP)
    while kernel.next_published(first)["msg_type"] != "stream":
        pass
    stopped = kernel.begin("1")
    spared = in_subshell(kernel, subshell, "execute_request", {"code": "2"})
    assert [kernel.next_published(spared)["msg_type"] for _ in range(2)] == ["status", "stream"]
    kernel.ask("interrupt_request", channel="control")
    assert "interrupted" in kernel.end_of(first).error
    assert kernel.end_of(stopped).error == "Interrupted: the cell was stopped before it ran; no variable has changed"
    assert kernel.end_of(spared).result == "2"


# The button that stops a search


def search(project, options=""):
    """The cell of a search that lasts for minutes."""
    return f"""%%tune --objective loss:min --max-trials 1000 --seed 1 --project {project} {options}
|trial| {{
    let x: f64 = trial.float("x", 0.0..=1.0).get()?;
    for step in 0..100 {{
        trial.report(step, [("loss", x)])?;
        std::thread::sleep(std::time::Duration::from_millis(20));
    }}
    Ok(x)
}}"""


def test_cell_of_a_subshell_that_only_looks_is_served_beside_a_search(start):
    kernel = start()
    subshell = kernel.ask("create_subshell_request", channel="control")["subshell_id"]
    beside = lambda cell: in_subshell(kernel, subshell, "execute_request", {"code": cell})
    first = kernel.begin(search("seen"))
    while kernel.next_published(first)["msg_type"] != "display_data":
        pass
    # There is no search while the objective is compiled, and no trial until the first one starts.
    while "unfinished" not in ((outcome := kernel.end_of(beside("%trials"))).display or ""):
        heading_alone = outcome.displays == ["trial  loss  seconds  peak memory  ending"]
        assert heading_alone or outcome.error.startswith("MagicError: no search has run"), outcome
    assert outcome.stderr == ""
    outcome = kernel.end_of(beside("%lsmagic\n%best --project none"))
    assert outcome.error.startswith("MagicError: ") and "%best" in outcome.display, outcome
    waits = beside("3")
    assert [kernel.next_published(waits)["msg_type"] for _ in range(2)] == ["status", "stream"]
    overtaken = beside("%lsmagic")
    assert [kernel.next_published(overtaken)["msg_type"] for _ in range(2)] == ["status", "stream"], "it overtook a cell"
    kernel.ask("interrupt_request", channel="control")
    assert "stopped" in kernel.end_of(first).error
    assert kernel.end_of(waits).result == "3"
    assert "%best" in kernel.end_of(overtaken).display


def press_when_shown(kernel, msg_id):
    """Waits for the stop button of a search, and presses it; returns its id and that of its display."""
    opened, content = {}, {}
    while content.get("data", {}).get("text/plain") != "%tune stop or an interrupt stops the search":
        message = kernel.next_published(msg_id)
        content = message["content"]
        assert message["msg_type"] not in ("error", "execute_result"), content
        if message["msg_type"] == "display_data" and content["data"]["text/plain"].startswith(("pressed", "behind")):
            # The display of the search is a widget, too, which a page that is loaded anew goes on showing.
            *_, shown = opened.values()
            assert shown["_model_name"] == "HTMLModel" and "<progress" in shown["value"]
            displayed, opened = set(opened), {}
        if message["msg_type"] == "comm_open":
            opened[content["comm_id"]] = content["data"]["state"]
            assert (content["target_name"], message["metadata"]) == (WIDGET, {"version": "2.1.0"})
    layout, style, button = opened
    assert (opened[button]["_model_name"], opened[button]["description"]) == ("ButtonModel", "Stop")
    assert [opened[button]["layout"], opened[button]["style"]] == [f"IPY_MODEL_{layout}", f"IPY_MODEL_{style}"]
    assert content["data"][VIEW]["model_id"] == button
    # ipywidgets takes part in this way when it finds a widget.
    assert set(opened) | displayed <= set(kernel.ask("comm_info_request", {"target_name": WIDGET})["comms"])
    assert send(kernel, button, {"method": "custom", "content": {"event": "click"}}) == []
    return set(opened), content["transient"]["display_id"]


def gone(kernel, msg_id, display_id):
    """Waits until the stop button has gone; returns the comms that were closed."""
    closed, content = set(), {}
    while content.get("transient") != {"display_id": display_id}:
        message = kernel.next_published(msg_id)
        content = message["content"]
        if message["msg_type"] == "comm_close":
            closed.add(content["comm_id"])
    assert (message["msg_type"], content["data"]) == ("update_display_data", {"text/plain": ""})
    return closed


def test_search_has_a_stop_button_where_a_front_end_has_widgets(start):
    kernel = start()
    short = search("short").replace("1000", "2").replace("0..100", "0..2")
    assert kernel.ok(short).display.startswith("short: 2/2 trials"), "this front end has no widgets"
    assert kernel.ask("comm_info_request", {"target_name": WIDGET})["comms"] == {}

    msg_id = kernel.begin(search("pressed"))
    opened, display_id = press_when_shown(kernel, msg_id)
    assert gone(kernel, msg_id, display_id) == opened
    outcome = kernel.end_of(msg_id)
    assert outcome.error == "Interrupted: the search was stopped; run the cell again to go on with it"
    assert len(kernel.ask("comm_info_request")["comms"]) == 3, "those of the display, until the cell runs again"

    msg_id = kernel.begin(search("behind", "--background"))
    assert kernel.reply(msg_id)["content"]["status"] == "ok"
    opened, display_id = press_when_shown(kernel, msg_id)
    kernel.live.add(msg_id)
    assert gone(kernel, msg_id, display_id) == opened
    assert "stopped" in kernel.ok("%tune wait --project behind").display
    assert kernel.ok("40 + 2").result == "42"
