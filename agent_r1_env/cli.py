"""The command line, ``agent-r1 COMMAND``: each command calls the module of its name."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium as gym

import agent_r1_env
from agent_r1_env import audit_cli, eval_cli, export_cli, rollout_cli
from agent_r1_env.command import add_data, blaming, count, own_stdout, settings
from agent_r1_env.errors import AgentR1Error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit status: 0 when all went well, 1 when the command ran and found something amiss, 2 for a
        mistake in what was asked, 130 after Ctrl-C.
    """
    options = _parser().parse_args(eval_cli.joined(sys.argv[1:] if arguments is None else arguments))
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            if options.register is not None:
                with blaming("--register"), own_stdout():
                    agent_r1_env.register(options.register, options.namespace)
            status = int(options.run(options))
            sys.stdout.flush()
            return status
        except (AgentR1Error, gym.error.Error) as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError) as error:
            print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
            return 2
        except BrokenPipeError:  # the reader of a pipe, such as head, has had enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 0
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agent-r1", description="Tool environments for language models.")
    parser.add_argument("--version", action="version", version=f"agent-r1 {agent_r1_env.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument(
        "--register", metavar="FOLDER", help="a folder of your own with tools/, envs/, trainers/"
    )
    own.add_argument("--namespace", metavar="NAME", default="Me", help="of its environments (default: Me)")
    eval_cli.add_parsers(commands, own)
    _add_score(commands.add_parser("score", help="score a file of predictions as the official scripts do"))
    _add_check(commands.add_parser("check", parents=[own], help="try the contract on an environment"))
    rollout_cli.add_parser(commands, own)
    _add_train(commands.add_parser("train", parents=[own], help="train a model with a recipe"))
    _add_list(commands.add_parser("list", parents=[own], help="show what is there"))
    _add_serve_search(commands.add_parser("serve-search", help="serve BM25 search over a file of paragraphs"))
    _add_tools(commands.add_parser("tools", help="check, list, show and call tools"), own)
    _add_formats(commands.add_parser("formats", help="show the wire formats, or read a reply with one"))
    audit_cli.add_parser(commands)
    export_cli.add_parser(commands)
    doctor = commands.add_parser("doctor", help="show what is installed and what fits together")
    _add_doctor(doctor)
    return parser


def _add_score(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dataset", metavar="NAME", required=True, help="hotpotqa, 2wiki or musique")
    add("--predictions", metavar="FILE", required=True, help="in the form that the data set's script takes")
    add("--gold", metavar="FILE", required=True, help="the data set's own file, or its Hugging Face form")
    add("--aliases", metavar="FILE", help="the alias file of 2wiki: Q_id, aliases, demonyms as JSON lines")
    parser.set_defaults(run=_score, register=None)


def _add_train(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("recipe", metavar="RECIPE", help="a YAML file, or the name of a built-in recipe")
    add("--model", metavar="PATH", help="where to start from")
    add("--output", metavar="FOLDER", help="for all results (default: out/NAME)")
    add("--seed", type=int, metavar="S")
    add("--resume", action="store_true", help="go on from the last checkpoint")
    add_data(parser)
    add("--no-loss-mask", action="store_true", help="ablation: train on tool output too")
    add("--set", metavar="KEY=VALUE", action="append", help="override a key of the recipe")
    parser.set_defaults(run=_train)


def _add_check(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("env", metavar="ENV", nargs="?", help="any id, for example AgentR1/HotpotQA-v0")
    add("--rule", metavar="NAME", action="append", default=[], help="only this rule; may be given again")
    add("--set", metavar="KEY=VALUE", action="append", help="any argument of the environment")
    add("--seed", type=int, default=0, metavar="S", help="of all that is drawn (default: 0)")
    add("--json", action="store_true", help="print JSON alone")
    add("--rules", action="store_true", help="print the rules instead")
    parser.set_defaults(run=_check)


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    parser.set_defaults(run=_list)


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", metavar="PATH", help="show instead what a model's chat template does with tools")
    add("--format", metavar="NAME", help="the wire format to judge it by (default: the one it speaks)")
    add("--json", action="store_true", help="print JSON alone")
    parser.set_defaults(run=_doctor, register=None)


def _add_serve_search(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("corpus", metavar="CORPUS", help="paragraphs as JSON lines: title and text, or contents")
    add("--index", metavar="FOLDER", help="where indexes are saved (default: the user's cache)")
    add("--host", metavar="NAME", default="127.0.0.1", help="default: 127.0.0.1, this machine alone")
    add("--port", type=int, metavar="N", default=8000, help="default: 8000; 0 takes a free one")
    add("--top-k", type=count, metavar="K", default=3, help="hits for who asks for no number (default: 3)")
    parser.set_defaults(run=_serve_search, register=None)


def _add_tools(parser: argparse.ArgumentParser, own: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    check = commands.add_parser("check", help="find every fault in the tools of a folder")
    check.add_argument("folder", metavar="FOLDER", help="with tools/ in it, or that folder, or one file")
    check.set_defaults(run=_tools_check, register=None)
    show = commands.add_parser("list", parents=[own], help="show every tool")
    show.add_argument("--json", action="store_true", help="print JSON alone")
    show.set_defaults(run=_tools_list)
    one = commands.add_parser("show", parents=[own], help="show what a tool is, takes and may do")
    one.add_argument("name", metavar="NAME", help="of a tool, or its YAML file")
    one.add_argument("--json", action="store_true", help="print JSON alone")
    one.set_defaults(run=_tools_show)
    call = commands.add_parser(
        "call", parents=[own], help="run a tool once and print what a model would read"
    )
    add = call.add_argument
    add("name", metavar="NAME", help="of a tool, or its YAML file")
    add(
        "arguments",
        metavar="ARGUMENTS",
        nargs="?",
        default="{}",
        help="""such as '{"query": "x"}', or x alone if there is no other argument; - reads standard input""",
    )
    add("--config", metavar="KEY=VALUE", action="append", help="in place of a value under config")
    add("--seed", type=int, default=0, metavar="S", help="of tools that draw at random (default: 0)")
    add("--json", action="store_true", help="print the whole record of the call")
    call.set_defaults(run=_tools_call)
    schema = commands.add_parser("schema", help="print the JSON Schema of such files, for editors")
    schema.set_defaults(run=_tools_schema, register=None)


def _add_formats(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    show = commands.add_parser("list", help="show every format")
    show.add_argument("--json", action="store_true", help="print JSON alone")
    show.set_defaults(run=_formats_list, register=None)
    read = commands.add_parser("parse", help="print what a reply on standard input holds, as JSON")
    add = read.add_argument
    add("format", metavar="NAME", help="of a format, such as hermes")
    add("--tools", metavar="FILE", help="a JSON list of tool schemas; types bare arguments")
    add("--jsonl", action="store_true", help='one {"raw": REPLY, "tools": [...]} a line, tools if you like')
    add("--repair", action="store_true", help="mend mild mistakes that leave no doubt")
    read.set_defaults(run=_formats_parse, register=None)


def _score(options: argparse.Namespace) -> int:
    from agent_r1_env import score_cli

    return score_cli.run(options.dataset, options.predictions, options.gold, aliases=options.aliases)


def _train(options: argparse.Namespace) -> int:
    from agent_r1_env import train

    train.run(
        options.recipe,
        model=options.model,
        output=options.output,
        seed=options.seed,
        resume=options.resume,
        data=options.data,
        corpus=options.corpus,
        loss_mask=False if options.no_loss_mask else None,
        overrides=settings(options.set),
    )
    return 0


def _check(options: argparse.Namespace) -> int:
    from agent_r1_env import check_cli

    if options.rules:
        return check_cli.rules()
    if options.env is None:
        raise AgentR1Error("which environment? for example: agent-r1 check AgentR1/HotpotQA-v0")
    given = settings(options.set)
    with blaming("--set") if given else contextlib.nullcontext():
        return check_cli.run(options.env, given, rules=options.rule, seed=options.seed, as_json=options.json)


def _list(options: argparse.Namespace) -> int:
    from agent_r1_env import formats, reward
    from agent_r1_env.catalog import Catalog

    folders = [None] if options.register is None else [None, options.register]
    catalogs = [Catalog.open(folder) for folder in folders]
    ours = {env_id: spec.entry_point for env_id, spec in gym.registry.items() if "folder" in spec.kwargs}
    of_tools = {env_id for env_id, made_by in ours.items() if str(made_by).endswith(":make_tool_env")}
    found = {
        "environments": sorted(ours.keys() - of_tools),
        "tool environments": sorted(of_tools),
        "tools": [name for catalog in catalogs for name in catalog.names("tool")],
        "recipes": [name for catalog in catalogs for name in catalog.names("recipe")],
        "formats": formats.names(),
        "reward terms": sorted(reward.TERMS),
    }
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(f"{title + ':':18} {', '.join(names) or 'none'}" for title, names in found.items()))
    return 0


def _serve_search(options: argparse.Namespace) -> int:
    from agent_r1_env import serve_search

    given = {name: getattr(options, name) for name in ("index", "host", "port", "top_k")}
    return serve_search.run(options.corpus, **given)


def _tools_check(options: argparse.Namespace) -> int:
    from agent_r1_env import tools_cli

    lines: list[str] = []
    with own_stdout():
        status = tools_cli.check(options.folder, lines.append)
    print("\n".join(lines))
    return status


def _tools_list(options: argparse.Namespace) -> int:
    from agent_r1_env import tools_cli

    lines: list[str] = []
    with own_stdout():
        tools_cli.show_all(options.register, options.namespace, as_json=options.json, write=lines.append)
    print("\n".join(lines))
    return 0


def _tools_show(options: argparse.Namespace) -> int:
    from agent_r1_env import tools_cli

    where = options.register, options.namespace
    lines: list[str] = []
    with own_stdout():
        tools_cli.show(options.name, *where, as_json=options.json, write=lines.append)
    print("\n".join(lines))
    return 0


def _tools_call(options: argparse.Namespace) -> int:
    from agent_r1_env import tools_cli

    config = settings(options.config, "--config")
    with own_stdout():
        status, text = tools_cli.call(
            options.name,
            options.arguments,
            options.register,
            config=config,
            seed=options.seed,
            as_json=options.json,
        )
    print(text)
    return status


def _tools_schema(options: argparse.Namespace) -> int:
    from agent_r1_env import tools_cli

    print(json.dumps(tools_cli.schema(), indent=2))
    return 0


def _formats_list(options: argparse.Namespace) -> int:
    from agent_r1_env import formats_cli

    return formats_cli.show(as_json=options.json)


def _formats_parse(options: argparse.Namespace) -> int:
    from agent_r1_env import formats_cli

    return formats_cli.parse(options.format, tools=options.tools, jsonl=options.jsonl, repair=options.repair)


def _doctor(options: argparse.Namespace) -> int:
    if options.model is not None:
        from agent_r1_env import model_check

        with own_stdout():
            status, text = model_check.run(options.model, options.format, as_json=options.json)
        print(text)
        return status
    if options.format is not None:
        raise AgentR1Error("--format goes with --model: a wire format is judged by a model's chat template")
    from agent_r1_env import doctor

    return doctor.run(as_json=options.json)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
