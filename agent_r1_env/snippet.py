"""Runs Python code that comes in over its standard input, a socket, and answers one byte for each piece.

A script of its own process, inside the sandbox; it imports nothing of this package and little besides, for
it is started for every call. The first byte that it writes is ``r``, when it is ready. A request is a length
of 8 bytes, a byte that is 1 if nothing follows, and the code as UTF-8. The answer is ``+``, or ``-`` if the
code failed; what it wrote, the value of a last expression and a traceback are in the standard output.
"""

from __future__ import annotations

import _ast
import builtins
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would take a while
    from traceback import TracebackException
    from typing import Any

_SOURCES: dict[str, str] = {}
"""The code of each call by the name it has in a traceback."""


def main() -> None:
    channel, nothing = os.dup(0), os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.argv[:] = [""]
    module = type(sys)("__main__")
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    me, count = os.getpid(), 0
    os.write(channel, b"r")
    while head := _exactly(channel, 9):
        count += 1
        code = _exactly(channel, int.from_bytes(head[:8], "big")).decode("utf-8", "surrogatepass")
        good = _run(code, f"<code {count}>" if count > 1 else "<code>", module.__dict__)
        if head[8] or os.getpid() != me:
            _finish()
        _flush()
        if os.getpid() != me:  # a child that the code forked and let run to its end
            os._exit(0 if good else 1)
        os.write(channel, b"+" if good else b"-")


def _run(code: str, name: str, namespace: dict[str, Any]) -> bool:
    """Run the code as a script, and show the value of a last expression as an interpreter does."""
    _SOURCES[name] = code
    try:
        tree: Any = compile(code, name, "exec", _ast.PyCF_ONLY_AST, True)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
        exec(compile(tree, name, "exec", 0, True), namespace)
        if last is not None:
            exec(compile(_ast.Interactive([last]), name, "single", 0, True), namespace)
        return True
    except SystemExit as leaving:
        return _left(leaving.code)
    except BaseException as failure:
        _show(failure)
        return False


def _left(status: object) -> bool:
    """What ``sys.exit(status)`` means."""
    if status is None or status == 0:
        return True
    _flush()
    print(f"[exit status {status}]" if isinstance(status, int) else status, file=sys.__stderr__)
    return False


def _show(failure: BaseException) -> None:
    """Print the traceback with the frames of the code alone, not those of this file or of libraries."""
    _flush()
    try:
        import linecache
        import traceback

        for name, code in _SOURCES.items():
            lines = [f"{line}\n" for line in code.replace("\r\n", "\n").split("\n")]
            linecache.cache[name] = (len(code), None, lines, name)
        told = traceback.TracebackException(type(failure), failure, failure.__traceback__, compact=True)
        _cut(told)
        print("".join(told.format()), end="", file=sys.__stderr__)
    except MemoryError:
        os.write(2, f"{type(failure).__name__}\n".encode())


def _cut(told: TracebackException) -> None:
    told.stack[:] = [frame for frame in told.stack if frame.filename.startswith("<code")]
    for other in (told.__cause__, told.__context__, *(getattr(told, "exceptions", None) or ())):
        if other is not None:
            _cut(other)


def _finish() -> None:
    """What the end of a script brings: its threads are waited for, its exit functions run."""
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        import atexit

        atexit._run_exitfuncs()
    except BaseException as failure:
        _show(failure)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__):
        try:  # noqa: SIM105 - importing contextlib takes as long as all the rest
            stream.flush()  # type: ignore[union-attr]
        except Exception:  # the code closed or replaced it
            pass


def _exactly(channel: int, size: int) -> bytes:
    """The next bytes of that number; fewer at the end."""
    data = bytearray()
    while len(data) < size and (piece := os.read(channel, min(size - len(data), 1 << 20))):
        data += piece
    return bytes(data)


main()
