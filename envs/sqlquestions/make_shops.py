"""Makes the embedded databases: two chains of invented shops, one for each split.

Run it to write `train.sql.gz` and `validation.sql.gz` beside it; the same seeds give the same rows anywhere:

    python envs/sqlquestions/make_shops.py

Nobody and nothing in them exists. Every name is put together from fixed lists of generated words; each name
is used once in a database, so that it says which row is meant.
"""

from __future__ import annotations

import argparse
import gzip
import random
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from pathlib import Path

SEEDS = {"train": 1, "validation": 2}

SCHEMA = """\
CREATE TABLE city (id INTEGER PRIMARY KEY, name TEXT NOT NULL, region TEXT NOT NULL, people INTEGER NOT NULL);
CREATE TABLE shop (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  city_id INTEGER NOT NULL REFERENCES city (id),
  opened TEXT NOT NULL, -- as YYYY-MM-DD
  floor_area INTEGER NOT NULL -- in square metres
);
CREATE TABLE employee (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  shop_id INTEGER NOT NULL REFERENCES shop (id),
  role TEXT NOT NULL,
  salary INTEGER NOT NULL, -- a year
  hired TEXT NOT NULL, -- as YYYY-MM-DD
  manager_id INTEGER REFERENCES employee (id)
);
CREATE TABLE supplier (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  city_id INTEGER NOT NULL REFERENCES city (id)
);
CREATE TABLE product (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  category TEXT NOT NULL,
  price REAL NOT NULL,
  supplier_id INTEGER NOT NULL REFERENCES supplier (id)
);
CREATE TABLE customer (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  city_id INTEGER NOT NULL REFERENCES city (id),
  born INTEGER, -- the year, where it is known
  joined TEXT NOT NULL -- as YYYY-MM-DD
);
CREATE TABLE purchase (
  id INTEGER PRIMARY KEY,
  customer_id INTEGER NOT NULL REFERENCES customer (id),
  shop_id INTEGER NOT NULL REFERENCES shop (id),
  day TEXT NOT NULL, -- as YYYY-MM-DD
  paid_by TEXT NOT NULL
);
CREATE TABLE purchase_line (
  purchase_id INTEGER NOT NULL REFERENCES purchase (id),
  product_id INTEGER NOT NULL REFERENCES product (id),
  quantity INTEGER NOT NULL,
  PRIMARY KEY (purchase_id, product_id)
);
CREATE TABLE review (
  id INTEGER PRIMARY KEY,
  customer_id INTEGER NOT NULL REFERENCES customer (id),
  product_id INTEGER NOT NULL REFERENCES product (id),
  stars INTEGER NOT NULL, -- from 1 to 5
  day TEXT NOT NULL -- as YYYY-MM-DD
);
"""

ROLES = ("cashier", "baker", "driver", "buyer", "cleaner", "guard")
CATEGORIES = ("tools", "toys", "tea", "lamps", "paper", "garden", "sport")
THINGS = {
    "tools": ("hammer", "saw", "drill", "wrench"),
    "toys": ("kite", "puzzle", "robot", "ball"),
    "tea": ("green tea", "black tea", "herbal tea", "iced tea"),
    "lamps": ("desk lamp", "lantern", "floor lamp", "torch"),
    "paper": ("notebook", "envelope", "calendar", "card"),
    "garden": ("rake", "hose", "spade", "planter"),
    "sport": ("racket", "helmet", "rope", "mat"),
}
PAYMENTS = ("card", "cash", "voucher")
Row = tuple[object, ...]


def _words(count: int, endings: str, rng: random.Random) -> list[str]:
    words: dict[str, None] = {}
    while len(words) < count:
        stem = "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(rng.choice((1, 2))))
        words[(stem + rng.choice(endings.split())).capitalize()] = None
    return list(words)


_rng = random.Random(0)
FIRST_NAMES = _words(90, "na ra lia ri mo nel rin las vin", _rng)
LAST_NAMES = _words(120, "nn rsk ldo vek mbre ttar sko lque", _rng)
PLACES = _words(60, "bury mere holm wick stad port", _rng)
REGIONS = _words(10, "mark ovia aria estan", _rng)
HOUSES = _words(120, "co tek rax lov dux zan", _rng)
BRANDS = _words(60, "ix el ara ono ive", _rng)


def tables(seed: int) -> dict[str, list[Row]]:
    """The rows of one database, by table."""
    rng = random.Random(seed)
    regions = rng.sample(REGIONS, 5)
    cities = [
        (number, name, rng.choice(regions), rng.randrange(8, 900) * 1000)
        for number, name in enumerate(rng.sample(PLACES, 18), 1)
    ]
    houses = rng.sample(HOUSES, 56)
    shops = [
        (number, f"{name} {rng.choice(('Market', 'Corner', 'Store'))}", _one(cities, rng),
         _day(rng, 2001, 2019), rng.randrange(8, 240) * 5)
        for number, name in enumerate(houses[:28], 1)
    ]  # fmt: skip
    suppliers = [
        (number, f"{name} {rng.choice(('Goods', 'Works', 'Trading'))}", _one(cities, rng))
        for number, name in enumerate(houses[28:], 1)
    ]
    people = _people(rng, 150 + 240)
    products = _products(rng, suppliers)
    customers = [
        (number, name, _one(cities, rng), rng.randrange(1940, 2004) if rng.random() < 0.9 else None,
         _day(rng, 2015, 2022))
        for number, name in enumerate(people[150:], 1)
    ]  # fmt: skip
    purchases = [
        (number, _one(customers, rng), _one(shops, rng), day, rng.choice(PAYMENTS))
        for number, day in enumerate(sorted(_day(rng, 2021, 2023) for _ in range(700)), 1)
    ]
    lines = [
        (purchase[0], product, rng.choice((1, 1, 1, 2, 2, 3, 4, 6)))
        for purchase in purchases
        for product in sorted(rng.sample(range(1, len(products) + 1), rng.choice((1, 1, 2, 2, 3, 4))))
    ]
    reviews = [
        (number, _one(customers, rng), _one(products, rng), rng.choice((1, 2, 3, 3, 4, 4, 4, 5, 5)), day)
        for number, day in enumerate(sorted(_day(rng, 2021, 2023) for _ in range(320)), 1)
    ]
    return {
        "city": [*cities],
        "shop": [*shops],
        "employee": _employees(rng, people[:150], len(shops)),
        "supplier": [*suppliers],
        "product": products,
        "customer": [*customers],
        "purchase": [*purchases],
        "purchase_line": [*lines],
        "review": [*reviews],
    }


def _one(rows: Sequence[Row], rng: random.Random) -> object:
    """The id of a row; those that come first are met more often."""
    return rows[min(rng.randrange(len(rows)), rng.randrange(len(rows)))][0]


def _day(rng: random.Random, first: int, last: int) -> str:
    start = date(first, 1, 1)
    return str(start + timedelta(rng.randrange((date(last, 12, 31) - start).days + 1)))


def _people(rng: random.Random, count: int) -> list[str]:
    numbers = rng.sample(range(len(FIRST_NAMES) * len(LAST_NAMES)), count)
    return [f"{FIRST_NAMES[n % len(FIRST_NAMES)]} {LAST_NAMES[n // len(FIRST_NAMES)]}" for n in numbers]


def _products(rng: random.Random, suppliers: Sequence[Row]) -> list[Row]:
    names = [(category, f"{brand} {thing}") for category in CATEGORIES
             for thing in THINGS[category] for brand in rng.sample(BRANDS, 5)]  # fmt: skip
    rng.shuffle(names)
    return [
        (number, name, category, rng.randrange(120, 9000) / 100, _one(suppliers, rng))
        for number, (category, name) in enumerate(names, 1)
    ]


def _employees(rng: random.Random, names: Sequence[str], shops: int) -> list[Row]:
    """The first of each shop leads it, and one of these leads the chain."""
    rows: list[Row] = []
    for number, name in enumerate(names, 1):
        leads = number <= shops
        shop = number if leads else rng.randrange(1, shops + 1)
        role = "manager" if leads else rng.choice(ROLES)
        salary = rng.randrange(420, 700) * 100 if leads else rng.randrange(220, 460) * 100
        boss = (None if number == 1 else 1) if leads else shop
        rows.append((number, name, shop, role, salary, _day(rng, 2003, 2022), boss))
    return rows


def script(rows: dict[str, list[Row]]) -> str:
    """SQL that makes the database."""
    parts = ["-- A chain of shops, made by make_shops.py; all of it is invented.\n", SCHEMA]
    for table, entries in rows.items():
        values = ",\n".join(f"({', '.join(map(_literal, row))})" for row in entries)
        parts.append(f"INSERT INTO {table} VALUES\n{values};\n")
    return "".join(parts)


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write into")
    folder = parser.parse_args(None if arguments is None else [*arguments]).out
    for split, seed in SEEDS.items():
        rows = tables(seed)
        path = folder / f"{split}.sql.gz"
        # Neither a time nor a file name goes into the header: the file changes only when its rows do.
        path.write_bytes(gzip.compress(script(rows).encode(), 9, mtime=0))
        print(f"{path}: {sum(map(len, rows.values()))} rows, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
