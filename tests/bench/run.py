#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py BUILD [FIGURE...]: prints the figures, one line of JSON each."""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

RUNS = 5


def dataplane_rss_mib(build):
    """Resident memory of an idle data plane with the default configuration, and of an empty process as baseline."""
    values = []
    with tempfile.TemporaryDirectory() as folder:
        name = f"sluice-bench-{os.getpid()}"
        text = open("deploy/sluice.toml", encoding="utf-8").read()
        for key, value in (("segment", name), ("loopback_path", f"/dev/shm/{name}-loopback"), ("socket", f"{folder}/admin")):
            text = re.sub(rf'^{key} = ".*?"', f'{key} = "{value}"', text, flags=re.M)
        text = text.replace('address = "127.0.0.1:9464"', 'address = ""').replace("enabled = true ", "enabled = false ")
        config = f"{folder}/sluice.toml"
        with open(config, "w", encoding="utf-8") as file:
            file.write(text)
        for _ in range(RUNS):
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            control = subprocess.Popen([f"{build}/controlplane/sluice-controlplane", "--config", config], **quiet)
            data = subprocess.Popen([f"{build}/sluice-dataplane", "--segment", name], **quiet)
            for _ in range(300):
                done = subprocess.run([f"{build}/cli/sluicectl", "--socket", f"{folder}/admin", "--json", "exports"],
                                      capture_output=True, text=True)
                if done.returncode == 0 and json.loads(done.stdout):
                    break
                time.sleep(0.1)
            time.sleep(1)
            values.append(resident_mib(data.pid))
            for process in (data, control):
                process.terminate()
                process.wait()
        for path in (f"/dev/shm/{name}", f"/dev/shm/{name}-loopback"):
            if os.path.exists(path):
                os.unlink(path)
    value, baseline = statistics.median(values), resident_mib(os.getpid())
    print(json.dumps({"figure": "dataplane_rss_mib", "value": round(value, 1), "unit": "MiB",
                      "baseline": round(baseline, 1), "ratio": round(value / baseline, 2), "goal": 256}))


def resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) / 1024


def main():
    build, wanted = sys.argv[1], sys.argv[2:]
    figures = f"{build}/tests/bench/figures"
    known = subprocess.run([figures, "--list"], capture_output=True, text=True, check=True).stdout.split()
    unknown = set(wanted) - set(known) - {"dataplane_rss_mib"}
    if unknown:
        sys.exit(f"Unknown figures {sorted(unknown)}: there are {known + ['dataplane_rss_mib']}.")
    here = [name for name in known if not wanted or name in wanted]
    if here:
        subprocess.run([figures, *here], check=True)
    if not wanted or "dataplane_rss_mib" in wanted:
        dataplane_rss_mib(build)


if __name__ == "__main__":
    main()
