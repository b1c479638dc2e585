# SPDX-License-Identifier: Apache-2.0
"""The panels of the Grafana dashboard, and what a Prometheus server answers to their queries."""
import dataclasses
import json
import re
import urllib.error
import urllib.parse
import urllib.request

FILE = "grafana/sluice.json"


@dataclasses.dataclass(frozen=True)
class Panel:
    title: str
    kind: str  # as Grafana calls it
    unit: str
    targets: tuple  # (expression, format of the legend)


@dataclasses.dataclass(frozen=True)
class Series:
    name: str
    points: tuple  # (time, value)


def panels(deploy):
    with open(f"{deploy}/{FILE}", encoding="utf-8") as file:
        dashboard = json.load(file)
    return [Panel(panel["title"], panel["type"], panel["fieldConfig"]["defaults"]["unit"],
                  tuple((target["expr"], target["legendFormat"]) for target in panel["targets"])) for panel in dashboard["panels"]]


def query(expression, instance=".*", interval_s=20):
    """Returns an expression of the dashboard with values for Grafana's variables."""
    return expression.replace("$instance", instance).replace("$__rate_interval", f"{interval_s}s")


def legend(form, labels):
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), form).strip()


def asked(url, expression, begin, end, step_s):
    """Returns [(labels, points)] of an expression over a time range."""
    words = urllib.parse.urlencode({"query": expression, "start": begin, "end": end, "step": step_s})
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query_range?{words}", timeout=20) as answer:
            results = json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{expression}: {error.read().decode()}") from None
    return [(result["metric"], tuple((float(time), float(value)) for time, value in result["values"])) for result in results]


def series_of(url, panel, instance, span, interval_s=10, step_s=1):
    """Returns the [Series] of each target of the panel, over `span`: (begin, end)."""
    return [[Series(legend(form, labels), points) for labels, points in asked(url, query(expression, instance, interval_s), *span, step_s)]
            for expression, form in panel.targets]
