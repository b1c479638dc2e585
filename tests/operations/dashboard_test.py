#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures of all panels of the Grafana dashboard are made, and those of the documentation are of this dashboard. Speaks TAP.

dashboard_test.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH DEPLOY"""
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

import dashboard
from planes import common, need, run_tap

*PROGRAMS, DEPLOY = sys.argv[1:6]
COMMAND = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dashboard_pictures.py")
PAGE, SHOWN = f"{DEPLOY}/docs/dashboard.md", f"{DEPLOY}/docs/dashboard"
AGAIN = "make the pictures of deploy/docs/dashboard.md again: ninja -C build dashboard"
SECONDS = 48
MOST_BYTES = 1 << 20
made = tempfile.TemporaryDirectory(prefix="sluice-dashboard-")


def titles(folder):
    """{picture: titles of its panels}"""
    known = {panel.title for panel in dashboard.panels(DEPLOY)}
    return {name: {text for text in ElementTree.parse(f"{folder}/{name}").getroot().itertext() if text in known} for name in os.listdir(folder)}


def every_query_has_an_answer_and_data():
    done = subprocess.run([COMMAND, *PROGRAMS, DEPLOY, made.name, str(SECONDS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "", done.stdout


def every_panel_is_in_a_picture():
    drawn = titles(made.name)
    assert set().union(*drawn.values()) == {panel.title for panel in dashboard.panels(DEPLOY)}, drawn


def the_documentation_shows_this_dashboard():
    assert titles(SHOWN) == titles(made.name), AGAIN
    with open(PAGE, encoding="utf-8") as page:
        assert set(re.findall(r"\]\(dashboard/([^)]+)\)", page.read())) == set(os.listdir(SHOWN))
    assert sum(os.path.getsize(f"{SHOWN}/{name}") for name in os.listdir(SHOWN)) < MOST_BYTES


def main():
    need("prometheus", "unshare", "ip", root_for="a network namespace of its own")
    if subprocess.run(["/usr/bin/python3", "-c", "import matplotlib"], capture_output=True, check=False).returncode:
        common.skip_all("python3-matplotlib is not installed: run deploy/install-packages.sh tests.")
    return run_tap([(test.__name__, test) for test in (every_query_has_an_answer_and_data, every_panel_is_in_a_picture,
                                                       the_documentation_shows_this_dashboard)])


if __name__ == "__main__":
    sys.exit(main())
