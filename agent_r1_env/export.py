"""Episodes as data sets: masked rows for off-policy training, verl's batches, and conversations.

``rows`` keep everything that training needs, ``verl`` is the layout of verl's agent loops, and ``sft`` holds
messages for supervised training. All of them are written by the package ``datasets``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agent_r1_env import credit, packing, trajectory
from agent_r1_env.batch import credit_batch, facts
from agent_r1_env.episode import Episode
from agent_r1_env.errors import DataError, missing_extra
from agent_r1_env.overlong import Limit
from agent_r1_env.representation import conversations
from agent_r1_env.trajectory import Row

Record = dict[str, Any]


def advantages(
    episodes: Sequence[Episode], algorithm: str = "grpo", options: Mapping[str, Any] | None = None
) -> list[list[float]]:
    """For each episode one advantage a step; 0 where the environment broke, which moves no baseline.

    Episodes are compared when they are tries at the same task of the same environment, with the same group,
    by the same weights.

    Raises:
        UnknownName: no such algorithm, or no such option of it.
        ValueError: the algorithm needs what episodes do not hold, such as the values of a critic.
    """
    sound = [number for number, episode in enumerate(episodes) if not episode.failed]
    groups: dict[Hashable, int] = {}
    known = []
    for number in sound:
        episode = episodes[number]
        key = episode.env_id, episode.task_id, episode.group, episode.policy_version
        known.append(facts(episode) | {"group": groups.setdefault(key, len(groups))})
    found = iter(credit.get(algorithm, options)(credit_batch(known)).tolist() if known else ())
    given: list[list[float]] = [[0.0] * len(episode.steps) for episode in episodes]
    for number in sound:
        given[number] = [next(found) for _ in episodes[number].steps]
    return given


def rows(
    episodes: Sequence[Episode],
    advantages: Sequence[Sequence[float]] | None = None,
    limit: Limit | None = None,
) -> list[Row]:
    """The rows of episodes that have token ids; ``Row.episode`` is the place of theirs.

    Args:
        advantages: for each episode one a step; 0 by default.
        limit: what becomes of rows that are too long.
    """
    made: list[Row] = []
    for number, episode in enumerate(episodes):
        given = advantages[number] if advantages is not None else [0.0] * len(episode.steps)
        made += [] if episode.failed else trajectory.rows(episode, given, number)
    return made if limit is None else limit.applied(made)


def row_records(batch: Sequence[Row], episodes: Sequence[Episode]) -> Iterator[Record]:
    """Each row as plain data: lists of its L tokens, prompt and completion in one.

    ``input_ids``, ``attention_mask``, ``loss_mask``, ``advantage_mask``, ``advantages``, ``logprobs``
    (0 where the environment wrote), ``position_ids``, ``prompt_length``, ``spans`` (step, start, stop of each
    reply, counted behind the prompt), ``cut``; and of its episode ``episode``, ``env_id``, ``task_id``,
    ``group``, ``policy_version``, ``reward``.
    """
    for row in batch:
        episode, before = episodes[row.episode], len(row.prompt_ids)
        size = before + len(row.completion_ids)
        yield {
            "input_ids": [*row.prompt_ids, *row.completion_ids],
            "attention_mask": [1] * size,
            "loss_mask": [0] * before + row.loss_mask,
            "advantage_mask": [0] * before + row.advantage_mask,
            "advantages": [0.0] * before + row.advantages,
            "logprobs": [0.0] * before + row.logprobs,
            "position_ids": list(range(size)),
            "prompt_length": before,
            "spans": [list(span) for span in row.spans],
            "cut": row.cut,
            "episode": row.episode,
            "env_id": episode.env_id,
            "task_id": episode.task_id,
            "group": episode.group,
            "policy_version": episode.policy_version,
            "reward": float(episode.reward),
        }


def read_rows(records: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The rows that ``row_records`` wrote, read by ``datasets`` or otherwise."""
    return [_read_row(record) for record in records]


def _read_row(record: Mapping[str, Any]) -> Row:
    start = record["prompt_length"]
    spans = tuple((int(step), int(first), int(last)) for step, first, last in record["spans"])
    return Row(
        prompt_ids=list(record["input_ids"][:start]),
        completion_ids=list(record["input_ids"][start:]),
        loss_mask=list(record["loss_mask"][start:]),
        logprobs=list(record["logprobs"][start:]),
        advantages=list(record["advantages"][start:]),
        episode=record["episode"],
        spans=spans,
        cut=record["cut"],
        env_credit=record["advantage_mask"][start:] != record["loss_mask"][start:],
    )


def verl_records(
    batch: Sequence[Row], episodes: Sequence[Episode], pad_token: int, *, step_rewards: bool = False
) -> Iterator[Record]:
    """Each row as one sample of the ``DataProto`` that verl's ``AgentLoopWorker.generate_sequences`` returns.

    The layout is that of verl's main branch at commit 02dd715 and of its page "Agent Loop" (since 0.4.2):
    ``prompts`` (P) padded on the left, ``responses`` (T) padded on the right, ``response_mask`` (T) 1 on what
    the model wrote, ``rollout_log_probs`` and ``rm_scores`` (T), ``input_ids``, ``attention_mask`` and
    ``position_ids`` (P + T), and of ``non_tensor_batch`` the fields ``uid`` (one a group),
    ``__num_turns__``, ``data_source`` and ``agent_name``.

    Args:
        step_rewards: put each step's reward on the last id of its reply. By default the reward of the
            episode stands on the last id of its last row, as verl's loops have it.
    """
    prompts = packing.padded_parts([row.prompt_ids for row in batch], pad_token, "left")
    responses = packing.padded_parts([row.completion_ids for row in batch], pad_token, "right")
    last = {row.episode: number for number, row in enumerate(batch)}
    for number, row in enumerate(batch):
        episode, empty = episodes[row.episode], responses.shape[1] - len(row.completion_ids)
        attention = [0] * (prompts.shape[1] - len(row.prompt_ids)) + [1] * len(row.prompt_ids)
        attention += [1] * len(row.completion_ids) + [0] * empty
        scores = _scores(row, episode, last[row.episode] == number, step_rewards)
        yield {
            "prompts": prompts[number].tolist(),
            "responses": responses[number].tolist(),
            "response_mask": row.loss_mask + [0] * empty,
            "input_ids": [*prompts[number].tolist(), *responses[number].tolist()],
            "attention_mask": attention,
            "position_ids": np.maximum(np.cumsum(attention) - 1, 0).tolist(),
            "rollout_log_probs": row.logprobs + [0.0] * empty,
            "rm_scores": scores + [0.0] * empty,
            "uid": f"{episode.env_id}/{episode.task_id}/{episode.group}/{episode.policy_version}",
            "__num_turns__": max(1, 2 * len(row.spans)),
            "data_source": episode.env_id,
            "agent_name": "agent_r1_env",
        }


def _scores(row: Row, episode: Episode, last: bool, step_rewards: bool) -> list[float]:
    scores = [0.0] * len(row.completion_ids)
    if step_rewards:
        for step, _, stop in row.spans:
            scores[stop - 1] += float(episode.steps[step].reward)
        if last:
            scores[-1] += float(episode.truncation_reward)
    elif last:
        scores[-1] = float(episode.reward)
    return scores


def sft_records(episodes: Sequence[Episode]) -> Iterator[Record]:
    """Conversations for supervised training: ``messages`` with every reply as it was written, and ``tools``.

    An episode whose context only grew is one conversation. Where the context was rewritten a new one begins
    and the one before ends with its last reply. ``trainable``, which verl reads and TRL does not, is true on
    each reply exactly once: not where a later conversation shows it again, and not on assistant turns that
    the environment wrote. Beside them stand ``env_id``, ``task_id`` and ``reward``.
    """
    for episode in episodes:
        held: list[Record] = []
        for step, shown in zip(episode.steps, conversations(episode), strict=True):
            messages = [_message(message, trainable=False) for message in shown]
            if not messages:
                continue
            if held and _words(messages[: len(held)]) != _words(held):
                yield _conversation(episode, held)
                held = []
            held = [*held, *messages[len(held) :]]
            held.append(_message({"role": "assistant", "content": step.reply}, trainable=True))
        if held:
            yield _conversation(episode, held)


def _message(message: Mapping[str, Any], trainable: bool) -> Record:
    more = {name: message.get(name) for name in ("name", "tool_call_id")}
    return {"role": message["role"], "content": str(message["content"]), **more, "trainable": trainable}


def _words(messages: Sequence[Record]) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in messages]


def _conversation(episode: Episode, messages: list[Record]) -> Record:
    return {
        "messages": messages,
        "tools": [dict(tool) for tool in episode.tools],
        "env_id": episode.env_id,
        "task_id": episode.task_id,
        "reward": float(episode.reward),
    }


# -- files


def write(records: Sequence[Record], path: str | Path) -> None:
    """Write records as a data set: ``*.parquet``, ``*.jsonl``, or else a folder in Arrow's format.

    Raises:
        DataError: there are no records.
        MissingExtra: the package ``datasets`` is not installed.
    """
    if not records:
        raise DataError("there is nothing to write")
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise missing_extra(error.name or "datasets", "hub") from error
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    made = datasets.Dataset.from_list(list(records), features=_features(records[0]))
    datasets.disable_progress_bars()
    try:
        if path.suffix == ".parquet":
            made.to_parquet(path)
        elif path.suffix == ".jsonl":
            made.to_json(path)
        else:
            made.save_to_disk(path)
    finally:
        datasets.enable_progress_bars()


_TYPES = {
    "loss_mask": "int8",
    "advantage_mask": "int8",
    "attention_mask": "int8",
    "response_mask": "int8",
    "advantages": "float32",
    "logprobs": "float32",
    "rollout_log_probs": "float32",
    "rm_scores": "float32",
    "input_ids": "int32",
    "position_ids": "int32",
    "prompts": "int32",
    "responses": "int32",
    "prompt_length": "int32",
    "cut": "int32",
    "episode": "int32",
    "group": "int64",
    "policy_version": "int64",
    "__num_turns__": "int32",
    "reward": "float64",
}
_MESSAGE = {
    "role": "string",
    "content": "string",
    "name": "string",
    "tool_call_id": "string",
    "trainable": "bool",
}


def _features(record: Mapping[str, Any]) -> Any:
    """The types of the columns; stated, because an empty list or a None says nothing of its type."""
    from datasets import Features, Json, List, Value

    special: dict[str, Any] = {
        "spans": List(List(Value("int32"))),
        "messages": List({name: Value(type_) for name, type_ in _MESSAGE.items()}),
        "tools": List(Json()),
    }
    columns = {}
    for name, value in record.items():
        plain = Value(_TYPES.get(name, "string"))
        columns[name] = special.get(name) or (List(plain) if isinstance(value, list) else plain)
    return Features(columns)
