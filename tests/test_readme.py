"""README.md, CONTRIBUTING.md and docs/ do what they say: their blocks are run, or name the test that does it.

A block's first line may name a file (``# my_tools/tools/weather.yaml``): the block is written there. Above a
block that is slow or needs the clone, a comment tells how it is checked:

    <!-- run by .ci/run -->                     that file holds each command of the block
    <!-- run by tests/test_x.py::test_name -->  that test exists
    <!-- run in the clone -->                   it is run here, in the root of the repository
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from conftest import ROOT

PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")),
)
FENCE = re.compile(
    r"(?:<!-- run (?P<how>by|in) (?P<where>.+?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
FILE = re.compile(r"# (?P<path>[\w./-]+/[\w./-]+\.(?:py|yaml))\b")


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    how: str | None
    where: str | None

    @property
    def file(self) -> str | None:
        match = FILE.match(self.text)
        return match["path"] if match else None

    @property
    def commands(self) -> list[str]:
        lines = re.sub(r"\\\n\s*", "", self.text).splitlines()
        commands = (re.sub(r"\s+#\s.*", "", line).strip() for line in lines)
        return [command for command in commands if command]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> Iterator[Block]:
    path = ROOT / page
    text = path.read_text() if path.is_file() else ""
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("language")) + 1
        yield Block(page, line, match["language"], match["text"], match["how"], match["where"])


BLOCKS = [block for page in PAGES for block in blocks(page)]
CODE = [block for block in BLOCKS if block.language == "python" and block.file is None]
SHELL = [block for block in BLOCKS if block.language == "sh"]


def marked(chosen: list[Block]) -> list[ParameterSet]:
    """The blocks as parameters; those that load or train a model are slow."""
    heavy = [block for block in chosen if re.search(r" train |--model|GRPOConfig", block.text)]
    return [pytest.param(b, id=str(b), marks=[pytest.mark.slow] * (b in heavy)) for b in chosen]


def run(command: list[str] | str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command if isinstance(command, list) else ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the pages show."""
    for block in BLOCKS:
        if block.file:
            target = tmp_path / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text)
    return tmp_path


def test_every_block_has_a_kind() -> None:
    assert BLOCKS
    odd = [str(block) for block in BLOCKS if not (block.file or block.language in ("python", "sh", "text"))]
    assert odd == []


@pytest.mark.parametrize("page", sorted({block.page for block in CODE if block.how is None}))
def test_python_blocks_of_a_page_run_one_after_the_other(page: str, folder: Path) -> None:
    code = [block.text for block in CODE if block.page == page and block.how is None]
    (folder / "page.py").write_text("\n".join(code))
    run([sys.executable, "page.py"], folder)


@pytest.mark.parametrize("block", marked([block for block in CODE if block.how == "in"]))
def test_python_block_runs_in_the_clone(block: Block, repository: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(block.text)
    run([sys.executable, str(script)], repository)


@pytest.mark.parametrize("block", marked([block for block in SHELL if block.how is None]))
def test_shell_block_runs(block: Block, folder: Path) -> None:
    run("set -e\n" + block.text, folder)


@pytest.mark.parametrize("block", marked([block for block in SHELL if block.how == "in"]))
def test_shell_block_runs_in_the_clone(block: Block, repository: Path) -> None:
    run("set -e\n" + block.text, repository)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.how == "by"], ids=str)
def test_what_another_check_runs_is_really_there(block: Block, repository: Path) -> None:
    assert block.where is not None
    file, _, test = block.where.partition("::")
    text = (repository / file).read_text()
    if test:
        assert re.search(rf"^(async )?def {test}\(", text, re.M), f"{file} has no {test}"
    else:
        assert [command for command in block.commands if command not in text] == []


def test_the_two_commands_are_targets_of_make(repository: Path) -> None:
    first_screen = (repository / "README.md").read_text().split("\n## ")[0]
    named = re.findall(r"^make (\S+)", first_screen, re.M)
    assert named == ["quickstart", "test"]
    for target in named:
        run(f"make --dry-run {target}", repository)


def test_links_lead_somewhere(repository: Path) -> None:
    for page in PAGES:
        file = repository / page
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", file.read_text()):
            assert (file.parent / target).exists(), f"{page} links to {target}"
