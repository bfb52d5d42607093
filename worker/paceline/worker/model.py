"""The model, behind the official SDK: one door, every failure a value.

Only the SDK's raw `post` is used, with the bytes that were stored: auth, pool, proxies and error classes are the SDK's;
a transcript is not built, checked and serialised again. What the SDK lets through (200 with HTML, with half a JSON,
with no message at all) is refused by `read_answer`; what it would wait for (its own retries, a body that trickles) is
cut here.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Protocol

import aiohttp
import anthropic
import httpx2

from paceline.core.answer import Answer, Billed, BrokenAnswer, read_answer
from paceline.core.endings import ErrorClass
from paceline.core.step import FailureKind, ModelCallFailed

_CONNECT_SECONDS = 10.0
_SPEND_CAP_SECONDS = 300.0
"""How often an account at its spending cap is tried again: it has no retry-after, and nothing but a person ends it."""
_LONGEST_WAIT_SECONDS = 86_400.0
"""No server's word is taken for more than a day: it may be a slip, and the run would be gone without a trace."""
_TOO_LONG = re.compile("prompt is too long|exceeds? (the )?(model )?context (window|limit)", re.IGNORECASE)
"""How servers say that a request does not fit the model's window."""


NO_CREDENTIALS = "a worker has no credentials: set ANTHROPIC_API_KEY for it"


class ModelClient(Protocol):
    """Whatever answers requests of the Messages API."""

    async def call(self, body: bytes, *, seconds: float, betas: Sequence[str] = ()) -> Answer | ModelCallFailed:
        """The answer to this request within so many seconds, or why there is none. Raises only CancelledError."""

    async def aclose(self) -> None:
        """Give the connections back."""


class AnthropicModel:
    """The Messages API, by the environment's credentials and base URL (ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL, …)."""

    def __init__(self, *, longest_seconds: float) -> None:
        self._client = anthropic.AsyncAnthropic(
            max_retries=0,  # a worker never waits: a run goes on hold instead
            timeout=httpx2.Timeout(longest_seconds, connect=_CONNECT_SECONDS),
            http_client=anthropic.DefaultAioHttpClient(),  # half the CPU of the default transport
            # The SDK would trace each call a second time and send baggage to the API.
            open_telemetry={"traces": False, "propagation": False},
        )

    async def call(self, body: bytes, *, seconds: float, betas: Sequence[str] = ()) -> Answer | ModelCallFailed:
        try:
            # The SDK's timeout is per read: a trickling body would never end.
            async with asyncio.timeout(seconds):
                return read_answer(await self._post(body, betas))
        except TimeoutError:
            return _transient(f"no answer within {seconds:g} s", may_be_billed=True)
        except BrokenAnswer as error:
            return _transient(str(error), billed=error.billed, may_be_billed=error.billed is None)
        except anthropic.APIStatusError as error:
            return _of_status(error)
        except (anthropic.AnthropicError, httpx2.HTTPError) as error:
            return _transient(f"the connection failed ({type(error).__name__})", may_be_billed=not _is_unsent(error))
        except TypeError as error:
            if "authentication" not in str(error):
                raise
            return ModelCallFailed(kind=FailureKind.UNREADY, message=NO_CREDENTIALS, chance=0.0)

    async def aclose(self) -> None:
        await self._client.close()

    async def _post(self, body: bytes, betas: Sequence[str]) -> bytes:
        headers = {"content-type": "application/json"} | ({"anthropic-beta": ",".join(betas)} if betas else {})
        answer = await self._client.post(
            "/v1/messages",
            cast_to=httpx2.Response,
            content=body,
            options={"headers": headers},
        )
        return answer.content


def _of_status(error: anthropic.APIStatusError) -> ModelCallFailed:
    status, said, seconds = error.status_code, _said(error), _retry_after(error)
    if status in (429, 529):
        return ModelCallFailed(
            kind=FailureKind.THROTTLED,
            message=said,
            chance=random.random(),
            retry_after_seconds=_SPEND_CAP_SECONDS if _is_spend_cap(error) else seconds,
            blames=ErrorClass.QUOTA,
        )
    if status in (408, 409) or status >= 500 or status < 400:
        may_be_billed = status not in (408, 409) and not _is_the_apis_own(error)
        return _transient(said, retry_after_seconds=seconds, may_be_billed=may_be_billed)
    if _TOO_LONG.search(said):
        return replace(_refused(said, ErrorClass.BUDGET), is_too_long=True)
    return _refused(said, ErrorClass.INFRA if status in (401, 402, 403, 404) else ErrorClass.INPUT)


def _said(error: anthropic.APIStatusError) -> str:
    """The API's own words; they name fields and limits, never the prompt's text."""
    wrapped = error.body if isinstance(error.body, dict) else {}
    inner = wrapped.get("error")
    if isinstance(inner, dict) and inner.get("message"):
        return f"{error.status_code} {inner.get('type', '')}: {str(inner['message'])[:500]}"
    return f"{error.status_code} from the API or something before it"


def _is_unsent(error: Exception) -> bool:
    """Whether it failed before there was a connection to send anything by."""
    # The SDK and its transport call it a failed connection too when one is reset that had carried the request.
    unsent = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
    return any(isinstance(cause, unsent) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause = error.__cause__
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _is_the_apis_own(error: anthropic.APIStatusError) -> bool:
    """Whether the API itself says that it failed, and did not answer: what a proxy says may hide an answer, and so may
    the API's own word that it took too long."""
    body = error.body if isinstance(error.body, dict) else {}
    return error.status_code in (500, 503) and body.get("type") == "error"


def _is_spend_cap(error: anthropic.APIStatusError) -> bool:
    headers = error.response.headers
    return headers.get("x-should-retry") == "false" and "retry-after" not in headers


def _retry_after(error: anthropic.APIStatusError) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `retry-after` (seconds or a date), where one of them can be read."""
    headers = error.response.headers
    milliseconds = _number(headers.get("retry-after-ms", ""))
    seconds = milliseconds / 1000 if milliseconds is not None else _seconds_of(headers.get("retry-after", ""))
    return None if seconds is None else min(max(0.0, seconds), _LONGEST_WAIT_SECONDS)


def _seconds_of(said: str) -> float | None:
    try:
        return (parsedate_to_datetime(said) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return _number(said)


def _number(said: str) -> float | None:
    try:
        number = float(said)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _transient(
    message: str,
    *,
    retry_after_seconds: float | None = None,
    billed: Billed | None = None,
    may_be_billed: bool = False,
) -> ModelCallFailed:
    return ModelCallFailed(
        kind=FailureKind.TRANSIENT,
        message=message,
        chance=random.random(),
        retry_after_seconds=retry_after_seconds,
        billed=billed,
        may_be_billed=may_be_billed,
    )


def _refused(message: str, blames: ErrorClass) -> ModelCallFailed:
    return ModelCallFailed(kind=FailureKind.REFUSED, message=message, chance=0.0, blames=blames)
