# The code interpreter's kernel: keeps the variables of one context, and runs what
# comes in over a socket, one piece after the other. It is started with the path
# of the socket, a name for the file that code seems to be in, and a directory.
#
# Each connection is one execution: a line of JSON comes in, lines of JSON go out,
# and the kernel closes it. A connection that its other side closes early is an
# interrupt.
import ast, asyncio, base64, builtins, codecs, inspect, json, os, select, signal, socket, sys, threading, traceback

PATH, DIRECTORY = sys.argv[1], sys.argv[2]
READY = os.dup(1)


class Output:
    """What is written to a descriptor becomes events, in pieces of whole characters."""

    def __init__(self, fd, kind):
        self.kind, self.emit = kind, None
        self.lock = threading.Condition()
        self.reached = b""
        self.read, write = os.pipe()
        os.dup2(write, fd)
        os.close(write)
        self.fd = fd
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self):
        mark, rest = b"", b""
        while True:
            data = os.read(self.read, 65536)
            if not data:
                return
            with self.lock:
                rest += data
                mark = self.reached
                # A mark says that everything before it has been seen.
                at = rest.find(mark) if mark else -1
                if at >= 0:
                    self.say(rest[:at], True)
                    rest, self.reached = rest[at + len(mark):], b""
                    self.lock.notify_all()
                    continue
                # What may be the beginning of a mark stays.
                keep = next((n for n in range(min(len(mark), len(rest)), 0, -1) if mark and rest.endswith(mark[:n])), 0)
                self.say(rest[: len(rest) - keep], False)
                rest = rest[len(rest) - keep:]

    def say(self, data, final):
        text = self.decoder.decode(data, final)
        if text and self.emit:
            self.emit({"type": self.kind, "text": text})

    def drain(self):
        mark = b"\0" + base64.b64encode(os.urandom(24)) + b"\0"
        with self.lock:
            self.reached = mark
        try:
            os.write(self.fd, mark)
        except OSError:
            return  # the code closed it
        with self.lock:
            self.lock.wait_for(lambda: self.reached != mark, timeout=2)


FORMATS = {
    "html": "_repr_html_", "markdown": "_repr_markdown_", "svg": "_repr_svg_", "png": "_repr_png_",
    "jpeg": "_repr_jpeg_", "pdf": "_repr_pdf_", "latex": "_repr_latex_", "json": "_repr_json_",
    "javascript": "_repr_javascript_",
}


def represent(value, main):
    event = {"type": "result", "is_main_result": main, "text": repr(value)}
    for name, method in FORMATS.items():
        try:
            found = getattr(value, method)()
        except Exception:
            continue
        if isinstance(found, tuple):
            found = found[0]
        if isinstance(found, (bytes, bytearray)):
            found = base64.b64encode(found).decode()
        if found is not None:
            event[name] = found
    return event


class Kernel:
    def __init__(self):
        self.count = 0
        self.loop = None
        self.names = {"__name__": "__main__", "__builtins__": builtins}
        builtins.display = self.display

    def display(self, *values):
        for value in values:
            self.emit(represent(value, False))

    def run(self, code):
        self.count += 1
        self.emit({"type": "number_of_executions", "execution_count": self.count})
        name = "<cell %d>" % self.count
        try:
            tree = ast.parse(code, name)
            last = None
            if tree.body and isinstance(tree.body[-1], ast.Expr):
                last = ast.Expression(tree.body.pop().value)
            if tree.body:
                self.evaluate(compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
            if last is not None:
                value = self.evaluate(compile(last, name, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
                if value is not None:
                    self.names["_"] = value
                    self.emit(represent(value, True))
        except BaseException as err:
            # The frames of this file say nothing to whoever wrote the code.
            tb = err.__traceback__
            while tb is not None and tb.tb_frame.f_code.co_filename != name:
                tb = tb.tb_next
            text = "".join(traceback.format_exception(type(err), err, tb))
            self.emit({"type": "error", "name": type(err).__name__, "value": str(err), "traceback": text})

    def evaluate(self, code):
        value = eval(code, self.names)
        if code.co_flags & inspect.CO_COROUTINE:
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
            value = self.loop.run_until_complete(value)
        return value


def serve():
    kernel = Kernel()
    outputs = Output(1, "stdout"), Output(2, "stderr")
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    listener = socket.socket(socket.AF_UNIX)
    if os.path.exists(PATH):
        os.unlink(PATH)
    listener.bind(PATH)
    listener.listen(64)
    os.chdir(DIRECTORY)
    sys.argv, sys.path[0] = [""], ""
    os.write(READY, b"ready\n")
    os.close(READY)
    while True:
        connection, _ = listener.accept()
        with connection:
            try:
                execution(kernel, outputs, connection)
            except (OSError, KeyboardInterrupt):
                pass  # whoever asked has gone


def execution(kernel, outputs, connection):
    # Closed here: an exception that the code raises holds this frame, and with it
    # the connection would stay open.
    with connection.makefile("rb") as reader:
        request = json.loads(reader.readline() or b"{}")
    if "code" not in request:
        return
    lock = threading.Lock()

    def emit(event):
        line = json.dumps(event).encode() + b"\n"
        with lock:
            try:
                connection.sendall(line)
            except OSError:
                pass

    kernel.emit = emit
    for output in outputs:
        output.emit = emit
    done, wake = os.pipe()

    def interrupt_when_left():
        ready, _, _ = select.select([connection, done], [], [])
        if done not in ready:
            os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=interrupt_when_left, daemon=True)
    before = dict(os.environ)
    os.environ.update(request.get("env") or {})
    watcher.start()
    try:
        kernel.run(request["code"])
    finally:
        os.environ.clear()
        os.environ.update(before)
        os.write(wake, b"x")
        watcher.join()
        for end in (done, wake):
            os.close(end)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    for output in outputs:
        output.drain()
        output.emit = None
    emit({"type": "end_of_execution"})


serve()
