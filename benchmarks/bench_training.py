"""The rows of the table about what lies between an episode and the trainer."""

from __future__ import annotations

from bench_line import Line, Settings
from contest import BenchError


def trajectory(settings: Settings) -> list[Line]:
    raise BenchError("not written yet")


def vllm(settings: Settings) -> list[Line]:
    raise BenchError("not written yet")
