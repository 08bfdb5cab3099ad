from __future__ import annotations

import copy
import json
import pickle
import threading
import warnings
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_r1_env
from agent_r1_env import context, formats, testing
from agent_r1_env.context import ContextPolicy, Moment, resolve
from agent_r1_env.errors import CatalogError, ContextWarning, SummaryError, UnknownName
from agent_r1_env.loading import TargetFault
from agent_r1_env.messages import Message
from agent_r1_env.reasoning import without_reasoning

HERMES = formats.get("hermes")


def count(text: str) -> int:
    return len(text.encode())


def words(text: str) -> int:
    return len(text.split())


def moment(messages: Sequence[Message], steps_left: int = 3, **more: Any) -> Moment:
    step = sum(each.role == "assistant" for each in messages)
    return Moment(**{"step": step, "steps_left": steps_left, "format": HERMES, "count": count, **more})


def shown(policy: Any, messages: Sequence[Message], **more: Any) -> list[Message]:
    return list(resolve(policy)(messages, moment(messages, **more)))


def history(turns: int, results: int = 1, size: int = 10, system: bool = True) -> list[Message]:
    made = [Message("system", "Be good.")] if system else []
    made.append(Message("user", "What is it?"))
    for turn in range(turns):
        made.append(Message("assistant", testing.call("look", n=turn)))
        made += [Message("tool", f"{turn}" * size, f"call_{i}", "look") for i in range(results)]
    return made


def replies(messages: Sequence[Message]) -> list[str]:
    return [each.content for each in messages if each.role == "assistant"]


# -- append and window


def test_append_shows_everything() -> None:
    messages = history(5)
    assert shown("append", messages) == messages


def test_window_keeps_the_head_and_the_last_turns() -> None:
    messages = history(5, results=2)
    assert shown({"window": 2}, messages) == [*messages[:2], *messages[-6:]]


def test_window_shows_all_when_there_are_few_turns() -> None:
    assert shown({"window": 5}, history(5)) == history(5)
    assert shown({"window": 5}, history(0)) == history(0)


def test_window_tells_how_many_turns_were_left_out_if_asked() -> None:
    made = shown({"window": {"turns": 2, "notice": True}}, history(5))
    assert made[1].content == "What is it?\n\n(3 earlier turns are left out)"
    assert "(1 earlier turn is left out)" in shown([context.window(4, notice=True)], history(5))[1].content


def test_window_looks_at_what_it_shows_alone() -> None:
    class Watched(list[Message]):
        seen: ClassVar[set[int]] = set()

        def __getitem__(self, key: Any) -> Any:
            self.seen.add(key) if isinstance(key, int) else None
            return super().__getitem__(key)

    messages = Watched(history(100))
    shown({"window": 2}, messages)
    assert min(Watched.seen) >= len(messages) - 4


# -- last_turn


def test_last_turn_speaks_before_the_last_reply_only() -> None:
    messages = history(2)
    assert shown({"last_turn": "Now!"}, messages, steps_left=1) == [*messages, Message("user", "Now!")]
    assert shown("last_turn", messages, steps_left=2) == messages
    assert shown("last_turn", messages, steps_left=0) == messages


def test_last_turn_joins_what_the_user_says_last() -> None:
    messages = [*history(0), Message("assistant", "?"), Message("user", "error: no call")]
    assert shown({"last_turn": "Now!"}, messages, steps_left=1)[-1].content == "error: no call\n\nNow!"


def test_last_turn_can_join_the_result_that_the_prompt_ends_with() -> None:
    policy = {"last_turn": {"text": "Now!", "in_result": True}}
    messages = history(2, results=2)
    made = shown(policy, messages, steps_left=1)
    assert made == [*messages[:-1], Message("tool", "1111111111\n\nNow!", "call_1", "look")]
    assert shown(policy, history(0), steps_left=1)[-1].content == "What is it?\n\nNow!"


# -- rewrite


def test_rewrite_takes_a_function_of_messages_or_of_messages_and_moment() -> None:
    def first(messages: list[Message]) -> list[Message]:
        return messages[:1]

    def steps(messages: list[Message], moment: Moment) -> list[Message]:
        return [Message("user", str(moment.step))]

    assert shown({"rewrite": first}, history(2)) == history(0)[:1]
    assert shown(steps, history(2)) == [Message("user", "2")]


def test_a_function_may_change_the_list_that_it_gets() -> None:
    def popping(messages: list[Message]) -> list[Message]:
        messages.pop()
        return messages

    messages = history(2)
    assert shown(popping, messages) == messages[:-1]
    assert messages == history(2)


def test_a_function_may_return_plain_mappings() -> None:
    made = shown(lambda messages: [{"role": "tool", "content": "x", "tool_call_id": "c"}], history(1))
    assert made == [Message("tool", "x", "c")]


@pytest.mark.parametrize("wrong", [None, [], "text", 3, [3], [{"role": "user"}]], ids=repr)
def test_what_is_no_list_of_messages_is_refused_with_the_name_of_the_function(wrong: Any) -> None:
    def broken(messages: list[Message]) -> Any:
        return wrong

    with pytest.raises(TypeError, match="context policy broken returned"):
        shown(broken, history(1))


# -- token_budget


def test_token_budget_leaves_alone_what_fits() -> None:
    messages = history(3)
    total = sum(count(each.content) for each in messages)
    assert shown({"token_budget": total}, messages) == messages


def test_token_budget_cuts_the_oldest_results_first() -> None:
    messages = history(3, size=200)
    total = sum(count(each.content) for each in messages)
    made = shown({"token_budget": total - 100}, messages)
    assert made[3] == Message("tool", "(result of 200 tokens left out)", "call_0", "look")
    assert [*made[:3], *made[4:]] == [*messages[:3], *messages[4:]]


def test_token_budget_then_drops_the_oldest_turns_and_says_so() -> None:
    messages = history(6, size=200)
    made = shown({"token_budget": 420}, messages)
    assert made[1].content == "What is it?\n\n(4 earlier turns are left out)"
    assert replies(made) == replies(messages)[-2:]
    assert made[-1] == messages[-1]
    assert "left out" in made[-3].content


def test_token_budget_cuts_the_latest_turn_last_and_its_longest_result_most() -> None:
    messages = [*history(3), Message("assistant", "call"), *[Message("tool", "x" * n) for n in (5, 400, 300)]]
    made = shown({"token_budget": 200}, messages)
    *_, reply, short, long, middle = made
    assert (reply.content, short.content) == ("call", "xxxxx")
    assert long.content.endswith("x (cut)") and middle.content.endswith("x (cut)")
    assert len(long.content) == len(middle.content)
    assert 190 <= sum(count(each.content) for each in made) <= 200


def test_token_budget_cuts_a_long_reply_from_its_start() -> None:
    reply = "<think>" + "x" * 500 + "</think>" + testing.call("look", n=1)
    made = shown({"token_budget": 200}, [*history(0), Message("assistant", reply), Message("tool", "r" * 99)])
    assert made[2].content.startswith("(cut) x") and made[2].content.endswith(testing.call("look", n=1))
    assert made[3].content == "(cut)"


def test_token_budget_keeps_a_head_that_is_too_long() -> None:
    messages = history(2)
    made = shown({"token_budget": 1}, messages)
    assert made[0] == messages[0] and made[1].content.startswith("What is it?")
    assert [each.content for each in made[2:]] == ["(cut)", "(cut)"]
    assert shown({"token_budget": 1}, history(0)) == history(0)


def test_token_budget_counts_each_text_once_in_an_episode() -> None:
    asked: list[str] = []

    def counting(text: str) -> int:
        asked.append(text)
        return count(text)

    memory: dict[str, Any] = {}
    for turns in range(5):
        messages = history(turns)
        shown({"token_budget": 10_000}, messages, count=counting, memory=memory)
    assert sorted(asked) == sorted({each.content for each in history(4)})


def test_token_budget_asks_for_a_tokenizer() -> None:
    assert resolve({"token_budget": 5}).needs_tokenizer
    assert resolve(["append", {"token_budget": 5}]).needs_tokenizer
    assert not resolve({"window": 5}).needs_tokenizer
    with pytest.raises(ValueError, match="give the environment a tokenizer"):
        shown({"token_budget": 5}, history(2), count=None)


# -- strip_reasoning


@pytest.mark.parametrize(
    ("reply", "left"),
    [
        ("<think>so</think>\n\n<answer>1</answer>", "<answer>1</answer>"),
        ("so</think>\n\n<answer>1</answer>", "<answer>1</answer>"),
        ("a <think>so</think> b <think>then</think> c", "a b c"),
        ("draft <think>a</think> b</think> c", "c"),
        ("<think>never closed", ""),
        ("plain", "plain"),
    ],
)
def test_reasoning_goes_with_its_marks(reply: str, left: str) -> None:
    assert without_reasoning(reply, HERMES) == left


def test_calls_stay_as_they_were_written() -> None:
    call = testing.call("look", at="what </think> means")
    assert without_reasoning(f"<think>so</think>\n{call}", HERMES) == call
    assert without_reasoning(f"so</think>\n{call}", HERMES) == call
    assert without_reasoning(call, HERMES) == call


@pytest.mark.parametrize("name", formats.names())
def test_reasoning_of_every_format_goes_and_the_call_stays(name: str) -> None:
    format = formats.get(name)
    call = ("\n" if name == "react" else "") + format.render_call("look", {"n": 1})
    for opening, closing in zip(format.reasoning[::2], format.reasoning[1::2], strict=True):
        for reply in (f"{opening}I ponder{closing}{call}", f"I ponder{closing}{call}"):
            left, read = without_reasoning(reply, format), format.parse(reply)
            assert [(each.name, each.arguments) for each in format.parse(left).calls] == [
                (each.name, each.arguments) for each in read.calls
            ]
            assert ("ponder" in left) == ("ponder" not in read.reasoning)


def test_a_mark_that_ends_other_messages_too_ends_no_reasoning_there() -> None:
    harmony = formats.get("harmony")
    thought = "<|channel|>analysis<|message|>I ponder<|end|>"
    said = "<|start|>assistant<|channel|>commentary<|message|>I look<|end|>"
    call = f"<|start|>assistant{harmony.render_call('look', {'n': 1})}"
    assert without_reasoning(f"{thought}{said}<|start|>assistant{thought}{call}", harmony) == (
        f"{said.removeprefix('<|start|>assistant')}{call}"
    )


def test_a_reply_that_would_become_a_call_keeps_its_reasoning() -> None:
    reply = '<think>I ponder</think>Action: look\nAction Input: {"n": 1}'
    assert not formats.get("react").parse(reply).calls
    assert without_reasoning(reply, formats.get("react")) == reply


def test_a_reply_of_megabytes_of_reasoning_marks_is_stripped_in_no_time() -> None:
    assert without_reasoning("<think>x</think> a" * 10_000, HERMES).count("a") == 10_000


def test_the_latest_replies_keep_their_reasoning_if_asked() -> None:
    messages = [Message("user", "q")]
    for n in range(3):
        messages += [Message("assistant", f"<think>{n}</think>{n}"), Message("user", "go on")]
    assert replies(shown("strip_reasoning", messages)) == ["0", "1", "2"]
    assert replies(shown({"strip_reasoning": 1}, messages)) == ["0", "1", "<think>2</think>2"]
    assert shown({"strip_reasoning": {"keep_last": 5}}, messages) == messages


# -- summarise


def play(policy: Any, turns: int, memory: dict[str, Any] | None = None) -> list[list[Message]]:
    """What the model sees at each step of one episode."""
    memory = {} if memory is None else memory
    return [shown(policy, history(n), memory=memory) for n in range(turns)]


class Summariser:
    def __init__(self) -> None:
        self.asked: list[list[Message]] = []

    def __call__(self, messages: list[Message]) -> str:
        self.asked.append(messages)
        return f"summary {len(self.asked)}"


def test_summaries_are_made_when_enough_is_new_and_hold_the_ones_before() -> None:
    write = Summariser()
    views = play(context.summarise(write, after=3, keep=1), 9)
    assert [len(replies(view)) for view in views] == [0, 1, 2, 3, 1, 2, 3, 1, 2]
    assert views[-1][1].content == "What is it?\n\nSummary of earlier turns:\nsummary 2"
    assert replies(views[-1]) == replies(history(8))[-2:]
    first, second = write.asked
    assert first == history(3)
    assert second[1].content == "What is it?\n\nSummary of earlier turns:\nsummary 1"
    assert second[2:] == history(6)[8:]


def test_a_view_asked_for_again_costs_no_further_summary() -> None:
    write, memory = Summariser(), dict[str, Any]()
    policy = context.summarise(write, after=2, keep=1)
    views = [shown(policy, history(3), memory=memory) for _ in range(3)]
    assert len(write.asked) == 1 and views[0] == views[1] == views[2]


def test_the_end_of_an_episode_costs_no_summary() -> None:
    write = Summariser()
    policy = context.summarise(write, after=2, keep=1)
    shown(policy, [*history(3), Message("assistant", "<answer>1</answer>")])
    shown(policy, history(3), steps_left=0)
    assert not write.asked


def test_a_summary_can_forge_no_turn() -> None:
    made = play(context.summarise(lambda messages: "<|im_end|></tool_call>", after=1, keep=1), 3)[-1]
    assert "<|im_end|>" not in made[1].content and "</tool_call>" not in made[1].content


def test_where_a_summary_fails_the_turns_are_left_out_with_one_warning() -> None:
    def failing(messages: list[Message]) -> str:
        raise SummaryError("no power")

    memory: dict[str, Any] = {}
    with pytest.warns(ContextWarning, match="2 turns were left out .no power.") as warned:
        views = play(context.summarise(failing, after=2, keep=1), 8, memory)
    assert len(warned) == 1
    assert memory["failures"] == 3
    assert views[-1][1].content == "What is it?\n\n(6 earlier turns are left out)"


def test_a_summary_that_fails_once_is_followed_by_the_next() -> None:
    write = Summariser()

    def failing_first(messages: list[Message]) -> str:
        if not write.asked:
            write(messages)
            raise TimeoutError("slow")
        return write(messages)

    with pytest.warns(ContextWarning):
        view = play(context.summarise(failing_first, after=2, keep=1), 6)[-1]
    assert view[1].content == (
        "What is it?\n\nSummary of earlier turns:\nsummary 2\n\n(2 earlier turns are left out)"
    )


def test_a_mistake_in_a_function_that_summarises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        play(context.summarise(lambda messages: str(1 // 0), after=1, keep=1), 3)
    with pytest.raises(TypeError, match="must return text, not list"):
        play(context.summarise(lambda messages: messages, after=1, keep=1), 3)  # type: ignore[arg-type, return-value]


def test_summaries_behind_a_window_number_turns_in_the_whole_episode() -> None:
    write = Summariser()
    views = play([{"window": 4}, {"summarise": {"with": write, "after": 2, "keep": 1}}], 10)
    assert [len(replies(view)) for view in views] == [0, 1, 2, 1, 2, 1, 2, 1, 2, 1]
    told = [reply for messages in write.asked for reply in replies(messages)]
    assert told == replies(history(8))


def test_only_summaries_block() -> None:
    assert resolve({"summarise": {"with": Summariser()}}).blocking
    assert resolve(["append", {"summarise": {"with": Summariser()}}]).blocking
    assert not resolve(["append", {"window": 3}, "last_turn", "strip_reasoning"]).blocking


# -- models that summarise


class Server(HTTPServer):
    answer: bytes = b""
    status: int = 200
    seen: dict[str, Any]


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        server: Server

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.server.seen = {"path": self.path, "key": self.headers.get("Authorization"), **body}
            self.send_response(self.server.status)
            self.end_headers()
            self.wfile.write(self.server.answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def asking(server: Server, **more: Any) -> ContextPolicy:
    endpoint = {"url": f"http://127.0.0.1:{server.server_port}/v1", "model": "small", **more}
    return resolve({"summarise": {"with": endpoint, "after": 2, "keep": 1}})


def test_an_endpoint_is_asked_as_openai_is(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("httpx")
    monkeypatch.setenv("MY_KEY", "secret")
    server.answer = json.dumps({"choices": [{"message": {"content": "hm</think> It is 4."}}]}).encode()
    view = play(asking(server, api_key_env="MY_KEY", max_tokens=9), 4)[-1]
    assert view[1].content == "What is it?\n\nSummary of earlier turns:\nIt is 4."
    seen = server.seen
    assert (seen["path"], seen["key"]) == ("/v1/chat/completions", "Bearer secret")
    assert (seen["model"], seen["max_tokens"], seen["temperature"]) == ("small", 9, 0.0)
    assert [each["role"] for each in seen["messages"]] == ["user"]
    assert "[tool]\n1111111111" in seen["messages"][0]["content"]


@pytest.mark.parametrize(
    ("status", "answer", "told"),
    [
        (500, b"", "answered 500"),
        (200, b"not JSON", "no chat completion"),
        (200, b"{}", "no chat completion"),
        (200, b'{"choices": [{"message": {"content": null}}]}', "wrote no summary"),
    ],
)
def test_an_endpoint_that_fails_is_cut_around(server: Server, status: int, answer: bytes, told: str) -> None:
    pytest.importorskip("httpx")
    server.status, server.answer = status, answer
    with pytest.warns(ContextWarning, match=told):
        view = play(asking(server), 4)[-1]
    assert "(2 earlier turns are left out)" in view[1].content


def test_an_endpoint_out_of_reach_is_cut_around() -> None:
    pytest.importorskip("httpx")
    endpoint = {"url": "http://127.0.0.1:9", "model": "m"}
    with pytest.warns(ContextWarning, match="asking .* failed: ConnectError"):
        play({"summarise": {"with": endpoint, "after": 1, "keep": 1}}, 3)


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        ({"url": "http://x", "modl": "m"}, UnknownName, "did you mean 'model'"),
        ({"model": ".", "timeout": 3}, UnknownName, "no option named 'timeout'"),
        ({"url": "http://x"}, ValueError, "needs the name of a model"),
        ({}, ValueError, "needs the name of a model"),
        (3, TypeError, "not a function of messages"),
        ("./nowhere.py:f", TargetFault, "no file"),
    ],
)
def test_a_summariser_that_cannot_be_is_refused_early(wrong: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        resolve({"summarise": {"with": wrong}})


@pytest.mark.parametrize(
    ("lacking", "told"),
    [
        ({"model": "./nowhere"}, "no folder .*nowhere"),
        ({"url": "http://x", "model": "m", "api_key_env": "UNSET_KEY"}, "UNSET_KEY is not set; export it"),
    ],
)
def test_what_a_summariser_lacks_is_told_when_an_environment_is_made(lacking: Any, told: str) -> None:
    pytest.importorskip("httpx")
    pytest.importorskip("transformers")
    for spec in ({"summarise": {"with": lacking}}, ["append", {"summarise": {"with": lacking}}]):
        resolve(spec)  # an entry can be read, and its folder registered, on any machine
        with pytest.raises(ValueError, match=told):
            testing.sum_env(context=spec)


@pytest.mark.slow
def test_a_local_model_writes_summaries(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    testing.tiny_llama(tmp_path / "model", max_length=512)
    policy = {"summarise": {"with": {"model": "./model", "max_tokens": 8}, "after": 2, "keep": 1}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        views = [
            resolve(policy, tmp_path)(history(3, size=400), moment(history(3, size=400))) for _ in range(2)
        ]
    assert views[0] == views[1]
    assert "Summary of earlier turns:\n" in views[0][1].content
    assert len(replies(views[0])) == 1


# -- from a spec to a policy


def test_a_spec_is_a_name_a_mapping_a_function_a_target_or_a_list(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def tail(messages, moment, keep=1):\n    return messages[-keep:]\n"
        "def oldest(messages):\n    return messages[0].content\n"
    )
    messages = history(3)

    def view(spec: Any) -> list[Message]:
        return list(resolve(spec, tmp_path)(messages, moment(messages)))

    assert view("append") == view([]) == view(context.append) == view(context.append()) == messages
    assert view({"window": 1}) == view({"window": {"turns": 1}}) == view([context.window(1)])
    assert view({"strip_reasoning": None}) == view(context.strip_reasoning) == messages
    assert view("./mine.py:tail") == view({"rewrite": "./mine.py:tail"}) == messages[-1:]
    assert view({"./mine.py:tail": {"keep": 2}}) == messages[-2:]
    assert view(["./mine.py:tail", {"window": 1}]) == messages[-1:]
    assert view({"summarise": {"with": "./mine.py:oldest", "after": 1, "keep": 1}})[1].content == (
        "What is it?\n\nSummary of earlier turns:\nBe good."
    )


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        ("windw", UnknownName, "did you mean 'window'"),
        ("", UnknownName, "no context policy named ''"),
        ({"window": {"turn": 1}}, UnknownName, "did you mean 'turns'"),
        ("window", ValueError, "needs the option 'turns'"),
        ({"window": 0}, ValueError, "at least 1, not 0"),
        ({"window": "4"}, TypeError, "whole number, not '4'"),
        ({"window": True}, TypeError, "whole number"),
        ({"window": None, "turns": 4}, ValueError, "found the keys 'window', 'turns'"),
        ({}, ValueError, "found the keys none"),
        ({"append": 3}, TypeError, "has no options"),
        ({"token_budget": -1}, ValueError, "at least 1"),
        ({"strip_reasoning": -1}, ValueError, "at least 0"),
        ({"summarise": {"with": max, "after": 1, "keep": 2}}, ValueError, "after must be at least 2"),
        ({"summarise": {"after": 1}}, ValueError, "needs the option 'with'"),
        (7, TypeError, "not 7"),
        (lambda: 1, TypeError, "cannot be called with messages"),
        ("./nope.py:f", TargetFault, "no file"),
        ("json:decoder", TypeError, "module, not a function"),
        ({"json:dumps": 3}, TypeError, "must be a mapping"),
        (["append", ["append"]], TypeError, "a context policy is a name"),
    ],
)
def test_what_is_no_policy_is_refused_with_what_to_do(wrong: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        resolve(wrong)


def test_policies_of_a_list_are_applied_in_order_each_with_a_memory_of_its_own() -> None:
    def noting(messages: list[Message], moment: Moment) -> list[Message]:
        moment.memory["seen"] = [*moment.memory.get("seen", ()), len(messages)]
        return messages

    memory: dict[str, Any] = {}
    shown([noting, {"window": 1}, noting], history(3), memory=memory)
    assert [each["seen"] for each in memory.values() if each] == [[8], [4]]


@pytest.mark.parametrize(
    "spec",
    ["append", {"window": 1}, {"token_budget": 90}, "strip_reasoning", ["last_turn", {"window": 2}]],
    ids=str,
)
def test_policies_survive_pickling_and_copying(spec: Any) -> None:
    policy = resolve(spec)
    for other in (pickle.loads(pickle.dumps(policy)), copy.deepcopy(policy)):
        assert other(history(3), moment(history(3))) == policy(history(3), moment(history(3)))


# -- in a catalogue


ENTRY = """
name: Trip
tasks: {load: ./trip.py:tasks}
max_steps: 3
context:
"""


def catalogue(folder: Path, context: str) -> Path:
    (folder / "envs").mkdir()
    (folder / "envs" / "trip.yaml").write_text(ENTRY + context)
    (folder / "envs" / "trip.py").write_text(
        "from agent_r1_env.testing import sums as tasks\n"
        "def shout(messages, moment, mark='!'):\n"
        "    from dataclasses import replace\n"
        "    return [replace(each, content=each.content + mark) for each in messages]\n"
    )
    return folder


def test_an_entry_names_policies_and_functions_beside_it(tmp_path: Path) -> None:
    listed = "  - window: {turns: 1, notice: true}\n  - ./trip.py:shout: {mark: '?'}\n  - last_turn: Now\n"
    agent_r1_env.register(catalogue(tmp_path, listed), namespace="ContextYaml")
    env = gym.make("ContextYaml/Trip-v0")
    _, info = env.reset(seed=0, options={"task": 1})
    assert info["messages"][-1]["content"] == "What is 1 + 1??"
    env.step("one")
    _, _, _, _, info = env.step("two")
    first, second, third = [message["content"] for message in info["messages"]]
    assert first == "What is 1 + 1?\n\n(1 earlier turn is left out)?"
    assert second == "two?" and third.endswith("?\n\nNow")
    env.close()


def test_a_caller_names_policies_in_place_of_those_of_the_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_r1_env.register(catalogue(tmp_path, "  - token_budget: 9\n"), namespace="ContextCalled")
    (tmp_path / "mine.py").write_text("def last(messages):\n    return messages[-1:]\n")
    monkeypatch.chdir(tmp_path)
    env = gym.make("ContextCalled/Trip-v0", context="./mine.py:last")
    env.reset(seed=0)
    assert len(env.step("one")[4]["messages"]) == 1
    with pytest.raises(UnknownName, match="^no context policy named 'windw'"):
        gym.make("ContextCalled/Trip-v0", context="windw")
    with pytest.raises(ValueError, match="'token_budget' counts tokens; give the environment a tokenizer"):
        gym.make("ContextCalled/Trip-v0")


def test_the_line_of_a_wrong_policy_is_told(tmp_path: Path) -> None:
    folder = catalogue(tmp_path, "  - append\n  - windw: 3\n")
    with pytest.raises(CatalogError, match=r"trip.yaml:6:3.*did you mean 'window'"):
        agent_r1_env.register(folder, namespace="ContextWrong")


# -- what holds for every policy


PIECES = ["a", "b", "é", " ", "\n", "1 2 3 4 5 6 7 8", "<think>", "</think>", "<tool_call>", "</tool_call>"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    messages = [Message("system", draw(TEXTS))] if draw(st.booleans()) else []
    messages.append(Message("user", draw(TEXTS)))
    for turn in range(draw(st.integers(0, 7))):
        messages.append(Message("assistant", draw(TEXTS)))
        if draw(st.integers(0, 3)):
            ids = range(draw(st.integers(1, 3)))
            messages += [Message("tool", draw(TEXTS), f"{turn}/{i}", "look") for i in ids]
        else:
            messages.append(Message("user", draw(TEXTS)))
    return messages


POLICIES: dict[str, Any] = {
    "append": "append",
    "window": {"window": 2},
    "window with notice": {"window": {"turns": 3, "notice": True}},
    "token_budget": {"token_budget": 120},
    "strip_reasoning": {"strip_reasoning": 1},
    "summarise": {"summarise": {"with": lambda messages: f"{len(messages)}", "after": 3, "keep": 1}},
    "last_turn": "last_turn",
}
IDEMPOTENT = [name for name in POLICIES if name != "summarise"]  # its memory says what it did
LISTS = st.lists(st.sampled_from(sorted(POLICIES)), min_size=1, max_size=4, unique=True)


def check_view(messages: list[Message], view: Sequence[Message]) -> None:
    """The head is there, the order is kept, and no result is without its reply."""
    head = [each for each in messages if each.role == "system" or each is messages[0]]
    task = next(each for each in messages if each.role == "user")
    assert [each for each in view if each.role == "system"] == [
        each for each in head if each.role == "system"
    ]
    assert next(each for each in view if each.role == "user").content.startswith(task.content)
    turns = [_turn(messages, start) for start in range(len(messages)) if messages[start].role == "assistant"]
    seen = [_turn(view, start) for start in range(len(view)) if view[start].role == "assistant"]
    # Whole turns are left out from the front, and those that stay hold all their results.
    kept = turns[len(turns) - len(seen) :]
    assert [[each[1] for each in turn] for turn in kept] == [
        [each[1] for each in turn if each[0] == "tool"] for turn in seen
    ]


def _turn(messages: Sequence[Message], start: int) -> list[tuple[str, str | None]]:
    turn: list[tuple[str, str | None]] = []
    for each in messages[start + 1 :]:
        if each.role == "assistant":
            break
        if each.role == "tool":
            turn.append((each.role, each.call_id))
    return turn


@settings(max_examples=150, deadline=None)
@given(histories(), LISTS, st.integers(0, 2))
def test_any_policies_in_any_order_keep_head_order_and_results(
    messages: list[Message], names: list[str], steps_left: int
) -> None:
    before = list(messages)
    policy = resolve([POLICIES[name] for name in names])
    memory: dict[str, Any] = {}
    now = moment(messages, steps_left, memory=memory)
    unchanged = copy.deepcopy(memory)
    view = policy(messages, now)
    assert messages == before
    check_view(messages, view)
    again = policy(messages, moment(messages, steps_left, memory=unchanged))
    assert again == view and unchanged == memory


@settings(max_examples=150, deadline=None)
@given(histories(), st.integers(1, 400), st.sampled_from([count, words]))
def test_token_budget_holds_wherever_the_head_leaves_room(
    messages: list[Message], tokens: int, count: Any
) -> None:
    view = shown({"token_budget": tokens}, messages, count=count)
    check_view(messages, view)
    total = sum(count(each.content) for each in view)
    latest = [n for n, each in enumerate(messages) if each.role == "assistant"][-1:]
    floor = sum(count(each.content) for each in messages[: latest[0]] if each.role != "tool") if latest else 0
    marks = (len(messages) - latest[0]) * count("(cut)") if latest else 0
    if latest and tokens >= floor + marks + count("\n\n(7 earlier turns are left out)"):
        assert total <= tokens


@settings(max_examples=100, deadline=None)
@given(histories(), st.sampled_from(IDEMPOTENT))
def test_a_policy_changes_nothing_in_what_it_made(messages: list[Message], name: str) -> None:
    for steps_left in (1, 2):
        view = shown(POLICIES[name], messages, steps_left=steps_left)
        assert shown(POLICIES[name], view, steps_left=steps_left) == view
