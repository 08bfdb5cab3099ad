"""What fits where, and how fast it would be: memory and tokens a second, computed and not measured.

python benchmarks/sizing.py            # the tables of docs/scaling.md
python benchmarks/sizing.py --write    # put them there

Sizes of models are counted from the numbers of their configurations. All memory is in bytes, all speed in
tokens a second; the assumptions are the constants below, each with its source.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "scaling.md"
BEGIN, END = "<!-- computed by benchmarks/sizing.py -->", "<!-- end of what is computed -->"

GB = 1e9
MFU_NODE, MFU_NODES = 0.40, 0.30
"""Share of a GPU's arithmetic that training uses, within a node and across nodes. Chowdhery et al. (2022)
report 0.46 of PaLM and 0.21 to 0.33 of others; that a slower network costs a quarter is a guess."""
MFU_PREFILL = 0.40
"""The same of vLLM, while it reads prompts."""
MBU = 0.60
"""Share of the memory's bandwidth that decoding uses; a guess, for the rest goes to launching kernels."""
TP_SHARE = 0.85
"""What is left of both when the GPUs of one model wait for each other in each layer; a guess."""
USABLE = 0.92
"""Share of a GPU's memory that may be planned with; CUDA, NCCL and fragmentation take the rest."""
ROW = 8_192
"""Tokens of the rows that go through the model at once: one long row, or several short ones."""
CONTEXT = 4_096
"""Mean tokens of an episode under way, of which the KV cache holds each."""
LEAST, MOST = 8, 64
"""Episodes under way for each GPU that samples: fewer are no batch, more are not asked for."""
READ = 3
"""Tokens that an episode reads (question, tool results) for each that it samples; each is computed once,
because the prefix cache knows what came before."""
RANK = 16
"""Of LoRA, on all linear layers."""
TRAIN, FROZEN = (4, 4, 8), (2, 0, 0)
"""Bytes of a weight, its gradient and Adam's two moments: 16 for one that is trained (Rajbhandari et al.,
2020), in float32 as TRL loads it, and 2 for one that is frozen in bfloat16."""
LOGITS = 8
"""Bytes of a logit, in bfloat16: itself, over the temperature, as a log-probability, and its gradient."""


@dataclass(frozen=True)
class GPU:
    """Memory in bytes, bytes a second, and dense bfloat16 operations a second, from NVIDIA's data sheets."""

    name: str
    memory: float
    bandwidth: float
    flops: float


H100 = GPU("H100 80 GB", 80 * GB, 3.35e12, 989e12)
H200 = GPU("H200 141 GB", 141 * GB, 4.8e12, 989e12)


@dataclass(frozen=True)
class Model:
    """The numbers of a decoder's configuration, in the words of Qwen2.5's ``config.json``."""

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool

    @property
    def kv(self) -> int:
        """Width of the keys of one layer, and of the values."""
        return self.hidden // self.heads * self.kv_heads

    @property
    def layer(self) -> int:
        """Weights of one layer: attention, with biases but for what comes out; the gated MLP; two norms."""
        attention = 2 * self.hidden**2 + 2 * self.hidden * self.kv + self.hidden + 2 * self.kv
        return attention + 3 * self.hidden * self.intermediate + 2 * self.hidden

    @property
    def weights(self) -> int:
        """All weights; the embedding counts twice where the head has its own."""
        embeddings = (1 if self.tied else 2) * self.vocabulary * self.hidden
        return self.layers * self.layer + embeddings + self.hidden

    def adapter(self, rank: int = RANK) -> int:
        """Weights of a LoRA adapter on all linear layers: ``rank`` times what goes in and what comes out."""
        attention = 4 * self.hidden + 2 * (self.hidden + self.kv)
        return self.layers * rank * (attention + 3 * (self.hidden + self.intermediate))

    def cache(self, tokens: float) -> float:
        """Bytes of the KV cache of so many tokens: a key and a value in each layer, in bfloat16."""
        return 2 * self.layers * self.kv * 2 * tokens

    def activations(self, tokens: int = ROW) -> float:
        """Bytes that a backward pass needs with gradient checkpointing, in bfloat16.

        The input of each layer, what one layer computes on the way (Korthikanti et al., 2022, for a gated MLP
        and without attention scores, which are never written out), the logits, and two layers of weights, as
        sharding gathers the next one meanwhile.
        """
        kept = 2 * self.layers * self.hidden * tokens
        within = 2 * (8 * self.hidden + 2 * self.kv + 4 * self.intermediate) * tokens
        return kept + within + LOGITS * self.vocabulary * tokens + 2 * 2 * self.layer


MODELS = (
    Model("Qwen2.5-1.5B", 1536, 8960, 28, 12, 2, 151_936, True),
    Model("Qwen2.5-7B", 3584, 18_944, 28, 28, 4, 152_064, False),
    Model("Qwen2.5-32B", 5120, 27_648, 64, 40, 8, 152_064, False),
    Model("Qwen2.5-72B", 8192, 29_568, 80, 64, 8, 152_064, False),
)


@dataclass(frozen=True)
class Layout:
    """Which GPUs do what.

    Attributes:
        train: GPUs of the trainer.
        serve: GPUs of vLLM servers; 0: vLLM runs beside the trainer on each of its GPUs.
        parallel: GPUs of one vLLM.
        sharded: weights, gradients and optimiser are spread over the trainer's GPUs.
        lora: an adapter is trained, and the model is frozen.
    """

    model: Model
    gpu: GPU
    train: int
    serve: int
    parallel: int
    sharded: bool
    lora: bool

    @property
    def name(self) -> str:
        """The recipe in words."""
        ways = "FSDP2 or ZeRO-3" if self.sharded else "DDP" if self.train > 1 else "one process"
        trained = f"LoRA, {ways}" if self.lora else ways
        if not self.serve:
            return f"colocated; {trained}"
        copies = self.serve // self.parallel
        return f"{trained} on {self.train}; server, TP {self.parallel} x DP {copies}"

    # -- bytes of one GPU

    @property
    def states(self) -> tuple[float, float, float]:
        """Weights, gradients and Adam's moments on one GPU of the trainer."""
        parts = self.train if self.sharded else 1
        if self.lora:
            frozen, trained = self.model.weights, self.model.adapter()
            return tuple((f * frozen + t * trained) / parts for f, t in zip(FROZEN, TRAIN, strict=True))  # type: ignore[return-value]
        return tuple(size * self.model.weights / parts for size in TRAIN)  # type: ignore[return-value]

    @property
    def fixed(self) -> float:
        """What a GPU of the trainer holds without a vLLM."""
        return sum(self.states) + self.model.activations()

    @property
    def served(self) -> float:
        """Weights of vLLM on one GPU that samples."""
        return 2 * self.model.weights / self.parallel

    @property
    def episodes(self) -> int:
        """Episodes under way for each GPU that samples: as many as have room, at most ``MOST``."""
        room = USABLE * self.gpu.memory - self.served - (0 if self.serve else self.fixed)
        return max(0, min(MOST, int(room / self.model.cache(CONTEXT))))

    @property
    def cache(self) -> float:
        """Bytes of the KV cache on one GPU that samples."""
        return self.model.cache(self.episodes * CONTEXT)

    @property
    def training(self) -> float:
        """All that one GPU of the trainer holds."""
        return self.fixed + (0 if self.serve else self.served + self.cache)

    def fits(self) -> bool:
        """Whether every GPU holds its part."""
        return self.fixed <= USABLE * self.gpu.memory and self.episodes >= LEAST

    # -- seconds of a token, for all GPUs together

    def rollout(self) -> float:
        """Sampled tokens a second of all GPUs that sample.

        A step of decoding reads all weights and the KV cache of all episodes once (memory bound), and does
        2 operations for each weight and episode; the longer of both counts. What an episode reads is computed
        in between, at 2 operations for each weight and token.
        """
        copies = (self.serve or self.train) // self.parallel
        batch = self.episodes * self.parallel
        together = self.parallel * (TP_SHARE if self.parallel > 1 else 1.0)
        moved = 2 * self.model.weights + self.model.cache(batch * CONTEXT)
        reading = moved / (self.gpu.bandwidth * MBU * together)
        work = 2 * self.model.weights * batch
        decoding = max(reading, work / (self.gpu.flops * MFU_PREFILL * together))
        prefill = READ * work / (self.gpu.flops * MFU_PREFILL * together)
        return copies * batch / (decoding + prefill)

    def operations(self) -> float:
        """Floating-point operations of a trained token.

        6 for each weight, forward and backward (Kaplan et al., 2020), or 4 where the model is frozen; 2 more
        to compute activations again, and 2 for the log-probs before the update. Causal attention adds half of
        PaLM's 12 x layers x width x length, and the same share again for what is computed twice.
        """
        passes = (4 if self.lora else 6) + 2 + 2
        return passes * (self.model.weights + self.model.layers * self.model.hidden * ROW)

    def trained(self) -> float:
        """Tokens of rows that the trainer works through in a second."""
        mfu = MFU_NODE if self.train <= 8 else MFU_NODES
        return self.train * self.gpu.flops * mfu / self.operations()

    def share(self) -> float:
        """Of the time of an update, rollout and training one after the other, what the rollout takes."""
        sampling, training = 1 / self.rollout(), (1 + READ) / self.trained()
        return sampling / (sampling + training)

    def overall(self) -> float:
        """Sampled tokens a second of rollout and training one after the other."""
        return self.rollout() * self.share()


def layouts(model: Model, gpus: int, gpu: GPU = H100) -> Iterator[list[Layout]]:
    """What could be run on so many GPUs, the simplest first; each list holds ways of equal simplicity."""
    parallels = [each for each in (1, 2, 4, 8) if each < gpus]
    for lora in (False, True):
        yield [Layout(model, gpu, gpus, 0, 1, False, lora)]
        if gpus > 1:
            yield [Layout(model, gpu, gpus, 0, 1, True, lora)]
        for sharded in (False, True):
            yield [
                Layout(model, gpu, gpus - serve, serve, parallel, sharded, lora)
                for parallel in parallels
                for serve in range(max(parallel, gpus // 8), gpus, max(parallel, gpus // 8))
                if not serve % parallel
            ]


def chosen(model: Model, gpus: int, gpu: GPU = H100) -> Layout | None:
    """The simplest layout that fits, and of servers the fastest; None: nothing fits."""
    for alike in layouts(model, gpus, gpu):
        if fitting := [each for each in alike if each.fits()]:
            return max(fitting, key=Layout.overall)
    return None


# -- tables


def tables(counts: Sequence[int] = (1, 8, 64), gpu: GPU = H100) -> str:
    """Memory and speed, as Markdown."""
    memory = [
        "| model | GPUs | recipe | weights | gradients | Adam | activations | vLLM | KV cache | all |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    speed = [
        "| model | GPUs | episodes at once | rollout | training | share of rollout | sampled in all |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for model, gpus in itertools.product(MODELS, counts):
        begin = f"| {model.name} | {gpus} |"
        layout = chosen(model, gpus, gpu)
        if layout is None:
            memory.append(f"{begin} does not fit | | | | | | | |")
            continue
        memory.append(f"{begin} {layout.name} | {' | '.join(_gigabytes(layout))} |")
        speeds = [_rounded(each) for each in (layout.rollout(), layout.trained(), layout.overall())]
        under_way = layout.episodes * (layout.serve or layout.train)
        cells = [f"{under_way:,}", *speeds[:2], f"{layout.share():.0%}", speeds[2]]
        speed.append(f"{begin} {' | '.join(cells)} |")
    return "\n".join(memory) + "\n\n" + "\n".join(speed)


def _gigabytes(layout: Layout) -> list[str]:
    """The parts and their sum; of the trainer's GPUs and of the servers' where they are not the same."""
    parts = (*layout.states, layout.model.activations(), layout.served, layout.cache)
    whole = f"{layout.training / GB:.1f}"
    if layout.serve:
        whole += f"; server {(layout.served + layout.cache) / GB:.1f}"
    return [f"{part / GB:.1f}" for part in parts] + [whole]


def _rounded(value: float) -> str:
    """Two digits: more would look measured."""
    return f"{float(f'{value:.1e}'):,.0f}"


def page(text: str) -> str:
    """The page with the tables of now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put the tables into docs/scaling.md")
    if parser.parse_args().write:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(tables())


if __name__ == "__main__":
    main()
