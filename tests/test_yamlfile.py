from __future__ import annotations

from pathlib import Path

import pytest

from agent_r1_env.errors import CatalogError, RecipeError
from agent_r1_env.yamlfile import YamlFile, read


def from_text(text: str | bytes, folder: Path) -> YamlFile:
    path = folder / "file.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(path)


def test_plain_words_mean_what_they_say(tmp_path: Path) -> None:
    text = """
on: off
no: [en, no, fr, yes]
truth: [true, False]
nothing: [~, null, ]
numbers: [1, -2, 0x10, 0o10, 1.5, 1e-4, 5e0, .5]
texts: [1_000, 2024-01-02, 1:30, 1.2.3, .nan, "1", 'true', !!str 7]
5: five
"""
    assert from_text(text, tmp_path).data == {
        "on": "off",
        "no": ["en", "no", "fr", "yes"],
        "truth": [True, False],
        "nothing": [None, None],
        "numbers": [1, -2, 16, 8, 1.5, 0.0001, 5.0, 0.5],
        "texts": ["1_000", "2024-01-02", "1:30", "1.2.3", ".nan", "1", "true", "7"],
        "5": "five",
    }


def test_anchors_are_followed(tmp_path: Path) -> None:
    assert from_text("a: &x {k: 1}\nb: *x\n", tmp_path).data == {"a": {"k": 1}, "b": {"k": 1}}


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    assert from_text(b"\xef\xbb\xbfa: 1\n", tmp_path).data == {"a": 1}


def test_every_key_and_value_has_its_place(tmp_path: Path) -> None:
    file = from_text("a: 1\nb:\n  c: [x, {d: y}]\n", tmp_path)
    assert file.place(("a",)) == (1, 4)
    assert file.place(("b", "c"), of_key=True) == (3, 3)
    assert file.place(("b", "c", 1, "d")) == (3, 14)
    assert file.place(("b", "missing", "deeper")) == (2, 1)
    assert file.place(("missing",)) == (1, 1)


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("", "", "the file is empty"),
        ("# only a comment\n", "", "the file is empty"),
        ("- a\n- b\n", ":1:1", "expected lines of the form key: value, but the file holds a list"),
        ("\nword\n", ":2:1", "but the file holds a single value"),
        ("a: 1\nb: 2\na: 3\n", ":3:1", "key 'a' stands here and in line 1; keep one"),
        ("x:\n  a: 1\n  'a': 2\n", ":3:3", "key 'a' stands here and in line 2; keep one"),
        ("a:\n\tb: 1\n", ":2:1", "a tab in the indentation; YAML is indented with spaces"),
        ("a: [1, 2\nb: 3\n", ":", "not valid YAML"),
        ("a: 'open\n", ":2:1", "not valid YAML"),
        ("a: b: c\n", ":1:5", "not valid YAML"),
        ("a: 1\n---\nb: 2\n", ":2:1", "a second document begins here; write one list"),
        ("a: *nowhere\n", ":1:4", "not valid YAML"),
        ("a: &x [*x]\n", ":1:4", "an alias stands within the part that it repeats"),
        ("? [a, b]\n: 1\n", ":1:3", "a key must be a word"),
        ("a: !!python/object:os.system {}\n", ":1:4", "not supported"),
        ("a: !mine x\n", ":1:4", "tag '!mine' is not supported"),
        ("a: !!int x\n", ":1:4", "'x' is no int"),
        ("a: \x01\n", "", "not valid YAML"),
        (b"a: \xff\n", "", "is not UTF-8 text (byte 3)"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    text: str | bytes, place: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(CatalogError) as caught:
        from_text(text, tmp_path)
    assert f"{tmp_path / 'file.yaml'}{place}" in str(caught.value)
    assert reason in str(caught.value)
    assert caught.value.file == tmp_path / "file.yaml"


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="no such file"):
        read(tmp_path / "none.yaml")
    with pytest.raises(CatalogError, match="cannot be read"):
        read(tmp_path)


def test_the_class_of_the_error_is_the_readers_to_choose(tmp_path: Path) -> None:
    with pytest.raises(RecipeError):
        read(tmp_path / "none.yaml", RecipeError)
