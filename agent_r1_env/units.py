"""Units of measurement: their names, and what they are in base units, as exact fractions."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

Dimension = tuple[tuple[str, int], ...]
"""Powers of base units by name, in order, none of them 0."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit.

    Attributes:
        factor: how many base units it is.
        zero: what 0 of it is in base units; only temperatures have one.
    """

    name: str
    factor: Fraction
    dimension: Dimension
    zero: Fraction = field(default=Fraction(0))


# Base units are the metre, kilogram, second, ampere, kelvin, mole, turn and bit.
_BASE = ("m", "kg", "s", "A", "K", "mol", "turn", "bit")
_PREFIXES = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_SMALL = {"d": 1, "c": 2, "m": 3, "u": 6, "µ": 6, "μ": 6, "n": 9, "p": 12}
_LONG = {
    "kilo": "k",
    "mega": "M",
    "giga": "G",
    "tera": "T",
    "deci": "d",
    "centi": "c",
    "milli": "m",
    "micro": "u",
}
_LONG |= {"nano": "n", "pico": "p"}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50}
# 2 pi in so many digits that a float cannot tell it from the true one.
_TAU = Fraction(6283185307179586476925286766559005768, 10**36)

# Name, size, in which unit (with powers), other names. A size is a fraction, such as "1/360".
_UNITS = """
min        60             s                 minute minutes mins
h          60             min               hr hrs hour hours
d          24             h                 day days
week       7              d                 weeks wk
year       365.25         d                 years yr yrs
month      1/12           year              months
in         0.0254         m                 inch inches
ft         12             in                foot feet
yd         3              ft                yard yards
mi         1760           yd                mile miles
nmi        1852           m                 nauticalmile nauticalmiles
au         149597870700   m                 AU
ly         9460730472580800 m               lightyear lightyears
ha         10000          m^2               hectare hectares
acre       4840           yd^2              acres ac
sqft       1              ft^2
sqm        1              m^2
gal        231            in^3              gallon gallons
qt         1/4            gal               quart quarts
pt         1/2            qt                pint pints
cup        1/2            pt                cups
floz       1/8            cup               fl_oz
tbsp       1/2            floz              tablespoon tablespoons
tsp        1/3            tbsp              teaspoon teaspoons
cc         1              cm^3
lb         0.45359237     kg                lbs pound pounds
oz         1/16           lb                ounce ounces
st         14             lb                stone stones
ton        2000           lb                tons
t          1000           kg                tonne tonnes
mph        1              mi/h
kph        1              km/h              kmh kmph
mps        1              m/s
fps        1              ft/s
kn         1              nmi/h             knot knots kt
lbf        4.4482216152605 N
psi        1              lbf/in^2
bar        100000         Pa
mbar       100            Pa
atm        101325         Pa
mmHg       133.322387415  Pa                torr
cal        4.184          J                 calorie calories
kcal       4184           J                 Cal
Wh         3600           J
BTU        1055.05585262  J                 Btu
hp         550            ft*lbf/s          horsepower
rpm        1              turn/min
deg        1/360          turn              degree degrees °
B          8              bit               byte bytes
bps        1              bit/s
"""
# Name, size, unit, other names: these take prefixes, such as in km and kilometres.
_PREFIXED = """
m          1              m                 meter meters metre metres
g          0.001          kg                gram grams gramme grammes
s          1              s                 second seconds sec secs
A          1              A                 amp amps ampere amperes
mol        1              mol               mole moles
L          0.001          m^3               l liter liters litre litres
Hz         1              1/s               hertz
N          1              kg*m/s^2          newton newtons
Pa         1              N/m^2             pascal pascals
J          1              N*m               joule joules
W          1              J/s               watt watts
V          1              W/A               volt volts
ohm        1              V/A               ohms Ω
coulomb    1              A*s               coulombs
farad      1              coulomb/V         farads
eV         1.602176634e-19 J
"""
_KELVIN = {"K": "kelvin kelvins", "degC": "C °C celsius Celsius", "degF": "F °F fahrenheit Fahrenheit"}
_BITS = {"bit": "bits b", "B": "byte bytes"}


def find(name: str) -> Unit | None:
    """The unit of that name, spelt in another case if that leaves no doubt; None if there is none."""
    known = names()
    if name in known:
        return known[name]
    return _folded().get(name.lower())


@functools.cache
def names() -> Mapping[str, Unit]:
    """Every unit by every name."""
    known = {base: Unit(base, Fraction(1), ((base, 1),)) for base in _BASE}
    known["rad"] = Unit("rad", 1 / _TAU, (("turn", 1),))
    known |= dict.fromkeys(("radian", "radians"), known["rad"])
    known |= dict.fromkeys(("turns", "rev", "revolution", "revolutions"), known["turn"])
    _add_temperatures(known)
    _add_bits(known)
    for line in _PREFIXED.strip().splitlines():
        name, size, of, *others = line.split()
        unit = _made(known, name, Fraction(size), of)
        for each in (name, *others):
            known[each] = unit
        _add_prefixed(known, unit, others)
    for line in _UNITS.strip().splitlines():
        name, size, of, *others = line.split()
        unit = _made(known, name, Fraction(size), of)
        for each in (name, *others):
            known[each] = unit
    for prefix, large in _PREFIXES.items():
        wh = known["Wh"]
        known[f"{prefix}Wh"] = Unit(f"{prefix}Wh", wh.factor * large, wh.dimension)
        known[f"{prefix}bps"] = Unit(f"{prefix}bps", Fraction(large), known["bps"].dimension)
    return known


@functools.cache
def _folded() -> dict[str, Unit]:
    """Units by name in lower case, where that names one unit only."""
    found: dict[str, Unit | None] = {}
    for name, unit in names().items():
        low = name.lower()
        found[low] = unit if low not in found or found[low] is unit else None
    return {name: unit for name, unit in found.items() if unit is not None and len(name) > 1}


def _add_temperatures(known: dict[str, Unit]) -> None:
    kelvin = (("K", 1),)
    made = {
        "K": known["K"],
        "degC": Unit("C", Fraction(1), kelvin, Fraction("273.15")),
        "degF": Unit("F", Fraction(5, 9), kelvin, Fraction("273.15") - 32 * Fraction(5, 9)),
    }
    for name, others in _KELVIN.items():
        known |= dict.fromkeys((name, *others.split()), made[name])


def _add_bits(known: dict[str, Unit]) -> None:
    for name, others in _BITS.items():
        unit = known.get(name) or Unit(name, Fraction(8), (("bit", 1),))
        known |= dict.fromkeys((name, *others.split()), unit)
        sizes = _PREFIXES | {prefix: 2**power for prefix, power in _BINARY.items()}
        for prefix, large in sizes.items():
            made = Unit(f"{prefix}{name}", unit.factor * large, unit.dimension)
            known |= dict.fromkeys((f"{prefix}{name}", f"{prefix}{name[0]}"), made)
    for word, prefix in (("kilo", "k"), ("mega", "M"), ("giga", "G"), ("tera", "T")):
        for name, plain in (("byte", "B"), ("bit", "bit")):
            known |= dict.fromkeys((f"{word}{name}", f"{word}{name}s"), known[f"{prefix}{plain}"])


def _add_prefixed(known: dict[str, Unit], unit: Unit, others: list[str]) -> None:
    sizes = {prefix: Fraction(large) for prefix, large in _PREFIXES.items()}
    sizes |= {prefix: Fraction(1, 10**power) for prefix, power in _SMALL.items()}
    short = [unit.name, *(name for name in others if len(name) == 1)]
    for prefix, size in sizes.items():
        made = Unit(f"{prefix}{unit.name}", unit.factor * size, unit.dimension)
        for name in short:
            known.setdefault(f"{prefix}{name}", made)
    for word, prefix in _LONG.items():
        for name in others:
            if len(name) > 3:
                known.setdefault(f"{word}{name}", known[f"{prefix}{unit.name}"])


def _made(known: Mapping[str, Unit], name: str, size: Fraction, of: str) -> Unit:
    """A unit by its size in other units, such as ``kg*m/s^2``."""
    factor, powers = size, dict[str, int]()
    sign = 1
    for part in of.replace("*", " * ").replace("/", " / ").split():
        if part in "*/":
            sign = 1 if part == "*" else -1
            continue
        base, _, power = part.partition("^")
        if base == "1":
            continue
        unit, count = known[base], sign * int(power or 1)
        factor *= unit.factor**count
        for dimension, times in unit.dimension:
            powers[dimension] = powers.get(dimension, 0) + times * count
    return Unit(name, factor, dimension_of(powers))


def dimension_of(powers: Mapping[str, int]) -> Dimension:
    """Powers by base unit, as a dimension."""
    return tuple(sorted((base, power) for base, power in powers.items() if power))
