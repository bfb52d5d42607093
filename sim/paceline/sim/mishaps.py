"""What the faults do to an answer before it leaves: refusals in its place, and odd things for the model to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from paceline.sim.answer import Answer
from paceline.sim.call import Call, ServerCall
from paceline.sim.dialects import Failure
from paceline.sim.faults import Fault
from paceline.sim.limits import ORGANIZATION
from paceline.sim.message import CALL
from paceline.sim.misinputs import VIOLATIONS, violating
from paceline.sim.request import Request
from paceline.sim.rules import Refusal, Rule, refuse

HTML = b"<html><head><title>%s</title></head><body><center><h1>%s</h1></center></body></html>\n"
_HUGE_TOKENS = 128_000
_HUGE_TEXT = "word " * 90_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReply:
    """An error in place of an answer, with the headers that go with it; without a `failure` it is a proxy's page
    with `title`."""

    status: int
    failure: Failure | None = None
    title: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    refusal: Refusal | None = None


def api_error(status: int, error_type: str, text: str) -> ErrorReply:
    """An error that is no rule's."""
    return ErrorReply(status=status, failure=Failure(status=status, error_type=error_type, text=text))


def _refused(rule: Rule, error_code: str | None = None, headers: Mapping[str, str] | None = None) -> ErrorReply:
    return refusal_reply(refuse(rule), headers, error_code)


def refusal_reply(
    refusal: Refusal, headers: Mapping[str, str] | None = None, error_code: str | None = None
) -> ErrorReply:
    """The error that a broken rule is answered with."""
    rule = refusal.rule
    failure = Failure(status=rule.status, error_type=rule.error_type, text=refusal.text, error_code=error_code)
    return ErrorReply(status=rule.status, failure=failure, headers=headers or {}, refusal=refusal)


def _page(status: int, title: str) -> ErrorReply:
    return ErrorReply(status=status, title=title)


_ERRORS: Mapping[str, ErrorReply] = MappingProxyType(
    {
        "spend_limit": _refused(Rule.SPEND_CAP, "enforced_spend_limit_reached", {"x-should-retry": "false"}),
        "own_spend_limit": _refused(Rule.OWN_SPEND_LIMIT),
        "no_credit": _refused(Rule.NO_CREDIT),
        "overloaded": api_error(529, "overloaded_error", "Overloaded"),
        "server_error": api_error(500, "api_error", "Internal server error"),
        "bad_gateway": _page(502, "502 Bad Gateway"),
        "unavailable": _page(503, "503 Service Temporarily Unavailable"),
        "gateway_timeout": _page(504, "504 Gateway Time-out"),
        "revoked_key": _refused(Rule.WRONG_KEY),
        "too_large": _refused(Rule.TOO_LARGE),
    }
)


def error_of(fault: Fault, request: Request) -> ErrorReply:
    """The error that a fault of stage REFUSED answers with."""
    match fault.name:
        case "rate_limited":
            refusal = refuse(
                Rule.RATE_LIMITED, limit=50, unit="requests", organization=ORGANIZATION, model=request.model
            )
            return refusal_reply(refusal, {} if fault.retry_after is None else {"retry-after": str(fault.retry_after)})
        case "model_retired":
            return refusal_reply(refuse(Rule.UNKNOWN_MODEL, model=request.model))
        case "prompt_too_long":
            return refusal_reply(refuse(Rule.PROMPT_TOO_LONG, tokens=1_000_310, most=1_000_000))
        case name:
            return _ERRORS[name]


def misspoken(fault: Fault, answer: Answer, request: Request) -> Answer:
    """What the model says instead, under a fault of stage SPOKEN."""
    if fault.name in ("unknown_block", "redacted_thinking"):
        strange = {"type": "hologram", "shape": "cube"} if fault.name == "unknown_block" else {"type": fault.name}
        return replace(answer, blocks=[strange, *_said(answer)])
    return _misspoken(fault, replace(answer, blocks=None), request)


def _misspoken(fault: Fault, answer: Answer, request: Request) -> Answer:
    match fault.name:
        case "many_calls" | "same_call" | "ping_pong" | "duplicate_ids" | "reused_id":
            return _asking(answer, *_miscounted(fault, answer, request))
        case "unknown_tool" | "miscased_tool" | "removed_tool":
            return _asking(answer, replace(_first(fault, answer, request), tool=_misnamed(fault, answer, request)))
        case name if name in VIOLATIONS:
            return _misinput(name, _first(fault, answer, request), answer, request)
        case "cut_call" | "cut_call_partly" | "cut_text" | "cut_thinking":
            return _cut(fault, answer, request)
        case "thinking":
            return replace(answer, thinking=answer.thinking or "I should read the page first.")
        case "empty_thinking":
            return replace(answer, thinking="")
        case "refusal" | "refusal_midway" | "empty_answer":
            return _given_up(fault, answer, request)
        case _:
            return _ended(fault, answer, request)


def _ended(fault: Fault, answer: Answer, request: Request) -> Answer:
    """Ends and contents that do not fit each other, or that nobody knows."""
    match fault.name:
        case "pause_turn":
            search = ServerCall(tool="web_search", input={"query": "on-call"}, result=[])
            text = answer.text or "Still at it."
            return replace(answer, text=text, server_calls=(search,), calls=(), stop_reason="pause_turn")
        case "context_window_exceeded":
            return replace(answer, calls=(), stop_reason="model_context_window_exceeded")
        case "tool_use_without_call":
            return replace(answer, text=answer.text or "Let me look.", calls=(), stop_reason="tool_use")
        case "end_turn_with_call":
            return replace(_asking(answer, _first(fault, answer, request)), stop_reason="end_turn")
        case "mixed_server_call":
            search = ServerCall(tool="web_search", input={"query": "on-call"})
            return replace(_asking(answer, _first(fault, answer, request)), server_calls=(search,))
        case "unknown_stop_reason":
            return replace(answer, stop_reason="moon_phase")
        case "huge_answer":
            return replace(answer, text=_HUGE_TEXT, calls=(), output_tokens=_huge_tokens(request))
        case "huge_input":
            call = _first(fault, answer, request)
            asking = _asking(answer, replace(call, input={**call.input, **_huge_input(call)}))
            return replace(asking, output_tokens=_huge_tokens(request))
        case _:
            return answer


def _huge_tokens(request: Request) -> int:
    return min(_HUGE_TOKENS, request.max_tokens)


def _huge_input(call: Call) -> dict[str, str]:
    names = [name for name, value in call.input.items() if isinstance(value, str)]
    return {names[0] if names else "text": _HUGE_TEXT}


def _given_up(fault: Fault, answer: Answer, request: Request) -> Answer:
    if fault.name == "empty_answer":
        return replace(answer, text="", calls=(), stop_reason="end_turn", output_tokens=3)
    if fault.name == "refusal":
        return replace(answer, text="", calls=(), stop_reason="refusal")
    calls = (_first(fault, answer, request),) if answer.calls or fault.calls or request.fields.get("tools") else ()
    return replace(answer, text=answer.text[:20] or "First I would", calls=calls, stop_reason="refusal")


def _cut(fault: Fault, answer: Answer, request: Request) -> Answer:
    ends: dict[str, Any] = {"stop_reason": "max_tokens", "output_tokens": request.max_tokens}
    match fault.name:
        case "cut_text":
            text = answer.text or "The rotation that owns this is"
            return replace(answer, text=text[: len(text) // 2 + 1], calls=(), **ends)
        case "cut_thinking":
            return replace(answer, thinking=answer.thinking or "So the page says", text="", calls=(), **ends)
        case "cut_call":
            return replace(_asking(answer, replace(_first(fault, answer, request), input={})), **ends)
        case _:
            call = violating("cut", _first(fault, answer, request), request)
            return replace(_asking(answer, call), **ends)


def _said(answer: Answer) -> list[Mapping[str, Any]]:
    """What the model says anyway, as blocks for the API to complete."""
    if answer.blocks is not None:
        return list(answer.blocks)
    text = [{"type": "text", "text": answer.text}] if answer.text else []
    return [*text, *({"type": CALL, "name": call.tool, "input": dict(call.input)} for call in answer.calls)]


def _misinput(name: str, call: Call, answer: Answer, request: Request) -> Answer:
    asking = _asking(answer, violating(name, call, request))
    return replace(asking, output_tokens=min(2000, request.max_tokens)) if name == "input_huge_string" else asking


def _miscounted(fault: Fault, answer: Answer, request: Request) -> list[Call]:
    calls = _calls(fault, answer, request)
    match fault.name:
        case "many_calls":
            return [replace(calls[0], id="")] * fault.count
        case "ping_pong":
            return [calls[request.turn % 2 - 1] if len(calls) > 1 else calls[0]]
        case "duplicate_ids":
            return [replace(calls[0], id=f"toolu_01twice{request.turn}")] * 2
        case "reused_id":
            earlier = [call for message in request.sent for call in message.calls]
            return [replace(calls[0], id=earlier[-1] if earlier else "")]
        case _:
            return [calls[0]]


def _misnamed(fault: Fault, answer: Answer, request: Request) -> str:
    match fault.name:
        case "miscased_tool":
            return _first(fault, answer, request).tool.swapcase()
        case "removed_tool":
            offered = {tool.get("name") for tool in request.fields.get("tools") or ()}
            used = [block.name for message in request.sent for block in message.blocks if block.kind == CALL]
            return next((name for name in used if name not in offered), "a_tool_of_yesterday")
        case _:
            return "no_such_tool"


def _asking(answer: Answer, *calls: Call) -> Answer:
    return replace(answer, calls=calls, stop_reason="tool_use", output_tokens=None)


def _first(fault: Fault, answer: Answer, request: Request) -> Call:
    return _calls(fault, answer, request)[0]


def _calls(fault: Fault, answer: Answer, request: Request) -> list[Call]:
    """Calls to make: the fault's own, else the answer's, else one of each tool of the request."""
    calls = list(fault.calls) or list(answer.calls)
    calls = calls or [Call(tool=str(tool["name"])) for tool in request.fields.get("tools") or ()]
    if not calls:
        raise ValueError(f"the fault {fault.name} needs a tool, and neither it nor the request names one")
    return calls
