#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The status page in a headless Chromium, beside both planes with a client. Speaks TAP.

page_test.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH"""
import http.server
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import browser
from planes import Planes, common, end, free_port, run_tap

CONTROL, DATA, CTL, BENCH = sys.argv[1:5]
PORT = free_port()
PAGE = f"http://127.0.0.1:{PORT}/"
NOBODY = free_port()  # a port without an upstream
MARKUP = "/<b>bold</b><img src=x onerror=alert(1)>\"'&\u20ac"
planes = Planes(CONTROL, DATA, CTL, BENCH, f"""
[page]
address = "127.0.0.1:{PORT}"
[forward]
record_buffers = 8
item_buffers = 8
[[upstream]]
name = "nas"
address = "127.0.0.1"
port = {NOBODY}
programs = ["nfs4"]
""")
chromium = None


def shows(selector, *patterns):
    """Waits until a part of the page has texts that match."""
    try:
        planes.wait(f"{patterns} in {selector}", lambda: all(re.search(pattern, chromium.text(selector), re.M) for pattern in patterns))
    except AssertionError as error:
        raise AssertionError(f"{error}: {chromium.text(selector)!r}") from None


def reactors_clients_exports_upstreams_and_events_are_shown():
    load = planes.nfs_load()
    planes.loaded()
    shows("#reactors", r"^0\trunning\t\d+\t1\t\d+ %\t.*[\dkM]/s\t.*B/s\t")
    shows("#clients", r"^192\.0\.2\.2\t.*[\dkM]/s\t")
    shows("#exports", r"^/export\tread and write\t.* of 512 MiB\t.*B/s")
    shows("#upstreams", r"^nas\t\w+\t127\.0\.0\.1")
    shows("#events", r"^\d{4}-\d\d-\d\d .*\tconnection_up\t.*peer=192\.0\.2\.2", r"\tdata_plane_found\t")
    shows("#summary", r"data plane up for .*1 connections")
    assert chromium.text("#alarms") == "", chromium.text("#alarms")
    end(load)
    shows("#events", r"\tconnection_down\t.*peer=192\.0\.2\.2")


def a_name_that_is_markup_stays_text():
    assert planes.ctl("exports", "add", MARKUP)
    shows("#exports", "^" + re.escape(MARKUP) + "\t")
    assert chromium.value("document.querySelectorAll('#shown b, #shown img').length") == 0
    planes.ctl("exports", "remove", MARKUP)


def a_drain_and_its_end_are_shown():
    planes.ctl("drain", "--no-wait")
    shows("#alarms", "The appliance is draining, and new connections are refused")
    planes.ctl("drain", "--stop")
    planes.wait("no alarm", lambda: chromium.text("#alarms") == "")


def a_data_plane_that_was_killed_is_shown():
    planes.data.kill()
    planes.data.wait()
    shows("#alarms", "The data plane has exited or is stopped")
    assert chromium.value("document.getElementById('shown').className") == "old"
    shows("#events", r"\tdata_plane_lost\t")
    planes.start_data()
    planes.wait("no alarm", lambda: chromium.text("#alarms") == "" and "data plane up" in chromium.text("#summary"))


def a_control_plane_that_is_gone_is_shown():
    planes.control.terminate()
    planes.control.wait()
    shows("#alarms", r"The control plane does not answer. The values below are \d+ s old")
    planes.start_control()
    planes.wait("no alarm", lambda: chromium.text("#alarms") == "")


def nothing_was_asked_of_anybody_else():
    assert chromium.asked.count(f"{PAGE}status.json") > 5, chromium.asked
    assert {url for url in chromium.asked if not url.startswith(PAGE)} == set(), chromium.asked
    # The browser reported the missing control plane, but no error of the page.
    others = [text for text in chromium.complaints if "ERR_CONNECTION_" not in text]
    assert others == [], others


class OtherSite(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>evil</title>")

    def log_message(self, *_):
        pass


def a_page_of_another_site_reads_nothing():
    request = urllib.request.Request(f"{PAGE}status.json", headers={"Host": "evil.example"})
    try:
        urllib.request.urlopen(request, timeout=common.PATIENCE_S)
        raise AssertionError("it was answered")
    except urllib.error.HTTPError as error:
        assert error.code == 421, error
    # The other site is on this machine, because browsers have other reasons to keep an Internet site from a local address.
    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), OtherSite)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    chromium.call("Page.navigate", url=f"http://127.0.0.1:{other.server_port}/")
    planes.wait("another origin", lambda: chromium.value("document.title") == "evil")
    tried = f"fetch('{PAGE}status.json').then(() => document.title = 'read', () => document.title = 'failed')"
    chromium.value(f"void {tried}")
    planes.wait("its end", lambda: chromium.value("document.title") != "evil")
    other.shutdown()
    assert chromium.value("document.title") == "failed"


def an_address_for_others_is_refused_until_it_is_allowed():
    def check():
        return subprocess.run([CONTROL, "--check", "--config", planes.config], capture_output=True, text=True, check=False)
    everywhere = {f'address = "127.0.0.1:{PORT}"': f'address = "0.0.0.0:{PORT}"'}
    planes.write_config(everywhere)
    done = check()
    assert done.returncode == 2 and "Set allow_remote = true" in done.stderr, done
    planes.write_config({**everywhere, "[forward]": "allow_remote = true\n[forward]"})
    assert check().returncode == 0
    planes.write_config()


TESTS = (reactors_clients_exports_upstreams_and_events_are_shown, a_name_that_is_markup_stays_text, a_drain_and_its_end_are_shown,
         a_data_plane_that_was_killed_is_shown, a_control_plane_that_is_gone_is_shown, nothing_was_asked_of_anybody_else,
         a_page_of_another_site_reads_nothing, an_address_for_others_is_refused_until_it_is_allowed)


def main():
    global chromium
    if browser.program() is None:
        common.skip_all(common.missing("chromium"))
    try:
        planes.start()
        chromium = browser.Browser()
        chromium.call("Page.navigate", url=PAGE)
        return run_tap([(test.__name__, test) for test in TESTS])
    finally:
        if chromium:
            chromium.stop()
        planes.stop()


if __name__ == "__main__":
    sys.exit(main())
