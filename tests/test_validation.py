from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from agent_r1_env.validation import validator, with_defaults


def test_a_reference_to_elsewhere_is_never_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: Any, **__: Any) -> None:
        pytest.fail("went to the network")

    monkeypatch.setattr(urllib.request, "urlopen", fetch)
    with pytest.raises(Exception, match="Unresolvable: https://a.invalid/b"):
        validator(json.dumps({"$ref": "https://a.invalid/b"})).is_valid({})


def test_validators_are_compiled_once() -> None:
    text = json.dumps({"type": "object", "title": "once"})
    assert validator(text) is validator(text)


def test_defaults_leave_what_is_there_and_what_they_do_not_describe() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"default": 1},
            "b": True,
            "pair": {"type": "array", "prefixItems": [{}], "items": {"properties": {"c": {"default": 2}}}},
        },
    }
    value = {"a": None, "pair": [{}, {}, "x"], "other": {}}
    assert with_defaults(value, validator(json.dumps(schema))) == {
        "a": None,
        "pair": [{}, {"c": 2}, "x"],
        "other": {},
    }
