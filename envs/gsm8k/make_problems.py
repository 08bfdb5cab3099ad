"""Makes the embedded word problems, in the official form of GSM8K.

Run it to write `train.jsonl.gz` and `validation.jsonl.gz` beside it; the same seeds give the same rows
anywhere:

    python envs/gsm8k/make_problems.py

The people and what they do are invented. Each problem takes two to six steps; each step stands in the
solution with its calculation as `<<3*4=12>>`, and the last line is `#### ` and the result.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import random
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from pathlib import Path

SEEDS = {"train": 1, "validation": 2}
PROBLEMS = {"train": 420, "validation": 210}

NAMES = (
    "Amira", "Bela", "Carlo", "Dunya", "Emil", "Farah", "Goran", "Hana", "Ivo", "Jamila", "Kofi", "Lena",
    "Milos", "Nadia", "Oskar", "Priya", "Quim", "Rosa", "Sami", "Tara", "Umut", "Vera", "Wen", "Yara",
    "Zoltan",
)  # fmt: skip
FRUIT = ("apples", "pears", "plums", "oranges", "peaches", "figs", "lemons", "mangoes")
GOODS = ("notebooks", "candles", "mugs", "scarves", "lamps", "puzzles", "baskets", "bowls")
TREASURES = ("stamps", "marbles", "shells", "coins", "stickers", "postcards", "buttons", "badges")
ANIMALS = ("hens", "ducks", "geese", "quails")
DRINKS = ("lemonade", "cocoa", "tea", "juice")
VEHICLES = ("bus", "truck", "tram", "van")
OPERATIONS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
}


class Unfit(Exception):
    """The numbers that were drawn make no good problem."""


class Problem:
    """A problem in the making: its sentences, and the steps that solve it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.text: list[str] = []
        self.lines: list[str] = []
        self.result = ""
        self.who, self.friend = rng.sample(NAMES, 2)

    def say(self, *sentences: str) -> None:
        self.text += sentences

    def step(self, sentence: str, expression: str, unit: str = "") -> str:
        """Add a step whose calculation stands for {} in the sentence; returns its result.

        Raises:
            Unfit: it is negative or zero, or has more than two decimals.
        """
        value = _value(ast.parse(expression, mode="eval").body)
        if value <= 0 or value >= 100_000 or (value * 100).denominator != 1:
            raise Unfit
        self.result = _written(value)
        self.lines.append(
            sentence.format(f"{expression} = {unit}<<{expression}={self.result}>>{self.result}")
        )
        return self.result

    def row(self) -> dict[str, str]:
        return {"question": " ".join(self.text), "answer": "\n".join([*self.lines, f"#### {self.result}"])}


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.BinOp):
        return OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.Constant):
        return Fraction(str(node.value))
    raise TypeError(f"no arithmetic: {ast.dump(node)}")


def _written(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.2f}".rstrip("0")


def shopping(p: Problem) -> None:
    first, second = p.rng.sample(GOODS, 2)
    n, m, price, other = (p.rng.randint(*span) for span in ((2, 9), (2, 6), (3, 18), (2, 12)))
    p.say(f"{p.who} buys {n} {first} for ${price} each and {m} {second} for ${other} each.")
    cost = p.step(f"The {first} cost {{}} dollars.", f"{n}*{price}", "$")
    more = p.step(f"The {second} cost {{}} dollars.", f"{m}*{other}", "$")
    total = p.step("Together that is {} dollars.", f"{cost}+{more}", "$")
    if p.rng.random() < 0.5:
        off = p.rng.choice((10, 20, 25, 50))
        p.say(f"The shop takes {off}% off the whole bill.")
        saved = p.step("The reduction is {} dollars.", f"{total}*{off}/100", "$")
        total = p.step("So the bill is {} dollars.", f"{total}-{saved}", "$")
    if p.rng.random() < 0.6:
        note = p.rng.choice([value for value in (50, 100, 200, 500) if value > float(total)])
        p.say(f"{p.who} pays with ${note}. How many dollars of change does {p.who} get?")
        p.step(f"{p.who} gets {{}} dollars back.", f"{note}-{total}", "$")
    else:
        p.say(f"How many dollars does {p.who} pay?")


def collection(p: Problem) -> None:
    things = p.rng.choice(TREASURES)
    start, daily, days = p.rng.randint(8, 60), p.rng.randint(2, 12), p.rng.randint(3, 14)
    p.say(f"{p.who} has {start} {things} and finds {daily} more every day for {days} days.")
    found = p.step(f"{p.who} finds {{}} {things}.", f"{daily}*{days}")
    total = p.step(f"Then there are {{}} {things}.", f"{start}+{found}")
    if p.rng.random() < 0.5:
        part = p.rng.choice((2, 3, 4))
        share = {2: "half", 3: "a third", 4: "a quarter"}[part]
        p.say(f"Then {p.who} gives {share} of all {things} to {p.friend}.")
        given = p.step(f"{p.friend} gets {{}} {things}.", f"{total}/{part}")
        _whole(given)
        total = p.step(f"{p.who} keeps {{}} {things}.", f"{total}-{given}")
    if p.rng.random() < 0.5:
        boxes = p.rng.randint(2, 6)
        p.say(f"What {p.who} has is put into {boxes} boxes, the same number in each.")
        p.say(f"How many {things} are in one box?")
        _whole(p.step(f"Each box holds {{}} {things}.", f"{total}/{boxes}"))
    else:
        p.say(f"How many {things} does {p.who} have in the end?")


def wages(p: Problem) -> None:
    hours, pay, extra = p.rng.randint(4, 9), p.rng.randint(9, 24), p.rng.randint(2, 8)
    days, rent = p.rng.randint(3, 6), p.rng.randint(40, 220)
    p.say(f"{p.who} works {hours} hours a day, {days} days a week, and earns ${pay} an hour.")
    p.say(f"This week {p.who} also worked {extra} extra hours, each paid one and a half times as much.")
    total = p.step(f"{p.who} works {{}} hours a week.", f"{hours}*{days}")
    usual = p.step("The usual hours bring {} dollars.", f"{total}*{pay}", "$")
    rate = p.step("An extra hour brings {} dollars.", f"{pay}*1.5", "$")
    more = p.step("The extra hours bring {} dollars.", f"{extra}*{rate}", "$")
    earned = p.step("Together that is {} dollars.", f"{usual}+{more}", "$")
    if p.rng.random() < 0.5:
        p.say(f"How many dollars are left when {p.who} has paid ${rent} of rent?")
        p.step("After the rent {} dollars are left.", f"{earned}-{rent}", "$")
    else:
        p.say(f"How many dollars did {p.who} earn this week?")


def journey(p: Problem) -> None:
    vehicle = p.rng.choice(VEHICLES)
    speed, hours, slow, rest = (p.rng.randint(*span) for span in ((4, 9), (2, 6), (2, 5), (1, 4)))
    p.say(
        f"A {vehicle} drives {speed * 10} km an hour for {hours} hours, then {slow * 10} km an hour for",
        f"{rest} {'hours' if rest > 1 else 'hour'}.",
    )
    first = p.step("The first part is {} km long.", f"{speed * 10}*{hours}")
    second = p.step("The second part is {} km long.", f"{slow * 10}*{rest}")
    way = p.step("The whole way is {} km long.", f"{first}+{second}")
    if p.rng.random() < 0.5:
        p.say("What was its average speed over the whole time, in km an hour?")
        time = p.step("It takes {} hours.", f"{hours}+{rest}")
        p.step("The average is {} km an hour.", f"{way}/{time}")
    else:
        use, price = p.rng.randint(5, 20), p.rng.choice(("1.5", "1.6", "1.75", "2"))
        p.say(f"It needs {use} litres of fuel for every 100 km, and a litre costs ${price}.")
        p.say("How many dollars does the fuel for the whole way cost?")
        fuel = p.step("It needs {} litres.", f"{way}/100*{use}")
        p.step("They cost {} dollars.", f"{fuel}*{price}", "$")


def recipe(p: Problem) -> None:
    drink, fruit = p.rng.choice(DRINKS), p.rng.choice(FRUIT)
    need, cups, guests, each = (p.rng.randint(*span) for span in ((2, 7), (3, 8), (6, 30), (1, 4)))
    have = p.rng.randint(2, 15)
    p.say(f"For {cups} cups of {drink} {p.who} needs {need} {fruit}. {guests} guests come, and each drinks")
    p.say(f"{each} {'cups' if each > 1 else 'cup'}. {p.who} has {have} {fruit} already.")
    p.say(f"How many more {fruit} does {p.who} need?")
    total = p.step(f"The guests drink {{}} cups of {drink}.", f"{guests}*{each}")
    times = p.step("That is the recipe {} times.", f"{total}/{cups}")
    _whole(times)
    fruits = p.step(f"It needs {{}} {fruit}.", f"{times}*{need}")
    p.step(f"{p.who} still needs {{}} {fruit}.", f"{fruits}-{have}")


def farm(p: Problem) -> None:
    animals = p.rng.choice(ANIMALS)
    count, eggs, eaten, size = (p.rng.randint(*span) for span in ((6, 40), (3, 6), (2, 20), (4, 12)))
    price = p.rng.randint(2, 7)
    p.say(
        f"{p.who} keeps {count} {animals}. Each lays {eggs} eggs a week. The family eats {eaten} eggs a week,"
    )
    p.say(f"and the others are sold in boxes of {size} for ${price} a box.")
    laid = p.step(f"The {animals} lay {{}} eggs.", f"{count}*{eggs}")
    left = p.step("{} eggs are sold.", f"{laid}-{eaten}")
    boxes = p.step("They fill {} boxes.", f"{left}/{size}")
    _whole(boxes)
    income = p.step("They bring {} dollars a week.", f"{boxes}*{price}", "$")
    weeks = p.rng.randint(2, 12)
    p.say(f"How many dollars does {p.who} get in {weeks} weeks?")
    p.step(f"In {weeks} weeks that is {{}} dollars.", f"{income}*{weeks}", "$")


def reading(p: Problem) -> None:
    pages, daily, days, faster = (p.rng.randint(*span) for span in ((12, 60), (8, 30), (3, 9), (2, 15)))
    p.say(
        f"A book has {pages * 10} pages. {p.who} reads {daily} pages a day for {days} days, and from then on"
    )
    p.say(f"{faster} pages more a day than before. How many days does the whole book take?")
    read = p.step(f"In the first days {p.who} reads {{}} pages.", f"{daily}*{days}")
    left = p.step("{} pages are left.", f"{pages * 10}-{read}")
    rate = p.step(f"Then {p.who} reads {{}} pages a day.", f"{daily}+{faster}")
    rest = p.step("They take {} days.", f"{left}/{rate}")
    _whole(rest)
    p.step("The whole book takes {} days.", f"{days}+{rest}")


def hall(p: Problem) -> None:
    rows, seats, share, price = (p.rng.randint(*span) for span in ((8, 30), (10, 25), (1, 9), (4, 15)))
    p.say(f"A hall has {rows} rows of {seats} seats. {share * 10}% of the seats are taken,")
    p.say(f"and every ticket costs ${price}. How many dollars do the tickets bring?")
    total = p.step("The hall has {} seats.", f"{rows}*{seats}")
    taken = p.step("{} of them are taken.", f"{total}*{share * 10}/100")
    _whole(taken)
    p.step("The tickets bring {} dollars.", f"{taken}*{price}", "$")


def comparison(p: Problem) -> None:
    things, third = (
        p.rng.choice(TREASURES),
        p.rng.choice([name for name in NAMES if name not in (p.who, p.friend)]),
    )
    start, times, more = p.rng.randint(5, 40), p.rng.randint(2, 5), p.rng.randint(3, 30)
    p.say(
        f"{p.who} has {start} {things}. {p.friend} has {times} times as many, and {third} has {more} fewer",
        f"than {p.friend}.",
    )
    second = p.step(f"{p.friend} has {{}} {things}.", f"{start}*{times}")
    last = p.step(f"{third} has {{}} {things}.", f"{second}-{more}")
    total = p.step(f"Together they have {{}} {things}.", f"{start}+{second}+{last}")
    if p.rng.random() < 0.4:
        p.say(f"They share all their {things} equally. How many does each of the three get?")
        _whole(p.step(f"Each gets {{}} {things}.", f"{total}/3"))
    else:
        p.say(f"How many {things} do the three have together?")


def savings(p: Problem) -> None:
    monthly, months, spent, goal = (p.rng.randint(*span) for span in ((4, 30), (3, 11), (10, 60), (200, 900)))
    p.say(
        f"{p.who} wants a bicycle that costs ${goal}. {p.who} saves ${monthly * 5} a month for {months}",
    )
    p.say(f"months, but spends ${spent} of it on a gift. How many dollars are still missing?")
    saved = p.step(f"{p.who} saves {{}} dollars.", f"{monthly * 5}*{months}", "$")
    left = p.step("After the gift {} dollars are left.", f"{saved}-{spent}", "$")
    p.step("{} dollars are missing.", f"{goal}-{left}", "$")


def garden(p: Problem) -> None:
    length, width, price = p.rng.randint(6, 40), p.rng.randint(4, 25), p.rng.choice(("2.5", "3", "4.2", "6"))
    p.say(f"{p.who} has a garden {length} m long and {width} m wide.")
    if p.rng.random() < 0.5:
        gate = p.rng.randint(1, 4)
        p.say(f"All around it comes a fence, but for a gate {gate} m wide. A metre of fence costs ${price}.")
        p.say("How many dollars does the fence cost?")
        half = p.step("Two sides together are {} m long.", f"{length}+{width}")
        around = p.step("All four are {} m long.", f"{half}*2")
        fence = p.step("Without the gate that is {} m.", f"{around}-{gate}")
        p.step("The fence costs {} dollars.", f"{fence}*{price}", "$")
    else:
        share, weight = p.rng.choice((2, 4, 5)), p.rng.randint(2, 6)
        name = {2: "half", 4: "quarter", 5: "fifth"}[share]
        p.say(f"One {name} of it is planted with potatoes,")
        p.say(f"and a square metre gives {weight} kg. How many kg of potatoes does {p.who} get?")
        area = p.step("The garden has {} square metres.", f"{length}*{width}")
        planted = p.step("{} of them are planted.", f"{area}/{share}")
        p.step("They give {} kg.", f"{planted}*{weight}")


def ages(p: Problem) -> None:
    age, times, years = p.rng.randint(4, 15), p.rng.randint(2, 5), p.rng.randint(3, 20)
    p.say(f"{p.who} is {age} years old. {p.friend} is {times} times as old.")
    p.say(f"How old will both be together in {years} years?")
    other = p.step(f"{p.friend} is {{}} years old.", f"{age}*{times}")
    now = p.step("Together they are {} years old now.", f"{age}+{other}")
    more = p.step("Both together grow older by {} years.", f"{years}*2")
    p.step("Then they are {} years old together.", f"{now}+{more}")


def tank(p: Problem) -> None:
    size, fill, leak, minutes = (p.rng.randint(*span) for span in ((20, 90), (6, 25), (2, 5), (3, 30)))
    p.say(
        f"A tank holds {size * 10} litres and is empty. A pipe brings {fill} litres a minute, while {leak}",
    )
    p.say(f"litres a minute run out. After {minutes} minutes the leak is closed.")
    p.say("How many more minutes does it take to fill the tank?")
    gain = p.step("The tank gains {} litres a minute.", f"{fill}-{leak}")
    inside = p.step("When the leak is closed it holds {} litres.", f"{gain}*{minutes}")
    left = p.step("{} litres are missing.", f"{size * 10}-{inside}")
    p.step("That takes {} minutes.", f"{left}/{fill}")


def team(p: Problem) -> None:
    boys, girls, groups = p.rng.randint(8, 40), p.rng.randint(8, 40), p.rng.randint(2, 9)
    away = p.rng.randint(2, 12)
    p.say(f"{boys} boys and {girls} girls want to play, but {away} of them are ill.")
    p.say(f"The others make {groups} teams of the same size. How many children are in a team?")
    total = p.step("There are {} children.", f"{boys}+{girls}")
    there = p.step("{} can play.", f"{total}-{away}")
    _whole(p.step("A team has {} children.", f"{there}/{groups}"))


KINDS = (
    shopping, collection, wages, journey, recipe, farm, reading,
    hall, comparison, savings, garden, ages, tank, team,
)  # fmt: skip


def _whole(number: str) -> None:
    """Make sure that a number of things is one.

    Raises:
        Unfit: it is not.
    """
    if "." in number:
        raise Unfit


def problems(split: str) -> list[dict[str, str]]:
    """The problems of one split; every kind has as many."""
    rng = random.Random(SEEDS[split])
    made: dict[str, dict[str, str]] = {}
    while len(made) < PROBLEMS[split]:
        problem = Problem(rng)
        try:
            KINDS[len(made) % len(KINDS)](problem)
        except Unfit:
            continue
        row = problem.row()
        made.setdefault(row["question"], row)
    rows = [*made.values()]
    rng.shuffle(rows)
    return [{"id": f"{split}-{number:03d}", **row} for number, row in enumerate(rows)]


def encode(rows: Iterable[Mapping[str, str]]) -> bytes:
    """Rows as the text that the files hold."""
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the word problems of both splits.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write into")
    folder = parser.parse_args().out
    for split in SEEDS:
        rows, path = problems(split), folder / f"{split}.jsonl.gz"
        path.write_bytes(gzip.compress(encode(rows), 9, mtime=0))
        print(f"{path}: {len(rows)} problems, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
