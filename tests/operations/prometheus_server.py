# SPDX-License-Identifier: Apache-2.0
"""A Prometheus server with the shipped configuration, and queries to it and to an exporter."""
import json
import os
import re
import sys
import time
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import dashboard  # noqa: E402
from planes_of_tests import PATIENCE_S  # noqa: E402


def exposition(address):
    return urllib.request.urlopen(f"http://{address}/metrics", timeout=20).read().decode()


def samples(text, name):
    """Returns [(labels, value)] of one series name in an exposition."""
    found = []
    for line in text.splitlines():
        if match := re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line):
            found.append((dict(re.findall(r'(\w+)="([^"]*)"', match.group(1) or "")), float(match.group(2))))
    return found


def total(text, name, **labels):
    return sum(value for have, value in samples(text, name) if labels.items() <= have.items())


def of_gateways(expression):
    return "sluice_upstream_" in expression or "sluice_reverse_" in expression


class Prometheus:
    """Scrapes `metrics` and `others` each second; scrapes() and exposition() are about `metrics`. `start` runs a command as a process."""

    def __init__(self, start, folder, deploy, metrics, address, others=(), rules=None):
        self.url = f"http://{address}"
        self.metrics = metrics
        os.makedirs(folder)
        with open(f"{deploy}/prometheus/sluice.yml", encoding="utf-8") as file:
            config = file.read()
        for shipped, here in (("scrape_interval: 15s", "scrape_interval: 1s\n  evaluation_interval: 1s"), ("127.0.0.1:9464", '", "'.join([metrics, *others])),
                              ("rules.yml", rules or f"{deploy}/prometheus/rules.yml")):
            assert shipped in config, shipped
            config = config.replace(shipped, here)
        with open(f"{folder}/prometheus.yml", "w", encoding="utf-8") as file:
            file.write(config)
        self.process = start("prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                             f"--web.listen-address={address}", "--log.level=error")

    def api(self, path):
        """Returns the data of an answer, or None while the server starts."""
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=20) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def query(self, expression):
        data = self.api("query?" + urllib.parse.urlencode({"query": expression}))
        return data and data["result"]

    def number(self, expression):
        """Returns the value of an expression with one result; 0 without a result."""
        return sum(float(result["value"][1]) for result in self.query(expression) or [])

    def without_data(self, deploy, wanted):
        """Returns those of the dashboard's queries that match `wanted` and have no data."""
        queries = [(panel.title, dashboard.query(expression)) for panel in dashboard.panels(deploy) for expression, _ in panel.targets if wanted(expression)]
        assert len(queries) > 20, queries
        return [f"{title}: {expression}" for title, expression in queries if not self.query(expression)]

    def firing(self):
        """Returns (instance, alert) of all alerts that fire."""
        return self.alerts('ALERTS{alertstate="firing"}')

    def fired(self, seconds):
        """Returns (instance, alert) of all alerts that have fired in the last `seconds`."""
        return self.alerts(f'count_over_time(ALERTS{{alertstate="firing"}}[{max(1, int(seconds))}s])')

    def alerts(self, expression):
        return {(of["metric"]["instance"], of["metric"]["alertname"]) for of in self.query(expression) or []}

    def scrapes(self, more):
        """Waits until the server has that many more samples of the exporter."""
        until = time.time() + more
        deadline = time.monotonic() + PATIENCE_S
        up = f'up{{job="sluice", instance="{self.metrics}"}}'
        while self.number(f"timestamp({up}) and {up} == 1") < until:
            assert time.monotonic() < deadline, f"Prometheus no longer scrapes {self.metrics}"
            time.sleep(0.1)

    def exposition(self):
        return exposition(self.metrics)
