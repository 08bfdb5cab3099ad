"""Making text of others harmless: no tag in it can be taken for a turn, a call or a result."""

from __future__ import annotations

import re

_TAGS = (
    *("tool_call", "tool_calls", "tool_response", "tool_result", "tools", "think", "function_results"),
    *("function_calls", "arg_key", "arg_value", "s", "bos", "eos", "pad", "unk"),
    *("start_of_turn", "end_of_turn", "start_function_call", "end_function_call", "escape"),
    *("start_function_response", "end_function_response"),
    *("start_function_declaration", "end_function_declaration"),
)
_BRACKETS = (
    *("INST", "SYSTEM_PROMPT", "TOOL_CALLS", "TOOL_RESULTS", "TOOL_CONTENT", "AVAILABLE_TOOLS"),
    *("ARGS", "CALL_ID", "THINK"),
)
_FORGEABLE = re.compile(
    r"<(?=[|｜][^<>\n]{0,64}?[|｜]?>"
    r"|/?[|｜]DSML[|｜]"
    r"|[a-z_]{1,24}\|>"
    rf"|/?(?:{'|'.join(_TAGS)})>"
    r"|/?(?:function|parameter)[=>])"
    rf"|\[(?=/?(?:{'|'.join(_BRACKETS)})\])",
    re.IGNORECASE,
)


def defuse(text: str) -> str:
    """The text with a space put into every tag and special token that could forge a turn.

    One list serves all formats, since a result may be read by a model of any family.
    """
    if "<" not in text and "[" not in text:  # a hundred times faster than the search
        return text
    return _FORGEABLE.sub(lambda match: match.group() + " ", text)
