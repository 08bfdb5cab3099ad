"""The calculator: arithmetic with units, worked out by a parser of our own and never run as code."""

from __future__ import annotations

from agent_r1_env import expression as expressions


def calculate(expression: str) -> str:
    """Work out one expression; the text of its result, or a ``ToolError`` that says what is wrong where.

    - Whole numbers and fractions are exact, so that 0.1 + 0.2 is 0.3 and 2^100 has all its digits; roots,
      logarithms and the like are rounded to 15 digits.
    - ``log`` is to base 10. ``round`` takes halves away from zero.
    - ``x + 10%`` adds a tenth of x. ``%`` before a number, a name or a parenthesis is the rest of a division.
    - A comma within a number separates groups of three digits, except among the arguments of a function.
    - ``-2^2`` is -4, and ``2^3^2`` is 2^9. A unit belongs to the number before it: 100 km / 2 h is 50 km/h.
    - Angles without a unit are in radians. ``C`` and ``F`` are temperatures. A year has 365.25 days, and
      gallons, pints and cups are those of the US.
    """
    return expressions.evaluate(expression)
