"""Makes the embedded questions to the databases beside it, and the queries that answer them.

Run it, after `make_shops.py`, to write `train.jsonl.gz` and `validation.jsonl.gz`; the same seeds give the
same rows anywhere:

    python envs/sqlquestions/make_questions.py

A question is kept if its query gives between one and eight values, none of them missing, and if no tie makes
another answer as good. Answers are not written down: they are what the queries give.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_r1_env import database

FOLDER = Path(__file__).parent
SEEDS = {"train": 1, "validation": 2}
QUESTIONS = {"train": 480, "validation": 240}
_LIMIT = re.compile(r"LIMIT (\d+)$")
_TRIES = 40


@dataclass(frozen=True)
class Template:
    """A question and its query, with places for values.

    Attributes:
        values: by place, a query for the values that may stand there.
        rank: what a query with an order sorts by; rows that share it would tie.
    """

    kind: str
    question: str
    query: str
    values: Mapping[str, str] = field(default_factory=dict)
    rank: str = ""


ANY_ORDER = " List them in any order, separated by commas."
IN_ORDER = " Separate them by commas."
SOLD = "purchase_line l JOIN product p ON p.id = l.product_id"
BOUGHT = f"{SOLD} JOIN purchase b ON b.id = l.purchase_id"
VALUES = {
    "product": "SELECT name FROM product",
    "employee": "SELECT name FROM employee",
    "customer": "SELECT name FROM customer",
    "buyer": "SELECT DISTINCT c.name FROM customer c JOIN purchase b ON b.customer_id = c.id ORDER BY c.id",
    "shop": "SELECT name FROM shop",
    "supplier": "SELECT name FROM supplier",
    "city": "SELECT name FROM city",
    "region": "SELECT DISTINCT region FROM city ORDER BY region",
    "role": "SELECT DISTINCT role FROM employee WHERE role <> 'manager' ORDER BY role",
    "category": "SELECT DISTINCT category FROM product ORDER BY category",
    "other": "SELECT DISTINCT category FROM product ORDER BY category",
    "payment": "SELECT DISTINCT paid_by FROM purchase ORDER BY paid_by",
    "year": "VALUES (2021), (2022), (2023)",
    "joined": "VALUES (2016), (2017), (2018), (2019), (2020), (2021), (2022)",
    "month": "SELECT DISTINCT substr(day, 1, 7) FROM purchase ORDER BY 1",
    "day": "SELECT DISTINCT day FROM purchase ORDER BY day",
    "price": "VALUES (10), (20), (30), (40), (50), (60), (70), (80)",
    "few": "VALUES (2), (3), (4), (5), (6), (7), (8)",
    "many": "VALUES (8), (10), (12), (14), (16), (18), (20), (25), (30)",
    "people": "VALUES (50000), (100000), (200000), (300000), (400000), (500000), (600000), (700000)",
    "salary": "VALUES (25000), (28000), (30000), (33000), (36000), (40000), (45000), (50000), (60000)",
}  # fmt: skip


def _t(kind: str, question: str, query: str, rank: str = "") -> Template:
    places = dict.fromkeys(re.findall(r"{(\w+)}", question + query))
    return Template(kind, question, query, {place: VALUES[place] for place in places}, rank)


TEMPLATES = (
    _t("lookup", "What is the price of {product}?", "SELECT price FROM product WHERE name = '{product}'"),
    _t("lookup", "To which category does {product} belong?",
       "SELECT category FROM product WHERE name = '{product}'"),
    _t("lookup", "What is the salary of {employee}?",
       "SELECT salary FROM employee WHERE name = '{employee}'"),
    _t("lookup", "On which day did {customer} join? Give it as YYYY-MM-DD.",
       "SELECT joined FROM customer WHERE name = '{customer}'"),
    _t("lookup", "In which year was the customer {customer} born?",
       "SELECT born FROM customer WHERE name = '{customer}'"),
    _t("lookup", "How many people live in {city}?", "SELECT people FROM city WHERE name = '{city}'"),
    _t("join", "In which city is the shop {shop}?",
       "SELECT c.name FROM shop s JOIN city c ON c.id = s.city_id WHERE s.name = '{shop}'"),
    _t("join", "In which region does the customer {customer} live?",
       "SELECT c.region FROM customer k JOIN city c ON c.id = k.city_id WHERE k.name = '{customer}'"),
    _t("join", "Who is the manager of {employee}?",
       "SELECT m.name FROM employee e JOIN employee m ON m.id = e.manager_id WHERE e.name = '{employee}'"),
    _t("join", "In which city is the supplier of {product}?",
       "SELECT c.name FROM product p JOIN supplier s ON s.id = p.supplier_id JOIN city c ON c.id = s.city_id "
       "WHERE p.name = '{product}'"),
    _t("join", "In which city does {employee} work?",
       "SELECT c.name FROM employee e JOIN shop s ON s.id = e.shop_id JOIN city c ON c.id = s.city_id "
       "WHERE e.name = '{employee}'"),
    _t("aggregate", "How many employees work as a {role} in {city}?",
       "SELECT count(*) FROM employee e JOIN shop s ON s.id = e.shop_id JOIN city c ON c.id = s.city_id "
       "WHERE e.role = '{role}' AND c.name = '{city}'"),
    _t("aggregate", "How many customers live in {city}?",
       "SELECT count(*) FROM customer k JOIN city c ON c.id = k.city_id WHERE c.name = '{city}'"),
    _t("aggregate", "What is the average salary of a {role} in the region {region}, rounded to two decimals?",
       "SELECT round(avg(e.salary), 2) FROM employee e JOIN shop s ON s.id = e.shop_id "
       "JOIN city c ON c.id = s.city_id WHERE e.role = '{role}' AND c.region = '{region}'"),
    _t("aggregate", "How many products of the category {category} cost more than {price}?",
       "SELECT count(*) FROM product WHERE category = '{category}' AND price > {price}"),
    _t("aggregate", "How many pieces of {product} were sold in all?",
       f"SELECT sum(l.quantity) FROM {SOLD} WHERE p.name = '{{product}}'"),
    _t("aggregate", "What do all purchases of {buyer} come to at today's prices, rounded to two decimals?",
       f"SELECT round(sum(l.quantity * p.price), 2) FROM {BOUGHT} JOIN customer k ON k.id = b.customer_id "
       "WHERE k.name = '{buyer}'"),
    _t("aggregate", "What is the average number of stars that {product} got, rounded to two decimals?",
       "SELECT round(avg(r.stars), 2) FROM review r JOIN product p ON p.id = r.product_id "
       "WHERE p.name = '{product}'"),
    _t("aggregate", "How many purchases at {shop} were paid by {payment}?",
       "SELECT count(*) FROM purchase b JOIN shop s ON s.id = b.shop_id "
       "WHERE s.name = '{shop}' AND b.paid_by = '{payment}'"),
    _t("group", "How many customers made at least {few} purchases in {year}?",
       "SELECT count(*) FROM (SELECT customer_id FROM purchase WHERE day LIKE '{year}-%' "
       "GROUP BY customer_id HAVING count(*) >= {few})"),
    _t("group", "How many shops in cities of more than {people} people have at least {few} employees?",
       "SELECT count(*) FROM (SELECT s.id FROM shop s JOIN city c ON c.id = s.city_id "
       "JOIN employee e ON e.shop_id = s.id WHERE c.people > {people} "
       "GROUP BY s.id HAVING count(*) >= {few})"),
    _t("group", "In which cities do at least {many} customers live?" + ANY_ORDER,
       "SELECT c.name FROM city c JOIN customer k ON k.city_id = c.id "
       "GROUP BY c.id HAVING count(*) >= {many}"),
    _t("group", "Of which categories were more than {many} pieces sold at {shop}?" + ANY_ORDER,
       f"SELECT p.category FROM {BOUGHT} JOIN shop s ON s.id = b.shop_id WHERE s.name = '{{shop}}' "
       "GROUP BY p.category HAVING sum(l.quantity) > {many}"),
    _t("group", "How many suppliers deliver at least {few} products that cost more than {price}?",
       "SELECT count(*) FROM (SELECT supplier_id FROM product WHERE price > {price} "
       "GROUP BY supplier_id HAVING count(*) >= {few})"),
    _t("order", "Which product of the category {category} that costs less than {price} is the dearest?",
       "SELECT name FROM product WHERE category = '{category}' AND price < {price} "
       "ORDER BY price DESC LIMIT 1", "price"),
    _t("order", "Which are the three cheapest products of the category {category} that cost more than "
       "{price}, the cheapest first?" + IN_ORDER,
       "SELECT name FROM product WHERE category = '{category}' AND price > {price} "
       "ORDER BY price LIMIT 3", "price"),
    _t("order", "Which shop had the most purchases in {month}?",
       "SELECT s.name FROM shop s JOIN purchase b ON b.shop_id = s.id WHERE b.day LIKE '{month}-%' "
       "GROUP BY s.id ORDER BY count(*) DESC LIMIT 1", "count(*)"),
    _t("order", "Which product of the category {category} sold the most pieces in {year}?",
       f"SELECT p.name FROM {BOUGHT} WHERE p.category = '{{category}}' AND b.day LIKE '{{year}}-%' "
       "GROUP BY p.id ORDER BY sum(l.quantity) DESC LIMIT 1", "sum(l.quantity)"),
    _t("order", "Who is the best paid {role} in {city}?",
       "SELECT e.name FROM employee e JOIN shop s ON s.id = e.shop_id JOIN city c ON c.id = s.city_id "
       "WHERE e.role = '{role}' AND c.name = '{city}' ORDER BY e.salary DESC LIMIT 1", "e.salary"),
    _t("order", "Which are the shops in {city}, the largest first?" + IN_ORDER,
       "SELECT s.name FROM shop s JOIN city c ON c.id = s.city_id WHERE c.name = '{city}' "
       "ORDER BY s.floor_area DESC", "s.floor_area"),
    _t("nested", "How many employees with the role {role} earn more than the average of all with that role?",
       "SELECT count(*) FROM employee WHERE role = '{role}' AND salary > "
       "(SELECT avg(salary) FROM employee WHERE role = '{role}')"),
    _t("nested", "Which customers from {city} never bought anything?" + ANY_ORDER,
       "SELECT k.name FROM customer k JOIN city c ON c.id = k.city_id WHERE c.name = '{city}' "
       "AND k.id NOT IN (SELECT customer_id FROM purchase)"),
    _t("nested", "How many products of the category {category} that cost more than {price} have no review?",
       "SELECT count(*) FROM product p WHERE p.category = '{category}' AND p.price > {price} "
       "AND NOT EXISTS (SELECT 1 FROM review r WHERE r.product_id = p.id)"),
    _t("nested", "How many customers from the region {region} bought something of the category {category}, "
       "but nothing of the category {other}?",
       "SELECT count(*) FROM customer k JOIN city c ON c.id = k.city_id WHERE c.region = '{region}' "
       f"AND k.id IN (SELECT b.customer_id FROM {BOUGHT} WHERE p.category = '{{category}}') "
       f"AND k.id NOT IN (SELECT b.customer_id FROM {BOUGHT} WHERE p.category = '{{other}}')"),
    _t("nested", "Who earns the most among the employees that {employee} works with in the same shop, "
       "{employee} left out?",
       "SELECT e.name FROM employee e WHERE e.shop_id = (SELECT shop_id FROM employee "
       "WHERE name = '{employee}') AND e.name <> '{employee}' ORDER BY e.salary DESC LIMIT 1", "e.salary"),
    _t("nested", "How many managers earn less than {salary} and lead a shop larger than the average shop?",
       "SELECT count(*) FROM employee e JOIN shop s ON s.id = e.shop_id WHERE e.role = 'manager' "
       "AND e.salary < {salary} AND s.floor_area > (SELECT avg(floor_area) FROM shop)"),
    _t("dates", "How many purchases were paid by {payment} in {month}?",
       "SELECT count(*) FROM purchase WHERE paid_by = '{payment}' AND day LIKE '{month}-%'"),
    _t("dates", "On which day did {buyer} buy something for the first time? Give it as YYYY-MM-DD.",
       "SELECT min(b.day) FROM purchase b JOIN customer k ON k.id = b.customer_id WHERE k.name = '{buyer}'"),
    _t("dates", "How many days lie between the first and the last purchase of {buyer}?",
       "SELECT CAST(julianday(max(b.day)) - julianday(min(b.day)) AS INTEGER) FROM purchase b "
       "JOIN customer k ON k.id = b.customer_id WHERE k.name = '{buyer}'"),
    _t("dates", "How many customers from the region {region} joined before {joined}?",
       "SELECT count(*) FROM customer k JOIN city c ON c.id = k.city_id "
       "WHERE c.region = '{region}' AND k.joined < '{joined}-01-01'"),
    _t("dates", "Who was hired last at {shop}?",
       "SELECT e.name FROM employee e JOIN shop s ON s.id = e.shop_id WHERE s.name = '{shop}' "
       "ORDER BY e.hired DESC LIMIT 1", "e.hired"),
    _t("dates", "In which month of {year} did {shop} have the most purchases? Give it as YYYY-MM.",
       "SELECT substr(b.day, 1, 7) FROM purchase b JOIN shop s ON s.id = b.shop_id WHERE s.name = '{shop}' "
       "AND b.day LIKE '{year}-%' GROUP BY substr(b.day, 1, 7) ORDER BY count(*) DESC LIMIT 1", "count(*)"),
    _t("list", "Who works as a {role} at {shop}?" + ANY_ORDER,
       "SELECT e.name FROM employee e JOIN shop s ON s.id = e.shop_id "
       "WHERE s.name = '{shop}' AND e.role = '{role}'"),
    _t("list", "Which products of the category {category} does {supplier} deliver?" + ANY_ORDER,
       "SELECT p.name FROM product p JOIN supplier s ON s.id = p.supplier_id "
       "WHERE s.name = '{supplier}' AND p.category = '{category}'"),
    _t("list", "From which categories did {buyer} buy something? List them from A to Z, separated by commas.",
       f"SELECT DISTINCT p.category FROM {BOUGHT} JOIN customer k ON k.id = b.customer_id "
       "WHERE k.name = '{buyer}' ORDER BY p.category"),
    _t("list", "Which customers bought something on {day}?" + ANY_ORDER,
       "SELECT DISTINCT k.name FROM customer k JOIN purchase b ON b.customer_id = k.id "
       "WHERE b.day = '{day}'"),
    _t("list", "Which shops were opened before {employee} was hired, among those in the city where "
       "{employee} works?" + ANY_ORDER,
       "SELECT o.name FROM employee e JOIN shop s ON s.id = e.shop_id JOIN shop o ON o.city_id = s.city_id "
       "WHERE e.name = '{employee}' AND o.opened < e.hired"),
    _t("list", "Which suppliers are in the region {region} and deliver more than {few} products?" + ANY_ORDER,
       "SELECT s.name FROM supplier s JOIN city c ON c.id = s.city_id JOIN product p ON p.supplier_id = s.id "
       "WHERE c.region = '{region}' GROUP BY s.id HAVING count(*) > {few}"),
)  # fmt: skip


def questions(split: str) -> list[dict[str, Any]]:
    """The questions of one split; every template has about as many."""
    rng = random.Random(SEEDS[split])
    made: dict[str, dict[str, Any]] = {}
    with database.opened(FOLDER / f"{split}.sql.gz", database.Limits(10_000, 600)) as connection:
        values = {name: [row[0] for row in connection.execute(query)] for name, query in VALUES.items()}
        while len(made) < QUESTIONS[split]:
            for template in TEMPLATES:
                row = _question(connection, template, values, made, rng)
                if row is not None and len(made) < QUESTIONS[split]:
                    made[row["question"]] = row
    rows = [*made.values()]
    rng.shuffle(rows)
    return [{"id": f"{split}-{number:03d}", "db_id": split, **row} for number, row in enumerate(rows)]


def _question(
    connection: sqlite3.Connection,
    template: Template,
    values: Mapping[str, list[Any]],
    taken: Mapping[str, Any],
    rng: random.Random,
) -> dict[str, Any] | None:
    """One more question of a template, or None where it seems to have no more."""
    for _ in range(_TRIES):
        chosen = {place: rng.choice(values[place]) for place in template.values}
        text, query = template.question.format(**chosen), template.query.format(**chosen)
        distinct = len({str(value) for value in chosen.values()}) == len(chosen)
        if distinct and text not in taken and _sound(connection, query, template.rank):
            return {"question": text, "query": query, "kind": template.kind}
    return None


def _sound(connection: sqlite3.Connection, query: str, rank: str) -> bool:
    rows = connection.execute(query).fetchall()
    if not 1 <= len(rows) <= 8 or any(row[0] in (None, 0) for row in rows):
        return False
    if len(set(rows)) < len(rows):
        return False
    limit = _LIMIT.search(query)
    if limit and len(rows) < int(limit[1]):
        return False
    if not rank:
        return True
    more = _LIMIT.sub(lambda match: f"LIMIT {int(match[1]) + 1}", query)
    ranks = [row[0] for row in connection.execute(more.replace("SELECT ", f"SELECT {rank}, ", 1))]
    return len(set(ranks)) == len(ranks)


def encode(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Rows as the text that the files hold."""
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the questions of both splits.")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write into")
    folder = parser.parse_args().out
    for split in SEEDS:
        rows, path = questions(split), folder / f"{split}.jsonl.gz"
        path.write_bytes(gzip.compress(encode(rows), 9, mtime=0))
        print(f"{path}: {len(rows)} questions, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
