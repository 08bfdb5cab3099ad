"""Fakes and small helpers for tests, shipped so that environments outside this package can use them too."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from agent_r1_env import formats, prompt
from agent_r1_env.contract import check
from agent_r1_env.engines.scripted import ScriptedEngine
from agent_r1_env.env import ToolEnv
from agent_r1_env.rules import RULES
from agent_r1_env.task import Paragraph, Task, TaskSet
from agent_r1_env.tool import Tool, tool

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


class ByteTokenizer:
    """One token a byte, some special tokens, a chat template; needs no package.

    It speaks the part of a transformers tokenizer that this package uses.
    """

    eos_token_id = 258
    pad_token_id = 256

    def __init__(
        self,
        chat_template: str | None = formats.CHATML,
        more_special: Sequence[str] = (),
        *,
        drops_special: bool = False,
    ) -> None:
        """A tokenizer with a chat template of its own.

        Args:
            more_special: special tokens beside those of ChatML.
            drops_special: ``decode`` leaves special tokens out unless it is told not to.
        """
        self.chat_template = chat_template
        self.all_special_tokens = [*_SPECIAL, *more_special]
        self.all_special_ids = [256 + place for place in range(len(self.all_special_tokens))]
        self._drops_special = drops_special
        longest_first = sorted(self.all_special_tokens, key=len, reverse=True)
        self._pieces = re.compile(f"({'|'.join(map(re.escape, longest_first))})")
        self._ids = {text: 256 + self.all_special_tokens.index(text) for text in self.all_special_tokens}

    def __len__(self) -> int:
        return 256 + len(self.all_special_tokens)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """UTF-8 bytes, special tokens as one id each."""
        ids: list[int] = []
        for place, part in enumerate(self._pieces.split(text)):
            if place % 2:
                ids.append(self._ids[part])
            else:
                ids += part.encode("utf-8")
        return ids

    def decode(self, token_ids: Iterable[int], *, skip_special_tokens: bool | None = None) -> str:
        """The text; bytes that are no UTF-8 become the replacement character."""
        skip = self._drops_special if skip_special_tokens is None else skip_special_tokens
        ids = list(token_ids)
        with contextlib.suppress(ValueError):  # a special token is no byte
            return bytes(ids).decode("utf-8", "replace")
        data = bytearray()
        for token in ids:
            if token < 256:
                data.append(token)
            elif not skip:
                data.extend(self.all_special_tokens[token - 256].encode())
        return data.decode("utf-8", "replace")

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]],
        tools: Any = None,
        *,
        tokenize: bool = True,
        add_generation_prompt: bool = False,
        **_: Any,
    ) -> Any:
        """The conversation as text, or as ids."""
        render = prompt.renderer(self.chat_template or formats.CHATML)
        text = render(conversation, add_generation_prompt, tools=tools)
        return self.encode(text) if tokenize else text


class EnvContract:
    """The contract of an environment as pytest tests, one for each rule of `agent_r1_env.rules`, to inherit::

        class TestTrip(EnvContract):
            env_id = "Me/Trip-v0"

    Attributes:
        env_id: of a registered environment; a module of its own may have to be imported first.
        env_kwargs: of ``gymnasium.make``.
        broken_on_purpose: names of rules that it does not keep, each with the reason.
    """

    env_id: ClassVar[str]
    env_kwargs: ClassVar[Mapping[str, Any]] = {}
    broken_on_purpose: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls) -> None:
        """Give the class a test for each rule."""
        super().__init_subclass__()
        for name in RULES:
            setattr(cls, f"test_{name.replace('-', '_')}", _test_of(name))


def _test_of(name: str) -> Callable[[EnvContract], None]:
    def test(self: EnvContract) -> None:
        import pytest

        if name in self.broken_on_purpose:
            pytest.skip(self.broken_on_purpose[name])
        (found,) = check(self.env_id, self.env_kwargs, rules=[name])
        if found.holds is None:
            pytest.skip(found.detail)
        assert found.holds, found.detail

    test.__doc__ = RULES[name].__doc__
    return test


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: First number.
        b: Second number.
    """
    return a + b


def sums(count: int = 4) -> TaskSet:
    """Tasks ``What is i + 1?`` with the answer i + 1, ids ``sum-0``, ``sum-1``, ..."""
    tasks = [Task(f"sum-{i}", f"What is {i} + 1?", (str(i + 1),)) for i in range(count)]
    return TaskSet(tasks, name="sums", origin="made by agent_r1_env.testing", corpus=[Paragraph("t", "x")])


def sum_env(tools: Sequence[Tool] | None = None, count: int = 4, **options: Any) -> ToolEnv:
    """A small ``ToolEnv`` with the tool ``add``; ``options`` go to ``ToolEnv``."""
    return ToolEnv(sums(count), [tool(add)] if tools is None else tools, **options)


def call(name: str, **arguments: Any) -> str:
    """A reply that calls one tool, in the Hermes format."""
    return formats.get("hermes").render_call(name, arguments)


def answer(text: object) -> str:
    """A reply that answers."""
    return f"<answer>{text}</answer>"


def say(*replies: str) -> Callable[[str], str]:
    """A policy for ``ScriptedEngine``: the n-th reply of an episode is the n-th here, later ones the last.

    It counts the assistant turns of a ChatML prompt, so one policy serves many episodes at once.
    """

    def policy(prompt: str) -> str:
        turn = prompt.count("<|im_start|>assistant") - 1
        return replies[min(turn, len(replies) - 1)]

    return policy


def scripted(*replies: str, **options: Any) -> ScriptedEngine:
    """A ``ScriptedEngine`` over a ``ByteTokenizer`` that says ``replies`` in each episode."""
    return ScriptedEngine(say(*replies), ByteTokenizer(), **options)


def _transformers() -> Any:
    """The package, imported when needed and untyped."""
    import transformers

    return transformers


def tiny_tokenizer() -> Any:
    """A transformers tokenizer of bytes, with the special tokens and the template of ``ByteTokenizer``."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = _transformers().PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = formats.CHATML
    return tokenizer


def tiny_llama(folder: str | Path, seed: int = 0, layers: int = 2, max_length: int = 4096) -> Path:
    """Write a random Llama of about 50,000 weights and its tokenizer to ``folder`` and return the folder."""
    import torch

    tokenizer = tiny_tokenizer()
    config = _transformers().LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,  # 32 a head, the least that vLLM knows on a CPU
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=max_length,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.2,  # the usual 0.02 makes so flat a model that a wrong log-prob looks right
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        _transformers().LlamaForCausalLM(config).float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)
