"""Grammars of tool calls: what they let through, what they leave free, and who has none."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium as gym
import pytest
from jsonschema import Draft202012Validator

from agent_r1_env import formats
from agent_r1_env.engines import Generation, Sampling
from agent_r1_env.engines.scripted import ScriptedEngine
from agent_r1_env.errors import EngineError
from agent_r1_env.formats import Format
from agent_r1_env.messages import ToolCall
from agent_r1_env.recipe import load
from agent_r1_env.rollout import EpisodeRequest, Rollout
from agent_r1_env.structure import StructureError, StructureWarning, exact, structured, warn_of_training
from agent_r1_env.testing import ByteTokenizer, answer, scripted

END = 256
FORMATS = [
    "hermes",
    "phi4_mini",
    {"name": "deepseek", "version": "v3"},
    {"name": "deepseek", "version": "v3.1"},
    {"name": "functionary", "version": "v3.1"},
    {"name": "mistral", "version": "v13"},
]
WITH_ONE = ["deepseek (v3)", "deepseek (v3.1)", "functionary (v3.1)", "hermes", "mistral (v13)", "phi4_mini"]


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties)[:1],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}


POINT = {"type": "object", "properties": {"x": {"type": "boolean"}}, "additionalProperties": False}
NAMES = {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 3}
TOOLS = [
    tool("search", query={"type": "string"}, top={"type": "integer", "minimum": 1}),
    tool("move", way={"enum": ["up", "down"]}, far={"type": ["number", "null"]}),
    tool("tag", names=NAMES, deep={"$ref": "#/$defs/point"}),
]
TOOLS[2]["function"]["parameters"]["$defs"] = {"point": POINT}


@pytest.fixture(scope="module")
def matcher() -> Callable[[str], Any]:
    """Makes a matcher of a grammar over single bytes and an end."""
    xgrammar = pytest.importorskip("xgrammar")
    words = [*(bytes([i]) for i in range(256)), b"</s>"]
    info = xgrammar.TokenizerInfo(words, vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[END])
    compiler = xgrammar.GrammarCompiler(info)
    return lambda tag: xgrammar.GrammarMatcher(compiler.compile_structural_tag(tag))


def taken(matcher: Any, text: str) -> tuple[str, bool]:
    """How much of a text a grammar lets through, and whether it may end there."""
    for place, byte in enumerate(text.encode()):
        if not matcher.accept_token(byte):
            return text.encode()[:place].decode(), False
    return text, bool(matcher.accept_token(END))


def calls(format: Format, *asked: tuple[str, dict[str, Any]]) -> str:
    return format.render_calls([ToolCall(name, args, f"call_{i}") for i, (name, args) in enumerate(asked)])


GOOD = ("search", {"query": 'a "b" {c} ü'}), ("move", {"way": "up", "far": None})


@pytest.mark.parametrize("name", FORMATS, ids=str)
def test_free_text_and_good_calls_pass_and_bad_ones_do_not(name: Any, matcher: Callable[[str], Any]) -> None:
    format = formats.get(name)
    tag = structured(format)(TOOLS)
    for text in ("", "The answer is {42}.", calls(format, GOOD[0]), "Well, " + calls(format, *GOOD)):
        assert taken(matcher(tag), text) == (text, True)
    for bad in (
        ("tag", {"names": [""]}),
        ("search", {"query": 7}),
        ("fly", {}),
        ("move", {"way": "left"}),
        ("search", {}),
    ):
        text = calls(format, bad)
        assert taken(matcher(tag), text)[0] != text
    whole = calls(format, GOOD[0])
    assert taken(matcher(tag), whole[: whole.index('"b') - 2]) == (whole[: whole.index('"b') - 2], False)


def test_a_draft_in_reasoning_is_free_and_reasoning_need_not_end(matcher: Callable[[str], Any]) -> None:
    tag = structured(formats.get("hermes"))(TOOLS)
    for text in ("<think>maybe <tool_call> ... or not", "<think>a <tool_call>b</think>Yes."):
        assert taken(matcher(tag), text) == (text, True)
    text = "<think>a</think><tool_call>\nfoo"
    assert taken(matcher(tag), text)[0] == "<think>a</think><tool_call>\n"


@pytest.mark.parametrize("name", FORMATS, ids=str)
def test_calls_drawn_at_random_are_read_and_fit_their_schemas(
    name: Any, matcher: Callable[[str], Any]
) -> None:
    """A policy that knows nothing but the grammar, and likes to come to an end."""
    xgrammar = pytest.importorskip("xgrammar")
    format = formats.get(name)
    tag = structured(format)(TOOLS)
    checks = {t["function"]["name"]: Draft202012Validator(t["function"]["parameters"]) for t in TOOLS}
    draw = random.Random(0)
    seen = set()
    for _ in range(15):
        running, text = matcher(tag), bytearray(format.markers[0].encode())
        for byte in text:
            assert running.accept_token(byte)
        mask = xgrammar.allocate_token_bitmask(1, END + 1)
        while len(text) < 500:
            running.fill_next_token_bitmask(mask)
            able = [i for i in range(END + 1) if int(mask[0, i // 32]) >> (i % 32) & 1]
            if END in able:
                break
            byte = draw.choice([*(b for b in able if b in b'"}]'), draw.choice(able)])
            assert running.accept_token(byte)
            text.append(byte)
        else:
            continue
        parsed = format.parse(text.decode(errors="replace"), TOOLS)
        assert not parsed.errors
        for call in parsed.calls:
            seen.add(call.name)
            checks[call.name].validate(call.arguments)
    assert len(seen) > 1


def test_formats_without_a_grammar_name_those_with_one() -> None:
    assert exact() == WITH_ONE
    with pytest.raises(StructureError, match=r"qwen3_coder is not.*hermes"):
        structured(formats.get("qwen3_coder"))
    with pytest.raises(StructureError, match=r"deepseek \(v3.2\) is not"):
        structured(formats.get({"name": "deepseek", "version": "v3.2"}))


def test_no_tools_need_no_grammar_and_the_same_ones_the_same() -> None:
    make = structured(formats.get("hermes"))
    assert make([]) == ""
    assert make(TOOLS) == make(json.loads(json.dumps(TOOLS)))
    assert make(TOOLS[:1]) != make(TOOLS)


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "integer", "multipleOf": 3}, "multipleOf"),
        ({"type": "array", "items": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
        ({"type": "string", "pattern": "a+", "maxLength": 3}, "a length beside a pattern"),
        ({"type": "string", "enum": ["a", "abc"], "maxLength": 2}, "maxLength beside enum"),
        ({"anyOf": [{"const": 5, "minimum": 7}, {"type": "null"}]}, "minimum beside const"),
        ({"minLength": 2}, "minLength without a type"),
    ],
)
def test_a_schema_beyond_grammars_is_refused(schema: dict[str, Any], keyword: str) -> None:
    with pytest.raises(StructureError, match=f"'pick' use {keyword}"):
        structured(formats.get("hermes"))([tool("pick", x=schema)])


def test_properties_may_be_named_like_keywords() -> None:
    assert "multipleOf" in structured(formats.get("hermes"))([tool("pick", multipleOf={"type": "string"})])


async def test_an_engine_that_samples_under_no_grammar_says_so() -> None:
    with pytest.raises(EngineError, match="VLLMEngine"):
        await scripted("hi").generate([65], Sampling(structure="{}"))


class Noting(ScriptedEngine):
    """Answers, and notes how it was asked to."""

    def __init__(self) -> None:
        super().__init__(lambda prompt: answer("7"), ByteTokenizer())
        self.asked: list[Sampling] = []

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Generation:
        self.asked.append(sampling)
        return await super().generate(prompt_ids, Sampling(sampling.max_tokens))


@pytest.fixture
def sum_id() -> Iterator[str]:
    gym.register("StructureTest/Sum-v0", entry_point="agent_r1_env.testing:sum_env")
    yield "StructureTest/Sum-v0"
    del gym.registry["StructureTest/Sum-v0"]


def test_a_rollout_asks_for_the_grammar_of_the_tools_by_choice(sum_id: str) -> None:
    engine = Noting()
    for by_choice in (False, True):
        with Rollout(sum_id, engine=engine, structured=by_choice) as rollout:
            rollout.run([EpisodeRequest(0, 0)])
    free, held = engine.asked
    assert free.structure == ""
    assert json.loads(held.structure)["format"]["tags"][0]["begin"].startswith("<tool_call>")


def test_an_episode_may_be_sampled_in_its_own_way(sum_id: str) -> None:
    engine = Noting()
    asked = [EpisodeRequest(0, 0), EpisodeRequest(0, 0, sampling={"temperature": 0.3, "seed": 5})]
    with Rollout(sum_id, engine=engine, concurrency=1, sampling=Sampling(9, top_p=0.5)) as rollout:
        episodes = rollout.run(asked)
    assert [e.temperature for e in episodes] == [1.0, 0.3]
    assert [(s.max_tokens, s.top_p, s.temperature) for s in engine.asked] == [(9, 0.5, 1.0), (9, 0.5, 0.3)]
    assert engine.asked[0].seed is None
    assert engine.asked[1].seed is not None


def test_a_server_of_text_cannot_be_held_to_a_grammar(sum_id: str) -> None:
    from agent_r1_env.engines.openai import OpenAIEngine

    engine = OpenAIEngine("http://localhost:9/v1", model="m")
    with pytest.raises(EngineError, match="not a server of text"):
        Rollout(sum_id, engine=engine, structured=True)
    engine.close()


@pytest.mark.parametrize(("corrected", "told"), [(True, "weighs such tokens down"), (False, "to true")])
def test_training_on_structured_calls_is_warned_about(corrected: bool, told: str) -> None:
    with pytest.warns(StructureWarning, match=told):
        warn_of_training(corrected)


def test_a_recipe_asks_for_structured_calls_by_choice() -> None:
    assert not load("quickstart").structured
    assert load("quickstart", {"structured": True}).structured
