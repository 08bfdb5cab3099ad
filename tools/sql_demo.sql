-- A small database to try the tool with; all of it is invented.
CREATE TABLE author (id INTEGER PRIMARY KEY, name TEXT NOT NULL, born INTEGER);
CREATE TABLE book (
  id INTEGER PRIMARY KEY,
  title TEXT NOT NULL,
  author_id INTEGER NOT NULL REFERENCES author (id),
  year INTEGER,
  pages INTEGER
);
CREATE TABLE loan (id INTEGER PRIMARY KEY, book_id INTEGER NOT NULL REFERENCES book (id), day TEXT, returned INTEGER);
INSERT INTO author VALUES
  (1, 'Ada Holm', 1931), (2, 'Bo Larsen', 1954), (3, 'Cilla Brandt', NULL), (4, 'Dario Conti', 1978);
INSERT INTO book VALUES
  (1, 'The Long Harbour', 1, 1966, 312), (2, 'Salt', 1, 1971, 198), (3, 'A Map of Rain', 2, 1990, 421),
  (4, 'Night Ferry', 2, 2001, 264), (5, 'Small Lanterns', 3, 2010, 187), (6, 'The Glass Orchard', 4, 2015, 533),
  (7, 'Orchard Songs', 4, 2019, NULL);
INSERT INTO loan VALUES
  (1, 1, '2024-01-03', 1), (2, 3, '2024-01-05', 1), (3, 3, '2024-02-11', 0), (4, 6, '2024-02-12', 1),
  (5, 5, '2024-03-01', 0), (6, 1, '2024-03-09', 0);
