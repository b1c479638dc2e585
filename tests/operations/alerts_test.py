#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every alert of rules.yml fires in a real Prometheus when its condition occurs, and ends with it. Speaks TAP.

alerts_test.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH SLUICE_CONFORMANCE DEPLOY"""
import re
import sys
import time

from alert_conditions import BEGUN_AFTER, CONDITIONS, DEPLOY, SITES, WITHOUT_CONDITION, served
from planes import free_port, run_tap
from prometheus_server import Prometheus, of_gateways

RULES = f"{DEPLOY}/prometheus/rules.yml"
OF_THE_MACHINE = {"SluiceControlPlaneStalls"}  # a pause of the machine is a condition, and counts for two minutes

UNITS_S = {"s": 1, "m": 60, "h": 3600}
WINDOWS_FASTER, DELAYS_FASTER = 60, 300
SHORTEST_WINDOW_S = 4  # a rate needs samples, and there is one each second


def hurried(rules):
    """Returns the rules with shorter windows and delays."""
    def shorter(faster, least):
        return lambda found: f"{found[1]}{max(least, int(found[2]) * UNITS_S[found[3]] // faster)}s{found[4]}"

    rules = re.sub(r"(\[)(\d+)([smh])(\])", shorter(WINDOWS_FASTER, SHORTEST_WINDOW_S), rules)
    return re.sub(r"^( +for: )(\d+)([smh])()$", shorter(DELAYS_FASTER, 1), rules, flags=re.M)


server = None
begun = {}


def begin(condition):
    """Enters the condition. Returns its context, and the time from which on its alerts may fire."""
    if condition.ends:
        served.wait("others' alerts gone", lambda: not condition.alerts & server.firing())
    context = condition()
    since = time.monotonic()
    context.__enter__()
    return context, since


def wait_for(alerts, since):
    """Waits until each alert has fired at some time, because some conditions come and go."""
    try:
        served.wait("alerts", lambda: alerts <= server.fired(time.monotonic() - since))
    except AssertionError:
        raise AssertionError(f"{alerts - server.fired(time.monotonic() - since)} did not fire") from None


def test_of(condition):
    def test():
        context, since = begun.pop(condition, None) or begin(condition)
        try:
            wait_for(condition.alerts, since)
        finally:
            context.__exit__(None, None, None)
            if after := BEGUN_AFTER.get(condition):
                begun[after] = begin(after)
        if condition.ends:
            served.wait(f"the end of {condition.alerts}", lambda: not condition.alerts & server.firing())
    return f"{condition.__name__}: {' '.join(sorted(alert for _, alert in condition.alerts))}", test


def every_alert_is_made_or_has_a_reason_not_to_be():
    with open(RULES, encoding="utf-8") as file:
        alerts = re.findall(r"alert: (\w+)", file.read())
    made = [alert for condition in CONDITIONS for _, alert in condition.alerts]
    assert sorted(alerts) == sorted([*made, *WITHOUT_CONDITION]), set(alerts) ^ {*made, *WITHOUT_CONDITION}


def none_fires_before():
    server.scrapes(5)
    served.wait("no alert", lambda: not {(site, alert) for site, alert in server.firing() if alert not in OF_THE_MACHINE})


def every_query_of_the_dashboard_about_gateways_returns_data():
    server.scrapes(3)
    empty = server.without_data(DEPLOY, of_gateways)
    assert not empty, "\n".join(empty)


def start():
    global server
    for site in SITES:
        site.start()
    rules = f"{served.dir}/rules.yml"
    with open(RULES, encoding="utf-8") as shipped, open(rules, "w", encoding="utf-8") as file:
        file.write(hurried(shipped.read()))
    server = Prometheus(served.run, f"{served.dir}/prometheus", DEPLOY, served.metrics, f"127.0.0.1:{free_port()}",
                        [site.metrics for site in SITES[1:]], rules)


def stop():
    if server:
        server.process.terminate()
        server.process.wait()
    for site in SITES:
        site.stop()


def main():
    try:
        start()
        return run_tap([(f.__name__, f) for f in (every_alert_is_made_or_has_a_reason_not_to_be, none_fires_before,
                                                  every_query_of_the_dashboard_about_gateways_returns_data)] +
                       [test_of(condition) for condition in CONDITIONS])
    finally:
        stop()


if __name__ == "__main__":
    sys.exit(main())
