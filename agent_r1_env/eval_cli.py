"""``agent-r1 eval``: score policies and models on environments, and put the shards of a run together."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from agent_r1_env import eval_results
from agent_r1_env.command import add_data, blaming, count, not_negative, own_stdout, settings, share
from agent_r1_env.engines.loading import ENGINES, load, servers
from agent_r1_env.errors import AgentR1Error, EngineError, look_up, nearest
from agent_r1_env.eval_screen import progress_of, report

if TYPE_CHECKING:
    from agent_r1_env.engines import Engine, TextEngine
    from agent_r1_env.summary import Evaluation

_MODEL_TASKS = 200
_FURTHER = ("compare", "merge", "table")


def add_parsers(commands: Any, own: argparse.ArgumentParser) -> None:
    """Add the commands to those of the command line.

    Args:
        own: the options of folders of one's own.
    """
    parser = commands.add_parser(
        "eval",
        parents=[own],
        help="score a policy or a model on environments",
        epilog="Of finished runs: agent-r1 eval table shows them side by side, agent-r1 eval compare tests "
        "whether two differ, agent-r1 eval merge puts the shards of one together; each has a --help.",
    )
    _add_eval(parser)
    merge = commands.add_parser("eval merge", prog="agent-r1 eval merge")
    merge.add_argument("folders", metavar="FOLDER", nargs="+", help="what --output was for each shard")
    merge.add_argument("--output", metavar="FOLDER", required=True, help="for the whole run")
    merge.add_argument("--json", action="store_true", help="print JSON alone")
    merge.set_defaults(run=_merge, register=None)
    eval_results.add_parsers(commands)


def joined(arguments: Sequence[str]) -> list[str]:
    """The arguments with the two words of a command such as ``eval merge`` as one."""
    if arguments[:1] == ["eval"] and arguments[1:2] and arguments[1] in _FURTHER:
        return [" ".join(arguments[:2]), *arguments[2:]]
    return list(arguments)


def _add_eval(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("env", metavar="ENV", nargs="+", help="for example AgentR1/HotpotQA-v0")
    who = parser.add_argument_group("who answers (one of these; --url and --model go together)")
    who.add_argument("--policy", metavar="NAME", help="a scripted policy of the environment, such as oracle")
    who.add_argument(
        "--model",
        metavar="PATH",
        help="a model: a folder, or a name on the Hugging Face Hub; with --url, what the server calls it; "
        "with --engine server, addresses of vLLM servers",
    )
    who.add_argument("--url", metavar="URL", help="an OpenAI-compatible server, such as http://host:8000/v1")
    what = parser.add_argument_group("what is asked")
    add = what.add_argument
    add(
        "--method",
        metavar="NAME",
        action="append",
        help="direct, naive_rag or tool_call (the default); several with commas, or one each",
    )
    add("--n", type=count, metavar="N", help="tasks (default: all of them; 200 with a model)")
    add("--samples", type=count, default=1, metavar="K", help="episodes of each task (default: 1)")
    add("--seed", type=int, default=0, metavar="S", help="of tasks, policy and model (default: 0)")
    add("--top-k", type=count, metavar="K", help="paragraphs that a search returns (default: the tool's own)")
    add_data(what)
    add("--split", metavar="NAME", help="such as train or validation")
    add("--source", metavar="NAME", help="hub (fetches the questions) or embedded (synthetic)")
    add("--set", metavar="KEY=VALUE", action="append", help="any argument of the environment")
    how = parser.add_argument_group("how a model is run")
    add = how.add_argument
    add(
        "--engine",
        choices=ENGINES,
        help="vllm (the default) or transformers for a local model; server samples by token ids from vLLM "
        "servers: --model http://a:8000,http://b:8000",
    )
    add("--tokenizer", metavar="PATH", help="of --engine server (default: as the server names its model)")
    add("--temperature", type=not_negative, metavar="T", help="default: 0 for one sample, else 1")
    add("--top-p", type=share, default=1.0, metavar="P", help="default: 1")
    add("--max-tokens", type=count, default=256, metavar="N", help="of one reply (default: 256)")
    add("--structured", action="store_true", help="hold the model to valid calls once it begins one")
    add("--concurrency", type=count, default=64, metavar="N", help="episodes at once (default: 64)")
    add("--timeout", type=not_negative, default=300.0, metavar="S", help="for one reply of --url")
    add(
        "--api-key-env",
        metavar="NAME",
        help="the environment variable with the key for --url (default: AGENT_R1_API_KEY, and "
        "OPENAI_API_KEY for api.openai.com)",
    )
    where = parser.add_argument_group("where the results go")
    add = where.add_argument
    add("--output", metavar="FOLDER", help="for all results; the same command again goes on where it stopped")
    add("--shard", type=_shard, default=(1, 1), metavar="I/K", help="run the I-th of K parts of the tasks")
    add("--episodes", metavar="FILE", help="append every episode, with token ids, to this JSON-lines file")
    eval_results.add_format(where, "all that an evaluation says")
    parser.set_defaults(run=_eval, usage=parser.error)


def _eval(options: argparse.Namespace) -> int:
    asked = options.env[0]
    if asked.isalpha() and asked not in gym.registry and (guess := nearest(asked, _FURTHER)):
        options.usage(f"{asked!r} is no environment; did you mean agent-r1 eval {guess}?")
    if (options.policy is None) == (options.model is None and options.url is None):
        options.usage("give one of --policy, --model and --url (--url may go with --model)")
    form = eval_results.chosen_format(options)
    methods = _methods(options.method)
    if len(options.env) > 1 and (options.data or options.corpus):
        raise AgentR1Error("--data and --corpus belong to one environment; run a command for each")
    cells = [(env_id, method) for env_id in options.env for method in methods]
    # A mistake in an environment should show before a model is loaded.
    kwargs = {env_id: _checked(env_id, methods, options) for env_id in options.env}
    folders = _folders(options.output, cells)
    with own_stdout():
        engine = None if options.policy else _engine(options)
        try:
            found = [
                _one(options, *cell, kwargs[cell[0]], engine, folder)
                for cell, folder in zip(cells, folders, strict=True)
            ]
        finally:
            if engine is not None:
                engine.close()
    eval_results.deliver(_shown(found, form), options.out)
    if form == "text":
        for kind, path in (("episodes", options.episodes), ("results", options.output)):
            if path is not None:
                print(f"{kind}: {path}")
    return 1 if any(each.failed for each in found) else 0


def _shown(found: Sequence[Evaluation], form: str) -> str:
    """What is printed of evaluations: a report of each, and a table if there are several."""
    from agent_r1_env import tableformats

    if form == "json":
        data = [each.to_dict() for each in found]
        return json.dumps(data if len(data) > 1 else data[0], indent=2)
    reports = [report(each) for each in found] if form == "text" else []
    if form != "text" or len(found) > 1:
        reports.append(tableformats.write(found, form))
    return "\n\n".join(reports)


def _merge(options: argparse.Namespace) -> int:
    from agent_r1_env import runfolder

    found = runfolder.merge(options.folders, options.output)
    print(json.dumps(found.to_dict(), indent=2) if options.json else report(found))
    return 1 if found.failed else 0


def _one(
    options: argparse.Namespace,
    env_id: str,
    method: str,
    env_kwargs: dict[str, Any],
    engine: Engine | TextEngine | None,
    output: Path | None,
) -> Evaluation:
    from agent_r1_env import auto
    from agent_r1_env.engines import Sampling
    from agent_r1_env.evaluate import evaluate

    warm = 0.0 if options.samples == 1 else 1.0
    temperature = warm if options.temperature is None else options.temperature
    if engine is not None and auto.wanted(env_kwargs):
        env_kwargs = {**env_kwargs, "format": _detected(engine)}
    with progress_of(f"{env_id} {method}") as progress, _hinting(output):
        return evaluate(
            env_id,
            policy=options.policy,
            engine=engine,
            method=method,
            n=_MODEL_TASKS if options.n is None and engine is not None else options.n,
            samples=options.samples,
            env_kwargs=env_kwargs,
            seed=options.seed,
            shard=options.shard,
            sampling=Sampling(options.max_tokens, temperature, options.top_p, seed=options.seed),
            structured=options.structured,
            concurrency=options.concurrency,
            name=options.policy or options.model or getattr(engine, "model", ""),
            episodes=options.episodes,
            output=output,
            progress=progress,
        )


def _methods(given: Sequence[str] | None) -> list[str]:
    from agent_r1_env.methods import METHODS, TOOL_CALL

    names = [name for part in given or [TOOL_CALL] for name in part.split(",")]
    for name in names:
        look_up("method", name, dict.fromkeys(METHODS))
    return list(dict.fromkeys(names))


def _checked(env_id: str, methods: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of an environment, with which every method can be made."""
    from agent_r1_env import auto
    from agent_r1_env.evaluate import find_policy, make
    from agent_r1_env.methods import TOOL_CALL

    given = {key: getattr(options, key) for key in ("data", "corpus", "split", "source")}
    own = settings(options.set)
    kwargs = {key: value for key, value in given.items() if value is not None} | own
    if options.url and auto.wanted(kwargs):
        raise AgentR1Error(
            "--set format=auto reads a tokenizer, which no server shows; name the format, one of those that "
            "agent-r1 formats list shows"
        )
    made = kwargs if options.policy else auto.ignored(kwargs)
    with blaming("--set") if own else contextlib.nullcontext():
        if options.top_k is not None:
            kwargs["tool_config"] = _searching(env_id, made, options.top_k)
            made = {**made, "tool_config": kwargs["tool_config"]}
        for method in methods:
            env = make(env_id, made if method == TOOL_CALL else {**made, "method": method})
            if options.policy:
                find_policy(env, options.policy)
            env.close()
    return kwargs


def _searching(env_id: str, kwargs: dict[str, Any], top_k: int) -> dict[str, Any]:
    """``tool_config`` with the number of hits of every tool that searches."""
    from agent_r1_env.evaluate import make
    from agent_r1_env.methods import is_search

    env = make(env_id, kwargs)
    names = [name for name, tool in env.toolbox.tools.items() if is_search(tool)]
    env.close()
    if not names:
        raise AgentR1Error(f"--top-k: {env_id} has no tool that searches")
    config = dict(kwargs.get("tool_config", {}))
    return config | {name: {**config.get(name, {}), "top_k": top_k} for name in names}


def _folders(output: str | None, cells: Sequence[tuple[str, str]]) -> list[Path | None]:
    """Where the results of each environment and method go: the folder itself, or one in it for each."""
    if output is None:
        return [None] * len(cells)
    if len(cells) == 1:
        return [Path(output)]
    if (Path(output) / "run.json").exists():
        raise AgentR1Error(
            f"{output} holds a single run, and this command makes several; choose another folder"
        )
    return [Path(output) / f"{env_id.replace('/', '.')}.{method}" for env_id, method in cells]


def _engine(options: argparse.Namespace) -> Engine | TextEngine:
    if options.url and options.engine == "server":
        options.usage(f"--url answers in text; for token ids write --engine server --model {options.url}")
    if options.url:
        from agent_r1_env.engines.openai import OpenAIEngine

        return OpenAIEngine(
            options.url, options.model, key_variable=options.api_key_env, timeout=options.timeout
        )
    if options.engine != "server" and not servers(options.model):
        if options.tokenizer:
            options.usage("--tokenizer goes with --engine server")
        return load(options.model, options.engine, seed=options.seed)
    keyed = {"key_variable": options.api_key_env, "timeout": options.timeout}
    return load(options.model, options.engine, tokenizer=options.tokenizer, **keyed)


def _detected(engine: Any) -> Any:
    from agent_r1_env import formats

    found = formats.detect(engine.tokenizer)
    print(f"format {found.name}: {found.reason}", file=sys.stderr)
    return found.spec


@contextlib.contextmanager
def _hinting(output: Path | None) -> Iterator[None]:
    """Say what to do next when a run stops on its way."""
    try:
        yield
    except (KeyboardInterrupt, EngineError):
        if output is not None and (output / "episodes.jsonl").exists():
            print(f"what was done is in {output}; the same command goes on from there", file=sys.stderr)
        raise


def _shard(text: str) -> tuple[int, int]:
    """``I/K`` with I from 1 to K."""
    number, slash, parts = text.partition("/")
    if not (slash and number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise argparse.ArgumentTypeError(f"must be I/K with I from 1 to K, such as 1/4, got {text!r}")
    return int(number), int(parts)
