"""Whatever happens to runs, in whatever order: both stores answer alike and stand alike afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis
from support.runs import (
    BATCH,
    ENDS,
    SPENT,
    a_call,
    a_call_to_approve,
    a_claim,
    a_result,
    a_row,
    approval,
    asking,
    call_ran,
    in_doubt,
    model_called,
    ruled_out,
    submitted,
)
from support.worlds import World, memory_world, redis_world

from paceline.core.errors import IllegalTransition
from paceline.core.ids import CallId, batch_tag, tag_of
from paceline.core.ledger import AttemptLost, Entry, Redriven
from paceline.core.lifecycle import State
from paceline.core.run import Run, Streaks
from paceline.core.tool_spec import Effect, Placement
from paceline.core.transcript import user_text
from paceline.store.port import Asked, CallClaim, Examined, OpenCall, TurnClaim, TurnWrite

ROWS = [a_row("a", index=0), a_row("b", index=1)]
CALLS = ["c1", "c2", "c3", "c4", "c5", "c6"]

Act = Callable[[World, Run], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Something that happens to a run; named, so that a failed example can be read."""

    name: str
    row: int
    act: Act

    def __repr__(self) -> str:
        return f"{self.name}({'ab'[self.row]})"


rows = st.sampled_from([0, 1])
off = st.sampled_from([0, 0, 0, 0, 0, 0, -1, 1])
"""Nearly always what is true now; sometimes what was, or never will be."""
seconds = st.sampled_from([0.0, 1.5, 29.0, 31.0])
nonces = st.sampled_from(["n1", "n2", "n3"])
call_ids = st.sampled_from(CALLS)
nanousd = st.integers(0, 9)
words = st.sampled_from(["given", "denied", "told"])
askeds = st.sampled_from(list(Asked))
entries: st.SearchStrategy[list[Entry]] = st.lists(
    st.sampled_from([model_called(), call_ran("c1"), AttemptLost(turn=1, attempt=1, at_ms=5, worker="w")]), max_size=2
)
writes = st.builds(
    TurnWrite,
    append=st.lists(st.just(user_text("more")), max_size=2).map(tuple),
    spent=st.sampled_from([SPENT, replace(SPENT, unpriced_calls=1)]),
    context_tokens=st.sampled_from([None, 7, 900]),
    streaks=st.builds(Streaks, failures=st.integers(0, 2), losses=st.integers(0, 2)),
    ledger=entries.map(tuple),
)
open_calls = st.lists(
    st.builds(a_call, call_ids, st.sampled_from(list(Effect)), st.sampled_from(list(Placement)))
    | st.builds(a_call_to_approve, call_ids, st.sampled_from(list(Effect))),
    min_size=1,
    max_size=3,
    unique_by=lambda call: call.call_id,
)


def _held(run: Run, turn_off: int, fence_off: int) -> TurnClaim:
    return TurnClaim(run_id=run.run_id, turn=run.turn + turn_off, fence=run.fence + fence_off)


async def _held_call(world: World, run: Run, call: str, attempt_off: int) -> CallClaim:
    states = await world.store.open_call_states(run.run_id)
    attempt = next((state.attempt for state in states if state.call.call_id == call), 0)
    return CallClaim(run_id=run.run_id, turn=run.turn, call_id=CallId(call), attempt=attempt + attempt_off)


def _begin(turn_off: int, nonce: str) -> Act:
    return lambda world, run: world.store.begin(run.run_id, run.turn + turn_off, a_claim(nonce=nonce))


def _open_calls(turn_off: int, fence_off: int, write: TurnWrite, calls: Sequence[OpenCall]) -> Act:
    asked = replace(write, append=(asking(*(call.call_id for call in calls)),))
    return lambda world, run: world.store.open_calls(_held(run, turn_off, fence_off), asked, calls)


def _go_on(turn_off: int, fence_off: int, write: TurnWrite, advance: bool) -> Act:
    return lambda world, run: world.store.go_on(_held(run, turn_off, fence_off), write, advance=advance)


def _hold(turn_off: int, fence_off: int, write: TurnWrite, wait: float) -> Act:
    return lambda world, run: world.store.hold(_held(run, turn_off, fence_off), write, seconds=wait, reason="busy")


def _recover(turn_off: int, fence_off: int, write: TurnWrite) -> Act:
    return lambda world, run: world.store.recover(_held(run, turn_off, fence_off), write)


def _finish(turn_off: int, fence_off: int, write: TurnWrite, end: str) -> Act:
    outcome = {state.value: outcome for state, outcome in ENDS.items()}[end]
    return lambda world, run: world.store.finish(_held(run, turn_off, fence_off), write, outcome)


def _begin_call(call: str, nonce: str) -> Act:
    return lambda world, run: world.store.begin_call(run.run_id, run.turn, CallId(call), a_claim("w2", nonce=nonce))


def _finish_call(call: str, attempt_off: int) -> Act:
    async def act(world: World, run: Run) -> object:
        held = await _held_call(world, run, call, attempt_off)
        return await world.store.finish_call(held, a_result(call, whole="all"))

    return act


def _recover_call(call: str, attempt_off: int, lost: bool) -> Act:
    async def act(world: World, run: Run) -> object:
        return await world.store.recover_call(await _held_call(world, run, call, attempt_off), lost=lost)

    return act


def _doubt(call: str, attempt_off: int, asked: Asked) -> Act:
    async def act(world: World, run: Run) -> object:
        return await world.store.doubt(await _held_call(world, run, call, attempt_off), asked, in_doubt(call))

    return act


def _rule_out(call: str, attempt_off: int) -> Act:
    async def act(world: World, run: Run) -> object:
        return await world.store.rule_out(await _held_call(world, run, call, attempt_off), ruled_out(call))

    return act


def _resolve(call: str, has_run: bool) -> Act:
    entry = a_result(call) if has_run else ruled_out(call)
    return lambda world, run: world.store.resolve(run.run_id, CallId(call), entry)


def _approve(call: str, word: str) -> Act:
    entry, told = approval(call, approved=word == "given"), a_result(call) if word == "told" else None
    return lambda world, run: world.store.approve(run.run_id, CallId(call), entry, told)


def _join(turn_off: int, fence_off: int) -> Act:
    async def act(world: World, run: Run) -> object:
        results = await world.store.results(run.run_id, run.turn)
        calls = [] if results else await world.store.open_call_states(run.run_id)
        inline = [a_result(call.call.call_id) for call in calls if call.call.placement is Placement.INLINE]
        return results, await world.store.join(_held(run, turn_off, fence_off), user_text("results"), inline)

    return act


def _redrive(turn_off: int, fence_off: int, answered: bool) -> Act:
    async def act(world: World, run: Run) -> object:
        answers = user_text("answers") if answered else None
        entry = Redriven(turn=run.turn, at_ms=6)
        remains = await world.store.remains(run.run_id)
        return remains, await world.store.redrive(_held(run, turn_off, fence_off), answers, entry)

    return act


def _cancel() -> Act:
    return lambda world, run: world.store.cancel(run.run_id)


def _let_go() -> Act:
    return lambda world, run: world.store.let_go(run.run_id)


def _look_again(turn_off: int, fence_off: int, wait: float) -> Act:
    return lambda world, run: world.store.look_again(_held(run, turn_off, fence_off), seconds=wait)


def _send_again(turn_off: int, fence_off: int, sent_off: int, wait: float) -> Act:
    return lambda world, run: world.store.send_again(
        _held(run, turn_off, fence_off), seconds=wait, sent_ms=run.sent_ms + sent_off
    )


def _reserve(fence_off: int, spent: int, call: int) -> Act:
    return lambda world, run: world.store.reserve(_held(run, 0, fence_off), spent=spent, call=call)


def _release(fence_off: int, spent: int) -> Act:
    return lambda world, run: world.store.release(_held(run, 0, fence_off), spent=spent)


def _set_budget(nanousd: int) -> Act:
    return lambda world, run: world.store.set_budget(tag_of(run.run_id), nanousd)


def _let_pass(wait: float) -> Act:
    return lambda world, run: world.let_pass(wait)


def _moves(name: str, act: st.SearchStrategy[Act], of_row: st.SearchStrategy[int] = rows) -> st.SearchStrategy[Move]:
    return st.builds(Move, name=st.just(name), row=of_row, act=act)


ANYTHING = st.one_of(
    _moves("begin", st.builds(_begin, off, nonces)),
    _moves("open_calls", st.builds(_open_calls, off, off, writes, open_calls)),
    _moves("go_on", st.builds(_go_on, off, off, writes, st.booleans())),
    _moves("hold", st.builds(_hold, off, off, writes, seconds)),
    _moves("recover", st.builds(_recover, off, off, writes)),
    _moves("finish", st.builds(_finish, off, off, writes, st.sampled_from([state.value for state in ENDS]))),
    _moves("begin_call", st.builds(_begin_call, call_ids, nonces)),
    _moves("finish_call", st.builds(_finish_call, call_ids, off)),
    _moves("recover_call", st.builds(_recover_call, call_ids, off, st.booleans())),
    _moves("doubt", st.builds(_doubt, call_ids, off, askeds)),
    _moves("rule_out", st.builds(_rule_out, call_ids, off)),
    _moves("resolve", st.builds(_resolve, call_ids, st.booleans())),
    _moves("approve", st.builds(_approve, call_ids, words)),
    _moves("join", st.builds(_join, off, off)),
    _moves("redrive", st.builds(_redrive, off, off, st.booleans())),
    _moves("cancel", st.builds(_cancel)),
    _moves("let_go", st.builds(_let_go)),
    _moves("look_again", st.builds(_look_again, off, off, seconds)),
    _moves("send_again", st.builds(_send_again, off, off, off, seconds)),
    _moves("let_pass", st.builds(_let_pass, seconds)),
    _moves("reserve", st.builds(_reserve, off, nanousd, nanousd)),
    _moves("release", st.builds(_release, off, nanousd)),
    _moves("set_budget", st.builds(_set_budget, nanousd)),
)


def _what_fits(row: int, examined: Examined) -> st.SearchStrategy[Move]:
    """Moves that carry this run further: else few examples would get beyond the first turn."""
    of_row = st.just(row)
    begin = _moves("begin", st.builds(_begin, st.just(0), nonces), of_row)
    match examined.run.state:
        case State.QUEUED | State.TURN_DUE:
            return begin
        case State.ON_HOLD:
            return begin | _moves("let_pass", st.builds(_let_pass, seconds), of_row)
        case State.IN_TURN:
            return _moves("open_calls", st.builds(_open_calls, st.just(0), st.just(0), writes, open_calls), of_row)
        case State.IN_TOOLS:
            ids = st.sampled_from([state.call.call_id for state in examined.calls])
            return st.one_of(
                _moves("begin_call", st.builds(_begin_call, ids, nonces), of_row),
                _moves("finish_call", st.builds(_finish_call, ids, st.just(0)), of_row),
                _moves("doubt", st.builds(_doubt, ids, st.just(0), askeds), of_row),
                _moves("approve", st.builds(_approve, ids, words), of_row),
            )
        case State.AWAITING_DECISION | State.AWAITING_APPROVAL:
            ids = st.sampled_from([state.call.call_id for state in examined.calls])
            return st.one_of(
                _moves("resolve", st.builds(_resolve, ids, st.booleans()), of_row),
                _moves("approve", st.builds(_approve, ids, words), of_row),
            )
        case State.FAILED | State.STOPPED:
            return _moves("redrive", st.builds(_redrive, st.just(0), st.just(0), st.booleans()), of_row)
        case State.JOINING:
            return _moves("join", st.builds(_join, st.just(0), st.just(0)), of_row)
        case _:
            return ANYTHING


async def _answer(world: World, move: Move) -> object:
    record = await world.store.run(ROWS[move.row].run_id)
    assert record is not None
    try:
        return await move.act(world, record.run)
    except IllegalTransition as refusal:
        return str(refusal)


RUN_IDS = [row.run_id for row in ROWS]


async def _runs(world: World) -> object:
    budget = await world.store.budget(batch_tag(BATCH.name))
    return await world.store.runs(RUN_IDS), await world.store.examine(RUN_IDS), budget


async def _everything(world: World) -> object:
    store, run_ids = world.store, RUN_IDS
    return (
        [await store.transcript(run_id) for run_id in run_ids],
        [await store.ledger(run_id) for run_id in run_ids],
        [await store.whole_result(run_id, CallId(call)) for run_id in run_ids for call in CALLS],
        await store.cancel_requested(run_ids),
        await store.counts(batch_tag(BATCH.name)),
        await store.due(limit=10),
        await store.dead(limit=10),
        await store.metrics(),
    )


@contextmanager
def both_worlds(valkey_url: str) -> Iterator[tuple[asyncio.Runner, World, World]]:
    """A loop, and both stores with two queued runs. Hypothesis draws between steps, so the steps are not one task."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        memory, redis = memory_world(), runner.run(stack.enter_async_context(redis_world(Redis.from_url(valkey_url))))
        for world in (memory, redis):
            runner.run(submitted(world.store, *ROWS))
        try:
            yield runner, memory, redis
        finally:
            runner.run(stack.aclose())


@settings(max_examples=30)
@given(data=st.data())
def test_both_stores_answer_alike_and_stand_alike(valkey_url: str, data: st.DataObject) -> None:
    with both_worlds(valkey_url) as (runner, memory, redis):
        for _ in range(data.draw(st.integers(5, 40))):
            examined = runner.run(memory.store.examine(RUN_IDS))
            fitting = [_what_fits(row, run) for row, run in enumerate(examined) if run]
            move = data.draw(st.one_of(*fitting, *fitting, ANYTHING))
            assert runner.run(_answer(memory, move)) == runner.run(_answer(redis, move)), move
            assert runner.run(_runs(memory)) == runner.run(_runs(redis)), move
        assert runner.run(_everything(memory)) == runner.run(_everything(redis))
