#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The findings of each check of a configuration, and refused starts. Speaks TAP.

checks_test.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH"""
import os
import subprocess
import sys

from planes import PATIENCE_S, Planes, Skipped, missing, run_tap

CONTROL, DATA, CTL, BENCH = sys.argv[1:5]
planes = Planes(CONTROL, DATA, CTL, BENCH)


def a_file_of_any_size_is_checked():
    """Files have up to the 1 MiB that a start reads. A file that does not fit a request's line is passed to the control plane as a descriptor."""
    with open(planes.config, encoding="utf-8") as file:
        text = file.read()
    path = f"{planes.dir}/large.toml"
    hosts = "".join(f'[[host_authentication.host]]\nname = "h{i}"\nkey_files = ["/etc/sluice/{i:080d}"]\n' for i in range(1000))
    for more, status, said in (("# " + "x" * 900_000 + "\n", 0, ""), (hosts, 0, ""), (hosts + "nonsense = 1\n", 5, "The key 'nonsense' is unknown"),
                               ("# " + "x" * (1 << 20), 1, "has more than 1 MiB")):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + more)
        done = planes.run_ctl("config", "check", path)
        assert done.returncode == status and said in done.stderr, (status, done.returncode, done.stderr[:500])


def a_file_that_cannot_start_is_found_by_each_check():
    """A file that a start refuses is refused by --check, `config check` and a reload with the same message."""
    with open(planes.config, encoding="utf-8") as file:
        text = file.read()
    memory = text + "[memory]\nsize_mib = 1048576\n"
    for broken, said in ((memory, "size_mib"), (text.replace("clients = []\n", "", 1), "has no clients"),
                         (text.replace("192.0.2.1/24", "192.0.2.255/24", 1), "broadcast address"),
                         (f'{text}[page]\naddress = "{planes.metrics}"\n', "page.address and metrics.address are both at TCP port")):
        assert broken != text
        with open(planes.config, "w", encoding="utf-8") as file:
            file.write(broken)
        check = planes.run_ctl("config", "check", planes.config)
        assert check.returncode == 5 and said in check.stderr, check
        alone = subprocess.run([CONTROL, "--check", "--config", planes.config], capture_output=True, text=True, check=False)
        assert alone.returncode == 2 and said in alone.stderr, alone
        reload = planes.run_ctl("config", "reload")
        assert reload.returncode == 1 and said in reload.stderr, reload
    with open(planes.config, "w", encoding="utf-8") as file:
        file.write(text)
    assert planes.run_ctl("config", "check", planes.config).returncode == 0


def two_processors():
    """Returns the first and the last processor that this test may use."""
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) < 2:
        raise Skipped("there is one processor only")
    if sentence := missing("taskset"):
        raise Skipped(sentence)
    return str(mine[0]), str(mine[-1])


def restart_control_with(text):
    """Ends both planes, and starts only a control plane, with this configuration."""
    for plane in (planes.data, planes.control):
        plane.terminate()
        plane.wait(PATIENCE_S)
    with open(planes.config, "w", encoding="utf-8") as file:
        file.write(text)
    planes.start_control()
    planes.wait("the control plane", lambda: planes.ctl("status"))


def with_cpus(text, cpus):
    return text.replace("[reactor]\n", f"[reactor]\ncpus = [{cpus}]\n", 1)


def a_named_processor_outside_of_the_mask_of_the_data_plane_is_a_sentence():
    first, last = two_processors()
    with open(planes.config, encoding="utf-8") as file:
        text = file.read()
    restart_control_with(with_cpus(text, last))
    done = subprocess.run(["taskset", "-c", first, DATA, "--segment", planes.name], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 1 and f"names processor {last}, and the data plane may run on {first} only" in done.stdout, done
    assert "PANIC" not in done.stdout + done.stderr, done
    alone = subprocess.run(["taskset", "-c", first, CONTROL, "--check", "--config", planes.config], capture_output=True, text=True, check=False)
    assert alone.returncode == 0 and f"names processor {last}, and this process may run on {first} only" in alone.stderr, alone
    restart_control_with(text)


def the_data_plane_chooses_among_its_own_processors():
    for cpu in two_processors():
        planes.data = planes.run("taskset", "-c", cpu, DATA, "--segment", planes.name)
        planes.up()
        assert [reactor["cpu"] for reactor in planes.ctl("reactors")] == [int(cpu)]
        assert planes.ctl("topology")["reactor_cpus"] == [int(cpu)]
        planes.data.terminate()
        assert planes.data.wait(PATIENCE_S) == 0


def main():
    planes.start()
    try:
        return run_tap([(f.__name__, f) for f in (
            a_file_of_any_size_is_checked, a_file_that_cannot_start_is_found_by_each_check,
            a_named_processor_outside_of_the_mask_of_the_data_plane_is_a_sentence, the_data_plane_chooses_among_its_own_processors)])
    finally:
        planes.stop()


sys.exit(main())
