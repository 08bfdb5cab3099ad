"""``format="auto"``: found out from the tokenizer where a model is at hand, refused where none is."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import pytest

import agent_r1_env
from agent_r1_env import auto, formats
from agent_r1_env.cli import main
from agent_r1_env.engines.scripted import ScriptedEngine
from agent_r1_env.errors import CatalogError, UnknownName
from agent_r1_env.evaluate import evaluate
from agent_r1_env.formats.hermes import Hermes
from agent_r1_env.testing import ByteTokenizer, answer, say, sum_env

ENV = "AutoTest/Sum-v0"
TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content }}{% for c in m.tool_calls or [] %}{% set f = c.function %}"
    "[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module", autouse=True)
def _environment() -> None:
    gym.register(ENV, sum_env)


def test_an_environment_alone_cannot_know_the_model() -> None:
    with pytest.raises(UnknownName, match=r"from a model's tokenizer.*formats\.detect\(tokenizer\)"):
        sum_env(format="auto")
    with pytest.raises(UnknownName, match="'auto' is found out"):
        gym.make(ENV, format={"name": "auto"})


def test_an_entry_that_says_auto_is_wrong_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "envs").mkdir()
    entry = tmp_path / "envs" / "a.yaml"
    entry.write_text(
        "name: A\ndescription: A.\ntasks: {load: agent_r1_env.testing:sums}\nformat: auto\n", encoding="utf-8"
    )
    with pytest.raises(CatalogError, match=r"a\.yaml:4:.*'auto' is found out") as caught:
        agent_r1_env.register(tmp_path, namespace="AutoTest")
    assert caught.value.key == "format"


def test_no_format_can_take_the_name() -> None:
    with pytest.raises(ValueError, match="already registered"):
        formats.register("auto", Hermes())


def test_the_arguments_are_completed_from_the_tokenizer() -> None:
    tokenizer = ByteTokenizer(TEMPLATE)
    assert auto.resolve({"count": 3, "format": "auto"}, tokenizer) == {"count": 3, "format": "mistral"}
    assert auto.resolve({"format": {"name": "auto"}}, tokenizer) == {"format": "mistral"}
    assert auto.resolve({"format": "hermes"}, tokenizer) == {"format": "hermes"}
    assert auto.resolve(None, tokenizer) == {}


def test_what_does_not_depend_on_the_format_does_without() -> None:
    assert auto.ignored({"count": 3, "format": "auto"}) == {"count": 3}
    assert auto.ignored({"format": "react"}) == {"format": "react"}
    assert auto.ignored(None) == {}


def test_an_evaluation_of_a_model_finds_it_out() -> None:
    replies = ('[TOOL_CALLS]add[ARGS]{"a": 1, "b": 1}', answer(1))
    engine = ScriptedEngine(say(*replies), ByteTokenizer(TEMPLATE))
    found = evaluate(ENV, engine=engine, env_kwargs={"format": "auto"})
    assert found.tool_call_rate == 0.5
    assert found.invalid_call_rate == 0.0


def test_an_evaluation_of_a_policy_needs_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnknownName, match="'auto' is found out"):
        evaluate(ENV, policy=lambda env, rng: answer(1), env_kwargs={"format": "auto"})
    assert main(["eval", ENV, "--policy", "oracle", "--set", "format=auto"]) == 2
    assert "'auto' is found out" in capsys.readouterr().err


def test_the_command_says_what_it_found_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    from agent_r1_env.testing import tiny_llama

    model = str(tiny_llama(tmp_path / "model", layers=1))
    options = ("--engine", "transformers", "--n", "1", "--max-tokens", "4", "--set", "format=auto")
    assert main(["eval", ENV, "--model", model, *options]) == 0
    assert "format hermes: the template has no support for tools" in capfd.readouterr().err
