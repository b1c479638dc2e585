#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes that 'sluicectl ... --save' keeps, and changes that are lost without it. Speaks TAP.

saved_changes_test.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH"""
import json
import os
import subprocess
import sys

from held_file import HeldFile
from planes import PATIENCE_S, Planes, end, run_tap

CONTROL, DATA, CTL, BENCH = sys.argv[1:5]
planes = Planes(CONTROL, DATA, CTL, BENCH)
SAVED = f"{planes.dir}/saved.toml"
UNTIL_RELOAD = "The change applies until the next reload or restart. Use --save to keep it.\n"


def exports():
    return {entry["path"]: entry for entry in planes.ctl("exports")}


def write_saved(text):
    with open(SAVED, "w", encoding="utf-8") as file:
        file.write(text)


def restart_control():
    planes.control.terminate()
    assert planes.control.wait(PATIENCE_S) == 0
    planes.start_control()
    planes.wait("the control plane", lambda: planes.ctl("status"))


def restart_both():
    for process in (planes.data, planes.control):
        process.terminate()
        process.wait(PATIENCE_S)
    planes.start_control()
    planes.start_data()
    planes.wait("both planes up", lambda: (s := planes.ctl("status")) and s["data_plane"]["alive"] and s["configuration"]["in_force"])


def begin_anew():
    """Starts with one export, /export, and no saved changes."""
    if os.path.exists(SAVED):
        os.unlink(SAVED)
    planes.write_config({'log_level = "info"': f'log_level = "info"\nsaved_changes = "{SAVED}"'})
    planes.ctl("config", "reload")
    assert list(exports()) == ["/export"]


def said(*words):
    done = planes.run_ctl(*words)
    assert done.returncode == 0, done
    return done.stdout


def refused(*words):
    done = planes.run_ctl(*words)
    assert done.returncode == 1 and not done.stdout, done
    return done.stderr


def where_no_file_is_named_nothing_is_saved_and_nothing_changes():
    for words in (["exports", "add", "/x"], ["exports", "remove", "/export"], ["drain", "--no-wait"]):
        text = refused(*words, "--save")
        assert text.startswith("Nothing was saved, and nothing has changed. No file for saved changes is configured. In ") and "saved_changes" in text, text
    assert list(exports()) == ["/export"] and planes.ctl("status")["draining"] is False


def exports_that_are_saved_survive_reloads_and_restarts():
    begin_anew()
    assert planes.ctl("exports", "add", "/kept", "--read-only", "--quota-mib", "7", "--save") == {"path": "/kept", "saved": True}
    assert "The change applies until" not in said("exports", "add", "/brief", "--save")
    planes.ctl("exports", "remove", "/brief", "--save")
    assert planes.ctl("exports", "remove", "/export", "--save") == {"path": "/export", "saved": True}
    for again in (lambda: planes.ctl("config", "reload"), restart_control, restart_both):
        again()
        shown = exports()
        assert list(shown) == ["/kept"] and shown["/kept"]["read_only"] and shown["/kept"]["quota_bytes"] == 7 << 20, shown
    assert planes.ctl("config", "show")["saved"] == {"drain": False, "export": ["/kept"], "removed_exports": ["/export"]}
    # A removed export of the configuration comes back with its new options.
    planes.ctl("exports", "add", "/export", "--read-only", "--save")
    restart_control()
    assert set(exports()) == {"/kept", "/export"} and exports()["/export"]["read_only"]


def what_is_not_saved_is_said_to_be_lost_and_is():
    begin_anew()
    assert said("exports", "add", "/brief").endswith(UNTIL_RELOAD)
    assert planes.ctl("exports", "add", "/short") == {"path": "/short", "saved": False}
    assert said("exports", "remove", "/export").endswith(UNTIL_RELOAD)
    assert not os.path.exists(SAVED) and set(exports()) == {"/brief", "/short"}
    restart_control()
    assert set(exports()) == {"/export"}
    # The change can still be saved afterwards.
    planes.ctl("exports", "remove", "/export")
    planes.ctl("exports", "remove", "/export", "--save")
    restart_control()
    assert not exports()
    assert "There is no export" in refused("exports", "remove", "/export", "--save")


def a_drain_that_is_saved_goes_on_after_restarts():
    begin_anew()
    assert planes.ctl("drain") == {"connections": 0, "draining": True, "saved": False}
    assert said("drain").endswith("A restart of both planes ends the drain. Use --save to keep it.\n")
    restart_both()
    assert planes.ctl("status")["draining"] is False
    assert planes.ctl("drain", "--save") == {"connections": 0, "draining": True, "saved": True}
    for again in (restart_control, restart_both):
        again()
        assert planes.ctl("status")["draining"] is True
    assert f"The appliance is draining, as saved in {SAVED}. 'sluicectl drain --stop --save' ends the drain" in planes.text_of_log()
    assert said("drain", "--stop").endswith("The next start drains again. Use --save to prevent that.\n")
    planes.ctl("config", "reload")
    assert planes.ctl("status")["draining"] is False, "a reload begins no drain"
    assert planes.ctl("drain", "--stop", "--save") == {"connections": 0, "draining": False, "saved": True}
    restart_both()
    assert planes.ctl("status")["draining"] is False


def a_reload_and_a_check_read_what_people_write_into_the_file():
    begin_anew()
    write_saved('[[export]]\npath = "/mine"\n')
    assert planes.ctl("config", "check", planes.config)["in_force"] == ["export./mine"]
    assert planes.ctl("config", "reload")["in_force"] == ["export./mine"] and set(exports()) == {"/export", "/mine"}
    assert planes.ctl("config", "show")["saved"]["export"] == ["/mine"]
    planes.ctl("exports", "add", "/more", "--save")
    restart_control()
    assert set(exports()) == {"/export", "/mine", "/more"}
    write_saved('drain = false\n[[export]]\npath = "mine"\n')
    check = planes.run_ctl("config", "check", planes.config)
    assert check.returncode == 5 and check.stderr == f"{SAVED}:2: path is needed and has to start with '/'.\n", check
    assert f"{SAVED}:2: path" in refused("config", "reload") and f"{SAVED}:2: path" in refused("exports", "add", "/x", "--save")
    assert set(exports()) == {"/export", "/mine", "/more"}
    done = subprocess.run([CONTROL, "--check", "--config", planes.config], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and f"{SAVED}:2: path" in done.stderr, done


def a_check_opens_no_file_that_is_not_in_use():
    begin_anew()
    other = f"{planes.dir}/other.toml"
    with open(f"{planes.dir}/secret", "w", encoding="utf-8") as file:
        file.write("a secret of the control plane's user\n")
    with open(planes.config, encoding="utf-8") as file:
        text = file.read()
    assert f'"{SAVED}"' in text
    with open(other, "w", encoding="utf-8") as file:
        file.write(text.replace(f'"{SAVED}"', f'"{planes.dir}/secret"'))
    assert "saved_changes" in planes.ctl("config", "check", other)["in_force"]


def where_the_file_cannot_be_written_nothing_changes():
    begin_anew()
    os.makedirs(f"{SAVED}.new/in-the-way")
    for words in (["exports", "add", "/x"], ["exports", "remove", "/export"], ["drain", "--no-wait"]):
        assert f"Nothing was saved, and nothing has changed. Cannot write {SAVED} (" in refused(*words, "--save")
    assert list(exports()) == ["/export"] and planes.ctl("status")["draining"] is False
    os.removedirs(f"{SAVED}.new/in-the-way")
    planes.ctl("exports", "add", "/x", "--save")
    assert set(exports()) == {"/export", "/x"}


def a_disk_that_does_not_answer_holds_up_only_who_saves():
    begin_anew()
    load = planes.nfs_load()
    planes.loaded()
    with HeldFile(planes.config) as held:
        commands = []
        for words in (["config", "reload"], ["exports", "add", "/one", "--save"], ["config", "reload"], ["exports", "add", "/two", "--save"]):
            commands.append(subprocess.Popen([CTL, "--socket", planes.socket, "--json", *words], stdout=subprocess.PIPE, text=True))
            if len(commands) == 1:
                held.wait_for_opener()
        for _ in range(20):
            assert planes.ctl("status")["control_plane"]["alive"]
        assert list(exports()) == ["/export"] and all(command.poll() is None for command in commands)
    for command in commands:
        out, _ = command.communicate(timeout=PATIENCE_S)
        assert command.returncode == 0 and json.loads(out), out
    assert set(exports()) == {"/export", "/one", "/two"}
    assert end(load)["errors"] == 0
    restart_control()
    assert set(exports()) == {"/export", "/one", "/two"}


def main():
    planes.start()
    try:
        return run_tap([(f.__name__, f) for f in (
            where_no_file_is_named_nothing_is_saved_and_nothing_changes, exports_that_are_saved_survive_reloads_and_restarts,
            what_is_not_saved_is_said_to_be_lost_and_is, a_drain_that_is_saved_goes_on_after_restarts,
            a_reload_and_a_check_read_what_people_write_into_the_file, a_check_opens_no_file_that_is_not_in_use,
            where_the_file_cannot_be_written_nothing_changes, a_disk_that_does_not_answer_holds_up_only_who_saves)])
    finally:
        planes.stop()


sys.exit(main())
