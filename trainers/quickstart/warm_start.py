"""Makes the quickstart policy: a very small model that can search and answer, but often does not.

    python trainers/quickstart/warm_start.py --out trainers/quickstart/policy

The policy is a Llama of 2.3 million parameters with a tokenizer of its own. It is good for the quickstart and
for nothing else: it knows the invented words of the embedded world and the few sentences around them.
It learns

1. `gentle`, `copy`: lessons that ask for names from the context (`lessons.py`), since that is the hard part;
   first at a small learning rate, then at a larger one;
2. `clean`: faultless episodes of the real environment (`traces.py`), with lessons among them;
3. `flawed`: mostly episodes that are flawed on purpose. Training proper then happens with GRPO, from rewards
   alone.

The phases take 27 minutes on one core that computes in bfloat16. Each leaves its model in `OUT-PHASE`, and
`--start PHASE --init FOLDER` goes on from there. The policy in this folder is what that command gave. The
time decides how many steps there are, so another run gives another policy of the same kind. On 200 validation
questions it scores an exact match of 0.20 at temperature 1 and 0.065 greedily, because most of the last
episodes answer after one search.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from learning import Batch, Learner, Sample, batches, encode
from lessons import Lessons, Segments
from small_tokenizer import save_tokenizer, train_tokenizer
from tokenizers import Tokenizer
from traces import Questions, trace


@dataclass(frozen=True)
class Phase:
    """One part of the training: its share of the time, and what is learned how fast."""

    time: float
    lessons: float
    """Share of lessons among the texts; the others are episodes."""
    flawed: float
    """Share of flawed ones among the episodes."""
    matrices: float
    """Peak learning rate of the matrices (Muon)."""
    others: float
    """Peak learning rate of the embedding and the norms (AdamW)."""


PHASES = {
    "gentle": Phase(0.31, lessons=1.0, flawed=0.0, matrices=2e-3, others=4e-3),
    "copy": Phase(0.10, lessons=1.0, flawed=0.0, matrices=6e-3, others=4e-3),
    "clean": Phase(0.37, lessons=0.4, flawed=0.0, matrices=6e-3, others=4e-3),
    "flawed": Phase(0.22, lessons=0.1, flawed=0.76, matrices=3e-3, others=2e-3),
}
UNSEEN = 500
"""Seed of the world that the checks ask about; training takes its worlds from 1000 on."""


def small_model(vocabulary: int) -> Any:
    """A fresh model. Heads of 32 are the smallest that vLLM serves on the CPU."""
    config = transformers.LlamaConfig(
        vocab_size=vocabulary, hidden_size=192, intermediate_size=512, num_hidden_layers=4,
        num_attention_heads=6, num_key_value_heads=6, head_dim=32, max_position_embeddings=2048,
        rms_norm_eps=1e-6, tie_word_embeddings=True, pad_token_id=0, bos_token_id=None, eos_token_id=2,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


class Traces:
    """An endless supply of episodes: a quarter from the embedded train split, the others from new worlds."""

    def __init__(self, questions: Questions, flawed: float, seed: int) -> None:
        self.rng = random.Random(seed)
        self.questions, self.flawed = questions, flawed
        self.embedded = [questions.embedded(top_k) for top_k in (2, 3)]
        self.left = 0

    def next(self) -> Segments:
        """One episode; the search returns two paragraphs, as in the quickstart, or three."""
        if self.left == 0:
            seed = self.rng.randrange(1000, 10**9)
            self.invented = [self.questions.invented(seed, top_k) for top_k in (2, 3)]
            self.left = 500
        self.left -= 1
        envs = self.embedded if self.rng.random() < 0.25 else self.invented
        return trace(self.rng.choices(envs, (70, 30))[0], self.rng, self.flawed)[0]


def unseen_check(model: Any, tokenizer: Tokenizer, questions: Questions) -> Callable[[], str]:
    """How often whole replies are predicted right in clean episodes of a world that is never trained on."""
    rng = random.Random(UNSEEN)
    env = questions.invented(UNSEEN, 2)
    samples = [encode(tokenizer, trace(env, rng, 0.0)[0]) for _ in range(48)]

    def check() -> str:
        rights = [_right_replies(model, sample) for sample in samples]
        shares = [sum(column) / len(column) for column in zip(*rights, strict=True)]
        return "right first query {:.2f}, second query {:.2f}, answer {:.2f}".format(*shares)

    return check


@torch.no_grad()
def _right_replies(model: Any, sample: Sample) -> list[bool]:
    ids, learned = (torch.tensor(part) for part in sample)
    right = model(input_ids=ids[None]).logits[0, :-1].argmax(-1) == ids[1:]
    replies: list[bool] = []
    for position in range(1, len(ids)):
        if learned[position] and not learned[position - 1]:
            replies.append(True)
        if learned[position]:
            replies[-1] = replies[-1] and bool(right[position - 1])
    return replies


def feed(phase: str, tokenizer: Tokenizer, questions: Questions, seed: int) -> Iterator[Batch]:
    """The batches of one phase."""
    rng = random.Random(seed)
    lessons = Lessons(seed)
    traces = Traces(questions, PHASES[phase].flawed, seed)

    def draw() -> Sample:
        source = lessons if rng.random() < PHASES[phase].lessons else traces
        return encode(tokenizer, source.next())

    return batches(draw, rng)


def save(model: Any, tokenizer: Tokenizer, folder: Path) -> None:
    """Write a folder that transformers and vLLM load, in half precision."""
    half = transformers.LlamaForCausalLM(model.config).half()
    half.load_state_dict(model.state_dict())
    half.config.dtype = "float16"
    half.generation_config = transformers.GenerationConfig(
        do_sample=True, temperature=1.0, pad_token_id=0, eos_token_id=2
    )
    half.save_pretrained(folder)
    save_tokenizer(tokenizer, folder)


def start(args: argparse.Namespace, questions: Questions) -> tuple[Any, Tokenizer]:
    """The model and tokenizer to begin with: fresh ones, or those of an earlier phase."""
    if args.init:
        model = transformers.LlamaForCausalLM.from_pretrained(args.init, dtype=torch.float32)
        return model, Tokenizer.from_file(str(args.init / "tokenizer.json"))
    traces = Traces(questions, 0.5, args.seed)
    tokenizer = train_tokenizer("".join(text for text, _ in traces.next()) for _ in range(12_000))
    return small_model(tokenizer.get_vocab_size()), tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=27, help="of training, for all phases that run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="folder of the finished policy")
    parser.add_argument("--start", choices=PHASES, default="gentle", help="the phase to begin with")
    parser.add_argument("--init", type=Path, help="policy to go on from, if --start is not the first phase")
    args = parser.parse_args()
    if (args.start == "gentle") != (args.init is None):
        parser.error("--init goes with a --start after the first phase")
    torch.manual_seed(args.seed)
    phases = list(PHASES)[list(PHASES).index(args.start) :]
    with tempfile.TemporaryDirectory() as folder:
        questions = Questions(Path(folder))
        model, tokenizer = start(args, questions)
        check = unseen_check(model, tokenizer, questions)
        whole = sum(PHASES[phase].time for phase in phases)
        for phase in phases:
            part = PHASES[phase]
            texts = feed(phase, tokenizer, questions, args.seed)
            learner = Learner(model, part.matrices, part.others)
            learner.train(texts, args.minutes * part.time / whole, check, name=phase)
            save(model, tokenizer, args.out.with_name(f"{args.out.name}-{phase}"))
    save(model, tokenizer, args.out)


if __name__ == "__main__":
    main()
