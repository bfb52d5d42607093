"""Addresses of servers as they may be shown: without what lets somebody in.

An address that is wrong is shown as well, so nothing is taken for granted about its form: a password with a `/`, `?`
or `#` in it ends where the last `@` stands, whatever the rules of URLs say.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_LOGIN = re.compile(r"^(?P<scheme>[^:/?#@]*://)?(?P<login>.*)@", re.DOTALL)
_SECRET_OPTION = re.compile(r"(?P<name>[?&;][^=&;]*password[^=&;]*=)[^&;]*", re.IGNORECASE)
_HIDDEN = "***"


def without_password(url: str) -> str:
    """The address as it may be shown. Only a user who has a password beside the name is named."""
    return _LOGIN.sub(_hidden_login, _SECRET_OPTION.sub(rf"\g<name>{_HIDDEN}", url))


def why_not_an_address(url: str, read: Callable[[str], object]) -> str:
    """What is wrong with an address that `read` raises ValueError for, in words that may be shown; "" if none may."""
    without_login = _LOGIN.sub(lambda found: found["scheme"] or "", url)
    try:
        read(without_login)
    except ValueError as error:
        # A text that an option's value or the address is quoted in may quote a secret.
        return "" if _SECRET_OPTION.search(url) else str(error)
    return "in user and password, write %2F for /, %3F for ?, %23 for #, %40 for @, %5B for [ and %5D for ]"


def _hidden_login(found: re.Match[str]) -> str:
    user, colon, _ = found["login"].partition(":")
    return f"{found['scheme'] or ''}{user}:{_HIDDEN}@" if colon else f"{found['scheme'] or ''}{_HIDDEN}@"
