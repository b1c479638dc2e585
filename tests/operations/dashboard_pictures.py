#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of deploy/docs/dashboard.md: runs Sluices with load and a Prometheus server, and draws each panel of the Grafana
dashboard from what that server answers. Names the queries that have no data. Debian's Python has Debian's matplotlib.

dashboard_pictures.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH DEPLOY FOLDER [SECONDS]"""
import os
import sys

import charts
import dashboard
from dashboard_load import Load
from planes import free_port
from prometheus_server import Prometheus

DEPLOY, FOLDER = map(os.path.abspath, sys.argv[5:7])
SECONDS = int(sys.argv[7]) if len(sys.argv) > 7 else 120
PANELS_OF_A_PICTURE = 8
POINTS = 60  # of a line, about


def pictures(load):
    """(name, instance, panels) of each."""
    panels = dashboard.panels(DEPLOY)
    of = {"upstreams": [panel for panel in panels if "sluice_upstream_" in panel.targets[0][0]],
          "reverse": [panel for panel in panels if "sluice_ingress_" in panel.targets[0][0]]}
    of["server"] = [panel for panel in panels if panel not in of["upstreams"] + of["reverse"]]
    for name, site in (("server", load.server), ("upstreams", load.gateway), ("reverse", load.reverse)):
        for first in range(0, len(of[name]), PANELS_OF_A_PICTURE):
            number = f"-{first // PANELS_OF_A_PICTURE + 1}" if len(of[name]) > PANELS_OF_A_PICTURE else ""
            yield name + number, site.metrics, of[name][first:first + PANELS_OF_A_PICTURE]


def draw(name, instance, panels, url, span):
    drawn = []
    for panel in panels:
        found = dashboard.series_of(url, panel, instance, span, step_s=max(1, SECONDS // POINTS))
        for (expression, _), series in zip(panel.targets, found):
            if not series:
                print(f"no data: {panel.title}: {expression}")
        drawn.append((panel, [one for series in found for one in series]))
    charts.draw(f"{FOLDER}/{name}.svg", drawn, span)


def main():
    os.makedirs(FOLDER, exist_ok=True)
    load = Load()
    server = None
    try:
        load.start()
        first, *others = [site.metrics for site in load.sites]
        server = Prometheus(load.server.run, f"{load.server.dir}/prometheus", DEPLOY, first, f"127.0.0.1:{free_port()}", others)
        server.scrapes(2)
        span = load.run(SECONDS)
        server.scrapes(1)
        for name, instance, panels in pictures(load):
            draw(name, instance, panels, server.url, span)
    finally:
        if server:
            server.process.terminate()
            server.process.wait()
        load.stop()


if __name__ == "__main__":
    main()
