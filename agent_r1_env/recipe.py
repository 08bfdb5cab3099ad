"""A training run as data: what a file in ``trainers/`` says, checked and with changes applied."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_r1_env import credit, health
from agent_r1_env.catalog import Catalog
from agent_r1_env.critic_settings import CriticSettings
from agent_r1_env.entry import Entry, entry_schema, read_entry
from agent_r1_env.errors import RecipeError, UnknownName, hint
from agent_r1_env.lora import Lora
from agent_r1_env.overlong import Limit

# What a run decides by itself; a recipe that sets it would be set right in silence.
_OURS = {
    "output_dir": "--output",
    "seed": "the key seed",
    "resume_from_checkpoint": "--resume",
    "disable_tqdm": "nothing: the bar shows on a terminal only",
}


@dataclass(frozen=True)
class Evaluation:
    """How the policy is scored before, during and after training, always on the same tasks.

    Attributes:
        episodes: number of held-out tasks; 0 leaves the evaluation out.
        env_kwargs: whole arguments of ``gymnasium.make``, those of training included.
        temperature: None is that of training.
        every: updates between evaluations in training; None leaves those out.
        best: what the best checkpoint is chosen by, "reward" or a metric; None is "exact_match" where the
            environment has it, else "reward".
    """

    episodes: int = 200
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    temperature: float | None = None
    seed: int = 0
    every: int | None = None
    best: str | None = None


@dataclass(frozen=True)
class Recipe:
    """One training run.

    Attributes:
        model: a folder, absolute if the recipe named one beside itself, or a name on the Hugging Face Hub.
        env_kwargs: arguments of ``gymnasium.make`` in training.
        critic: fields of `agent_r1_env.critic_settings.CriticSettings`, for the algorithm "ppo" alone.
        lora: trains an adapter; None trains all weights.
        health: limits of `agent_r1_env.health.LIMITS` in place of the default ones.
        executor: fields of `agent_r1_env.executors.Executor`.
        threads: OpenMP threads on a CPU; None leaves them alone.
        servers: addresses of vLLM servers that sample; by default vLLM runs beside the trainer.
        weight_sync: how they get weights, "nccl" or "disk"; None is what the machine can do.
        structured: holds the policy to valid calls once it begins one, see `agent_r1_env.structure`.
        overlap: arguments of `agent_r1_env.overlap.Overlap`; None plays each batch when its turn has come.
        trl: settings of ``trl.GRPOConfig``; their names are checked by `check_trl`, which imports TRL.
        entry: the file it came from, for messages.
    """

    name: str
    model: str
    env: str
    trl: Mapping[str, Any]
    description: str = ""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    eval: Evaluation = field(default_factory=Evaluation)
    algorithm: str = "grpo"
    credit: Mapping[str, Any] = field(default_factory=dict)
    critic: Mapping[str, Any] = field(default_factory=dict)
    loss_mask: bool = True
    merge: bool = True
    representation: str = "steps"
    structured: bool = False
    overlong: Mapping[str, Any] | None = None
    overlap: Mapping[str, Any] | None = None
    weight_by: str = "episode"
    concurrency: int = 64
    executor: Mapping[str, Any] = field(default_factory=dict)
    rows_at_once: int | None = None
    threads: int | None = None
    servers: Sequence[str] = ()
    weight_sync: str | None = None
    seed: int = 0
    lora: Lora | None = None
    health: Mapping[str, float] = field(default_factory=dict)
    entry: Entry | None = field(default=None, repr=False, compare=False)

    def check_trl(self, known: set[str]) -> None:
        """Make sure that TRL has every setting of ``trl``.

        Raises:
            RecipeError: it lacks one; with file, line and the nearest that it has.
        """
        for name in self.trl:
            if name not in known:
                raise self.error(f"trl.GRPOConfig has no {name!r}{_near(name, known)}", "trl", name)

    def without(self, name: str) -> Recipe:
        """The recipe without one argument of ``gymnasium.make``."""
        kept, kept_in_eval = (
            {key: value for key, value in kwargs.items() if key != name}
            for kwargs in (self.env_kwargs, self.eval.env_kwargs)
        )
        scored = dataclasses.replace(self.eval, env_kwargs=kept_in_eval)
        return dataclasses.replace(self, env_kwargs=kept, eval=scored)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as it is written beside the results."""
        fields = (f for f in dataclasses.fields(self) if f.name != "entry")
        adapter = None if self.lora is None else dataclasses.asdict(self.lora)
        nested = {"eval": dataclasses.asdict(self.eval), "lora": adapter}
        return {f.name: getattr(self, f.name) for f in fields} | nested

    def error(self, reason: str, *keys: str) -> RecipeError:
        """The error to raise about the key at ``keys``, with its place in the file."""
        if self.entry is None:
            return RecipeError(reason, key=".".join(keys))
        fault = self.entry.error(reason, *keys, of_key=True)
        assert isinstance(fault, RecipeError)  # the entry is a recipe
        return fault


def load(recipe: str | Path, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """Read a recipe and check all of it that needs no heavy package.

    Args:
        recipe: a YAML file, or the name of a recipe that ships with this package.
        overrides: values by key, dotted into the recipe (``eval.episodes``); a key that no recipe has is
            taken for one of ``trl``.

    Raises:
        RecipeError: the file or a value in its place is wrong; with file, line, key and the nearest name.
        UnknownName: there is no such built-in recipe, or no such key to override.
    """
    read = _entry(recipe)
    data = copy.deepcopy(read.data)  # entries are shared
    for key, value in (overrides or {}).items():
        _override(data, key, value)
    entry = read.changed(data)
    made = _made(entry, beside=data["model"] == read.data["model"])
    try:
        credit.get(made.algorithm, made.credit)
    except UnknownName as unknown:
        key = "credit" if made.algorithm in credit.ESTIMATORS else "algorithm"
        raise entry.error(str(unknown), key) from None
    try:
        CriticSettings.of(made.critic)
    except ValueError as wrong:
        raise entry.error(str(wrong), "critic") from None
    try:
        health.check(made.health)
    except UnknownName as unknown:
        raise made.error(str(unknown), "health") from None
    if made.eval.every and not made.eval.episodes:
        raise made.error("every needs episodes to evaluate with, which are 0", "eval", "every")
    try:
        None if made.overlong is None else Limit(**made.overlong)
    except ValueError as error:
        raise made.error(str(error), "overlong") from None
    for name, instead in _OURS.items():
        if name in made.trl:
            raise made.error(f"{name} is not set under trl; use {instead}", "trl", name)
    return made


def _entry(recipe: str | Path) -> Entry:
    path = Path(recipe)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return read_entry("recipe", path)
    return Catalog.open().recipe(str(recipe))


def _override(data: dict[str, Any], key: str, value: Any) -> None:
    """Set one value, and with it the mappings that lead there."""
    known = entry_schema("recipe")["properties"]
    *path, last = key.split(".")
    if not path and last not in known:
        path = ["trl"]
    if path and path[0] not in known:
        raise UnknownName(f"a recipe has no key {path[0]!r}{hint(path[0], known)}")
    for name in path:
        data = data.setdefault(name, {})
        if not isinstance(data, dict):
            raise UnknownName(f"no key {key!r} in a recipe: {name!r} is a single value")
    data[last] = value


def _made(entry: Entry, beside: bool) -> Recipe:
    """The recipe of an entry, whose model may lie beside its file."""
    data = entry.data
    evaluation = dict(data["eval"])
    evaluation["env_kwargs"] = {**data["env_kwargs"], **evaluation.get("env_kwargs", {})}
    model = str(data["model"])
    if beside and model.startswith(("./", "../")):
        model = str((entry.path.parent / model).resolve())
    changed = {"model": model, "eval": Evaluation(**evaluation), "entry": entry}
    if "lora" in data:
        changed["lora"] = Lora(**data["lora"])
    return Recipe(**{**data, **changed})


def _near(name: str, known: set[str]) -> str:
    """The nearest name alone: TRL has two hundred settings, too many to list."""
    guess = hint(name, known).partition(" known:")[0]
    return guess if guess != ";" else ""
