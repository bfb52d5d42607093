"""What the faults do to an answer before it leaves: refusals in its place, and odd things for the model to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from paceline.sim.answer import Answer
from paceline.sim.call import Call
from paceline.sim.faults import Fault
from paceline.sim.limits import ORGANIZATION
from paceline.sim.request import Request
from paceline.sim.rules import Rule, error_body, refuse

HTML = b"<html><head><title>%s</title></head><body><center><h1>%s</h1></center></body></html>\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReply:
    """An error in place of an answer; without a type the body is a proxy's HTML page with `text` as title."""

    status: int
    text: str
    error_type: str | None = None
    error_code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content_type(self) -> str:
        return "application/json" if self.error_type else "text/html"

    def body(self, request_id: str) -> bytes:
        if self.error_type is None:
            title = self.text.encode()
            return HTML % (title, title)
        return error_body(self.error_type, self.text, request_id, self.error_code)


# The text of the monthly cap is cut in the source it is known from; its beginning is verbatim.
_SPEND_LIMIT = ErrorReply(
    status=429,
    error_type="rate_limit_error",
    error_code="enforced_spend_limit_reached",
    text="You have reached your API usage limits: your organization has crossed its monthly API usage threshold."
    " You will regain access on 2026-12-01 at 00:00 UTC.",
    headers={"x-should-retry": "false"},
)
_ERRORS: Mapping[str, ErrorReply] = MappingProxyType(
    {
        "spend_limit": _SPEND_LIMIT,
        "overloaded": ErrorReply(status=529, error_type="overloaded_error", text="Overloaded"),
        "server_error": ErrorReply(status=500, error_type="api_error", text="Internal server error"),
        "bad_gateway": ErrorReply(status=502, text="502 Bad Gateway"),
        "unavailable": ErrorReply(status=503, text="503 Service Temporarily Unavailable"),
        "gateway_timeout": ErrorReply(status=504, text="504 Gateway Time-out"),
        "revoked_key": ErrorReply(status=401, error_type="authentication_error", text=Rule.WRONG_KEY.text),
    }
)


def error_of(fault: Fault, request: Request) -> ErrorReply:
    """The error that a fault of stage REFUSED answers with."""
    if fault.name != "rate_limited":
        return _ERRORS[fault.name]
    refusal = refuse(Rule.RATE_LIMITED, limit=50, unit="requests", organization=ORGANIZATION, model=request.model)
    headers = {} if fault.retry_after is None else {"retry-after": str(fault.retry_after)}
    return ErrorReply(status=429, error_type=Rule.RATE_LIMITED.error_type, text=refusal.text, headers=headers)


def misspoken(fault: Fault, answer: Answer, request: Request) -> Answer:
    """What the model says instead, under a fault of stage SPOKEN."""
    match fault.name:
        case "empty_answer":
            return replace(answer, text="", calls=(), stop_reason="end_turn", output_tokens=3)
        case "many_calls":
            first = _calls(fault, answer, request)[0]
            return _asking(answer, *[replace(first, id="")] * fault.count)
        case "same_call":
            return _asking(answer, _calls(fault, answer, request)[0])
        case "ping_pong":
            calls = _calls(fault, answer, request)
            return _asking(answer, calls[request.turn % 2 - 1] if len(calls) > 1 else calls[0])
        case "cut_call":
            first = replace(_calls(fault, answer, request)[0], input={})
            return replace(_asking(answer, first), stop_reason="max_tokens", output_tokens=request.max_tokens)
        case "refusal":
            return replace(answer, text="", calls=(), stop_reason="refusal")
        case "pause_turn":
            return replace(answer, text=answer.text or "Still at it.", calls=(), stop_reason="pause_turn")
        case "context_window_exceeded":
            return replace(answer, calls=(), stop_reason="model_context_window_exceeded")
        case _:
            return answer


def _asking(answer: Answer, *calls: Call) -> Answer:
    return replace(answer, calls=calls, stop_reason="tool_use", output_tokens=None)


def _calls(fault: Fault, answer: Answer, request: Request) -> list[Call]:
    """Calls to make: the fault's own, else the answer's, else one of each tool of the request."""
    calls = list(fault.calls) or list(answer.calls)
    calls = calls or [Call(tool=str(tool["name"])) for tool in request.fields.get("tools") or ()]
    if not calls:
        raise ValueError(f"the fault {fault.name} needs a tool, and neither it nor the request names one")
    return calls
