"""Runs Python code that a model writes, in a sandbox."""

from __future__ import annotations

import asyncio
import signal

from agent_r1_env import interpreters
from agent_r1_env.bounds import Finished
from agent_r1_env.errors import ToolError
from agent_r1_env.interpreters import Interpreter
from agent_r1_env.sandbox import Sandbox

_BYTES_OF_A_CHARACTER = 4


class Python:
    """CPython itself, started before it is needed, with what it writes and the value of a last expression.

    Code that raises, exits with another status than 0 or hits a limit is a failed call (``tool_error``),
    whose text still shows what it wrote. Nothing that the code started lives when its call is over.

    Args:
        level: "process" or "bwrap"; what each promises stands at the head of ``agent_r1_env.sandbox``.
        memory_mb: address space of each process that the code runs, and memory in use by all of them.
        cpu_seconds: of each process; with ``persistent``, in the whole episode.
        max_processes: processes and threads at one time, the interpreter included.
        file_mb: what the files together may take, all gone after the call or episode.
        max_output_chars: what is written beyond them stops the code.
        persistent: keep variables, imports and files from one call of an episode to the next.
        network: let the code use the network.
    """

    def __init__(
        self,
        level: str = "process",
        memory_mb: int = 512,
        cpu_seconds: int = 10,
        max_processes: int = 16,
        file_mb: int = 16,
        max_output_chars: int = 8000,
        persistent: bool = False,
        network: bool = False,
    ) -> None:
        for name, value in (("max_output_chars", max_output_chars), ("persistent", persistent)):
            if name == "persistent" and not isinstance(value, bool):
                raise ValueError(f"persistent must be true or false, not {value!r}")
            if name == "max_output_chars" and (not isinstance(value, int) or value < 1):
                raise ValueError(f"max_output_chars must be a whole number above 0, not {value!r}")
        self.sandbox = Sandbox(
            level=level,
            memory_mb=memory_mb,
            cpu_seconds=cpu_seconds,
            max_processes=max_processes,
            file_mb=file_mb,
            max_output_bytes=max_output_chars * _BYTES_OF_A_CHARACTER,
            network=network,
        )
        self.max_output_chars, self.persistent = max_output_chars, persistent
        self._pool = interpreters.join(self.sandbox)
        self._kept: Interpreter | None = None
        self._turn = asyncio.Lock()
        self._closed = False

    async def __call__(self, code: str) -> str:
        """Run the code and return what it wrote."""
        if not self.persistent:
            used = self._pool.take()
            try:
                found = await used.run(code, last=True)
                return self._told(found, used.alive)
            finally:
                await used.close_async()
        async with self._turn:  # two calls of one reply share the state, one after the other
            lost = self._kept is not None and not self._kept.alive
            if self._kept is None or lost:
                self._kept = self._pool.take()
            note = "[the interpreter was restarted: what earlier calls defined is gone]\n" if lost else ""
            found = await self._kept.run(code)
            return self._told(found, self._kept.alive, note)

    def get_state(self) -> None:
        """What the code has kept: nothing, unless it is persistent and has run.

        Raises:
            NotImplementedError: the memory of an interpreter cannot be copied.
        """
        if self._kept is not None:
            raise NotImplementedError("it is persistent, and a running interpreter has no copy")

    def set_state(self, state: None) -> None:
        """Go on with what ``get_state`` gave."""

    def close(self) -> None:
        """End the episode."""
        if not self._closed:
            self._closed = True
            if self._kept is not None:
                self._kept.close()
            interpreters.leave(self._pool)

    def _told(self, found: Finished, alive: bool, note: str = "") -> str:
        """The text for the model.

        Raises:
            ToolError: the code failed.
        """
        written = found.out.decode("utf-8", "replace")
        if len(written) > self.max_output_chars:
            written = f"{written[: self.max_output_chars]}\n[output cut here]"
        stopped = "" if alive else self._stopped(found)
        parts = [note + written.rstrip("\n"), f"[{stopped}]" if stopped else ""]
        text = "\n".join(part for part in parts if part)
        if stopped or found.status:
            raise ToolError(text)
        return text or "[no output]"

    def _stopped(self, found: Finished) -> str:
        """What ended the code from outside, or ""."""
        box = self.sandbox
        if found.ended == "output":
            return f"stopped: the output is longer than {self.max_output_chars} characters"
        if found.ended == "processes":
            return f"stopped: more than {box.max_processes} processes and threads at once"
        if found.ended == "memory":
            return f"stopped: more than {box.memory_mb} MB of memory in all processes"
        if found.ended != "ended":
            return f"the interpreter was lost {found.detail}".rstrip()
        if found.status == -signal.SIGXCPU:
            return f"stopped: more than {box.cpu_seconds} s of CPU time"
        if found.status < 0:
            name = signal.Signals(-found.status).name
            return f"the interpreter was killed by {name}; it has {box.memory_mb} MB of memory"
        return f"the interpreter exited with status {found.status}" if found.status else ""
