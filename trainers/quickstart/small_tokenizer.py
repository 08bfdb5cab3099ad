"""The tokenizer of the quickstart policy: byte pairs over whole phrases, with every word of a name a token.

Names and numbers are cut out first, so that a name has the same tokens in a sentence, in JSON and in an
answer; that is what makes copying easy to learn. White space does not split the rest, so that the
environment's fixed sentences become a few tokens each. All bytes are in the alphabet: any other text
works too, only at more tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from agent_r1_env import invented

SPECIAL = ("<|pad|>", "<|im_start|>", "<|im_end|>")
MARKS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<answer>", "</answer>")
SIZE = 2752

_NAME_OR_NUMBER = r"[A-Z][a-z]+(?: [A-Z][a-z]+)*|\d+"
_FURTHER_WORD = r" [A-Z][a-z]+"


def train_tokenizer(episodes: Iterable[str]) -> Tokenizer:
    """Train on rendered episodes, and on every word that a world may use."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(_NAME_OR_NUMBER), "isolated"),
        pre_tokenizers.Split(Regex(_FURTHER_WORD), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    tokenizer.decoder = decoders.ByteLevel()
    # The marks are tokens already; pairs must not be learned across them.
    marks = re.compile("|".join(map(re.escape, SPECIAL + MARKS)))
    pieces = [piece for text in episodes for piece in marks.split(text)]
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE - len(MARKS), special_tokens=list(SPECIAL), show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )  # fmt: skip
    tokenizer.train_from_iterator([*pieces, *_words()], trainer)
    # Not special: they must survive decoding without special tokens.
    tokenizer.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in MARKS])
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the files that transformers and vLLM read, with the chat template."""
    from transformers import PreTrainedTokenizerFast

    from agent_r1_env.formats import CHATML

    fast: Any = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=SPECIAL[0], eos_token=SPECIAL[2],
        additional_special_tokens=[SPECIAL[1]], clean_up_tokenization_spaces=False, model_max_length=2048,
    )  # fmt: skip
    fast.chat_template = CHATML
    fast.save_pretrained(folder, save_jinja_files=False)


def _words() -> list[str]:
    """All words of names, second ones behind a first, and all years, often enough to become tokens."""
    firsts = [*invented.FIRST_NAMES, *invented.TITLE_STARTS, *invented.PLACES, *invented.REGIONS]
    firsts += invented.HOUSES
    seconds = [*invented.LAST_NAMES, *invented.TITLE_ENDS]
    years = map(str, range(invented.FIRST_YEAR, invented.LAST_YEAR + 1))
    return [*firsts, *(f"{firsts[0]} {word}" for word in seconds), *years] * 100
