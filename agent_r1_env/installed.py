"""What is installed on this computer, read from metadata alone, and whether it meets a requirement."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PACKAGE = "agent-r1-env"
GPU_FILES = ("/proc/driver/nvidia/gpus", "/dev/kfd", "/dev/dxg")
_LABEL = re.compile(r"\+[\w.]+")


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


def satisfies(version: str, specifier: str) -> bool | None:
    """Whether a version lies in a range, whatever its local label; None where it cannot be told."""
    try:
        from packaging.specifiers import SpecifierSet
        from packaging.version import Version
    except ImportError:
        return None
    return SpecifierSet(re.sub(_LABEL, "", specifier), prereleases=True).contains(Version(version).public)


def own_requirements(machine: Machine, *, extra: str | None) -> list[str]:
    """The requirement lines of this package, of the core or of one extra."""
    lines = [line.partition(";") for line in machine.requirements.get(PACKAGE, ())]
    marker = "" if extra is None else f"extra == '{extra}'"
    return [line.strip() for line, _, rest in lines if rest.strip().replace('"', "'") == marker]


def split(line: str) -> tuple[str, str]:
    """Name and range of a requirement line without marker."""
    name = re.split(r"[^\w.-]", line, maxsplit=1)[0]
    return name.lower().replace("_", "-"), re.sub(r"^\[[^]]*\]", "", line[len(name) :]).strip()


def needs(owner: str, machine: Machine, extra: str = "") -> list[Requirement]:
    """The requirements of a distribution that hold on this platform; with an extra, those it adds."""
    try:
        from packaging.requirements import Requirement
    except ImportError:
        return []
    listed = [Requirement(line) for line in machine.requirements.get(owner, ())]
    held = [need for need in listed if need.marker is None or need.marker.evaluate({"extra": extra})]
    if not extra:
        return held
    return [need for need in held if need.marker and not need.marker.evaluate({"extra": ""})]


def lacks(need: Requirement, machine: Machine) -> bool:
    """Whether a requirement, or one that its extras bring, is not met."""
    found = machine.versions.get(name_of(need))
    if found is None or satisfies(found, str(need.specifier)) is False:
        return True
    return any(lacks(more, machine) for extra in need.extras for more in needs(name_of(need), machine, extra))


def name_of(need: Requirement) -> str:
    """The key of a requirement in ``Machine.versions``."""
    return need.name.lower().replace("_", "-")


def bare(need: Requirement) -> str:
    """A requirement as pip takes it, without its marker and without the label of a build."""
    extras = f"[{','.join(sorted(need.extras))}]" if need.extras else ""
    return f"{need.name}{extras}{re.sub(_LABEL, '', str(need.specifier))}"


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
