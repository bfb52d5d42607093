"""The models whose price is known, by name: to guess from when a file names another."""

from __future__ import annotations

from genai_prices.data_snapshot import get_snapshot

_PROVIDER = "anthropic"


def priced_models() -> list[str]:
    """Names as the API takes them."""
    provider = get_snapshot().find_provider(None, provider_id=_PROVIDER, provider_api_url=None)
    return [model.id for model in provider.models]
