from __future__ import annotations

import inspect

import pytest

from agent_r1_env.docstrings import read_docstring

GOOGLE = """Weather of a city
today.

More about it.

Args:
    city (str, optional): City name: any
        language.
    spans (list[tuple(int, int)]): which days.
    *rest: others.

Returns:
    text: not an argument.
"""
NUMPY = """Weather of a city
today.

More about it.

Parameters
----------
city : str, optional
    City name: any
    language.
spans : list of tuple
    which days.
*rest
    others.

Returns
-------
text : str
    not an argument.
"""
SPHINX = """Weather of a city
today.

More about it.

:param city: City name: any
    language.
:type city: str
:param list spans: which days.
:param *rest: others.
:returns: text: not an argument.
:raises ValueError: never.
"""


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX, SPHINX.replace("\n:", "\n@")])
def test_every_style_says_the_same(text: str) -> None:
    head, told = read_docstring(text)
    assert head == "Weather of a city today. More about it."
    assert told == {"city": "City name: any language.", "spans": "which days.", "rest": "others."}


def test_several_names_of_numpy_share_a_text() -> None:
    assert read_docstring("X.\n\nParameters\n----------\nx, y : int\n    Where.\n")[1] == {
        "x": "Where.",
        "y": "Where.",
    }


def test_text_behind_a_section_is_no_argument() -> None:
    head, told = read_docstring("Do.\n\nArgs:\n    a: one.\n\nNote that b: is not.\n    c: neither.\n")
    assert (head, told) == ("Do.", {"a": "one."})


@pytest.mark.parametrize(
    "text", ["", "Uses :class:`X` well.", ":class:`X` does it.", "Parameters matter.", "@home: all day."]
)
def test_what_looks_like_a_field_may_be_text(text: str) -> None:
    assert read_docstring(text) == (text, {})


def test_the_docstrings_of_this_package_are_read() -> None:
    head, told = read_docstring(inspect.getdoc(inspect.cleandoc) or "")
    assert head and not told
