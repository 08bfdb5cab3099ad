"""The table of measurements: what it makes of numbers, and that its rows run without the peers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def scripts(repository: Path) -> Any:
    """The modules of the benchmarks, which find one another as those of a script do."""
    sys.path.insert(0, str(repository / "benchmarks"))
    try:
        import bench

        yield bench
    finally:
        sys.path.remove(str(repository / "benchmarks"))


@pytest.fixture
def settings(scripts: Any, tmp_path: Path) -> Any:
    from bench_line import Settings

    return Settings(quick=False, rounds=2, folder=tmp_path, paragraphs=1600, alone=True)


def contender(target: str, folder: Path, source: str, name: str = "ours", **options: Any) -> Any:
    """One whose function is written to a module of its own; workers find it by the folder in PYTHONPATH."""
    from contest import Contender

    (folder / f"{target.partition(':')[0]}.py").write_text(source)
    return Contender(name, target, **options)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


COUNTING = """
import os
made = 0
def go(size):
    global made
    made += 1
    print("a library prints this")
    return {"made": made, "size": size, "process": os.getpid()}
"""


def test_contenders_live_on_between_rounds_and_the_first_is_not_counted(settings: Any, modules: Path) -> None:
    found = settings.contest([contender("counting:go", modules, COUNTING)], size=3)["ours"].rounds
    assert [each["made"] for each in found] == [2, 3]
    assert {each["size"] for each in found} == {3}
    assert len({each["process"] for each in found}) == 1


def test_a_fresh_contender_has_a_process_for_each_round(settings: Any, modules: Path) -> None:
    found = settings.contest([contender("counting:go", modules, COUNTING, fresh=True)], size=3)["ours"].rounds
    assert [each["made"] for each in found] == [1, 1]
    assert len({each["process"] for each in found}) == 2


def test_a_contender_keeps_its_own_options(settings: Any, modules: Path) -> None:
    ours = contender("counting:go", modules, COUNTING, options={"size": 5})
    assert settings.contest([ours], size=3)["ours"].rounds[0]["size"] == 5


def test_a_missing_package_is_shown_and_a_failure_told(settings: Any, modules: Path) -> None:
    ours = contender("counting:go", modules, COUNTING)
    missing = contender("absent:go", modules, "import no_such_package", name="a peer")
    failing = contender("failing:go", modules, "def go(size): raise OSError('no room')", name="another")
    found = settings.contest([ours, missing, failing], size=1)
    assert found["a peer"].absent == "not installed (no_such_package)"
    assert found["another"].absent == "failed (OSError: no room)"
    assert len(found["ours"].rounds) == 2


def test_a_process_that_dies_is_told_and_ours_ends_the_row(settings: Any, modules: Path) -> None:
    from contest import BenchError

    dying = contender("dying:go", modules, "import os\ndef go(size): os._exit(3)")
    with pytest.raises(BenchError, match="ours: failed .its process ended"):
        settings.contest([dying], size=1)


def test_peers_are_left_out_when_asked_for(settings: Any, modules: Path) -> None:
    ours = contender("counting:go", modules, COUNTING)
    peer = contender("counting:go", modules, COUNTING, name="a peer", peers=True)
    assert settings.contest([ours, peer], size=1)["a peer"].absent == "left out"


def test_ratios_are_of_the_same_round_and_the_fastest_is_found(scripts: Any) -> None:
    from bench_line import beside, fastest
    from contest import Found

    found = {
        "ours": Found([2.0, 20.0]),  # a slow moment, which hit all in the second round
        "a": Found([1.0, 10.0]),
        "b": Found([4.0, 40.0]),
        "c": Found(absent="not installed"),
    }
    assert fastest(found, ["a", "b", "c"], float) == ("a", [2.0, 2.0])
    assert fastest(found, ["c"], float) is None
    assert beside(found, float) == [
        "a 5.5 (1 to 10), 0.5x",
        "b 22 (4 to 40), 2x",
        "c: not installed",
    ]
    unseen = {"ours": Found([0.0, 0.0]), "a": Found([1.0, 10.0])}
    assert beside(unseen, float) == ["a 5.5 (1 to 10)"]


def test_the_table_says_what_was_met_and_how_it_grows(scripts: Any) -> None:
    from bench_line import Line

    lines = [
        Line(
            "speed", "3", ["a | b 4"], "0.75", {"ours": [1.0, 4.0, 16.5], "a": [2.0, None, None]}, "1", True
        ),
        Line("size", "9", target="at most 8", met=False),
        Line("colour", "red"),
    ]
    text = scripts.table({"steps": lines})
    assert "| speed | 3 | a / b 4 | 0.75 | 1, 4, 16.5 | 1 | met |" in text
    assert "| size | 9 |  |  |  | at most 8 | **missed** |" in text
    assert "| colour | red |  |  |  |  |  |" in text
    assert "| speed | a | 2 |  |  |" in text
    assert scripts.NOTES["steps"] in text


def test_every_row_has_a_note(scripts: Any) -> None:
    assert set(scripts.NOTES) == set(scripts.ROWS)


def test_samples_are_added_up_by_function(scripts: Any) -> None:
    from bench_profile import told

    text = told(["main (a.py:1);step (agent_r1_env/env.py:7) 3", "main (a.py:2) 1"])
    assert "| 75.0% | 75.0% | `step (agent_r1_env/env.py)` |" in text
    assert "| 25.0% | 100.0% | `main (a.py)` |" in text


@pytest.mark.slow
def test_a_quick_run_measures_every_row_that_needs_no_peers(
    scripts: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["steps", "waiting", "heavy", "trajectory", "search", "start"]
    file = tmp_path / "table.md"
    options = ["--quick", "--alone", "--cache", str(tmp_path), "--output", str(file)]
    assert scripts.main(["--rows", *rows, *options]) == 0
    text = file.read_text()
    assert text in capsys.readouterr().out
    assert "failed" not in text
    assert text.count("gem: left out") >= 4
    for measure in ("a step over its tool (search)", "BM25 search of 1,600", "import, s", "append-only"):
        assert measure in text
