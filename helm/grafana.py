"""Dashboards as values, and their JSON for Grafana 11 and newer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

COLUMNS = 24
SCHEMA_VERSION = 39
"""Grafana 11.0's; newer ones read it."""
TAG = "paceline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One expression, and what its lines are called (in Grafana's own templates)."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """From which value on a number is worth a look (yellow) and is bad (red); where `falls`, below which."""

    red: float
    yellow: float | None = None
    falls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel: its kind is Grafana's, `width` is of 24 columns."""

    title: str
    description: str
    unit: str
    queries: Sequence[Query]
    kind: str = "timeseries"
    width: int = 12
    height: int = 8
    threshold: Threshold | None = None
    stacked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """What the reader can choose: a label's values, as a series has them."""

    name: str
    label: str
    series: str
    of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One dashboard; its file is named as it is."""

    name: str
    title: str
    description: str
    variables: Sequence[Variable]
    rows: Sequence[Row]


def stat(
    title: str, description: str, expression: str, *, unit: str = "short", threshold: Threshold | None = None
) -> Panel:
    """One number."""
    return Panel(
        title=title,
        description=description,
        unit=unit,
        queries=(Query(expression=expression, legend=title),),
        kind="stat",
        width=3,
        height=4,
        threshold=threshold,
    )


def lines(title: str, description: str, unit: str, queries: Mapping[str, str], **options: Any) -> Panel:
    """Numbers over time: expressions by the legend of their lines."""
    made = tuple(Query(expression=expression, legend=legend) for legend, expression in queries.items())
    return Panel(title=title, description=description, unit=unit, queries=made, **options)


def heatmap(title: str, description: str, unit: str, expression: str) -> Panel:
    """A distribution over time."""
    return lines(title, description, unit, {"{{le}}": expression}, kind="heatmap")


def bars(title: str, description: str, unit: str, queries: Mapping[str, str], **options: Any) -> Panel:
    """Numbers of the time shown, side by side."""
    return lines(title, description, unit, queries, kind="bargauge", **options)


# JSON

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
Json = dict[str, Any]


def rendered(dashboard: Dashboard) -> str:
    """The file of a dashboard, without an id: Grafana finds it by its uid."""
    return json.dumps(_dashboard(dashboard), indent=2) + "\n"


def _dashboard(dashboard: Dashboard) -> Json:
    return {
        "uid": f"paceline-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "links": [_link_to_the_others()],
        "templating": {"list": [_datasource(), *map(_variable, dashboard.variables)]},
        "panels": list(_laid_out(dashboard.rows)),
    }


def _link_to_the_others() -> Json:
    return {
        "type": "dashboards",
        "title": "Paceline",
        "tags": [TAG],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "",
        "url": "",
    }


def _datasource() -> Json:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(variable: Variable) -> Json:
    query = f"label_values({variable.series}, {variable.of})"
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": f"variable-{variable.name}"},
        "refresh": 2,  # whenever the time shown changes
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"], "selected": True},
    }


def _laid_out(rows: Sequence[Row]) -> Iterator[Json]:
    """Every row and panel with its place: panels fill a row from the left, and break when it is full."""
    number = top = 0
    for row in rows:
        number += 1
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "panels": []} | _at(
            0, top, COLUMNS, 1
        )
        top += 1
        left = height = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top = 0, top + height
            number += 1
            yield _panel(panel, number) | _at(left, top, panel.width, panel.height)
            left, height = left + panel.width, panel.height
        top += height


def _at(left: int, top: int, width: int, height: int) -> Json:
    return {"gridPos": {"x": left, "y": top, "w": width, "h": height}}


def _panel(panel: Panel, number: int) -> Json:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _OPTIONS[panel.kind],
        "targets": [
            _target(query, letter, panel.kind) for query, letter in zip(panel.queries, _letters(), strict=False)
        ],
    }


def _letters() -> Iterator[str]:
    return map(chr, range(ord("A"), ord("Z") + 1))


def _target(query: Query, letter: str, kind: str) -> Json:
    return {
        "refId": letter,
        "datasource": _SOURCE,
        "expr": query.expression,
        "legendFormat": query.legend,
        "editorMode": "code",
        "format": "heatmap" if kind == "heatmap" else "time_series",
        "instant": kind in _INSTANT,
        "range": kind not in _INSTANT,
    }


def _field(panel: Panel) -> Json:
    field: Json = {"unit": panel.unit, "min": 0, "color": {"mode": "palette-classic"}}
    if panel.kind == "timeseries":
        field["custom"] = _curve(panel)
    if panel.kind == "stat":
        field["color"] = {"mode": "thresholds"}
    return field | {"thresholds": {"mode": "absolute", "steps": _steps(panel.threshold)}}


def _curve(panel: Panel) -> Json:
    return {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 40 if panel.stacked else 10,
        "showPoints": "auto",
        "spanNulls": False,
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if panel.threshold else "off"},
    }


def _steps(threshold: Threshold | None) -> list[Json]:
    """Colours from the lowest value up; the first holds from the bottom."""
    match threshold:
        case None:
            colours: list[tuple[str, float | None]] = [("green", None)]
        case Threshold(falls=False, yellow=yellow, red=red):
            colours = [("green", None), ("yellow", yellow), ("red", red)]
        case Threshold(yellow=None, red=red):
            colours = [("red", None), ("green", red)]
        case Threshold(yellow=yellow, red=red):
            colours = [("red", None), ("yellow", red), ("green", yellow)]
    first, *others = colours
    return [{"color": colour, "value": value} for colour, value in [first, *(o for o in others if o[1] is not None)]]


_LAST = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_INSTANT = frozenset({"stat", "bargauge"})
_OPTIONS: Mapping[str, Json] = {
    "timeseries": {
        "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["lastNotNull", "max"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "reduceOptions": _LAST,
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "value",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    },
    "bargauge": {
        "reduceOptions": _LAST,
        "displayMode": "basic",
        "orientation": "horizontal",
        "showUnfilled": True,
        "valueMode": "color",
        "namePlacement": "auto",
        "sizing": "auto",
        "minVizHeight": 16,
        "minVizWidth": 8,
        "maxVizHeight": 300,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
    },
    "heatmap": {
        "calculate": False,
        "cellGap": 1,
        "color": {
            "mode": "scheme",
            "scheme": "Blues",
            "fill": "dark-blue",
            "steps": 64,
            "exponent": 0.5,
            "scale": "exponential",
            "reverse": False,
        },
        "filterValues": {"le": 1e-9},
        "rowsFrame": {"layout": "auto"},
        "legend": {"show": True},
        "tooltip": {"mode": "single", "showColorScale": True, "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "reverse": False},
        "cellValues": {"unit": "short"},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "showValue": "never",
    },
}
