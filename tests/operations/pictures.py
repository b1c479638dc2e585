#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of deploy/docs/dashboard.md: a server under load, its status page in a headless Chromium, and panels of the Grafana
dashboard, drawn from what a Prometheus server answers to their queries. Debian's Python has Debian's matplotlib.

pictures.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH DEPLOY FOLDER [SECONDS]"""
import base64
import contextlib
import os
import sys
import time

import browser
import charts
import dashboard
from planes import PATIENCE_S, end, free_port
from prometheus_server import Prometheus
from sites import SERVER, Site, enter_own_network, over_wire
from wire import Wire, ethdev

DEPLOY, FOLDER = map(os.path.abspath, sys.argv[5:7])
SECONDS = int(sys.argv[7]) if len(sys.argv) > 7 else 60
POINTS = 60  # approximate number per line
MOST_BYTES = 200 * 1024
SHOWN = ("Planes up", "Connections by class", "Calls per second by procedure", "Latency by class", "Bytes per second, inline and placed directly",
         "Reactors: busy share of time", "Credits granted and used", "Reactors: time by stage")
MIX = ("--depth", "4", "--block", "32768", "--mix", "read=3,write=1,getattr=6")
PAGE_PORT = free_port()


def server():
    return Site("server", f"""
[device]
driver = "softroce"
ethdev = "{ethdev('server')}"
addresses = ["{SERVER}/24"]
[page]
address = "127.0.0.1:{PAGE_PORT}"
[[client_class]]
name = "batch"
clients = ["192.0.2.3"]
[[export]]
path = "/export"
clients = []
root_squash = false
quota_mib = 256
""")


def under_load(site):
    """Runs one client for SECONDS and a second one for the last two thirds. Returns when the load began and ended."""
    begun = time.time()
    with contextlib.ExitStack() as stack:
        nfs = ("nfs3", "--mount-port", site.mount_port(), *MIX)
        stack.callback(end, over_wire("--rate", "400", *nfs, seconds=SECONDS + PATIENCE_S))
        time.sleep(SECONDS / 3)
        stack.callback(end, over_wire("--rpcrdma", "2", "--rate", "200", *nfs, address="192.0.2.3", seconds=SECONDS + PATIENCE_S))
        time.sleep(SECONDS * 2 / 3)
        ended = time.time()
        picture_of_the_page()
    return begun, ended


def picture_of_the_page():
    chromium = browser.Browser()
    try:
        chromium.call("Emulation.setDeviceMetricsOverride", width=1000, height=760, deviceScaleFactor=1, mobile=False)
        chromium.call("Page.navigate", url=f"http://127.0.0.1:{PAGE_PORT}/")
        deadline = time.time() + PATIENCE_S
        while "data plane up" not in (chromium.value("(document.querySelector('#summary') || {}).innerText") or "") and time.time() < deadline:
            time.sleep(0.2)
        time.sleep(3)  # rates need two samples
        write("status-page.png", base64.b64decode(chromium.call("Page.captureScreenshot", format="png")["data"]))
    finally:
        chromium.stop()


def picture_of_the_dashboard(site, url, span):
    drawn = []
    for panel in dashboard.panels(DEPLOY):
        if panel.title in SHOWN:
            found = dashboard.series_of(url, panel, site.metrics, span, step_s=max(1, SECONDS // POINTS))
            drawn.append((panel, [one for series in found for one in series]))
    assert len(drawn) == len(SHOWN), [panel.title for panel, _ in drawn]
    write("dashboard.png", charts.drawn(drawn, span))


def write(name, image):
    assert len(image) < MOST_BYTES, f"{name} has {len(image)} bytes"
    with open(f"{FOLDER}/{name}", "wb") as file:
        file.write(image)


def main():
    enter_own_network()
    os.makedirs(FOLDER, exist_ok=True)
    Wire()
    site, prometheus = server(), None
    try:
        site.start()
        prometheus = Prometheus(site.run, f"{site.dir}/prometheus", DEPLOY, site.metrics, f"127.0.0.1:{free_port()}")
        prometheus.scrapes(2)
        span = under_load(site)
        prometheus.scrapes(1)
        picture_of_the_dashboard(site, prometheus.url, span)
    finally:
        if prometheus:
            prometheus.process.terminate()
            prometheus.process.wait()
        site.stop()


if __name__ == "__main__":
    main()
