#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Administration by sluicectl while clients are served. Speaks TAP.

administration_test.py CONTROLPLANE DATAPLANE SLUICECTL SLUICE_BENCH SLUICE_REFERENCE DEPLOY"""
import base64
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

from admin_client import ask, check_names, mismatch
from held_file import HeldFile
from planes import PATIENCE_S, Planes, Skipped, end, finish, run_tap
from prometheus_server import exposition, samples

CONTROL, DATA, CTL, BENCH, REFERENCE, DEPLOY = sys.argv[1:7]
planes = Planes(CONTROL, DATA, CTL, BENCH)


def exports():
    return {entry["path"]: entry for entry in planes.ctl("exports")}


def events(*words):
    done = planes.run_ctl("--json", "events", *words)
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]


def events_of_file():
    with open(f"{planes.dir}/events", encoding="utf-8") as file:
        return [json.loads(line)["event"] for line in file]


def ends():
    return sum(event["event"] == "connection_down" for event in events())


def a_reload_changes_exports_policy_and_log_level_and_loses_no_call():
    load = planes.nfs_load()
    planes.loaded()
    extra = '[[export]]\npath = "/more"\nclients = []\nread_only = true\n[policy]\nmax_credits = 8\nweight = 3\n' \
            '[[client_class]]\nname = "lab"\nclients = ["192.0.2.0/24"]\nmax_credits = 4\n'
    planes.write_config({'log_level = "info"': 'log_level = "warn"', "quota_mib = 512": "quota_mib = 256"}, extra)
    changes = planes.ctl("config", "reload")
    assert changes["restart_both_planes"] == [] and changes["restart_control_plane"] == [], changes
    assert {"log_level", "export./more", "export./export", "client_class.lab", "policy.max_credits"} <= set(changes["in_force"]), changes
    assert exports()["/more"]["read_only"] and exports()["/export"]["quota_bytes"] == 256 << 20
    # The client now belongs to another class, which has another grant.
    planes.wait("the grant of its new class", lambda: [(c["class"], c["credits"]) for c in planes.ctl("connections")] == [("lab", 4)])
    shown = planes.ctl("config", "show")
    assert shown["log_level"] == "warn" and shown["policy"]["weight"] == 3, shown
    in_log, in_journal = planes.text_of_log().count("event=connection_down"), ends()
    result = end(load)
    assert result["errors"] == 0 and result["operations"] > 1000, result
    planes.wait("the connection's end", lambda: ends() > in_journal)
    assert planes.text_of_log().count("event=connection_down") == in_log


def exports_are_added_changed_and_removed_under_load():
    load = planes.nfs_load()
    planes.loaded()
    for _ in range(5):
        planes.ctl("exports", "add", "/runtime", "--quota-mib", "7", "--client", "192.0.2.0/24", "--client", "2001:db8::/32")
        assert exports()["/runtime"]["quota_bytes"] == 7 << 20
        planes.ctl("exports", "add", "/runtime", "--read-only")
        assert exports()["/runtime"]["read_only"] and exports()["/runtime"]["quota_bytes"] == 0
        planes.ctl("exports", "remove", "/runtime")
        assert "/runtime" not in exports()
    assert end(load)["errors"] == 0
    for words in (["exports", "remove", "/runtime"], ["exports", "add", "relative"], ["exports", "add", "/x", "--client", "nonsense"]):
        done = planes.run_ctl(*words)
        assert done.returncode == 1 and done.stderr.strip().endswith("."), done


def what_is_in_an_export_comes_back_with_it():
    load = planes.nfs_load()
    planes.loaded()
    planes.wait("the load's file to be counted", lambda: exports()["/export"]["files"] > 1)
    planes.ctl("exports", "remove", "/export")
    load.terminate()
    load.communicate()  # the file handles of the load are stale
    done = planes.nfs_load(seconds=1)
    _, err = done.communicate()
    assert done.returncode != 0 and err, "a removed export was mounted"
    planes.ctl("config", "reload")
    assert exports()["/export"]["files"] > 1
    assert finish(planes.nfs_load(seconds=1))["errors"] == 0


def events_say_what_has_happened_and_are_followed():
    with open(f"{planes.dir}/followed", "w", encoding="utf-8") as file:
        follower = subprocess.Popen([CTL, "--socket", planes.socket, "events", "--follow"], stdout=file)
    done = planes.nfs_load(seconds=1)
    assert finish(done)["errors"] == 0
    planes.ctl("drain", "--no-wait")
    planes.ctl("drain", "--stop")
    planes.wait("the connection's end", lambda: any(e["event"] == "connection_down" for e in events()))
    names = [e["event"] for e in events()]
    assert {"takeover", "data_plane_found", "configuration_in_force", "connection_up", "drain_begun", "drain_ended"} <= set(names), names
    assert [e["sequence"] for e in events()] == sorted(e["sequence"] for e in events())
    up = [e for e in events() if e["event"] == "connection_up"][-1]
    assert up["fields"]["peer"] == "192.0.2.2" and up["severity"] == "info", up
    assert up["sequence"] == events("--since", str(up["sequence"]))[0]["sequence"]
    planes.wait("the events in their file", lambda: len(events_of_file()) >= len(names))
    assert events_of_file()[:len(names)] == names
    assert "event=connection_up" in planes.text_of_log()
    with open(f"{planes.dir}/followed", encoding="utf-8") as file:
        planes.wait("the follower", lambda: " info drain_ended" in file.read())
    follower.send_signal(signal.SIGINT)
    follower.wait(PATIENCE_S)


def a_log_that_nobody_reads_stops_nothing():
    reader, writer = os.pipe()
    while True:  # full
        os.set_blocking(writer, False)
        try:
            os.write(writer, bytes(4096))
        except BlockingIOError:
            break
    os.set_blocking(writer, True)
    planes.control.terminate()
    assert planes.control.wait(PATIENCE_S) == 0
    planes.control = subprocess.Popen([CONTROL, "--config", planes.config], stdout=writer, stderr=writer)
    os.close(writer)
    planes.up()
    for _ in range(200):
        planes.run_ctl("drain", "--no-wait")
        planes.run_ctl("drain", "--stop")
    assert planes.ctl("status")["data_plane"]["alive"]
    planes.control.terminate()
    assert planes.control.wait(PATIENCE_S) == 0
    os.close(reader)
    planes.start_control()
    planes.up()


def a_bad_file_changes_nothing_and_its_defects_are_told():
    with open(planes.config, encoding="utf-8") as file:
        good = file.read()
    before = planes.ctl("config", "show")
    with open(planes.config, "w", encoding="utf-8") as file:
        file.write(good.replace("credits = 64", "credits = 0").replace('idle = "backoff"', 'idle = "nap"'))
    done = planes.run_ctl("config", "reload")
    assert done.returncode == 1 and "sluice.toml:" in done.stderr and "credits has to be" in done.stderr and "idle has to be" in done.stderr, done
    check = planes.run_ctl("config", "check", planes.config)
    assert check.returncode == 5 and check.stderr.count("sluice.toml:") == 2, check
    assert planes.ctl("config", "show") == before
    with open(planes.config, "w", encoding="utf-8") as file:
        file.write(good.replace("credits = 64", "credits = 32").replace("port = 0", "port = 1"))
    changes = planes.ctl("config", "check", planes.config)
    assert changes == {"in_force": [], "restart_both_planes": ["transport.credits"], "restart_control_plane": ["mount.port"]} or \
        "transport.credits" in changes["restart_both_planes"], changes
    changes = planes.ctl("config", "reload")
    assert "transport.credits" in changes["restart_both_planes"] and changes["restart_control_plane"] == ["mount.port"], changes
    assert planes.ctl("config", "show")["transport"]["credits"] == 64
    waiting = planes.ctl("status")["configuration"]
    assert "transport.credits" in waiting["pending"] and waiting["pending_control"] == ["mount.port"], waiting
    planes.wait("the same in the metrics", lambda: {of["restart"]: value for of, value in samples(exposition(planes.metrics), "sluice_config_pending_keys")}
                == {"both": len(waiting["pending"]), "control": 1})
    with open(planes.config, "w", encoding="utf-8") as file:
        file.write(good)
    generation = planes.ctl("status")["configuration"]["generation"]
    planes.control.send_signal(signal.SIGHUP)
    planes.wait("the reload by signal", lambda: planes.ctl("status")["configuration"]["generation"] > generation)
    waiting = planes.ctl("status")["configuration"]
    assert waiting["pending"] == [] and waiting["pending_control"] == [], waiting


def a_file_that_does_not_answer_holds_up_only_who_waits_for_it():
    before = planes.ctl("status")
    with HeldFile(planes.config) as held:
        reload = subprocess.Popen([CTL, "--socket", planes.socket, "--json", "config", "reload"], stdout=subprocess.PIPE, text=True)
        held.wait_for_opener()
        planes.control.send_signal(signal.SIGHUP)  # another reload, which waits for the first
        for _ in range(20):
            assert planes.ctl("status")["control_plane"]["alive"] and planes.ctl("topology")["processors"]
        assert finish(planes.nfs_load(seconds=1))["errors"] == 0, "new connections are made meanwhile"
        assert reload.poll() is None
        assert planes.ctl("status")["configuration"]["generation"] == before["configuration"]["generation"]
        held.let_go()
        assert json.loads(reload.communicate(timeout=PATIENCE_S)[0])["in_force"] == []
        held.wait_for_opener()
        held.let_go()
        planes.wait("the second", lambda: planes.ctl("status")["configuration"]["generation"] == before["configuration"]["generation"] + 2)


def a_trace_shows_calls_with_their_states():
    load = planes.nfs_load()
    connection = planes.loaded()
    where = (str(connection["reactor"]), str(connection["connection"]))
    calls = planes.ctl("trace", *where, "--calls", "50")
    assert len(calls) == 50, len(calls)
    procedures = {call["procedure"] for call in calls}
    assert procedures <= {"nfs.read", "nfs.write", "nfs.getattr"} and len(procedures) > 1, procedures
    for call in calls:
        assert call["status"] == "success" and "replying" in call["states_us"], call
        assert sum(call["states_us"].values()) <= call["total_us"] * 1.01 + 1, call
        if call["procedure"] == "nfs.write":
            assert "pulling" in call["states_us"] and call["call_bytes"] > 65536, call
        if call["procedure"] == "nfs.read":
            assert call["reply_bytes"] >= 65536, call
    # The last calls, after tracing for a while.
    planes.ctl("trace", *where, "--start")
    last = planes.wait("noted calls", lambda: len(noted := planes.ctl("trace", *where, "--last", "--calls", "30")) == 30 and noted)
    assert all(call["status"] == "success" for call in last)
    planes.ctl("trace", *where, "--stop")
    time.sleep(0.5)
    one, other = (planes.ctl("trace", *where, "--last") for _ in range(2))
    assert one == other, "calls are still traced"
    shown = planes.ctl("connections", "show", *where)
    assert shown["calls"] > 100 and shown["peer"] == "192.0.2.2" and shown["queue_pair"] > 0, shown
    statistics = {s["procedure"]: s for s in planes.ctl("exports", "stats", "/export")}
    assert statistics["write"]["calls"] > 0 and statistics["read"]["errors"] == 0, statistics
    end(load)
    for words in (["trace", "0", "31"], ["connections", "show", "0", "31"], ["connections", "show", "9", "0"]):
        done = planes.run_ctl(*words)
        assert done.returncode == 1 and "sluicectl connections" in done.stderr, done


def slow_calls():
    done = planes.run_ctl("--json", "slow")
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]


def slow_calls_are_noted_with_where_their_time_went():
    with open(f"{planes.dir}/slow", "w", encoding="utf-8") as file:
        follower = subprocess.Popen([CTL, "--socket", planes.socket, "slow", "--follow"], stdout=file)
    before = len(slow_calls())
    load = planes.nfs_load()
    connection = planes.loaded()
    planes.data.send_signal(signal.SIGSTOP)
    time.sleep(1.5)
    planes.data.send_signal(signal.SIGCONT)
    slow = planes.wait("slow calls", lambda: slow_calls()[before:])
    for call in slow:
        assert call["peer"] == "192.0.2.2" and call["connection"] == connection["connection"], call
        assert call["procedure"] in ("nfs.read", "nfs.write", "nfs.getattr") and call["status"] == "success", call
        assert call["total_us"] >= 1e6 and abs(sum(call["states_us"].values()) - call["total_us"]) < 1, call
    where = (str(connection["reactor"]), str(connection["connection"]))
    why = planes.ctl("why", *where)
    assert why["shown"]["peer"] == "192.0.2.2" and why["ended"] is None, why
    assert any("slow calls" in finding for finding in why["findings"]), why["findings"]
    assert any(event["event"] == "connection_up" for event in why["events"]), why["events"]
    assert {call["xid"] for call in slow} <= {call["xid"] for call in why["slow_calls"]}
    # Zero disables the record of slow calls; it takes effect by a reload.
    planes.write_config(extra="[observability]\nslow_call_ms = 0\n")
    assert "observability.slow_call_ms" in planes.ctl("config", "reload")["in_force"]
    noted = len(slow_calls())
    planes.data.send_signal(signal.SIGSTOP)
    time.sleep(1.5)
    planes.data.send_signal(signal.SIGCONT)
    at = planes.ctl("connections", "show", *where)["calls"]
    planes.wait("calls after it", lambda: planes.ctl("connections", "show", *where)["calls"] > at + 1000)
    assert len(slow_calls()) == noted
    end(load)
    planes.write_config()
    planes.ctl("config", "reload")
    with open(f"{planes.dir}/slow", encoding="utf-8") as file:
        planes.wait("the follower", lambda: " ms status=success " in file.read())
    follower.send_signal(signal.SIGINT)
    follower.wait(PATIENCE_S)


def why_a_connection_has_ended_is_said_afterwards():
    load = planes.load("--seconds", str(PATIENCE_S), "--depth", "4", "null")
    connection = planes.loaded()
    where = (str(connection["reactor"]), str(connection["connection"]))
    text = planes.run_ctl("why", *where)
    assert text.returncode == 0 and "peer: 192.0.2.2" in text.stdout and "connection_up" in text.stdout, text
    in_journal = ends()
    planes.ctl("connections", "close", *where)
    load.communicate()
    planes.wait("its end in the journal", lambda: ends() > in_journal)
    why = planes.wait("its end", lambda: (known := planes.ctl("why", *where)) and known["ended"] and known)
    assert why["shown"] is None and why["ended"]["fields"]["reason"] == "local_close" and why["peer"] == "192.0.2.2", why
    assert "local_close" in why["findings"][0] and [e for e in why["events"] if e["event"] == "connection_down"], why
    text = planes.run_ctl("why", *where)
    assert text.returncode == 0 and "it has ended local_close" in text.stdout, text
    done = planes.run_ctl("why", "0", "31")
    assert done.returncode == 1 and "Nothing is known" in done.stderr, done


def a_connection_is_closed_and_its_client_comes_back_or_ends():
    load = planes.load("--seconds", "4", "--depth", "4", "null")
    connection = planes.wait("a connection", lambda: planes.ctl("connections"))[0]
    planes.ctl("connections", "close", str(connection["reactor"]), str(connection["connection"]))
    planes.wait("its end", lambda: not planes.ctl("connections"))
    load.communicate()
    done = planes.run_ctl("connections", "close", "0", "0")
    assert done.returncode == 1 and "sluicectl connections" in done.stderr, done


def credits_properties_and_the_other_views_have_their_say():
    load = planes.load("--seconds", str(PATIENCE_S), "--rpcrdma", "2", "--depth", "4", "null")
    planes.wait("a connection", lambda: [p for p in planes.ctl("properties") if p["client"]])
    planes.loaded()
    credits = planes.ctl("credits")
    assert credits["reactors"][0]["connections"] == 1 and credits["classes"][0]["granted"] + credits["classes"][-1]["granted"] > 0, credits
    for view in ("status", "reactors", "devices", "topology", "memory", "counters", "version", "connections", "credits", "properties"):
        assert planes.ctl(view), view
        text = planes.run_ctl(view)
        assert text.returncode == 0 and text.stdout.strip(), view
    planes.wait("a round that has seen the load", lambda: ask(planes.socket, "busiest")["result"]["connections"])
    top = planes.run_ctl("top", "--interval", "0.2", "--turns", "2")
    assert top.returncode == 0 and top.stdout.count("calls/s") >= 12, top.stdout
    assert re.search(r"^192\.0\.2\.2 +1 +[1-9]\d* ", top.stdout, re.M), top.stdout  # the client, with its calls
    assert re.search(r"^0\.0 +192\.0\.2\.2 ", top.stdout, re.M), top.stdout  # its connection
    assert re.search(r"^all +1 of clients +\d+ +\d+ +[1-9]\d*$", top.stdout, re.M), top.stdout  # the sums
    end(load)


def every_answer_is_as_it_is_declared():
    load = planes.load("--seconds", str(PATIENCE_S), "--rpcrdma", "2", "--depth", "4", "null")
    connection = planes.loaded()
    where = {"reactor": connection["reactor"], "connection": connection["connection"]}
    with open(planes.config, encoding="utf-8") as file:
        text = file.read()
    parameters = {"config_check": {"text": text}, "connection_show": where, "connection_close": where, "export_add": {"path": "/declared"},
                  "export_remove": {"path": "/declared"}, "log_level": {"level": "info"}, "trace_start": where, "trace_read": where,
                  "trace_stop": where}
    described = subprocess.run([REFERENCE, "schemas"], capture_output=True, text=True, check=True).stdout
    methods = {m["name"]: m for m in json.loads(described)}
    for name, method in methods.items():
        unknown = ask(planes.socket, name, {**parameters.get(name, {}), "nonsense": 1})
        assert unknown["error"]["code"] == -32602 and "'nonsense'" in unknown["error"]["message"], unknown
        required = {p["name"] for p in method["params"] if p["required"]}
        assert required == set(parameters.get(name, {})) - {"text"}, (name, required)
        if required:
            assert ask(planes.socket, name)["error"]["code"] == -32602, name
        for parameter in method["params"]:
            wrong = ask(planes.socket, name, {**parameters.get(name, {}), parameter["name"]: {}})
            assert wrong["error"]["code"] == -32602 and parameter["name"] in wrong["error"]["message"], wrong
    reader, writer = os.pipe()
    in_order = ["trace_start", "trace_read", "trace_stop", "capture_start", "capture_status", "capture_stop", "export_add", "export_remove",
                "connection_close", "drain_start", "drain_stop"]
    for name in sorted(methods, key=lambda name: in_order.index(name) if name in in_order else -1):
        answer = ask(planes.socket, name, parameters.get(name), [writer] if name == "capture_start" else [])
        assert "result" in answer, (name, answer)
        found = mismatch(methods[name]["result"], answer["result"])
        assert found is None, (name, found)
    os.close(reader)
    os.close(writer)
    load.kill()
    load.communicate()
    page = subprocess.run([REFERENCE, "methods"], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^### (.+)$", page, re.M)) == set(methods)


def every_command_prints_json_that_programs_can_read():
    load = planes.load("--seconds", str(PATIENCE_S), "--rpcrdma", "2", "--depth", "4", "null")
    connection = planes.loaded()
    where = f"{connection['reactor']} {connection['connection']}"
    commands = f"""status; reactors; procedures; devices; credits; properties; topology; memory; counters; version; connections; connections show {where};
        why {where}; trace {where} --calls 5; exports; exports stats; exports add /json; exports remove /json; upstreams; upstreams stats; reverse;
        reverse stats; config show; config check {planes.config}; config reload; log-level info; events; slow; capture {planes.dir}/packets --packets 5;
        debug dump; connections close {where}; drain --no-wait; drain --stop"""
    commands = [command.split() for command in commands.split(";")]
    for command in commands:
        assert planes.run_ctl("--json", *command).returncode == 0, command  # which checks the keys
    text = subprocess.run([CTL, "--help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"^  ([a-z][\w-]*) ", text[text.index("Subcommands:"):], re.M))
    assert {command[0] for command in commands} == known - {"top"}, known
    load.kill()
    load.communicate()


def the_log_level_changes_for_both_planes():
    assert planes.ctl("log-level", "error") == {"log_level": "error"}
    assert planes.ctl("config", "show")["log_level"] == "error"
    assert planes.run_ctl("log-level", "loud").returncode == 1
    planes.ctl("log-level", "info")


def a_loop_that_stood_still_is_shown():
    before = planes.ctl("status")["control_loop_stall_ms"]
    assert 0 < before["recent"] <= before["since_start"], before
    planes.control.send_signal(signal.SIGSTOP)
    time.sleep(1)
    planes.control.send_signal(signal.SIGCONT)
    after = planes.wait("the stall", lambda: (s := planes.ctl("status")["control_loop_stall_ms"])["recent"] > 900 and s)
    assert after["recent"] <= after["since_start"], after


def a_client_without_calls_notices_that_the_data_plane_was_killed():
    load = planes.load("--seconds", str(PATIENCE_S), "--rate", "0.0001", "null")
    planes.wait("a connection", lambda: planes.ctl("connections"))
    planes.data.kill()
    planes.data.wait()
    _, said = load.communicate(timeout=PATIENCE_S)
    assert load.returncode == 3 and "The connection was lost" in said, (load.returncode, said)
    planes.start_data()
    planes.up()


def draining_ends_connections_without_an_error_and_refuses_new_ones():
    load = planes.load("--seconds", "3", "--depth", "4", "null")
    planes.wait("a connection", lambda: planes.ctl("connections"))
    assert planes.ctl("drain", "--seconds", "20") == {"connections": 0, "draining": True}
    load.communicate()
    refused = planes.load("--seconds", "1", "null")
    _, err = refused.communicate()
    assert refused.returncode != 0 and "refused" in err, err
    assert planes.ctl("status")["connection_requests"]["draining"] > 0
    assert planes.ctl("drain", "--stop")["draining"] is False
    assert finish(planes.load("--seconds", "1", "null"))["operations"] > 0


def who_is_in_no_group_is_refused_and_who_may_look_cannot_change():
    if os.geteuid() != 0:
        raise Skipped("Only root may become other users.")
    os.chmod(planes.dir, 0o755)
    shutil.copy(CTL, f"{planes.dir}/sluicectl")
    planes.control.terminate()
    planes.control.wait()
    planes.write_config({f'socket = "{planes.socket}"': f'socket = "{planes.socket}"\nchange_group = "adm"\nread_group = "daemon"'})
    planes.start_control()
    planes.wait("the control plane", lambda: planes.ctl("status"))

    def as_user(uid, groups, *words):
        return subprocess.run([f"{planes.dir}/sluicectl", "--socket", planes.socket, *words], capture_output=True, text=True,
                              user=uid, group=uid, extra_groups=groups)

    stranger = as_user(54321, [], "status")
    assert stranger.returncode == 4 and "group" in stranger.stderr, stranger
    reader = as_user(54321, [1], "status")
    assert reader.returncode == 0, reader
    for words in (["config", "reload"], ["drain"], ["exports", "remove", "/export"], ["log-level", "debug"], ["connections", "close", "0", "0"]):
        assert as_user(54321, [1], *words).returncode == 4, words
    assert as_user(54321, [4], "log-level", "info").returncode == 0


def exit_codes_tell_scripts_what_happened():
    assert planes.run_ctl("nonsense").returncode not in (0, 1, 3, 4, 5)
    assert subprocess.run([CTL, "--socket", "/nowhere/admin.sock", "status"], capture_output=True).returncode == 3
    assert planes.run_ctl("--help").returncode == 0


def a_dump_for_a_bug_report_has_every_view_and_no_key():
    key = "the key of hosts, which no report may show"
    key_file, file = f"{planes.dir}/psk", f"{planes.dir}/dump"
    with open(os.open(key_file, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as opened:
        opened.write(key)
    dumped = Planes(CONTROL, DATA, CTL, BENCH, f"""
[host_authentication]
method = "psk"
[[host_authentication.host]]
name = "client.example"
key_files = ["{key_file}"]
""")
    dumped.start()
    try:
        load = dumped.nfs_load()
        connection = dumped.loaded()
        dumped.ctl("trace", "0", str(connection["connection"]), "--calls", "5", "--start")
        dumped.wait("a trace", lambda: dumped.ctl("trace", "0", str(connection["connection"]), "--last"))
        written = dumped.ctl("debug", "dump", file)
        assert written == {"file": file, "connections": 1} and os.stat(file).st_mode & 0o777 == 0o600, written
        with open(file, encoding="utf-8") as opened:
            text = opened.read()
        dump = json.loads(text)
        check_names(dump)
        for view, words in (("config_show", ["config", "show"]), ("topology", ["topology"])):
            assert dump[view] == dumped.ctl(*words), view
        # Views whose values change between the two requests have at least the same structure.
        for view in ("status", "reactors", "devices", "memory", "credits", "counters", "properties", "exports", "upstreams", "reverse"):
            shown = dumped.ctl(view)
            assert type(dump[view]) is type(shown) and len(dump[view]) == len(shown) and "error" not in dump[view], (view, dump[view], shown)
        shown = dumped.ctl("connections", "show", "0", str(connection["connection"]))
        assert set(shown) | {"trace"} == set(dump["connections"][0]) and dump["connections"][0]["calls"] > 1000, dump["connections"]
        assert {"xid", "procedure", "states_us"} <= set(dump["connections"][0]["trace"][0]), dump["connections"]
        version = dumped.ctl("version")["version"]
        assert {dump["versions"][of] for of in ("sluicectl", "control_plane", "data_plane")} == {version}, dump["versions"]
        assert dump["versions"]["data_plane_program"] == os.path.realpath(DATA), dump["versions"]
        assert dump["system"]["kernel"] == os.uname().release and {"upstream_counters", "reverse_counters", "export_stats"} <= set(dump)
        assert dump["config_show"]["host_authentication"]["host"][0]["key_files"] == [key_file]
        for form in (key, key.encode().hex(), base64.b64encode(key.encode()).decode().rstrip("=")):
            assert form not in text, form
        # `debug dump` never replaces a file; without a name it writes to standard output.
        again = dumped.run_ctl("debug", "dump", file)
        assert again.returncode == 1 and "Name a file that does not exist" in again.stderr, again
        assert set(json.loads(dumped.run_ctl("debug", "dump").stdout)) == set(dump)
        assert end(load)["errors"] == 0
    finally:
        dumped.stop()


def bad_clients_of_the_admin_socket_do_not_stop_the_planes():
    load = planes.load("--seconds", str(PATIENCE_S), "--depth", "16", "null")
    planes.loaded()
    clients = []
    for text in (b"{" * 200000, b"\xff\xfe\n" * 100, b'{"jsonrpc":"2.0","id":1,"method":"counters"}\n' * 2000, b"") * 10:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(0.05)
        try:
            client.connect(planes.socket)
            client.sendall(text)
        except OSError:
            pass
        clients.append(client)
    assert end(load)["operations"] > 0
    for client in clients:
        client.close()
    planes.wait("an answer", lambda: planes.ctl("status"))


def a_full_dev_shm_is_said_at_start_and_nothing_is_left_there():
    if os.geteuid() != 0:
        raise Skipped("Only root may have a /dev/shm of its own.")
    with open(planes.config, encoding="utf-8") as file:
        text = file.read()
    other = f"{planes.dir}/full.toml"
    with open(other, "w", encoding="utf-8") as file:
        file.write(text.replace(planes.socket, f"{planes.dir}/full.sock"))
    script = "mount -t tmpfs -o size=8m none /dev/shm; " + f"{CONTROL} --config {other}; echo $?; ls -A /dev/shm"
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=True)
    assert re.search(r"Cannot allocate the shared segment .*No space left.* needs \d+ MiB", done.stdout), done
    assert done.stdout.splitlines()[-1] == "1", done


def a_killed_data_plane_comes_back_on_the_same_memif():
    planes.data.kill()
    planes.data.wait()
    assert os.path.exists(f"{planes.dir}/memif.sock")
    planes.start_data()
    planes.up()
    assert finish(planes.nfs_load(seconds=1))["errors"] == 0


def manual_and_completion_know_every_command():
    words = set()
    for path in ([], ["config"], ["exports"], ["connections"], ["debug"]):
        text = subprocess.run([CTL, *path, "--help"], capture_output=True, text=True, check=True).stdout
        words |= set(re.findall(r"^  ([a-z][\w-]*) ", text[text.index("Subcommands:"):], re.M))
    assert {"status", "reload", "add", "close", "top"} <= words, words
    for file in ("man/sluicectl.8", "completion/sluicectl"):
        with open(f"{DEPLOY}/{file}", encoding="utf-8") as opened:
            known = set(re.findall(r"[a-z][\w-]*", opened.read()))
        assert words <= known, (file, words - known)
    done = subprocess.run(["bash", "-c", f"source {DEPLOY}/completion/sluicectl; COMP_WORDS=(sluicectl config re); COMP_CWORD=2; "
                           "_sluicectl; echo ${COMPREPLY[@]}"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "reload", done
    for page in os.listdir(f"{DEPLOY}/man"):
        shown = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", f"{DEPLOY}/man/{page}"], capture_output=True, text=True,
                               env={**os.environ, "MANPAGER": "cat"})
        assert shown.returncode == 0 and "NAME" in shown.stdout and not shown.stderr.strip(), (page, shown.stderr)


def main():
    planes.start()
    try:
        return run_tap([(f.__name__, f) for f in (
            events_say_what_has_happened_and_are_followed, a_log_that_nobody_reads_stops_nothing,
            a_reload_changes_exports_policy_and_log_level_and_loses_no_call, exports_are_added_changed_and_removed_under_load,
            what_is_in_an_export_comes_back_with_it, a_bad_file_changes_nothing_and_its_defects_are_told,
            a_file_that_does_not_answer_holds_up_only_who_waits_for_it,
            slow_calls_are_noted_with_where_their_time_went, why_a_connection_has_ended_is_said_afterwards,
            a_trace_shows_calls_with_their_states, a_connection_is_closed_and_its_client_comes_back_or_ends,
            credits_properties_and_the_other_views_have_their_say, every_answer_is_as_it_is_declared,
            every_command_prints_json_that_programs_can_read, the_log_level_changes_for_both_planes,
            a_loop_that_stood_still_is_shown, a_client_without_calls_notices_that_the_data_plane_was_killed,
            draining_ends_connections_without_an_error_and_refuses_new_ones, exit_codes_tell_scripts_what_happened,
            a_dump_for_a_bug_report_has_every_view_and_no_key,
            bad_clients_of_the_admin_socket_do_not_stop_the_planes, who_is_in_no_group_is_refused_and_who_may_look_cannot_change,
            a_full_dev_shm_is_said_at_start_and_nothing_is_left_there, a_killed_data_plane_comes_back_on_the_same_memif, manual_and_completion_know_every_command)])
    finally:
        planes.stop()


sys.exit(main())
