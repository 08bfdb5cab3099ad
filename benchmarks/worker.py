"""One contender of a measurement, in a process and an interpreter of its own.

    python benchmarks/worker.py MODULE:FUNCTION

Each line of standard input is a JSON object, the arguments of one round; each is answered by one line:
``{"result": ...}``, ``{"missing": "the package"}`` or ``{"error": "what went wrong"}``. The process lives on
between two rounds, so that contenders of different interpreters can take turns.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from typing import Any


def answer(target: str, line: str) -> dict[str, Any]:
    """What one round gives; what the contender raises is told and not raised."""
    module, _, function = target.partition(":")
    try:
        run = getattr(importlib.import_module(module), function)
        return {"result": run(**json.loads(line))}
    except ModuleNotFoundError as error:
        return {"missing": error.name or str(error)}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Answer until the input ends."""
    # Libraries print; only this channel is read for answers.
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        print(json.dumps(answer(sys.argv[1], line)), file=channel, flush=True)


if __name__ == "__main__":
    main()
