"""``agent-r1 rollout``: play episodes, here or on Ray, and stream them into one file."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from agent_r1_env.command import (
    add_data,
    blaming,
    count,
    not_negative,
    own_stdout,
    positive,
    settings,
    share,
)
from agent_r1_env.errors import AgentR1Error, EngineError, WorkerLost
from agent_r1_env.eval_screen import progress_of

if TYPE_CHECKING:
    from agent_r1_env.elsewhere import PolicySpec
    from agent_r1_env.engines import Engine, TextEngine
    from agent_r1_env.play import EpisodeRequest
    from agent_r1_env.rollout import Rollout
    from agent_r1_env.store import Plan, Tally


def add_parser(commands: Any, own: argparse.ArgumentParser) -> None:
    """Add the command to those of the command line; ``own`` has the options of folders of one's own."""
    parser = commands.add_parser(
        "rollout", parents=[own], help="play episodes, here or on Ray, into one file"
    )
    parser.add_argument("env", metavar="ENV", help="for example AgentR1/HotpotQA-v0")
    who = parser.add_argument_group("who answers (one of these)")
    who.add_argument("--policy", metavar="NAME", help="a scripted policy of the environment, such as oracle")
    who.add_argument(
        "--model",
        metavar="MODEL",
        help="URLs of vLLM servers, with commas between them; or a folder or name on the Hugging Face Hub, "
        "which is loaded here",
    )
    who.add_argument("--tokenizer", metavar="PATH", help="of the servers' model (default: what they name)")
    what = parser.add_argument_group("what is played")
    add = what.add_argument
    add("--n", type=count, metavar="N", help="episodes in all (default: --samples of each task)")
    add("--samples", type=count, default=1, metavar="K", help="episodes of each task (default: 1)")
    add("--seed", type=int, default=0, metavar="S", help="of tasks, policy and model (default: 0)")
    add_data(what)
    add("--set", metavar="KEY=VALUE", action="append", help="any argument of the environment")
    add("--temperature", type=not_negative, default=1.0, metavar="T", help="of a model (default: 1)")
    add("--top-p", type=share, default=1.0, metavar="P", help="default: 1")
    add("--max-tokens", type=count, default=256, metavar="N", help="of one reply (default: 256)")
    where = parser.add_argument_group("where it is played")
    add = where.add_argument
    add(
        "--executor",
        choices=("local", "ray"),
        default="local",
        help="play in this process, or on Ray actors (default: local)",
    )
    add("--workers", type=count, metavar="N", help="actors of Ray (default: 2)")
    add("--concurrency", type=count, default=64, metavar="C", help="episodes at once, of all (default: 64)")
    add("--address", metavar="ADDRESS", help="of a running Ray cluster (default: RAY_ADDRESS, or a new one)")
    add(
        "--import",
        dest="imports",
        metavar="MODULE",
        action="append",
        default=[],
        help="a module that registers the environment; may be given again",
    )
    add(
        "--max-attempts",
        type=count,
        metavar="N",
        help="actors that may die over an episode before it is given up (default: 3)",
    )
    results = parser.add_argument_group("where the episodes go")
    add = results.add_argument
    add("--output", metavar="FILE", required=True, help="one episode a line, written as each ends")
    add("--resume", action="store_true", help="go on with the file: play what it lacks")
    add("--time-limit", type=positive, metavar="S", help="stop after so long; --resume goes on")
    add("--no-ids", action="store_true", help="leave out token ids and log-probs")
    add("--json", action="store_true", help="print JSON alone")
    parser.set_defaults(run=_run, usage=parser.error)


def _run(options: argparse.Namespace) -> int:
    from agent_r1_env.episode import EpisodeFile
    from agent_r1_env.store import Tally, kept

    spec = _policy(options)
    path = Path(options.output)
    if path.is_dir():
        raise AgentR1Error(f"--output {path} is a folder; name a file, such as {path / 'episodes.jsonl'}")
    kwargs, plan = _planned(options)
    before = set()
    if path.exists() and path.stat().st_size:
        if not options.resume:
            raise AgentR1Error(f"{path} exists; go on with it by --resume, or choose another file")
        before = kept(path, options.env, plan)
    tally = Tally()
    with own_stdout(), _stoppable(), contextlib.ExitStack() as stack:
        rollout = stack.enter_context(_rollout(options, spec, kwargs))
        file = stack.enter_context(EpisodeFile(path, not options.no_ids))
        show = stack.enter_context(progress_of(options.env))
        tally.began = time.monotonic()
        requests = _until(options.time_limit, plan.requests(before))
        try:
            asyncio.run(
                _stream(rollout, requests, file, tally, lambda done: show(len(before) + done, plan.n))
            )
        except (KeyboardInterrupt, EngineError, WorkerLost):
            if tally.episodes:
                print(f"{tally.episodes} episodes more are in {path}; --resume goes on", file=sys.stderr)
            raise
        facts = _facts(tally, rollout, len(before), plan, path)
    print(json.dumps(facts, indent=2) if options.json else _report(options.env, facts))
    return 1 if facts["failed"] or facts["missing"] else 0


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGTERM end the run as Ctrl-C does, with nothing left behind."""
    if threading.current_thread() is not threading.main_thread():  # only that one may have handlers
        yield
        return

    def end(*_: Any) -> None:
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # of what a script began with "&"
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


async def _stream(
    rollout: Rollout, requests: Iterator[EpisodeRequest], file: Any, tally: Tally, tell: Callable[[int], Any]
) -> None:
    """Write down each episode as it ends."""
    async with aclosing(rollout.stream(requests)) as episodes:
        async for episode in episodes:
            if tally.add(episode):
                file.append(episode)
                tell(tally.episodes)


def _until(seconds: float | None, requests: Iterator[EpisodeRequest]) -> Iterator[EpisodeRequest]:
    """The requests, until the time is up: those behind are not even begun."""
    if seconds is None:
        return requests
    end = time.monotonic() + seconds
    return itertools.takewhile(lambda _: time.monotonic() < end, requests)


def _policy(options: argparse.Namespace) -> PolicySpec:
    from agent_r1_env.elsewhere import PolicySpec
    from agent_r1_env.engines.loading import servers

    if (options.policy is None) == (options.model is None):
        options.usage("give either --policy or --model")
    urls = servers(options.model or "")
    if options.tokenizer is not None and not urls:
        options.usage("--tokenizer is that of servers, which --model names by their URLs")
    if options.executor == "local":
        for name in ("workers", "address", "max_attempts"):
            if getattr(options, name) is not None:
                options.usage(f"--{name.replace('_', '-')} is of --executor ray")
    if options.policy is not None:
        return PolicySpec(policy=options.policy)
    if urls:
        return PolicySpec(urls=tuple(urls), tokenizer=options.tokenizer)
    if ":" in options.model and not Path(options.model).exists():
        raise AgentR1Error(
            f"--model {options.model} names neither a model nor servers only; write http://host:port, with "
            "commas between several"
        )
    if options.executor == "ray":
        raise AgentR1Error(
            f"--model {options.model} is loaded by the process that plays, and actors share none; serve it "
            "with `vllm serve` and give --model the URL, or leave --executor ray out"
        )
    return PolicySpec(model=options.model, options={"seed": options.seed})


def _planned(options: argparse.Namespace) -> tuple[dict[str, Any], Plan]:
    """The arguments of the environment and what is to be played; the environment is made once to see them."""
    from agent_r1_env import auto
    from agent_r1_env.elsewhere import EnvOrigin, import_all
    from agent_r1_env.env import ToolEnv
    from agent_r1_env.evaluate import find_policy
    from agent_r1_env.store import Plan

    own = settings(options.set)
    files = {name: getattr(options, name) for name in ("data", "corpus")}
    kwargs = {name: str(Path(path).absolute()) for name, path in files.items() if path is not None} | own
    import_all(options.imports)
    if options.executor == "ray":
        EnvOrigin.of(options.env, options.imports)  # a mistake shows before Ray is started
    with blaming("--set") if own else contextlib.nullcontext():
        env = gym.make(options.env, disable_env_checker=True, **auto.ignored(kwargs))
    try:
        bare = env.unwrapped
        ids = [task.id for task in bare.tasks] if isinstance(bare, ToolEnv) else None
        if options.policy is not None:
            if not isinstance(bare, ToolEnv):
                raise AgentR1Error(f"{options.env} is no ToolEnv and has no policies; give --model")
            find_policy(bare, options.policy)
    finally:
        env.close()
    if options.n is None and ids is None:
        raise AgentR1Error(f"{options.env} has no list of tasks; say how many episodes with --n")
    n = options.n if options.n is not None else len(ids or ()) * options.samples
    return kwargs, Plan(n, options.samples, options.seed, ids)


@contextlib.contextmanager
def _rollout(options: argparse.Namespace, spec: PolicySpec, kwargs: Mapping[str, Any]) -> Iterator[Rollout]:
    """What plays, closed afterwards with its engine."""
    from agent_r1_env.engines import Sampling
    from agent_r1_env.policy_rollout import PolicyRollout
    from agent_r1_env.rollout import Rollout

    common: dict[str, Any] = {
        "concurrency": options.concurrency,
        "sampling": Sampling(options.max_tokens, options.temperature, options.top_p, seed=options.seed),
        "time_limit": options.time_limit,
    }
    engine: Engine | TextEngine | None = None
    if options.executor == "ray":
        from agent_r1_env.dispatch import MAX_ATTEMPTS
        from agent_r1_env.ray_executor import RayRollout

        made: Rollout = RayRollout(
            options.env,
            kwargs,
            policy=spec,
            workers=options.workers or 2,
            imports=options.imports,
            address=options.address,
            max_attempts=options.max_attempts or MAX_ATTEMPTS,
            **common,
        )
    elif spec.policy is not None:
        made = PolicyRollout(options.env, kwargs, policy=spec.policy, **common)
    else:
        engine = spec.engine()
        try:
            made = Rollout(options.env, kwargs, engine=engine, **common)
        except BaseException:
            engine.close()
            raise
    try:
        with made:
            yield made
    finally:
        if engine is not None:
            engine.close()


def _facts(tally: Tally, rollout: Rollout, before: int, plan: Plan, path: Path) -> dict[str, Any]:
    """What came of it, as plain data."""
    return {
        "episodes": tally.episodes,
        "before": before,
        "missing": plan.n - before - tally.episodes,
        "failed": tally.failed,
        "stop_reasons": dict(tally.stops.most_common()),
        "reward": tally.mean_reward,
        "steps": tally.steps,
        "seconds": tally.seconds,
        "episodes_per_second": tally.episodes / tally.seconds,
        "tokens": tally.tokens,
        "tokens_per_second": tally.tokens / tally.seconds,
        "redone": getattr(rollout, "redone", 0),
        "workers_lost": getattr(rollout, "lost", 0),
        "output": str(path),
    }


def _report(env_id: str, facts: Mapping[str, Any]) -> str:
    """The same for a person."""
    stops = ", ".join(f"{reason} {number}" for reason, number in facts["stop_reasons"].items())
    reward = "none" if facts["reward"] is None else f"{facts['reward']:.3f}"
    lines = [
        f"{env_id}: {facts['episodes']} episodes in {facts['seconds']:.1f} s",
        f"  reward         {reward}",
        f"  ended by       {stops or 'nothing'}",
        f"  episodes/s     {facts['episodes_per_second']:.1f}",
    ]
    if facts["tokens"]:
        lines.append(f"  tokens/s       {facts['tokens_per_second']:.0f}")
    if facts["workers_lost"]:
        lines.append(f"  workers lost   {facts['workers_lost']}, {facts['redone']} episodes begun again")
    if facts["failed"]:
        lines.append(f"  failed         {facts['failed']} episodes whose environment or worker broke")
    if facts["before"]:
        lines.append(f"  from before    {facts['before']} episodes")
    if facts["missing"]:
        lines.append(f"  missing        {facts['missing']}; the same command with --resume goes on")
    return "\n".join([*lines, f"episodes: {facts['output']}"])
