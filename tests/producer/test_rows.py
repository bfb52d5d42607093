import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.core.errors import RowError
from paceline.producer.row_source import row_source
from paceline.producer.rows import Row, check_rows, read_rows
from paceline.producer.template import BadTemplate, MissingField, Template, read_template

SERVICE = read_template("Who owns {service}?")


def rows_of(rows: Any, template: Template | None = None) -> list[Row]:
    with row_source(rows) as source:
        assert check_rows(source, template) == len(list(source.lines()))
        return list(read_rows(source, template))


def text(row: Row) -> str:
    return str(json.loads(row.first[-1])["content"][0]["text"])


def refused(tmp_path: Path, content: str | bytes, template: Template | None = None) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with row_source(path) as source, pytest.raises(RowError) as caught:
        check_rows(source, template)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_a_row_has_its_own_prompt_and_id() -> None:
    (row,) = rows_of([{"id": "a", "prompt": "Hello"}])
    assert (row.row_id, row.index, text(row)) == ("a", 0, "Hello")


def test_a_whole_number_is_an_id_too() -> None:
    assert rows_of([{"id": 7, "prompt": "x"}])[0].row_id == "7"


def test_a_row_without_id_is_named_by_its_content_whatever_the_order_of_its_keys() -> None:
    a, b = rows_of([{"prompt": "x", "n": 1}]), rows_of([{"n": 1, "prompt": "x"}])
    assert a[0].row_id == b[0].row_id
    assert a[0].row_id != rows_of([{"prompt": "x", "n": 2}])[0].row_id


def test_a_template_is_filled_from_the_row() -> None:
    assert text(rows_of([{"service": "search"}], SERVICE)[0]) == "Who owns search?"


def test_values_that_are_no_texts_are_filled_in_as_json() -> None:
    template = read_template("{a} {b} {{c}}")
    assert template.fill({"a": [1, "é"], "b": True}) == '[1, "é"] true {c}'


def test_a_prompt_of_the_rows_own_takes_the_place_of_the_template() -> None:
    assert text(rows_of([{"prompt": "Mine"}], SERVICE)[0]) == "Mine"
    assert text(rows_of([{"prompt": "x"}], read_template("Sum up: {prompt}"))[0]) == "Sum up: x"


@pytest.mark.parametrize("bad", ["{a.b}", "{a[0]}", "{}", "{0}", "{a!r}", "{a:>3}", "{ a }", "open {", "}"])
def test_a_template_takes_plain_names_only(bad: str) -> None:
    with pytest.raises(BadTemplate, match=r"\{\{"):
        read_template(bad)


def test_a_field_that_is_missing_or_null_is_named() -> None:
    with pytest.raises(MissingField, match="'service' is missing"):
        SERVICE.fill({})
    with pytest.raises(MissingField, match="'service' is null"):
        SERVICE.fill({"service": None})


def test_a_conversation_is_taken_as_it_is() -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]},
        {"role": "user", "content": "Who is on call?"},
    ]
    (row,) = rows_of([{"messages": messages}], SERVICE)
    assert [json.loads(fragment)["role"] for fragment in row.first] == ["user", "assistant", "user"]
    assert text(row) == "Who is on call?"


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "not a list of messages"),
        ("Hi", "not a list of messages"),
        ([{"role": "system", "content": "x"}], "message 1 is not"),
        ([{"role": "user", "content": "x", "name": "y"}], "message 1 is not"),
        ([{"role": "user", "content": [{"text": "x"}]}], "message 1 has a block without a `type`"),
        ([{"role": "user", "content": [{"type": "text"}]}], "a block that the API does not know"),
        ([{"role": "user", "content": " "}], "a text block is empty"),
        ([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], "does not end with a user"),
        ([{"role": "assistant", "content": "y"}, {"role": "user", "content": "x"}], "the first message"),
    ],
)
def test_a_conversation_that_cannot_be_sent_is_refused(tmp_path: Path, messages: Any, why: str) -> None:
    report = refused(tmp_path, json.dumps({"id": "r", "messages": messages}))
    assert report.startswith("rows.jsonl:1: row 'r': ")
    assert why in report


def test_a_row_with_both_prompt_and_messages_is_refused(tmp_path: Path) -> None:
    row = {"prompt": "x", "messages": [{"role": "user", "content": "x"}]}
    assert "keep one" in refused(tmp_path, json.dumps(row))


def test_a_broken_line_is_reported_by_its_number_with_the_column(tmp_path: Path) -> None:
    report = refused(tmp_path, '{"prompt": "x"}\n\n{"prompt": \n')
    assert report.startswith("rows.jsonl:3: not JSON (column ")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[1]", "a list"),
        ("3", "a number"),
        ('"x"', "a text"),
        ("null", "null"),
        ("true", "true or false"),
        ('{"prompt": "x", "n": NaN}', "NaN is not JSON"),
        ('{"id": "", "prompt": "x"}', "`id` is not 1 to 200 printable"),
        ('{"id": "a\\nb", "prompt": "x"}', "printable"),
        ('{"id": "\\ud800", "prompt": "x"}', "printable"),
        ('{"id": true, "prompt": "x"}', "true or false"),
        ('{"id": 1.5, "prompt": "x"}', "a number"),
        ('{"id": "a"}', "row 'a': no `prompt`"),
        ('{"id": "a", "prompt": 3}', "row 'a': `prompt` is a number"),
        ('{"id": "a", "prompt": " "}', "row 'a': the prompt is empty"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_not_a_row_is_refused_with_the_reason(tmp_path: Path, line: str, why: str) -> None:
    assert why in refused(tmp_path, line)


def test_a_missing_field_names_the_row_and_the_field(tmp_path: Path) -> None:
    report = refused(tmp_path, '{"id": "a", "service": "s"}\n{"id": "b"}\n', SERVICE)
    assert report == "rows.jsonl:2: row 'b': the field 'service' is missing, and the agent's prompt needs it"


def test_a_duplicate_id_names_both_lines(tmp_path: Path) -> None:
    report = refused(tmp_path, '{"id": "a", "prompt": "x"}\n{"id": "b", "prompt": "x"}\n{"id": "a", "prompt": "y"}\n')
    assert report == "rows.jsonl:3: the id 'a' is used before, at rows.jsonl:1: give each row an id of its own"


def test_the_same_row_twice_without_an_id_names_both_lines(tmp_path: Path) -> None:
    report = refused(tmp_path, '{"prompt": "x"}\n{"prompt": "x"}\n')
    assert report.startswith("rows.jsonl:2: the same row as at rows.jsonl:1")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, "\n \n").startswith("rows.jsonl: there is no row in it")


def test_everything_wrong_is_reported_together_up_to_a_bound(tmp_path: Path) -> None:
    lines = refused(tmp_path, "x\n" * 30).split("\n")
    assert lines[0].startswith("rows.jsonl:1: ")
    assert len(lines) == 21
    assert lines[-1] == "and 10 more"


def test_bytes_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    assert "not UTF-8" in refused(tmp_path, b'{"prompt": "\xff"}')


def test_a_byte_order_mark_and_crlf_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": "a", "prompt": "x"}\r\n{"id": "b", "prompt": "y"}\r\n')
    assert [row.row_id for row in rows_of(str(path))] == ["a", "b"]


def test_half_a_character_in_a_prompt_becomes_the_replacement_character() -> None:
    assert "\ufffd" in text(rows_of([{"prompt": "x\ud800"}])[0])


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(RowError, match="no such file"), row_source(tmp_path / "none.jsonl"):
        pass


def test_a_folder_is_no_file_of_rows(tmp_path: Path) -> None:
    with pytest.raises(RowError, match="cannot be read"), row_source(tmp_path):
        pass


def test_rows_come_from_any_iterable_and_are_named_by_their_number() -> None:
    def generated() -> Iterator[dict[str, str]]:
        yield {"prompt": "x"}
        yield {"no": "prompt"}

    with row_source(generated()) as source, pytest.raises(RowError, match=r"^row 2: row '\w+': no `prompt`"):
        check_rows(source, None)


@pytest.mark.parametrize(("row", "why"), [({"at": object()}, "row 1: not JSON"), (["x"], "row 1: a list, not a dict")])
def test_a_python_row_that_json_cannot_hold_is_refused(row: Any, why: str) -> None:
    with pytest.raises(RowError, match=why), row_source([row]):
        pass


def test_rows_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(b'{"prompt": "x"}\n'))
    monkeypatch.setattr(sys, "stdin", stream)
    assert len(rows_of("-")) == 1


def test_a_file_that_changed_between_the_passes_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "x"}\n')
    with row_source(path) as source:
        check_rows(source, None)
        path.write_text("broken\n")
        with pytest.raises(RowError, match="the file has changed"):
            list(read_rows(source, None))


def test_the_digest_tells_contents_apart_and_not_what_is_never_sent() -> None:
    same, also, other = (
        rows_of([row], SERVICE)[0].digest
        for row in ({"id": 1, "service": "a"}, {"id": 1, "service": "a", "note": "n"}, {"id": 1, "service": "b"})
    )
    assert same == also != other
