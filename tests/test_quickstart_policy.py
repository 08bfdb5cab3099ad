"""The quickstart policy and the code that made it: small, loadable, and exact about tokens."""

import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from agent_r1_env import formats
from agent_r1_env.catalog import builtin_root

QUICKSTART = builtin_root() / "trainers" / "quickstart"
POLICY = QUICKSTART / "policy"

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(POLICY)


@pytest.fixture(scope="module")
def traces() -> Iterator[Any]:
    sys.path.insert(0, str(QUICKSTART))
    try:
        import traces

        yield traces
    finally:
        sys.path.remove(str(QUICKSTART))


@pytest.fixture(scope="module")
def env(traces: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return traces.Questions(tmp_path_factory.mktemp("worlds")).embedded(top_k=2)


def test_the_policy_takes_at_most_eight_megabytes() -> None:
    assert sum(path.stat().st_size for path in POLICY.iterdir()) <= 8_000_000


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"name": "search", "arguments": {"query": "Tora Venn"}}', id="a call"),
        pytest.param("Straße, 東京, 🙂, \x00\x7f\t\r\n  two  spaces ", id="any Unicode"),
        pytest.param("I. McAdam 3D iPhone 1,234.5", id="names that are not of the world"),
        pytest.param("<tool_call>\n</tool_call><answer>x</answer>", id="marks"),
    ],
)
def test_the_tokenizer_gives_any_text_back(tokenizer: Any, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_a_name_has_the_same_tokens_wherever_it_stands(tokenizer: Any, env: Any) -> None:
    name = env.tasks[0].supporting[0][0]
    inner = tokenizer.encode(name, add_special_tokens=False)
    around = ("directed by {}.", '"query": "{}"}}}}', "<answer>{}</answer>", "\n[1] {}: ")
    for text in (frame.format(name) for frame in around):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert any(ids[start : start + len(inner)] == inner for start in range(len(ids)))


def test_the_chat_template_writes_the_prompts_of_the_environment(tokenizer: Any, env: Any) -> None:
    observation, info = env.reset(options={"task": 0})
    messages = formats.get("hermes").flatten(info["messages"], info["tools"])
    assert tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == observation
    assert len(tokenizer.encode(observation, add_special_tokens=False)) < 80


def test_a_clean_trace_is_right_and_marks_its_replies_alone(traces: Any, env: Any) -> None:
    segments, reward = traces.trace(env, random.Random(0), flawed=0.0)
    assert reward == 1.0
    assert [learn for _, learn in segments] == [False, True] * 3
    replies = [text for text, learn in segments if learn]
    assert all(reply.endswith("<|im_end|>") for reply in replies)
    assert [reply.startswith("<tool_call>") for reply in replies] == [True, True, False]


def test_flawed_traces_mostly_fail(traces: Any, env: Any) -> None:
    rng = random.Random(0)
    rewards = [traces.trace(env, rng, flawed=1.0)[1] for _ in range(100)]
    assert 0 < sum(rewards) < 30


def test_the_policy_loads_and_the_next_token_of_a_question_is_a_call(tokenizer: Any, env: Any) -> None:
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(POLICY, dtype=torch.float32)
    observation, _ = env.reset(options={"task": 0})
    ids = tokenizer(observation, add_special_tokens=False, return_tensors="pt").input_ids
    with torch.no_grad():
        best = int(model(input_ids=ids).logits[0, -1].argmax())
    assert tokenizer.decode([best]) == "<tool_call>"
