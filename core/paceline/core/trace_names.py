"""Every name that a span may carry. The `gen_ai` ones are those of the GenAI conventions 0.1, still in development.

A key that is not here is in no span: that is how prompts, answers, arguments and an API's own words stay out of them.
Only where an operator asks for what was said there are others, in `worker/paceline/worker/telemetry/content.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
CONVERSATION = "gen_ai.conversation.id"
AGENT = "gen_ai.agent.name"
SERVER = "server.address"
SERVER_PORT = "server.port"
REQUEST_MODEL = "gen_ai.request.model"
MAX_TOKENS = "gen_ai.request.max_tokens"
REASONING = "gen_ai.request.reasoning.level"
OUTPUT_TYPE = "gen_ai.output.type"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
"""With what was read from and written to the cache, unlike on Anthropic's wire."""
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_write.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
COMPACTED = "gen_ai.conversation.compacted"
TOOL = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
CALL = "gen_ai.tool.call.id"
ERROR = "error.type"
MESSAGING_SYSTEM = "messaging.system"
MESSAGING_OPERATION = "messaging.operation.name"
MESSAGING_TYPE = "messaging.operation.type"
QUEUE = "messaging.destination.name"
RAW_STOP_REASON = "anthropic.message.stop_reason"

RUN = "paceline.run.id"
TURN = "paceline.turn"
ATTEMPT = "paceline.attempt"
WORKER = "paceline.worker"
QUEUE_WAIT = "paceline.queue_wait_seconds"
HOLD = "paceline.hold_seconds"
STATUS = "paceline.status"
STOP_REASON = "paceline.stop_reason"
COST = "paceline.cost_usd"
"""Absent where a price is not known."""
POSSIBLY_BILLED_TOKENS = "paceline.possibly_billed_tokens"
POSSIBLY_BILLED_USD = "paceline.possibly_billed_usd"
"""The most that a call without an answer may have used and cost; in no sum of tokens or cost."""
TURNS = "paceline.turns"
TOOL_CALLS = "paceline.tool_calls"
ATTEMPTS = "paceline.attempts"
LOST_ATTEMPTS = "paceline.lost_attempts"
WORKING = "paceline.working_seconds"
LIFE = "paceline.life"
"""How often the run was redriven; absent where it was not."""
RESULT_CHARS = "paceline.result_chars"
CLEARED_RESULTS = "paceline.compaction.cleared_results"
TOKENS_BEFORE = "paceline.compaction.tokens_before"
TOKENS_AFTER = "paceline.compaction.tokens_after"
SAVED = "paceline.compaction.saved_usd"
REWRITE = "paceline.compaction.rewrite_usd"
"""Both absent where a price is not known."""
SOURCE = "paceline.result_source"
"""Who said what became of a call: its tool when asked (`reconcile`) or a person; absent where the tool ran."""

INVOKE_AGENT = "invoke_agent"
TURN_NAME = "turn"
CHAT = "chat"
EXECUTE_TOOL = "execute_tool"
HELD_EVENT = "paceline.held"
RULED_OUT_EVENT = "paceline.ruled_out"
"""A call that was in doubt has not taken effect, and was run again."""
APPROVED_EVENT = "paceline.approved"
DENIED_EVENT = "paceline.denied"
"""A person said that a call may run, or may not."""
REDRIVEN_EVENT = "paceline.redriven"
"""Somebody wanted the run to go on after its end."""

COMPACTED_EVENT = "paceline.compacted"

WORKER_LOST = "worker_lost"
THROTTLED = "throttled"
MODEL_FAILED = "model_failed"
TOOL_ERROR = "tool_error"
UNKNOWN_EFFECT = "unknown_effect"

_FINISH: Mapping[str, str] = MappingProxyType(
    {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_call"}
)


def finish_reason(stop_reason: str) -> str:
    """Anthropic's stop reason in the conventions' word, where they have one."""
    return _FINISH.get(stop_reason, stop_reason)
