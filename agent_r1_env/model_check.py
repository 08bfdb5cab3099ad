"""What a model's tokenizer and chat template do with tool conversations, and what to do about it.

The tokenizer alone is loaded. `check` finds out, `render` tells a person, `ModelReport.to_dict` a program.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agent_r1_env import formats, probe, remarks
from agent_r1_env.concatenation import Concatenated
from agent_r1_env.errors import EngineError, missing_extra
from agent_r1_env.formats.detection import Detection
from agent_r1_env.formats.format import Format
from agent_r1_env.layout import Mode
from agent_r1_env.prompt import TemplateFault
from agent_r1_env.remarks import Remark
from agent_r1_env.template import ChatTemplate, PlainText, template_for

_MODES = {
    Mode.VERBATIM: "the template writes tools and results, and prints replies as they are",
    Mode.STRUCTURED: "the template writes everything, and gets calls and reasoning as data",
    Mode.FLATTENED: "the format writes tools, calls and results into system, user and assistant turns",
}


@dataclass(frozen=True)
class ModelReport:
    """All that was found out about one model.

    Attributes:
        format: the wire format that the rest is about: the one asked for, or the one detected.
        mode: a `Mode`, "plain text" without a chat template, or "" where every mode loses something.
        append_only: by what the reply holds ("call", "answer", "reasoning"), whether the next prompt begins
            with the prompt and the reply.
        grows: likewise, why the ids of the next prompt cannot be those of the prompt, the reply and more, as
            the representation "tokens" makes them; "" where they can.
        vanishing: marks of the format that a decoder which skips special tokens drops.
        stop_tokens: by id, the tokens that end a reply; ``stop_texts`` are looked for as text.
    """

    model: str
    tokenizer: str
    format: str
    detected: Detection
    mode: str
    remarks: tuple[Remark, ...]
    append_only: Mapping[str, bool] = field(default_factory=dict)
    grows: Mapping[str, str] = field(default_factory=dict)
    vanishing: tuple[str, ...] = ()
    stop_tokens: Mapping[int, str] = field(default_factory=dict)
    stop_texts: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether environments can be run with it in this format."""
        return not any(remark.status == "wrong" for remark in self.remarks)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"ready": self.ready, **asdict(self)}


def run(model: str, format: str | None = None, *, as_json: bool = False) -> tuple[int, str]:
    """The exit status, 0 when the model can be used as it is, and the report as text.

    Raises:
        EngineError: its tokenizer cannot be loaded.
        UnknownName: no such format.
    """
    asked = None if format in (None, formats.AUTO) else formats.get(format)
    report = check(load_tokenizer(model), asked, model)
    text = json.dumps(report.to_dict(), indent=2, ensure_ascii=False) if as_json else render(report)
    return (0 if report.ready else 1), text


def load_tokenizer(model: str) -> Any:
    """The tokenizer of a folder or of a model on the Hugging Face Hub.

    Raises:
        EngineError: there is none.
        MissingExtra: transformers is not installed.
    """
    folder = Path(model).expanduser()
    if model.startswith((".", "/", "~")) and not folder.is_dir():
        raise EngineError(f"cannot load the tokenizer of {model!r}: there is no such folder")
    try:
        from transformers import AutoTokenizer
    except ModuleNotFoundError as error:
        raise missing_extra(error.name or "transformers", "train") from error
    try:
        return AutoTokenizer.from_pretrained(str(folder))
    except (OSError, ValueError, KeyError) as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        raise EngineError(f"cannot load the tokenizer of {model!r}: {reason}") from error


def check(tokenizer: Any, format: Format | None = None, model: str = "") -> ModelReport:
    """Find out everything about a tokenizer and its chat template.

    Args:
        format: the wire format to judge it by; None is the one detected.
    """
    detected = formats.detect(tokenizer)
    chosen = format or detected.format
    kind = type(tokenizer).__name__
    try:
        template = template_for(tokenizer, chosen)
    except TemplateFault as fault:
        remark = Remark("mode", str(fault), "set tokenizer.chat_template to one that keeps it", "wrong")
        return ModelReport(
            model, kind, chosen.name, detected, "", (*remarks.format_remarks(detected, chosen), remark)
        )
    told = [*remarks.format_remarks(detected, chosen)]
    append_only: dict[str, bool] = {}
    grows: dict[str, str] = {}
    if isinstance(template, ChatTemplate):
        seams = _seams(template)
        append_only = {what: _extends(template, *seam) for what, seam in seams.items()}
        grows = {what: _grows(template, *seam) for what, seam in seams.items()}
        told += [
            *remarks.template_remarks(template),
            *remarks.prefix_remarks(append_only),
            *remarks.growth_remarks(grows),
        ]
    vanishing = _vanishing(tokenizer, chosen)
    if vanishing:
        told.append(remarks.vanishing_remark(vanishing))
    ids = template.stop_token_ids
    if not ids:
        told.append(Remark("stops", "no token ends a reply", "set tokenizer.eos_token", "wrong"))
    return ModelReport(
        model=model,
        tokenizer=kind,
        format=chosen.name,
        detected=detected,
        mode="plain text" if isinstance(template, PlainText) else str(getattr(template, "mode", "")),
        remarks=tuple(told),
        append_only=append_only,
        grows=grows,
        vanishing=vanishing,
        stop_tokens={token: str(tokenizer.decode([token], skip_special_tokens=False)) for token in ids},
        stop_texts=template.stop,
    )


def render(report: ModelReport) -> str:
    """The report for a person."""
    stops = [f"{text!r} ({token})" for token, text in report.stop_tokens.items()]
    stops += [f"{text!r} (as text)" for text in report.stop_texts]
    kept = [f"{what} {'yes' if held else 'no'}" for what, held in report.append_only.items()]
    grown = [f"{what} {'no' if why else 'yes'}" for what, why in report.grows.items()]
    mode = report.mode or "none"
    words = f": {_MODES[Mode(mode)]}" if mode in list(Mode) else ""
    lines = [
        f"model:       {report.model} ({report.tokenizer})",
        f"format:      {report.format}",
        f"detected:    {report.detected.name}: {report.detected.reason}",
        *(f"             - {seen}" for seen in report.detected.evidence),
        f"mode:        {mode}{words}",
        f"append-only: {', '.join(kept) or '-'}",
        f"by ids:      {', '.join(grown) or '-'}",
        f"stops:       {', '.join(stops) or '-'}",
        "",
    ]
    for remark in report.remarks:
        kind = "problem" if remark.status == "wrong" else "note"
        lines += [f"{kind}: {remark.topic}: {remark.found}", f"    {remark.do}"]
    lines += [*([""] if report.remarks else []), "ready" if report.ready else "not ready"]
    return "\n".join(lines)


Conversation = list[dict[str, Any]]


def _seams(template: ChatTemplate) -> dict[str, tuple[Conversation, str, Conversation]]:
    """Places where a conversation goes on: what stands there, the reply, and what is put behind it.

    The messages that are put behind a reply begin with the reply itself.
    """
    format = template.format
    opening, closing = format.reasoning[:2] or ("<think>", "</think>")
    begins = template.facts.opening
    # Where the prompt opened the reasoning, every reply begins in it.
    begun = begins.rstrip().endswith(opening)
    silent = f"\n{closing}\n\n" if begun else ""
    call = format.render_calls([probe.stone_call("quartz")])
    head = f"{opening}\n" if not begun else "" if begins.endswith("\n") else "\n"
    thought = f"{head}{probe.REASONING}\n{closing}\n\n{call}"
    lead = [probe.turn("system", probe.SYSTEM), probe.turn("user", probe.USER)]
    after_call, after_thought = _called(format, silent + call), _called(format, thought)
    answer = silent + probe.ANSWER
    after_answer = [probe.turn("assistant", answer), probe.turn("user", probe.AGAIN)]
    return {
        "call": (lead, silent + call, after_call),
        "answer": ([*lead, *after_call], answer, after_answer),
        "reasoning": (lead, thought, after_thought),
    }


def _called(format: Format, reply: str) -> list[dict[str, Any]]:
    calls = format.parse(reply, probe.TOOLS).calls
    results = [probe.turn("tool", probe.RESULT, tool_call_id=call.id, name=call.name) for call in calls]
    return [probe.turn("assistant", reply), *results]


def _extends(template: ChatTemplate, messages: Conversation, reply: str, more: Conversation) -> bool:
    """Whether a prompt and the reply to it are the beginning of the next prompt."""
    before = template.prompt_text(messages, probe.TOOLS)
    return template.prompt_text([*messages, *more], probe.TOOLS).startswith(before + reply)


def _grows(template: ChatTemplate, messages: Conversation, reply: str, more: Conversation) -> str:
    """Why the ids of the next prompt cannot be those of this one, the reply's and more; "" if they can."""
    prompts = Concatenated(template)
    prompts.encode("", {"messages": messages, "tools": probe.TOOLS})
    ids = template.tokenizer.encode(reply, add_special_tokens=False)
    ends = template.stop_token_ids
    prompts.reply_text(ids if not ends or (ids and ids[-1] in ends) else [*ids, ends[-1]])
    prompts.encode("", {"messages": [*messages, *more], "tools": probe.TOOLS})
    return next(iter(map(str, prompts.rewritten)), "")


def _vanishing(tokenizer: Any, format: Format) -> tuple[str, ...]:
    """What ``skip_special_tokens=True`` would drop of a call and of the marks of the format."""
    dropped: dict[str, None] = {}
    for text in (*format.markers, *format.stop, format.render_calls([probe.stone_call("quartz")])):
        for token in tokenizer.encode(text, add_special_tokens=False):
            if tokenizer.decode([token], skip_special_tokens=True) == "":
                dropped[str(tokenizer.decode([token], skip_special_tokens=False))] = None
    return tuple(mark for mark in dropped if mark.strip() and mark not in format.end_of_turn)
