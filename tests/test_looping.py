"""Coroutines run to their end from plain code."""

from __future__ import annotations

import asyncio

import pytest

from agent_r1_env import looping


class Large:
    shown = 0

    def __repr__(self) -> str:
        self.shown += 1
        return "large"


async def given(value: object) -> object:
    await asyncio.sleep(0)
    return value


def test_no_text_is_made_of_what_comes_back() -> None:
    large = Large()
    assert looping.run(given(large), "test") is large
    assert not large.shown


def test_it_runs_beside_a_loop_that_runs_already() -> None:
    async def main() -> object:
        return looping.run(given(7), "test")

    assert asyncio.run(main()) == 7


@pytest.mark.parametrize("aside", [False, True])
def test_what_it_raises_is_raised(aside: bool) -> None:
    async def broken() -> None:
        raise ValueError("broken")

    async def main() -> None:
        looping.run(broken(), "test")

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(main()) if aside else looping.run(broken(), "test")
