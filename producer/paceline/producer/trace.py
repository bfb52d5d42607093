"""A run's trace, from its record: as a tree to read in a terminal, and as data. Ids are those of the exported spans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.core import trace_names as names
from paceline.core.ledger import ModelCalled
from paceline.core.lifecycle import State
from paceline.core.trace_record import recorded_spans
from paceline.core.trace_span import Moment, Place, Span, Value
from paceline.core.trace_telling import ToldRun
from paceline.core.usage import Usage

from .fleet import RunStory
from .progress import count_text, counted, dollars, duration
from .story import tokens

_BAR = 32
_SHORT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A span with those below it, in the order in which they began. `is_open`: it has not ended yet."""

    span: Span
    children: tuple[Node, ...]
    is_open: bool


def traces(story: RunStory, *, now_ms: int) -> list[Node]:
    """The run's traces: one, but for a very long run."""
    told = _told_run(story)
    spans = recorded_spans(told, story.ledger, now_ms=now_ms)
    runs = [span for span in spans if span.name.startswith(names.INVOKE_AGENT)]
    under_way = None if told.ended_ms else runs[-1]
    below: dict[Place, list[Span]] = {}
    for span in sorted(spans, key=lambda span: span.start_ms):
        if span.parent:
            below.setdefault(Place(trace=span.place.trace, span=span.parent), []).append(span)
    return [_node(root, below, under_way) for root in spans if root.parent is None]


def _told_run(story: RunStory) -> ToldRun:
    record = story.record
    known = story.agent.name if story.agent else story.batch.agent_name if story.batch else "unknown"
    models = [story.agent.model] if story.agent else [e.model for e in story.ledger if isinstance(e, ModelCalled)]
    return ToldRun(
        run=record.run,
        agent_name=known,
        model=next(iter(models), "unknown"),
        reason=record.reason,
        ended_ms=record.ended_ms,
    )


def _node(span: Span, below: Mapping[Place, Sequence[Span]], under_way: Span | None) -> Node:
    children = tuple(_node(child, below, under_way) for child in below.get(span.place, ()))
    return Node(span=span, children=children, is_open=span is under_way)


# As data -------------------------------------------------------------------------------------------------------------


def traces_json(story: RunStory, *, now_ms: int) -> list[dict[str, Any]]:
    """The traces as plain data: spans as they are exported, those below a span in its `children`."""
    return [_json(root) for root in traces(story, now_ms=now_ms)]


def _json(node: Node) -> dict[str, Any]:
    span = node.span
    return {
        "name": span.name,
        "kind": span.kind.value,
        "trace_id": span.place.trace,
        "span_id": span.place.span,
        "parent_span_id": span.parent,
        "start_ms": span.start_ms,
        "end_ms": None if node.is_open else span.end_ms,
        "error": span.error or None,
        "attributes": dict(span.attributes),
        "links": [{"trace_id": place.trace, "span_id": place.span} for place in span.links],
        "events": [{"name": it.name, "at_ms": it.at_ms, "attributes": dict(it.attributes)} for it in span.moments],
        "children": [_json(child) for child in node.children],
    }


# As text -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    label: str
    start_ms: int
    end_ms: int | None
    """None: it is a moment."""
    span: str
    details: str
    waits_since_ms: int
    """From then until its start the run waited."""


def trace_lines(story: RunStory, *, now_ms: int) -> Iterator[str]:
    """The traces for a person to read: a line a span, with its place in time, and dots where the run waited."""
    roots = traces(story, now_ms=now_ms)
    for root in roots:
        yield f"trace {root.span.place.trace}"
        yield from _table(list(_rows(root)), root.span.start_ms, max(root.span.end_ms, _end_ms(root)))
    untold = _untold_attempts(story, roots)
    if untold:
        yield f"without {counted(untold, 'attempt')} that only waited for the same again, or made no model call"


def _untold_attempts(story: RunStory, roots: Sequence[Node]) -> int:
    run = story.record.run
    turns = [child.span for root in roots for child in root.children if child.span.name == names.TURN_NAME]
    told = {turn.attributes[names.ATTEMPT] for turn in turns}
    return run.attempts - len(told) - (run.state is State.IN_TURN)


def _end_ms(node: Node) -> int:
    return max([node.span.end_ms, *map(_end_ms, node.children)])


def _rows(node: Node, above: str = "", branch: str = "", waits_since_ms: int | None = None) -> Iterator[_Row]:
    span = node.span
    yield _Row(
        label=above + branch + _label(span),
        start_ms=span.start_ms,
        end_ms=span.end_ms,
        span=span.place.span[:_SHORT],
        details=", ".join(_details(node)),
        waits_since_ms=span.start_ms if waits_since_ms is None else waits_since_ms,
    )
    above += _UNDER[branch]
    busy_until_ms = span.start_ms
    below: list[Node | Moment] = [*node.children, *_moments(span)]
    below.sort(key=_began_ms)
    for item in below:
        branch = _LAST if item is below[-1] else _NEXT
        if isinstance(item, Node):
            is_turn = item.span.name == names.TURN_NAME
            yield from _rows(item, above, branch, busy_until_ms if is_turn else None)
            busy_until_ms = max(busy_until_ms, _end_ms(item))
        else:
            yield _moment_row(item, above + branch)


_NEXT, _LAST = "├─ ", "└─ "
_UNDER = {"": "", _NEXT: "│  ", _LAST: "   "}


def _began_ms(item: Node | Moment) -> int:
    return item.span.start_ms if isinstance(item, Node) else item.at_ms


def _label(span: Span) -> str:
    return f"{span.name} {span.attributes[names.TURN]}" if span.name == names.TURN_NAME else span.name


def _moments(span: Span) -> list[Moment]:
    """Those that are no part of a line of their own."""
    return [moment for moment in span.moments if moment.name in _MOMENTS]


_MOMENTS = {
    names.RULED_OUT_EVENT: "has not taken effect",
    names.APPROVED_EVENT: "may run",
    names.DENIED_EVENT: "may not run",
    names.REDRIVEN_EVENT: "goes on after its end",
}


def _moment_row(moment: Moment, lead: str) -> _Row:
    facts = moment.attributes
    details = f"{facts[names.TOOL]} ({facts[names.CALL]}), says {_SAYS[str(facts[names.SOURCE])]}" if facts else ""
    at_ms = moment.at_ms
    return _Row(
        label=lead + _MOMENTS[moment.name],
        start_ms=at_ms,
        end_ms=None,
        span="",
        details=details,
        waits_since_ms=at_ms,
    )


_SAYS = {"reconcile": "its tool", "person": "a person"}


def _details(node: Node) -> Iterator[str]:
    span, facts = node.span, node.span.attributes
    if span.error:
        yield f"ERROR {span.error}"
    match str(facts.get(names.OPERATION, "")):
        case names.INVOKE_AGENT:
            yield from _of_run(node)
        case names.CHAT:
            yield from _of_tokens(span)
        case names.EXECUTE_TOOL:
            yield from _of_call(span)
        case _:
            yield from _of_turn(span)


def _of_run(node: Node) -> Iterator[str]:
    span = node.span
    yield "not over" if node.is_open else str(span.attributes.get(names.STOP_REASON, "goes on in the next trace"))
    yield counted(_count(span, names.TURNS), "turn")
    yield counted(_count(span, names.TOOL_CALLS), "tool call")
    yield from _of_tokens(node.span)


def _of_turn(span: Span) -> Iterator[str]:
    facts = span.attributes
    yield f"attempt {facts[names.ATTEMPT]}" + (f" on {facts[names.WORKER]}" if names.WORKER in facts else "")
    if names.POSSIBLY_BILLED_TOKENS in facts:
        yield f"up to {count_text(_count(span, names.POSSIBLY_BILLED_TOKENS))} tokens possibly billed"
    for moment in span.moments:
        if moment.name == names.HELD_EVENT:
            yield f"then on hold for {duration(_number(moment.attributes[names.HOLD]))}"
        elif moment.name == names.COMPACTED_EVENT:
            yield f"{moment.attributes[names.CLEARED_RESULTS]} old results no longer sent"


def _of_tokens(span: Span) -> Iterator[str]:
    facts = span.attributes
    if names.INPUT_TOKENS not in facts:
        return
    read, written = _count(span, names.CACHE_READ_TOKENS), _count(span, names.CACHE_WRITE_TOKENS)
    fresh = _count(span, names.INPUT_TOKENS) - read - written
    output = _count(span, names.OUTPUT_TOKENS)
    yield tokens(Usage(input=fresh, cache_read=read, cache_write=written, output=output))
    yield dollars(_number(facts[names.COST]) if names.COST in facts else None)
    if names.RAW_STOP_REASON in facts:
        yield str(facts[names.RAW_STOP_REASON])


def _of_call(span: Span) -> Iterator[str]:
    facts = span.attributes
    yield str(facts[names.CALL])
    if names.RESULT_CHARS in facts:
        yield f"{count_text(_count(span, names.RESULT_CHARS))} characters"
    if facts[names.ATTEMPT] != 1:
        yield f"try {facts[names.ATTEMPT]}"
    if names.SOURCE in facts:
        yield f"says {_SAYS[str(facts[names.SOURCE])]}"


def _count(span: Span, name: str) -> int:
    return int(_number(span.attributes[name]))


def _number(value: Value) -> float:
    assert isinstance(value, int | float)
    return value


def _table(rows: Sequence[_Row], start_ms: int, end_ms: int) -> Iterator[str]:
    whole_ms = max(1, end_ms - start_ms)
    wide = max(len(row.label) for row in rows)
    yield f"{'':{wide}}  {'start':>9}  {'took':>9}  {'':{_BAR}}  span"
    for row in rows:
        took = "" if row.end_ms is None else _time(row.end_ms - row.start_ms)
        bar = _bar(row, start_ms, whole_ms)
        yield (
            f"{row.label:{wide}}  {_time(row.start_ms - start_ms):>9}  {took:>9}  {bar:{_BAR}}  "
            f"{row.span:{_SHORT}}  {row.details}"
        ).rstrip()


def _time(ms: int) -> str:
    if ms < 1000:
        return f"{ms} ms"
    return f"{ms / 1000:.2f} s" if ms < 10_000 else f"{ms / 1000:.1f} s" if ms < 100_000 else duration(ms / 1000)


def _bar(row: _Row, start_ms: int, whole_ms: int) -> str:
    def cell(ms: int) -> int:
        return min(_BAR - 1, max(0, (ms - start_ms) * _BAR // whole_ms))

    waits, begins = cell(row.waits_since_ms), cell(row.start_ms)
    drawn = "◆" if row.end_ms is None else "━" * (cell(max(row.start_ms, row.end_ms - 1)) - begins + 1)
    return " " * waits + "·" * (begins - waits) + drawn
