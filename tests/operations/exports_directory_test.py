#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports that 'sluicectl ... --save' keeps in exports_directory, files of administrators there, and changes that are lost. Speaks TAP.

exports_directory_test.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH"""
import json
import os
import shutil
import subprocess
import sys

from held_file import HeldFile
from planes import PATIENCE_S, Planes, end, run_tap

CONTROL, DATA, CTL, BENCH = sys.argv[1:5]
planes = Planes(CONTROL, DATA, CTL, BENCH)
DIRECTORY = f"{planes.dir}/exports.d"
UNTIL_RELOAD = "The change applies until the next reload or restart. Use --save to keep it.\n"
NOT_CHANGED = "Nothing was saved, and nothing has changed. "


def exports():
    return {entry["path"]: entry for entry in planes.ctl("exports")}


def write(name, text):
    with open(f"{DIRECTORY}/{name}", "w", encoding="utf-8") as file:
        file.write(text)


def text_of(name):
    with open(f"{DIRECTORY}/{name}", encoding="utf-8") as file:
        return file.read()


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
    """Starts with one export, /export, and an empty directory."""
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    os.mkdir(DIRECTORY)
    planes.write_config({'log_level = "info"': f'log_level = "info"\nexports_directory = "{DIRECTORY}"'})
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


def refused_everywhere(text):
    """The text is in the message of a check, a reload, a start, and a change that is to be saved; the exports in force stay."""
    before = exports()
    check = planes.run_ctl("config", "check", planes.config)
    assert check.returncode == 5 and text in check.stderr, (text, check)
    assert text in refused("config", "reload") and text in refused("exports", "add", "/x", "--save")
    done = subprocess.run([CONTROL, "--config", planes.config], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 2 and text in done.stderr, (text, done)
    assert exports().keys() == before.keys()


def where_no_directory_is_named_nothing_is_saved_and_nothing_changes():
    for words in (["exports", "add", "/x"], ["exports", "remove", "/export"]):
        text = refused(*words, "--save")
        assert text.startswith(NOT_CHANGED + "No directory of exports is configured. In ") and "exports_directory" in text, text
    assert list(exports()) == ["/export"]


def exports_that_are_saved_survive_reloads_and_restarts():
    begin_anew()
    assert planes.ctl("exports", "add", "/kept", "--read-only", "--quota-mib", "7", "--save") == {"path": "/kept", "saved": True}
    assert "The change applies until" not in said("exports", "add", "/brief", "--save")
    assert sorted(os.listdir(DIRECTORY)) == ["brief.toml", "kept.toml"]
    assert planes.ctl("exports", "remove", "/brief", "--save") == {"path": "/brief", "saved": True}
    assert os.listdir(DIRECTORY) == ["kept.toml"]
    for again in (lambda: planes.ctl("config", "reload"), restart_control, restart_both):
        again()
        shown = exports()
        assert list(shown) == ["/export", "/kept"] and shown["/kept"]["read_only"] and shown["/kept"]["quota_bytes"] == 7 << 20, shown
    planes.ctl("exports", "add", "/kept", "--save")
    restart_control()
    assert not exports()["/kept"]["read_only"]


def what_is_not_saved_is_said_to_be_lost_and_is():
    begin_anew()
    assert said("exports", "add", "/brief").endswith(UNTIL_RELOAD)
    assert planes.ctl("exports", "add", "/short") == {"path": "/short", "saved": False}
    assert said("exports", "remove", "/export").endswith(UNTIL_RELOAD)
    assert not os.listdir(DIRECTORY) and set(exports()) == {"/brief", "/short"}
    assert planes.ctl("exports", "remove", "/short", "--save") == {"path": "/short", "saved": True}
    assert "There is no export" in refused("exports", "remove", "/short", "--save")
    restart_control()
    assert set(exports()) == {"/export"}


def an_export_of_the_administrator_is_changed_in_its_file_only():
    begin_anew()
    write("mine.toml", '[[export]]\npath = "/mine"\nclients = []\n')
    assert planes.ctl("config", "check", planes.config)["in_force"] == ["export./mine"]
    assert planes.ctl("config", "reload")["in_force"] == ["export./mine"] and set(exports()) == {"/export", "/mine"}
    for file, export in ((planes.config, "/export"), (f"{DIRECTORY}/mine.toml", "/mine")):
        for words in (["exports", "add", export, "--read-only"], ["exports", "remove", export]):
            assert refused(*words, "--save") == (f"{NOT_CHANGED}{file} was not written by sluicectl for '{export}' alone. "
                                                 "Edit this file, and run 'sluicectl config reload'.\n")
    assert set(exports()) == {"/export", "/mine"} and not exports()["/mine"]["read_only"]
    # Without the first line, a file belongs to the administrator.
    planes.ctl("exports", "add", "/given", "--save")
    write("given.toml", text_of("given.toml").split("\n", 1)[1])
    assert "was not written by sluicectl" in refused("exports", "remove", "/given", "--save")


def files_that_cannot_be_read_as_a_whole_are_refused():
    begin_anew()
    planes.ctl("exports", "add", "/kept", "--client", "192.0.2.0/24", "--save")
    whole = text_of("kept.toml")
    path = f"{DIRECTORY}/kept.toml"
    for half in ("", whole[:len(whole) // 2], whole[:-10]):
        write("kept.toml", half)
        refused_everywhere(f"{path}:")
    write("kept.toml", whole)
    write("twice.toml", '[[export]]\npath = "/kept"\nclients = []\n')
    refused_everywhere(f"{DIRECTORY}/twice.toml:1: There is an export '/kept' already in {path}. Remove one.")
    os.unlink(f"{DIRECTORY}/twice.toml")
    os.symlink("nowhere", f"{DIRECTORY}/dangling.toml")
    refused_everywhere(f"Cannot read {DIRECTORY}/dangling.toml (No such file or directory)")
    os.unlink(f"{DIRECTORY}/dangling.toml")
    os.rename(DIRECTORY, f"{DIRECTORY}.away")
    refused_everywhere(f"Cannot read the directory {DIRECTORY} (No such file or directory)")
    os.rename(f"{DIRECTORY}.away", DIRECTORY)
    planes.ctl("config", "reload")
    assert set(exports()) == {"/export", "/kept"}


def a_check_opens_no_directory_that_is_not_in_use():
    begin_anew()
    other = f"{planes.dir}/other.toml"
    os.mkdir(f"{planes.dir}/secrets.d")
    with open(f"{planes.dir}/secrets.d/x.toml", "w", encoding="utf-8") as file:
        file.write("a secret of the control plane's user\n")
    with open(planes.config, encoding="utf-8") as file:
        text = file.read()
    assert f'"{DIRECTORY}"' in text
    with open(other, "w", encoding="utf-8") as file:
        file.write(text.replace(f'"{DIRECTORY}"', f'"{planes.dir}/secrets.d"'))
    assert "exports_directory" in planes.ctl("config", "check", other)["in_force"]


def where_the_file_cannot_be_written_nothing_changes():
    begin_anew()
    os.makedirs(f"{DIRECTORY}/x.toml.new/in-the-way")
    assert f"{NOT_CHANGED}Cannot write {DIRECTORY}/x.toml (" in refused("exports", "add", "/x", "--save")
    assert list(exports()) == ["/export"] and os.listdir(DIRECTORY) == ["x.toml.new"]
    shutil.rmtree(f"{DIRECTORY}/x.toml.new")
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
            where_no_directory_is_named_nothing_is_saved_and_nothing_changes, exports_that_are_saved_survive_reloads_and_restarts,
            what_is_not_saved_is_said_to_be_lost_and_is, an_export_of_the_administrator_is_changed_in_its_file_only,
            files_that_cannot_be_read_as_a_whole_are_refused, a_check_opens_no_directory_that_is_not_in_use,
            where_the_file_cannot_be_written_nothing_changes, a_disk_that_does_not_answer_holds_up_only_who_saves)])
    finally:
        planes.stop()


sys.exit(main())
