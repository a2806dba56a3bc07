"""The Ferrotune kernel beside a Python notebook.

A thread of its own drives jupyter_client, because an event loop runs in IPython's thread, which jupyter_client's blocking calls
would enter again. IPython's thread gets the messages of its cell through a queue, so that it alone shows them; what comes between
two cells, such as the progress of a search in the background, is shown by the kernel's thread.
"""

import os
import queue
import threading

import zmq
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager

from .errors import FerrotuneError
from .program import KERNEL, KernelSpecs

START_TIMEOUT_S = 60
ALIVE_CHECK_MS = 500
DEAD = "the Rust kernel has ended; `%rust --restart` starts another one, without variables"


class Request:
    """One request to the kernel, and what the kernel has answered so far."""

    def __init__(self, msg_type, content):
        self.msg_type, self.content = msg_type, content
        self.msg_id = None
        self.messages = queue.Queue()
        self.reply = None
        self.failure = None
        self.is_idle = False
        self.is_complete = False


class Companion:
    """A kernel that ends with this process, and the thread that drives it."""

    def __init__(self, show_between_cells):
        """Starts a kernel and waits for it; `show_between_cells` gets the messages that belong to no running cell."""
        self._show_between_cells = show_between_cells
        self._todo = queue.Queue()
        # ipykernel 7 completes in a thread of its own while a cell runs.
        self._is_asked = threading.Lock()
        self._current = None
        self._is_closing = False
        # Open until nobody refers to this object, so that no other file gets their numbers while somebody writes to them.
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        self._started = threading.Event()
        self._failure = None
        self.thread = threading.Thread(target=self._drive, name="ferrotune", daemon=True)
        self.thread.start()
        try:
            self._started.wait()
        except BaseException:
            # An interrupt: nobody knows this kernel, so that it ends.
            self.close()
            raise
        if self._failure:
            raise self._failure

    def ask(self, msg_type, content, on_message=lambda message: None):
        """Sends a request on the shell channel; returns the content of its reply.

        `on_message` gets each message of the request in the caller's thread. A KeyboardInterrupt interrupts the kernel, and the
        call goes on to wait for the reply; it is raised if the cell had ended before. Any other exception of `on_message` interrupts
        the kernel too, and is raised after the reply.
        """
        with self._is_asked:
            return self._ask(Request(msg_type, content), on_message)

    def ask_if_free(self, msg_type, content):
        """The content of the reply to a request; None while another request is not answered."""
        if not self._is_asked.acquire(blocking=False):
            return None
        try:
            return self._ask(Request(msg_type, content), lambda message: None)
        finally:
            self._is_asked.release()

    def _ask(self, request, on_message):
        self._put(lambda: self._send(request))
        raised = None
        is_interrupted = False
        while not (request.is_complete and request.messages.empty()):
            try:
                # None, which nothing follows, only wakes this thread. The timeout is for an interrupt that loses it.
                message = request.messages.get(timeout=1)
                if message is None and not request.is_complete:
                    raise FerrotuneError(DEAD)
                if message is not None and raised is None:
                    on_message(message)
            except queue.Empty:
                if not self.thread.is_alive():
                    raise FerrotuneError(DEAD) from None
            except KeyboardInterrupt:
                is_interrupted = True
                self.interrupt()
            except Exception as error:
                if not self.thread.is_alive():
                    raise
                raised = error
                self.interrupt()
        if raised or request.failure:
            raise raised or request.failure
        if is_interrupted and request.reply["status"] == "ok":
            raise KeyboardInterrupt
        return request.reply

    def interrupt(self):
        """Interrupts what the kernel runs."""
        self._put(lambda: self._client.control_channel.send(self._client.session.msg("interrupt_request", {})))

    def answer(self, text):
        """Answers the kernel's request for a line of input."""
        self._put(lambda: self._client.input(text))

    def send(self, msg_type, content, metadata=None, buffers=None):
        """Sends a message that has no reply."""
        self._put(lambda: self._send_message(msg_type, content, metadata, buffers))

    def close(self):
        """Ends the kernel and waits for its end."""
        self._is_closing = True
        self._put(lambda: None)
        self.thread.join()

    def __del__(self):
        for end in (self._wake_reader, self._wake_writer):
            os.close(end)

    def _put(self, work):
        self._todo.put(work)
        os.write(self._wake_writer, b"\0")

    def _drive(self):
        try:
            self._start()
        except Exception as error:
            self._failure = error
            return
        finally:
            self._started.set()
        try:
            self._serve()
        finally:
            self._client.stop_channels()
            self._manager.shutdown_kernel(now=not self._is_closing)
            if self._current:
                self._current.messages.put(None)

    def _start(self):
        self._manager = KernelManager(kernel_name=KERNEL, kernel_spec_manager=KernelSpecs())
        self._manager.start_kernel(cwd=os.getcwd())
        self._client = BlockingKernelClient(**self._connection())
        self._client.start_channels()
        try:
            self._client.wait_for_ready(timeout=START_TIMEOUT_S)
        except RuntimeError as error:
            self._client.stop_channels()
            self._manager.shutdown_kernel(now=True)
            raise FerrotuneError(f"the kernel `{KERNEL}` does not start: {error}; run `ferrotune doctor`") from None

    def _connection(self):
        names = ("transport", "ip", "shell_port", "iopub_port", "stdin_port", "hb_port", "control_port", "session")
        return {name: getattr(self._manager, name) for name in names}

    def _serve(self):
        channels = {
            self._client.iopub_channel.socket: self._take_published,
            self._client.shell_channel.socket: self._take_reply,
            self._client.stdin_channel.socket: self._take_question,
            self._client.control_channel.socket: lambda message: None,
        }
        poller = zmq.Poller()
        for socket in [*channels, self._wake_reader]:
            poller.register(socket, zmq.POLLIN)
        while not self._is_closing:
            ready = dict(poller.poll(ALIVE_CHECK_MS))
            if not ready and not self._manager.is_alive():
                return
            if self._wake_reader in ready:
                os.read(self._wake_reader, 4096)
            while not self._todo.empty():
                self._guarded(self._todo.get())
            for socket, take in channels.items():
                if socket in ready:
                    self._receive(socket, take)

    def _receive(self, socket, take):
        # Shadowed, because the sockets of jupyter_client 7 return futures.
        plain = zmq.Socket.shadow(socket.underlying)
        while plain.poll(0):
            frames = plain.recv_multipart()
            self._guarded(lambda: take(self._client.session.deserialize(self._client.session.feed_identities(frames)[1])))

    def _guarded(self, work):
        """Does what may fail for the content of one message, which must not end the kernel."""
        try:
            work()
        except Exception:
            self._manager.log.exception("a message of the Rust kernel, or to it, is lost")

    def _send(self, request):
        try:
            message = self._client.session.msg(request.msg_type, request.content)
            request.msg_id = message["header"]["msg_id"]
            self._client.shell_channel.send(message)
            self._current = request
        except Exception as error:
            request.failure, request.is_complete = error, True
            request.messages.put(None)

    def _send_message(self, msg_type, content, metadata, buffers):
        socket = zmq.Socket.shadow(self._client.shell_channel.socket.underlying)
        self._client.session.send(socket, msg_type, content, metadata=metadata, buffers=buffers)

    def _is_current(self, message):
        return self._current is not None and message["parent_header"].get("msg_id") == self._current.msg_id

    def _take_published(self, message):
        if not self._is_current(message):
            self._show_between_cells(message)
        elif message["msg_type"] == "status":
            self._current.is_idle = message["content"]["execution_state"] == "idle"
            self._end_if_complete()
        else:
            self._current.messages.put(message)

    def _take_reply(self, message):
        if self._is_current(message):
            self._current.reply = message["content"]
            self._end_if_complete()

    def _take_question(self, message):
        if self._is_current(message):
            self._current.messages.put(message)

    def _end_if_complete(self):
        if self._current.reply is not None and self._current.is_idle:
            self._current.is_complete = True
            self._current.messages.put(None)
            self._current = None
