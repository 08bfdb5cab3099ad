"""The context policy ``token_budget``: a prompt of a limited number of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from agent_r1_env.messages import Message
from agent_r1_env.turns import ContextPolicy, Moment, left_out, told, turn_starts, whole

Count = Callable[[str], int]


def token_budget(tokens: int) -> ContextPolicy:
    """As much of the history as ``tokens`` tokens hold.

    While it is too long, first the results of tools are cut to a short notice, the oldest first; then the
    oldest turns are left out, and the model is told behind the task how many. Last, the latest turn is cut:
    what came back for the reply, the longest first, to a common length; then the reply, from its start, since
    its calls stand at its end. The head always stays whole, even where it is too long by itself.

    Args:
        tokens: counted in the messages' contents, by the tokenizer of the environment. What the chat template
            writes around them and the descriptions of the tools come on top.

    Raises:
        ValueError: less than 1 token.
    """
    limit = whole("tokens", tokens)
    return ContextPolicy("token_budget", partial(_token_budget, limit=limit), needs_tokenizer=True)


def _token_budget(messages: Sequence[Message], moment: Moment, *, limit: int) -> Sequence[Message]:
    if moment.count is None:
        raise ValueError("the context policy 'token_budget' counts tokens; give the environment a tokenizer")
    count = _Counted(moment.count, moment.memory)
    total = _total(messages, count)
    starts = turn_starts(messages)
    if total <= limit or not starts:
        return messages
    shown, total = _cut_results(messages, range(starts[0], starts[-1]), total, limit, count)
    head, dropped = shown[: starts[0]], 0
    if total > limit:
        head, dropped = _without_turns(shown, starts, limit, count)
    older, latest = shown[starts[dropped] : starts[-1]], shown[starts[-1] :]
    room = limit - _total(head, moment.count) - _total(older, count)
    return [*head, *older, *_cut_turn(latest, room, moment.count)]


@dataclass(frozen=True, slots=True)
class _Counted:
    """Counts the tokens of each text once in an episode."""

    count: Count
    known: dict[str, int]

    def __call__(self, text: str) -> int:
        if text not in self.known:
            self.known[text] = self.count(text)
        return self.known[text]


def _total(messages: Iterable[Message], count: Count) -> int:
    return sum(count(each.content) for each in messages)


def _cut_results(
    messages: Sequence[Message], places: range, total: int, limit: int, count: _Counted
) -> tuple[list[Message], int]:
    """The messages with the oldest results of tools cut to a notice, as many as it takes, and their total."""
    shown = list(messages)
    for place in places:
        if total <= limit:
            break
        if shown[place].role != "tool":
            continue
        size = count(shown[place].content)
        notice = f"(result of {size} tokens left out)"
        if count(notice) < size:
            shown[place] = replace(shown[place], content=notice)
            total += count(notice) - size
    return shown, total


def _without_turns(
    messages: Sequence[Message], starts: Sequence[int], limit: int, count: _Counted
) -> tuple[list[Message], int]:
    """The head, which says how many of the oldest turns are left out, and how many are."""
    head = list(messages[: starts[0]])
    rest, in_head = _total(messages[starts[0] :], count), _total(head, count)
    shown = head
    for dropped, (start, end) in enumerate(pairwise(starts), start=1):
        rest -= _total(messages[start:end], count)
        # The long text is counted anew only where it may fit.
        if rest + in_head > limit and dropped < len(starts) - 1:
            continue
        shown = told(head, left_out(dropped))
        if rest + _total(shown, count.count) <= limit:
            return shown, dropped
    return shown, len(starts) - 1


def _cut_turn(turn: Sequence[Message], room: int, count: Count) -> list[Message]:
    """One turn within ``room`` tokens, or as few as are left when everything in it is cut."""
    shown = list(turn)
    if _total(shown, count) <= room:
        return shown
    reply, back = shown[0], shown[1:]
    for_back = room - count(reply.content)
    if back:
        back = [
            _cut(each, share, count) for each, share in zip(back, _shares(back, for_back, count), strict=True)
        ]
    for_reply = room - _total(back, count)
    if count(reply.content) > for_reply:
        reply = replace(reply, content=_fitting(reply.content, for_reply, count, from_end=True))
    return [reply, *back]


def _shares(messages: Sequence[Message], room: int, count: Count) -> list[int]:
    """How many tokens each message may have: the short ones all of theirs, the others the same number."""
    sizes = [count(each.content) for each in messages]
    shares, room = [0] * len(sizes), max(room, 0)
    for done, place in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        shares[place] = min(sizes[place], room // (len(sizes) - done))
        room -= shares[place]
    return shares


def _cut(message: Message, tokens: int, count: Count) -> Message:
    if count(message.content) <= tokens:
        return message
    return replace(message, content=_fitting(message.content, tokens, count))


_CUT = "(cut)"


def _fitting(text: str, tokens: int, count: Count, *, from_end: bool = False) -> str:
    """As much of a text as fits with a mark that it was cut; the mark alone where nothing does."""

    def part(length: int) -> str:
        if not length:
            return _CUT
        return f"{_CUT} {text[-length:]}" if from_end else f"{text[:length]} {_CUT}"

    fits, too_long = 0, len(text)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if count(part(middle)) <= tokens:
            fits = middle
        else:
            too_long = middle
    return min(part(fits), text, key=count)
