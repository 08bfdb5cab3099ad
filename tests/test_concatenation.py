"""Prompts that grow by ids: right at every seam, or encoded anew with the reason."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_r1_env import formats
from agent_r1_env.concatenation import Concatenated, Rewritten, Seam
from agent_r1_env.messages import ToolCall
from agent_r1_env.prompt import TemplateFault
from agent_r1_env.template import ChatTemplate, PlainText, Stops
from agent_r1_env.testing import ByteTokenizer

HERMES = formats.get("hermes")
TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
ASKS = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
QUESTION = {"role": "user", "content": "Who?"}
EOS, IM_END = 256, 258


def chat(template: str | None = None, **options: Any) -> ChatTemplate:
    """A chat template over bytes; ChatML by default."""
    tokenizer = ByteTokenizer(template, **options) if template else ByteTokenizer(**options)
    return ChatTemplate(tokenizer, HERMES)


def looping(body: str) -> str:
    return "{% for m in messages %}" + body + "{% endfor %}" + ASKS


class Talk:
    """A conversation that grows, seen through a template."""

    def __init__(self, template: ChatTemplate, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        self.template, self.tools = template, tools
        self.prompts = Concatenated(template)
        self.messages: list[dict[str, Any]] = [dict(QUESTION)]

    @property
    def info(self) -> dict[str, Any]:
        return {"messages": list(self.messages), "tools": list(self.tools)}

    def prompt(self) -> list[int]:
        return self.prompts.encode("", self.info)

    def sample(self, ids: Sequence[int], *more: dict[str, Any]) -> None:
        """The model says these ids, and the environment answers."""
        reply = self.prompts.reply_text(ids)
        self.messages += [{"role": "assistant", "content": reply}, *more]

    def rendered(self) -> str:
        return self.template.text("", self.info)

    def decoded(self, ids: Sequence[int]) -> str:
        return str(self.template.tokenizer.decode(ids, skip_special_tokens=False))


def told(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_a_prompt_is_the_one_before_the_sampled_ids_and_what_was_added() -> None:
    talk = Talk(chat())
    first = talk.prompt()
    reply = [*b"Ada", IM_END]
    talk.sample(reply, told("Sure?"))
    second = talk.prompt()
    assert second[: len(first) + len(reply)] == first + reply
    assert talk.decoded(second) == talk.rendered()
    assert talk.prompts.seams == {Seam.SPECIAL: 1}
    assert not talk.prompts.rewritten


def test_sampled_ids_stay_that_no_encoder_would_make() -> None:
    # Byte 0xC3 alone is no letter: decoding loses it, and an encoder would write another.
    talk = Talk(chat())
    first, reply = talk.prompt(), [0xC3, IM_END]
    talk.sample(reply, told("What?"))
    assert talk.prompt()[len(first) : len(first) + 2] == reply


@pytest.mark.parametrize(
    ("reply", "seam"),
    [
        pytest.param([*b"cut sho"], "<|im_end|>\n", id="cut-by-length"),
        pytest.param([*b"said", IM_END], "\n", id="ended"),
        pytest.param([*b"said \n", IM_END], "\n", id="white-space-behind"),
        pytest.param([*b"\n said", IM_END], "\n", id="white-space-before"),
        pytest.param([IM_END], "\n", id="nothing-said"),
        pytest.param([], "<|im_end|>\n", id="nothing-sampled"),
    ],
)
@pytest.mark.parametrize("trims", [False, True])
def test_the_end_of_the_turn_is_written_once(reply: list[int], seam: str, trims: bool) -> None:
    talk = Talk(chat(looping(TURN.replace("m.content", "m.content | trim") if trims else TURN)))
    first = talk.prompt()
    talk.sample(reply, told("And?"))
    added = talk.prompt()[len(first) + len(reply) :]
    assert talk.decoded(added) == f"{seam}<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n"


def test_a_line_that_the_template_adds_before_the_end_is_not_the_models() -> None:
    talk = Talk(chat(looping(TURN.replace("<|im_end|>", "\n<|im_end|>"))))
    first, reply = talk.prompt(), [*b"Ada", IM_END]
    talk.sample(reply, told("And?"))
    assert talk.decoded(talk.prompt()[len(first) :]).startswith("Ada<|im_end|>\n<|im_start|>user")


@pytest.mark.parametrize(
    ("template", "reply", "why"),
    [
        pytest.param(
            "{{ messages | length }}" + looping(TURN), [*b"Ada", IM_END], Rewritten.EARLIER, id="counts-turns"
        ),
        pytest.param(
            looping(
                TURN.replace("m.content", "m.content.split('</think>')[-1] if not loop.last else m.content")
            ),
            [*b"<think>h</think>Ada", IM_END],
            Rewritten.REPLY,
            id="drops-reasoning",
        ),
        pytest.param(looping(TURN), [*b"Ada", EOS], Rewritten.END, id="another-end"),
    ],
)
def test_a_prompt_that_cannot_grow_is_encoded_anew_and_counted(
    template: str, reply: list[int], why: Rewritten
) -> None:
    talk = Talk(ChatTemplate(ByteTokenizer(template), HERMES))
    talk.prompts.stop_token_ids, talk.template.stops = (EOS, IM_END), Stops((), (EOS, IM_END))
    talk.prompts._ends = ("<|endoftext|>", "<|im_end|>")
    talk.prompt()
    talk.sample(reply, told("And?"))
    again = talk.prompt()
    assert talk.prompts.rewritten == {why: 1}
    assert again == talk.template.encode("", talk.info)
    assert talk.prompts.metrics == {"prompts_rewritten": 1.0, "seams_forced": 0.0}


def test_a_context_that_was_cut_is_encoded_anew_and_grows_again_from_there() -> None:
    talk = Talk(chat())
    talk.prompt()
    talk.sample([*b"Ada", IM_END], told("And?"))
    talk.messages = talk.messages[2:]
    assert talk.prompt() == talk.template.encode("", talk.info)
    talk.sample([*b"Bob", IM_END], told("More?"))
    assert talk.decoded(talk.prompt()) == talk.rendered()
    assert talk.prompts.rewritten == {Rewritten.EARLIER: 1}


def test_a_prompt_that_is_asked_for_twice_is_the_same() -> None:
    talk = Talk(chat())
    talk.prompt()
    talk.sample([0xC3, IM_END], told("And?"))
    assert talk.prompt() == talk.prompt()
    assert not talk.prompts.rewritten


def test_a_template_that_cannot_tell_its_text_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no 'tokenizer'.*take 'steps'"):
        Concatenated(object())  # type: ignore[arg-type]


def test_an_episode_costs_what_it_holds_to_encode() -> None:
    encoded: list[int] = []

    class Counting(ByteTokenizer):
        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            ids = super().encode(text, add_special_tokens=add_special_tokens)
            encoded.append(len(ids))
            return ids

    def cost(turns: int) -> int:
        talk = Talk(ChatTemplate(Counting(), HERMES))
        encoded.clear()
        for _ in range(turns):
            talk.prompt()
            talk.sample([*b"x" * 50, IM_END], told("y" * 200))
        return sum(encoded)

    assert cost(32) < 2.2 * cost(16), "linear: twice the turns, twice the tokens"


# -- tokenizers that merge


@pytest.fixture(scope="module")
def merging() -> Any:
    """A small BPE tokenizer that likes to join a full stop with the lines behind it."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    core = tokenizers.Tokenizer(tokenizers.models.BPE())
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|im_start|>", "<|im_end|>", "<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(
        ["It is so.\n\nUser: why?\n\nAgent: It is so.\n\nUser: how?\n\nAgent:"] * 9, trainer
    )
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    made.chat_template = formats.CHATML
    return made


def test_no_merge_reaches_over_a_special_token(merging: Any) -> None:
    template = ChatTemplate(merging, HERMES)
    talk = Talk(template)
    talk.prompt()
    end = merging.convert_tokens_to_ids("<|im_end|>")
    for _ in range(3):
        talk.sample([*merging.encode("It is so."), end], told("why?\n\n"))
        assert talk.prompt() == template.encode("", talk.info), "as if all of it were encoded at once"
    assert talk.prompts.seams == {Seam.SPECIAL: 3}


def test_a_seam_in_plain_text_is_proven_or_the_sampled_ids_stay(merging: Any) -> None:
    whole = merging.encode("It is so.\n\nUser:")
    assert merging.encode("It is so.") + merging.encode("\n\nUser:") != whole, "the test needs a merge"
    template = PlainText(merging)
    for reply, seam in ((" It is so.", Seam.FORCED), (" It is not", Seam.PROVEN)):
        prompts = Concatenated(template)
        text = "User: why?\n\nAgent:"
        first = prompts.encode(text, {})
        sampled = merging.encode(reply)
        prompts.reply_text(sampled)
        text += reply + "\n\nUser: how?\n\nAgent:"
        second = prompts.encode(text, {})
        assert second[: len(first) + len(sampled)] == first + sampled
        assert merging.decode(second) == text
        assert prompts.seams == {seam: 1}
        assert prompts.metrics["seams_forced"] == float(seam is Seam.FORCED)


@given(st.lists(st.tuples(st.binary(max_size=6), st.booleans(), st.text(max_size=6)), max_size=5))
def test_a_growing_conversation_is_one_chain_of_ids(turns: list[tuple[bytes, bool, str]]) -> None:
    talk = Talk(chat(looping(TURN.replace("m.content", "m.content | trim"))))
    held = talk.prompt()
    for said, ended, answer in turns:
        reply = [*said, *[IM_END] * ended]
        talk.sample(reply, told(answer))
        prompt = talk.prompt()
        assert prompt[: len(held) + len(reply)] == held + reply
        held = prompt
    assert not talk.prompts.rewritten


# -- templates of the field

SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}
SPECIAL = re.compile(
    r"<\|[^|<>\n'\"{}]{1,40}\|>|<｜[^｜\n]{1,40}｜>|<\|\w+>|<\w+\|>|\[/?[A-Z_]{3,}\]|</?s>"
    r"|<(?:start|end)_of_(?:turn|utterance)>|<bos>|<eos>|<EOS>"
)


def special_tokens(*texts: str) -> list[str]:
    found = {token for text in texts for token in SPECIAL.findall(text)}
    return sorted(found - {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})


def published() -> list[Any]:
    """Chat templates that TRL ships; those that mark what is generated need a tokenizer of transformers."""
    found = importlib.util.find_spec("trl")
    if found is None or found.origin is None:
        return [pytest.param(None, marks=pytest.mark.skip(reason="needs trl"))]
    files = sorted((Path(found.origin).parent / "chat_templates").glob("*.jinja"))
    return [pytest.param(file, id=file.stem) for file in files if "training" not in file.stem]


@pytest.mark.parametrize("file", published())
def test_a_published_template_grows_or_says_why_not(file: Path) -> None:
    source = file.read_text()
    tokenizer = ByteTokenizer(source, special_tokens(source))
    format = formats.detect(tokenizer).format
    try:
        template = ChatTemplate(tokenizer, format)
    except TemplateFault as fault:
        pytest.skip(str(fault))
    talk, end = Talk(template, [SEARCH]), template.stop_token_ids[-1]
    thinks = template.facts.opening.rstrip().endswith("<think>")
    begins = "hm\n</think>\n\n" if thinks else ""
    call = begins + format.render_calls([ToolCall("search", {"query": "q"}, "call_0")])
    held: list[int] = []
    for number, said in enumerate([call, call, begins + "It is so.", call]):
        rewritten = talk.prompts.rewritten.total()
        prompt = talk.prompt()
        if talk.prompts.rewritten.total() > rewritten or not number:
            assert prompt == template.encode("", talk.info)
        else:
            assert prompt[: len(held)] == held
            last = template.text("", talk.info).rpartition("<tool_response>")[2][-30:]
            assert talk.decoded(prompt).endswith(last), "the end is what the template writes"
        sampled = tokenizer.encode(said)
        sampled += [] if sampled[-1] in template.stop_token_ids else [end]
        calls = format.parse(template.reply_text(sampled), [SEARCH]).calls
        answers = [
            {"role": "tool", "content": "R", "tool_call_id": call.id, "name": call.name} for call in calls
        ] or [told("More?")]
        talk.sample(sampled, *answers)
        held = prompt + sampled


@pytest.mark.parametrize(
    ("name", "rewritten"),
    [
        *[
            (name, None)
            for name in ("qwen2_5", "qwen3_instruct_2507", "llama3_1", "phi3", "gemma", "lfm2_v2")
        ],
        ("deepseekv3", Rewritten.EARLIER),
        ("glm4moe", Rewritten.REPLY),
        ("nemotron_3_nano", Rewritten.EARLIER),
    ],
)
def test_it_is_known_which_published_templates_grow(name: str, rewritten: Rewritten | None) -> None:
    files = [each.values[0] for each in published()]
    file = next((file for file in files if isinstance(file, Path) and file.stem == name), None)
    if file is None:
        pytest.skip(f"TRL ships no template {name!r}")
    source = file.read_text()
    tokenizer = ByteTokenizer(source, special_tokens(source))
    template = ChatTemplate(tokenizer, formats.detect(tokenizer).format)
    talk = Talk(template)
    begins = "hm\n</think>\n\n" if template.facts.opening.rstrip().endswith("<think>") else ""
    for said in ("It is so.", "Still so."):
        talk.prompt()
        talk.sample([*tokenizer.encode(begins + said), template.stop_token_ids[-1]], told("More?"))
    talk.prompt()
    assert set(talk.prompts.rewritten) == ({rewritten} if rewritten else set())


class Recorded:
    """A template of which only some renders are known; ``info["text"]`` is one of them."""

    def __init__(self, special: Sequence[str], stop: str) -> None:
        self.tokenizer: Any = ByteTokenizer(None, special)
        (token,) = self.tokenizer.encode(stop)
        self.stops = Stops((), (token,))
        self.stop: tuple[str, ...] = ()
        self.stop_token_ids: tuple[int, ...] = (token,)

    def text(self, observation: str, info: Mapping[str, Any]) -> str:
        return str(info["text"])

    def encode_text(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text))

    def reply_text(self, ids: Sequence[int]) -> str:
        ids = ids[:-1] if ids and ids[-1] in self.stops.ids else ids
        return str(self.tokenizer.decode(ids))

    def says(self, rendition: str, reply: str, info: Mapping[str, Any]) -> bool:
        return rendition.strip() == reply.strip()


def recorded_reply(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """The call as the template wrote it, and the special token that ends its turn."""
    written = row["prompt_plus_call"]
    if not written.startswith(row["prompt"]):
        return None
    said = written[len(row["prompt"]) :]
    marks = list(SPECIAL.finditer(said))
    if not marks or said[marks[-1].end() :].strip():
        return None
    return said[: marks[-1].start()], marks[-1].group()


def test_the_recorded_renders_grow_where_they_keep_their_prefix(shared_data: Path) -> None:
    lines = (shared_data / "chat_templates" / "renders.jsonl").read_text().splitlines()
    grown, rewritten = [], []
    for row in map(json.loads, lines):
        found = None if "error" in row else recorded_reply(row)
        # Phi writes behind a conversation what it writes behind no turn within it.
        if found is None or "phi" in row["template"]:
            continue
        said, stop = found
        texts = [row[name] for name in ("prompt", "prompt_plus_call", "prompt_plus_tool")]
        template = Recorded(special_tokens(*texts), stop)
        prompts = Concatenated(template)
        first = prompts.encode("", {"text": row["prompt"]})
        reply = template.tokenizer.encode(said + stop)
        prompts.reply_text(reply)
        second = prompts.encode("", {"text": row["prompt_plus_tool"]})
        if row["prefix_preserving"]["call->tool"]:
            assert second[: len(first + reply)] == first + reply, row["template"]
            grown.append(row["template"])
        else:
            assert prompts.rewritten.total() == 1, row["template"]
            rewritten.append(row["template"])
        assert template.tokenizer.decode(second) == row["prompt_plus_tool"], row["template"]
    assert len(grown) >= 40
    assert len(rewritten) >= 3
