from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import pytest

from agent_r1_env.loading import TargetFault, load_target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "weather.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "LOADED = []\n"
        "@dataclass\n"
        "class Place:\n"
        "    name: str\n"
        "    @staticmethod\n"
        "    def here() -> Place:\n"
        "        return Place('here')\n"
        "def today(city: str) -> str:\n"
        "    return city\n"
    )
    return tmp_path


def test_objects_beside_the_file_are_found(folder: Path) -> None:
    assert load_target("./weather.py:today", folder)("x") == "x"
    assert load_target("weather.py:Place.here", folder)().name == "here"
    assert load_target("../" + folder.name + "/weather.py:today", folder)("x") == "x"


def test_objects_of_installed_modules_are_found() -> None:
    assert load_target("json:dumps", Path())([1]) == "[1]"
    assert load_target("os.path:join", Path()) is os.path.join


def test_code_runs_once_until_it_changes(folder: Path) -> None:
    first = load_target("./weather.py:LOADED", folder)
    first.append("mark")
    assert load_target("./weather.py:LOADED", folder) is first
    (folder / "weather.py").write_text("LOADED = ['anew']\n")
    assert load_target("./weather.py:LOADED", folder) == ["anew"]


def test_files_of_the_same_name_are_kept_apart(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "weather.py").write_text("def today(): return 'other'\n")
    assert load_target("./other/weather.py:today", folder)() == "other"
    assert load_target("./weather.py:today", folder)("x") == "x"


def test_loaded_objects_can_be_pickled_within_the_process(folder: Path) -> None:
    place = load_target("./weather.py:Place", folder)("x")
    assert pickle.loads(pickle.dumps(place)) == place


def test_nothing_is_written_beside_the_users_files(folder: Path) -> None:
    load_target("./weather.py:today", folder)
    assert [path.name for path in folder.iterdir()] == ["weather.py"]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("./wether.py:today", r"no file './wether.py' in .*; did you mean './weather.py'\?"),
        ("./none/x.py:y", "no file './none/x.py'"),
        ("./weather.py:tody", r"./weather.py holds no 'tody'; did you mean 'today'\?"),
        ("./weather.py:zzz", "holds no 'zzz'; known: LOADED, Place, annotations, dataclass, today"),
        ("./weather.py:Place.there", r"holds no 'there'; did you mean 'here'\?"),
        ("./weather.py", "names no object; write ./file.py:name or package.module:name"),
        ("weather", "names no object"),
        (":today", "names no object"),
        ("weather:today", r"no module 'weather'; is it installed, or do you mean ./weather.py\?"),
        ("agent_r1_env.nothing:x", "no module 'agent_r1_env.nothing'"),
        ("json:dums", r"json holds no 'dums'; did you mean 'dumps'\?"),
    ],
)
def test_a_target_that_leads_nowhere_is_told_with_what_is_near(
    target: str, reason: str, folder: Path
) -> None:
    with pytest.raises(TargetFault, match=reason):
        load_target(target, folder)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (
            "import nothing_of_this_name\n",
            r"ModuleNotFoundError: No module named 'nothing_of_this_name' \(line 1\)",
        ),
        ("x = 1\n\ny = 1 / 0\n", r"ZeroDivisionError: division by zero \(line 3\)"),
        ("def broken(:\n", r"SyntaxError: .* \(line 1\)"),
        ("import sys\nsys.exit(3)\n", r"SystemExit: 3 \(line 2\)"),
        ("x = '\0'\n", "running ./bad.py failed"),
    ],
)
def test_code_that_fails_is_told_with_its_cause_and_line(code: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(code)
    before = set(sys.modules)
    for _ in range(2):
        with pytest.raises(TargetFault, match=reason) as caught:
            load_target("./bad.py:x", tmp_path)
        assert caught.value.__cause__ is not None
    assert not {name for name in set(sys.modules) - before if name.startswith("agent_r1_entry")}


def test_an_import_that_fails_within_an_installed_module_is_no_missing_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_more.py").write_text("import nothing_of_this_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        TargetFault, match="importing needs_more failed: ModuleNotFoundError: No module named 'nothing"
    ):
        load_target("needs_more:x", Path())
