"""What of a reply is its answer, and the many ways of typing the same mathematics made one."""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Callable

_BOX = re.compile(r"\\(?:boxed|fbox)\s*(\{?)")
_ANSWER = re.compile(r"\banswer(?:\s{1,9}is\b|\s{0,9}[:=])\s{0,9}:?", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\.\s|\n")
_NUMBER = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+")
_CURRENCY = "$€£¥₹"

_TYPED = str.maketrans(
    {
        "−": "-", "–": "-", "—": "-", "×": "*", "·": "*", "⋅": "*", "∙": "*", "∗": "*", "÷": "/", "∕": "/",
        "⁄": "/", "π": " pi ", "√": "\\sqrt ", "∞": "\\infty ", "≤": "\\le ", "≥": "\\ge ", "≠": "\\ne ",
        "±": "\\pm ", "∪": "\\cup ", "∈": "\\in ", "≈": "=", "°": "", "∅": "\\emptyset ", "’": "'",
    }
)  # fmt: skip
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_Replacement = str | Callable[[re.Match[str]], str]
_SPELLINGS: tuple[tuple[str, _Replacement], ...] = (
    (r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda match: "^{" + match.group().translate(_RAISED) + "}"),
    (
        r"([0-9]?)([¼½¾⅐-⅞])",
        lambda match: f"{match[1]} {unicodedata.normalize('NFKC', match[2]).replace('⁄', '/')} ",
    ),
    (r"\\begin\s*\{[pbvBV]?matrix\}", r"\\matrix "),
    (r"\\end\s*\{[pbvBV]?matrix\}", r"\\endmatrix "),
    (r"\\\\(?:\[[0-9a-z]*\])?", r"\\row "),
    (r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|limits)(?![A-Za-z])", ""),
    (r"\{\s*,\s*\}|,\\!|\\,(?=[0-9]{3}(?![0-9]))", ","),
    (r"\\[$€£¥₹]|[$€£¥₹]", ""),
    (r"\\[()\[\]]", ""),
    (r"\\[,;:! ]|\\(?:quad|qquad)(?![A-Za-z])|~|&nbsp;", " "),
    (r"\\%", "%"),
    (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
    (r"\\(?:text(?:bf|it|rm|normal)?|mbox|hbox|math(?:rm|bf|it)|operatorname)\s*\{([^{}]*)\}", r" \1 "),
    (r"\^\s*(?:\\circ|\{\s*\\circ\s*\}|\\degree)|\\degree|\\circ(?![A-Za-z])", ""),
    (r"(?<=[0-9])\s*[xX]\s*(?=10\s*\^)", "*"),
    (r"\*\*(?=[^*])", "^"),
    (r"(?i)\b(?:minus|negative)\s+(?=[0-9.\\(])", "-"),
    (r"(?i)\s*\bper\s?cent\b", "%"),
    *((rf"(?i)(?<=[0-9])\s*\b{word}s?\b", f"*10^{power}") for word, power in _SCALES.items()),
)
_REWRITES = [(re.compile(pattern), replacement) for pattern, replacement in _SPELLINGS]


def final_answer(text: str) -> str:
    r"""The part of a reply that is its answer: the first of these that is there.

    What is in the last ``\boxed{}``; what follows the last ``####`` on its line; what follows the last
    "answer is" or "answer:" in its sentence; the whole text.
    """
    if (boxed := _last_boxed(text)) is not None:
        return boxed.strip()
    if "####" in text:
        return text.rpartition("####")[2].strip().partition("\n")[0].strip()
    starts = [match.end() for match in _ANSWER.finditer(text)]
    said = text[starts[-1] :].strip("* \t\r\n") if starts else ""
    return _SENTENCE_END.split(said, maxsplit=1)[0].strip() if said else text.strip()


def final_number(text: str) -> str | None:
    """The last number of a text, without commas and currency; None if it holds none.

    A minus sign belongs to it unless something stands right before that sign: "10-5" ends in 5.
    """
    matches = deque(_NUMBER.finditer(text), maxlen=1)
    if not matches:
        return None
    last = matches[0]
    before = text[max(0, last.start() - 3) : last.start()].rstrip(_CURRENCY)
    signed = before[-1:] in ("-", "−") and not before[-2:-1].isalnum() and before[-2:-1] != ")"
    return "-" * signed + last.group().replace(",", "")


def numbers_in(text: str) -> list[str]:
    """The numbers of a text as they stand there, without signs."""
    return _NUMBER.findall(text)


def plain(text: str) -> str:
    r"""The same mathematics with one spelling for each thing.

    Dollar signs and other currency, degrees, sizes of brackets and white space of LaTeX go; ``\text{}`` gives
    its contents; Unicode signs become LaTeX or ASCII.
    """
    text = " ".join(text.strip("* \t\r\n").split()).translate(_TYPED)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return " ".join(unicodedata.normalize("NFKC", text).split()).rstrip(" .")


def _last_boxed(text: str) -> str | None:
    boxes = deque(_BOX.finditer(text), maxlen=1)
    if not boxes:
        return None
    box = boxes[0]
    rest = text[box.end() :]
    if not box[1]:  # as in "\\boxed 5": the next word
        return rest.split(maxsplit=1)[0] if rest.strip() else ""
    depth = 1
    for brace in re.finditer(r"[{}]", rest):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return rest[: brace.start()]
    return rest
