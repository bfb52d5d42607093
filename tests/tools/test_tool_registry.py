from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.tools import Registry, ToolLoadError

TOOLS = '''
from paceline.tools import tool

@tool(effect="reads")
def get_page(path: str) -> str:
    """Read a page."""
    return path

def plain(path: str) -> str:
    return path

NUMBER = 3
'''


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of modules; afterwards Python's path and modules are as they were."""
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def refused(folder: Path, path: str) -> str:
    with pytest.raises(ToolLoadError) as error:
        Registry([folder]).load(path)
    assert repr(path) in str(error.value)
    return str(error.value)


def test_a_tool_is_found_in_a_search_path_and_bears_the_path_it_was_asked_by(folder: Path) -> None:
    (folder / "shop_tools.py").write_text(TOOLS)
    (folder / "shop_alias.py").write_text("from shop_tools import get_page")
    registry = Registry([folder])
    assert registry.load("shop_tools:get_page").spec.path == "shop_tools:get_page"
    assert registry.load("shop_alias:get_page").spec.path == "shop_alias:get_page"
    assert registry.load("shop_tools:get_page") is registry.load("shop_tools:get_page")


def test_a_module_inside_a_package_is_found(folder: Path) -> None:
    (folder / "shop").mkdir()
    (folder / "shop" / "pages.py").write_text(TOOLS)
    assert Registry([folder]).load("shop.pages:get_page").spec.name == "get_page"


def test_nothing_is_added_to_pythons_path_before_a_tool_is_loaded(folder: Path) -> None:
    Registry([folder])
    assert str(folder) not in sys.path


def test_a_users_module_cannot_take_the_place_of_pythons_own(folder: Path) -> None:
    (folder / "shop_tools.py").write_text(TOOLS)
    (folder / "colorsys.py").write_text("raise AssertionError('imported')")
    Registry([folder]).load("shop_tools:get_page")
    sys.modules.pop("colorsys", None)
    import colorsys

    assert "colorsys" in str(colorsys.__file__)
    assert not str(colorsys.__file__).startswith(str(folder))


@pytest.mark.parametrize(
    "path", ["", "shop_tools", "shop_tools:", ":f", "shop-tools:f", "a.b.c", "a:b:c", "a:b.c", "../a:b"]
)
def test_a_path_of_another_form_is_refused(folder: Path, path: str) -> None:
    assert "`module:function`" in refused(folder, path)


def test_a_missing_module_is_told_with_where_it_was_looked_for(folder: Path) -> None:
    text = refused(folder, "no_such_module:f")
    assert "no module 'no_such_module'" in text
    assert str(folder) in text
    assert "PACELINE_TOOLS_PATH" in text


def test_a_missing_inner_module_is_told(folder: Path) -> None:
    (folder / "shop").mkdir()
    (folder / "shop" / "__init__.py").write_text("")
    assert "no module 'shop.pages'" in refused(folder, "shop.pages:f")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import no_such_dependency", ["importing broken failed", "no_such_dependency", "python -c 'import broken'"]),
        ("1 / 0", ["ZeroDivisionError"]),
        ("raise SystemExit('usage: broken')", ["SystemExit", "usage: broken"]),
        ("def f(:", ["SyntaxError"]),
        ("from paceline.tools import tool\n@tool\ndef f(path): 'Doc.'", ["ToolDefinitionError", "no type hint"]),
    ],
)
def test_a_module_that_fails_to_import_is_told_with_its_error(folder: Path, code: str, words: list[str]) -> None:
    (folder / "broken.py").write_text(code)
    text = refused(folder, "broken:f")
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("shop_tools:get_pge", ["no get_pge", "did you mean get_page?"]),
        ("shop_tools:send_mail", ["no send_mail", "its tools are: get_page"]),
        ("shop_tools:plain", ["it is no tool", "@tool"]),
        ("shop_tools:NUMBER", ["it is a int"]),
    ],
)
def test_what_is_not_a_tool_is_told_with_what_there_is(folder: Path, path: str, words: list[str]) -> None:
    (folder / "shop_tools.py").write_text(TOOLS)
    text = refused(folder, path)
    for word in [*words, str(folder)]:
        assert word in text


def test_a_module_mended_after_a_failure_is_loaded(folder: Path) -> None:
    registry = Registry([folder])
    with pytest.raises(ToolLoadError):
        registry.load("late_tools:get_page")
    (folder / "late_tools.py").write_text(TOOLS)
    assert registry.load("late_tools:get_page").spec.name == "get_page"
