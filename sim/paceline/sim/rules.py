"""Every text with which the Messages API refuses a request, in one table.

A row is: number of the rule, HTTP status, text, where the text was seen, and whether it was seen
at all. `{at}` is the path of the offending field; other braces are filled by the check that refuses.

Checks are generators of refusals of which only the first is asked for, as the API tells only one: what stands after
a `yield` may rely on that refusal not having happened, unless its row is UNVERIFIED: those may be left unenforced.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
UNVERIFIED = False
_CALLS_UNANSWERED = (
    "{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}. Each `tool_use`"
    " block must have a corresponding `tool_result` block in the next message."
)


class Rule(Enum):
    """One refusal of the API. Members are in the order of their numbers."""

    def __init__(self, number: int, status: int, text: str, source: str, verified: bool = True) -> None:
        self.number = number
        self.status = status
        self.text = text
        self.error_type = ERROR_TYPES[status]
        self.source = source
        self.verified = verified

    NO_KEY = (1, 401, "x-api-key header is required", "third-party mocks", UNVERIFIED)
    WRONG_KEY = (2, 401, "invalid x-api-key", "issue opencode-websearch#15")
    WRONG_BEARER = (3, 401, "Invalid bearer token", "issue openclaw#54350")
    NO_VERSION = (4, 400, "anthropic-version: header is required", "issue Marinara-Engine#120")
    BAD_VERSION = (
        5,
        400,
        'anthropic-version: "{version}" is not a valid version',
        "issue directus-labs#285",
    )
    UNKNOWN_BETA = (
        6,
        400,
        "Unexpected value(s) `{value}` for the `anthropic-beta` header. Please consult our documentation at"
        " docs.claude.com or try again without the header.",
        "issue cherry-studio#11597",
    )
    NOT_JSON = (7, 400, "The request body is not valid JSON: {reason}", "issue claude-code#60394")
    NOT_AN_OBJECT = (7, 400, "{at}: Input should be a valid dictionary", "pydantic form", UNVERIFIED)
    TOO_LARGE = (
        8,
        413,
        "Request exceeds the maximum size",
        "issue anthropic-sdk-python#938",
    )
    MISSING_FIELD = (9, 400, "{at}: Field required", "pydantic form, several issues")
    WRONG_TYPE = (9, 400, "{at}: Input should be {expected}", "pydantic form, several issues")
    EXTRA_FIELD = (10, 400, "{at}: Extra inputs are not permitted", "issue claude-code#4378")
    UNKNOWN_TAG = (
        11,
        400,
        "{at}: Input tag '{tag}' found using 'type' does not match any of the expected tags: {expected}",
        "issue dirac#57",
    )
    UNKNOWN_MODEL = (12, 404, "model: {model}", "issue claude-code#5349")
    NO_MESSAGES = (13, 400, "messages: at least one message is required", "third-party trace")
    FIRST_NOT_USER = (
        14,
        400,
        'messages: first message must use the "user" role',
        "third-party, old",
        UNVERIFIED,
    )
    BAD_ROLE = (
        15,
        400,
        'messages: Unexpected role "{role}". Allowed roles are "user" or "assistant". For instructions on how'
        " to use tools, see https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview.",
        "issue NyarchAssistant#157",
    )
    NO_SYSTEM_ROLE = (
        16,
        400,
        "role 'system' is not supported on this model",
        "issue claude-code#61412",
    )
    SYSTEM_MISPLACED = (
        17,
        400,
        "{at}: a message with role 'system' {reason}",
        "docs, mid-conversation system messages",
        UNVERIFIED,
    )
    CALLS_UNANSWERED = (
        19,
        400,
        _CALLS_UNANSWERED,
        "issue claude-code#7929",
    )
    RESULTS_NOT_FIRST = (20, 400, _CALLS_UNANSWERED, "docs, server tools; issue Zoo-Code#1307")
    CALLS_NOT_LAST = (21, 400, _CALLS_UNANSWERED, "issue claude-code#473")
    RESULT_WITHOUT_CALL = (
        22,
        400,
        "{at}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must"
        " have a corresponding `tool_use` block in the previous message.",
        "issue claude-code#18947",
    )
    RESULT_TWICE = (
        23,
        400,
        "{at}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}",
        "issue hindsight#4250",
    )
    CALL_ID_TWICE = (24, 400, "{at}: `tool_use` ids must be unique", "issue litellm#23510")
    BAD_ID = (
        25,
        400,
        "{at}: String should match pattern '^[a-zA-Z0-9_-]+$'",
        "issue ClawRouter#17",
    )
    INPUT_NOT_OBJECT = (
        26,
        400,
        "{at}: Input should be a valid dictionary",
        "issue claude-code#6696",
    )
    WRONG_SIDE = (
        27,
        400,
        "{at}: `{kind}` blocks can only be in `{role}` messages",
        "none",
        UNVERIFIED,
    )
    EMPTY_TEXT = (
        28,
        400,
        "messages: text content blocks must be non-empty",
        "issue claude-code#59812",
    )
    BLANK_TEXT = (
        29,
        400,
        "messages: text content blocks must contain non-whitespace text",
        "none",
        UNVERIFIED,
    )
    EMPTY_CONTENT = (
        30,
        400,
        "{at}: all messages must have non-empty content except for the optional final assistant message",
        "issue claude-code#4416",
    )
    PREFILL = (
        31,
        400,
        "This model does not support assistant message prefill. The conversation must end with a user message.",
        "docs, api/errors",
    )
    PREFILL_BLANK_END = (
        32,
        400,
        "messages: final assistant content cannot end with trailing whitespace",
        "third-party mock",
        UNVERIFIED,
    )
    THINKING_MODIFIED = (
        33,
        400,
        "{at}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These"
        " blocks must remain as they were in the original response.",
        "docs, api/errors",
    )
    THINKING_EXPECTED = (
        33,
        400,
        "{at}.type: Expected `thinking` or `redacted_thinking`, but found `{found}`. When `thinking` is enabled, a"
        " final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and"
        " `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid this"
        " requirement, disable `thinking`. Please consult our documentation at"
        " https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking",
        "issue pydantic-ai#2075",
    )
    BAD_SIGNATURE = (34, 400, "{at}: Invalid `signature` in `thinking` block", "issue langchain#33391")
    BAD_REDACTED = (34, 400, "{at}: Invalid `data` in `redacted_thinking` block", "none", UNVERIFIED)
    THINKING_MOVED = (
        35,
        400,
        "{at}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the"
        ' block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block". That setting requires the'
        " `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header. {differs}",
        "issue opencode#48637",
    )
    SERVER_CALL_UNANSWERED = (
        36,
        400,
        "`{tool}` tool use with id `{id}` was found without a corresponding `{result}` block{gone}",
        "docs, server tools",
    )
    SERVER_RESULT_ALONE = (
        37,
        400,
        "{at}: unexpected `tool_use_id` found in `{kind}` blocks: {id}. Each `{kind}` block must have a"
        " corresponding `{use}` block before it.",
        "issue claude-code#64383",
    )
    TOOL_NAME_LENGTH = (
        38,
        400,
        "{at}: String should have at most 128 characters",
        "issue claude-code#96152",
    )
    TOOL_NAME_PATTERN = (
        38,
        400,
        "{at}: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'",
        "issue home-assistant#147760",
    )
    TOOL_NAME_TWICE = (39, 400, "tools: Tool names must be unique.", "issue claude-code#10687")
    BAD_SCHEMA = (
        40,
        400,
        "{at}: JSON schema is invalid. It must match JSON Schema draft 2020-12"
        " (https://json-schema.org/draft/2020-12). Learn more about tool use at"
        " https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview.",
        "issue claude-code#86664",
    )
    BAD_EXAMPLE = (40, 400, "{at}: does not match the input_schema: {reason}", "docs, tool use", UNVERIFIED)
    TOP_LEVEL_UNION = (
        41,
        400,
        "{at}: input_schema does not support oneOf, allOf, or anyOf at the top level",
        "issue Codewhale#4329",
    )
    NO_SCHEMA_TYPE = (42, 400, "{at}: Field required", "pydantic form", UNVERIFIED)
    ALL_DEFERRED = (
        43,
        400,
        "At least one tool must have defer_loading=false. All tools cannot be deferred.",
        "docs, tool search tool",
    )
    REFERENCE_UNKNOWN = (
        44,
        400,
        "Tool reference '{tool}' not found in available tools",
        "docs, tool search tool",
    )
    CHOSEN_TOOL_UNKNOWN = (
        45,
        400,
        "Tool '{tool}' not found in provided tools",
        "issue, 2026",
    )
    CHOICE_NOT_SUPPORTED = (
        46,
        400,
        'tool_choice: type "tool" and "any" are not supported for this model.',
        "docs, migration guide",
    )
    CHOICE_WITH_THINKING = (
        47,
        400,
        "Thinking may not be enabled when tool_choice forces tool use.",
        "issue mastra#7507",
    )
    CHOICE_WITHOUT_TOOLS = (
        48,
        400,
        "tool_choice may only be specified while providing tools",
        "none",
        UNVERIFIED,
    )
    CALLS_WITHOUT_TOOLS = (
        49,
        400,
        "Requests which include `tool_use` or `tool_result` blocks must define tools",
        "compatible servers; the API itself is believed to accept it",
        UNVERIFIED,
    )
    THINKING_KIND = (
        50,
        400,
        '"thinking.type.{kind}" is not supported for this model. Use "thinking.type.adaptive" and'
        ' "output_config.effort" to control thinking behavior.',
        "docs, api/errors",
    )
    NO_ADAPTIVE_THINKING = (50, 400, "adaptive thinking is not supported on this model", "docs, api/errors")
    EFFORT_WITHOUT_THINKING = (
        50,
        400,
        '"thinking.type.disabled" is not supported with effort "{effort}" for this model.',
        "docs, migration guide",
        UNVERIFIED,
    )
    BUDGET_TOO_LARGE = (
        50,
        400,
        "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at"
        " https://docs.claude.com/en/docs/build-with-claude/extended-thinking#max-tokens-and-context-window-size",
        "docs, extended thinking",
    )
    BUDGET_TOO_SMALL = (
        50,
        400,
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        "pydantic form",
        UNVERIFIED,
    )
    TOOL_TYPE_NOT_SUPPORTED = (
        50,
        400,
        "'{model}' does not support tool types: {types}.",
        "docs, what is new in Opus 5.5",
    )
    NO_FAST_MODE = (50, 400, "speed: 'fast' is not supported for this model", "docs, fast mode", UNVERIFIED)
    SAMPLING_GONE = (51, 400, "`{at}` is deprecated for this model.", "issue Metaculus#308")
    DOCUMENT_IN_ANSWER = (
        52,
        400,
        "{at}: `document` blocks are not allowed in `assistant` messages",
        "docs, migration to 2026-10-21",
        UNVERIFIED,
    )
    CITATIONS_IN_INPUT = (
        52,
        400,
        "{at}.citations: text blocks with citations are not allowed here",
        "docs, migration to 2026-10-21",
        UNVERIFIED,
    )
    MAX_TOKENS_TOO_LARGE = (
        53,
        400,
        "max_tokens: {asked} > {most}, which is the maximum allowed number of output tokens for {model}",
        "issue claude-code#24451",
    )
    WARMING_WITH = (
        54,
        400,
        "max_tokens: 0 cannot be combined with {what}",
        "docs, prompt caching",
        UNVERIFIED,
    )
    PROMPT_TOO_LONG = (
        55,
        400,
        "prompt is too long: {tokens} tokens > {most} maximum",
        "issue claude-code#12186",
    )
    TOO_MANY_MARKERS = (
        56,
        400,
        "A maximum of 4 blocks with cache_control may be provided. Found {found}.",
        "issue continue#6937",
    )
    LONG_AFTER_SHORT = (
        57,
        400,
        "{at}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control"
        " block. Note that blocks are processed in the following order: tools, system, messages.",
        "issue vellum#22191, the last sentence not seen",
        UNVERIFIED,
    )
    MARKER_ON_EMPTY_TEXT = (
        58,
        400,
        "cache_control cannot be set for empty text blocks",
        "docs, prompt caching",
        UNVERIFIED,
    )
    USER_ID_PERSONAL = (
        59,
        400,
        "metadata.user_id: user_id appears to contain an email address. Please send a uuid or hash value instead.",
        "issue litellm#10106",
    )
    USER_ID_LENGTH = (
        59,
        400,
        "metadata.user_id: String should have at most 256 characters",
        "pydantic form",
        UNVERIFIED,
    )
    BLANK_STOP_SEQUENCE = (
        60,
        400,
        "stop_sequences: each stop sequence must contain non-whitespace",
        "none",
        UNVERIFIED,
    )
    SCHEMA_TOO_COMPLEX = (61, 400, "Schema is too complex for compilation.", "docs, structured outputs")
    REGEX_NOT_SUPPORTED = (
        61,
        400,
        "Unsupported regex feature in pattern field: {pattern}",
        "docs, structured outputs",
    )
    OPEN_OBJECT = (
        61,
        400,
        "{at}: For 'object' type, 'additionalProperties' must be explicitly set to false",
        "docs, structured outputs",
        UNVERIFIED,
    )
    KEYWORD_NOT_SUPPORTED = (
        61,
        400,
        "{at}: For '{kind}' type, properties {keywords} are not supported",
        "docs, structured outputs",
        UNVERIFIED,
    )
    RECURSIVE_SCHEMA = (
        61,
        400,
        "{at}: Recursive schemas are not supported",
        "docs, structured outputs",
        UNVERIFIED,
    )
    FORMAT_WITH_PREFILL = (
        61,
        400,
        "Your API request included an `assistant` message in the final position, which would pre-fill the"
        " `assistant` response. When using output format, pre-filling the `assistant` response is not supported.",
        "issue req_llm#642",
    )
    FORMAT_WITH_CITATIONS = (
        61,
        400,
        "{at}.citations: citations are not supported with output_config.format",
        "docs, structured outputs",
        UNVERIFIED,
    )
    NO_CONTAINER = (
        62,
        400,
        "container_id is required when there are pending tool uses generated by code execution with tools.",
        "issue anthropic-sdk-typescript#1114",
    )
    REPLY_NOT_RESULTS_ALONE = (
        62,
        400,
        "{at}: only `tool_result` blocks are allowed while tool uses of the previous message are pending on the server",
        "docs, programmatic tool calling",
        UNVERIFIED,
    )
    RESULT_NOT_TEXT = (
        62,
        400,
        "{at}: results of programmatic tool calls can only contain text",
        "docs, programmatic tool calling",
        UNVERIFIED,
    )
    CUSTOM_ID_LENGTH = (
        63,
        400,
        "{at}: String should have at most 64 characters",
        "issue anthropic-sdk-python#984",
    )
    CUSTOM_ID_PATTERN = (
        63,
        400,
        "{at}: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'",
        "pydantic form",
        UNVERIFIED,
    )
    CUSTOM_ID_TWICE = (
        63,
        400,
        "requests: custom_id must be unique within the batch. Found more than one: {id}",
        "docs, batch processing",
        UNVERIFIED,
    )
    NO_REQUESTS = (
        63,
        400,
        "requests: List should have at least 1 item after validation, not 0",
        "pydantic form",
        UNVERIFIED,
    )
    TOO_MANY_REQUESTS = (
        63,
        400,
        "requests: List should have at most 100000 items after validation, not {found}",
        "pydantic form",
        UNVERIFIED,
    )
    NOT_IN_A_BATCH = (64, 400, "{at}: not supported in message batches", "docs, batch processing", UNVERIFIED)
    NO_SUCH_BATCH = (65, 404, "message batch not found: {id}", "docs, batch processing", UNVERIFIED)
    RESULTS_NOT_READY = (
        65,
        404,
        "results of message batch {id} are not available: its processing status is {status}",
        "docs, batch processing",
        UNVERIFIED,
    )
    BATCH_NOT_ENDED = (
        65,
        400,
        "message batch {id} cannot be {done}: its processing status is {status}",
        "docs, batch processing",
        UNVERIFIED,
    )
    RATE_LIMITED = (
        66,
        429,
        "This request would exceed your organization's rate limit of {limit:,} {unit} per minute"
        " (org: {organization}, model: {model}). For details, refer to:"
        " https://docs.claude.com/en/api/rate-limits. You can see the response headers for current usage."
        " Please reduce the prompt length or the maximum tokens requested, or try again later. You may also contact"
        " sales at https://claude.com/contact-sales to discuss your options for a rate limit increase.",
        "issue obsidian-copilot#2327",
    )
    TOO_MANY_CONNECTIONS = (
        67,
        429,
        "Number of concurrent connections has exceeded your rate limit. Please try again later or contact sales"
        " at https://www.anthropic.com/contact-sales to discuss your options for a rate limit increase.",
        "issue anthropic-sdk-python#496",
    )
    # The text of the monthly cap is cut in its source; its beginning is verbatim.
    SPEND_CAP = (
        68,
        429,
        "You have reached your API usage limits: your organization has crossed its monthly API usage threshold."
        " You will regain access on 2026-12-01 at 00:00 UTC.",
        "docs, rate limits",
    )
    OWN_SPEND_LIMIT = (
        69,
        400,
        "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC.",
        "docs, rate limits",
    )
    NO_CREDIT = (
        69,
        400,
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or"
        " purchase credits.",
        "docs, and several issues",
    )
    # The simulator's own: the playbook has no answer for a request that the API would have accepted.
    NO_PLAYBOOK_RULE = (
        0,
        400,
        "paceline.sim: no rule of the playbook matches this request (turn {turn}, model {model}, last message"
        " {last}). Add a rule that does, or a last rule without `when`.",
        "the simulator",
    )


# Numbers of the API's rules that refuse nothing, and what the simulator does by them.
BEHAVIOURS: Mapping[int, str] = MappingProxyType(
    {
        18: "consecutive messages of one role are read as one",
        70: "prompt caching is accounted in `usage`",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A rule that a request breaks, with the path and the values that its text names."""

    rule: Rule
    at: str = ""
    values: dict[str, object] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.rule.text.format(at=self.at, **self.values)

    def under(self, path: str) -> Refusal:
        """The same refusal, its path continued from `path`."""
        return replace(self, at=path + self.at)


def refuse(rule: Rule, at: str = "", **values: object) -> Refusal:
    """A refusal by `rule` at the path `at`."""
    return Refusal(rule=rule, at=at, values=values)


def first_enforced(refusals: Iterable[Refusal], unenforced: Collection[Rule]) -> Refusal | None:
    """The first refusal by a rule that is enforced, as the API tells only one."""
    for refusal in refusals:
        if refusal.rule not in unenforced:
            return refusal
    return None


def error_body(error_type: str, text: str, request_id: str, error_code: str | None = None) -> bytes:
    """An error as the API writes it."""
    error: dict[str, object] = {"type": error_type, "message": text}
    if error_code is not None:
        error["details"] = {"error_code": error_code}
    return json.dumps({"type": "error", "error": error, "request_id": request_id}).encode()


def proxy_error_body(text: str) -> bytes:
    """A body that is too large is refused by the proxy before the API, in a shape of the proxy's own: no wrapper and
    no request id."""
    return json.dumps({"error": {"type": Rule.TOO_LARGE.error_type, "message": text}}).encode()
