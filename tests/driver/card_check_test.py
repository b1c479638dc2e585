#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sluice-card-check over every model of a provider: it reports the deviations of the model and nothing else.

card_check_test.py CARD_CHECK_MODELS [MODEL...]      results in TAP; only these models are checked whole"""
import ipaddress
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback

PROGRAM = sys.argv[1]
WINDOWS = "static: Static.windows_are_what_the_flags_say"
# Failed tests of each model; the file of the model's source is in verbs_models.h.
DEVIATIONS = {
    "mlx5": [],
    "mlx4": [],
    "ionic": [],
    "irdma": [WINDOWS, "static: Static.a_completion_queue_has_as_many_entries_as_reported",
              "loopback: Windows.extended_polling_names_the_rkey_that_a_peer_has_ended"],
    "bnxt_re_44": [WINDOWS],
    "bnxt_re_56": [WINDOWS, "static: Static.extended_posting_has_every_function_that_it_accepts"],
    "hns": [],
    "qedr": [],
    "mana": ["static: Static.a_window_that_can_be_allocated_can_be_used",
             "loopback: Loopback.as_many_reads_as_the_send_queue_holds_are_accepted/classic"],
    "erdma": ["loopback: Loopback.reads_bring_every_byte_into_1_to_16_pieces/classic"],
    "pvrdma": [],
    "rxe": [],
}
# Models whose providers have windows that work. The others have the roles of a client by window_less.
CLIENTS = {"mlx5", "mlx4", "ionic", "irdma", "rxe"}
CHECKED = sys.argv[2:] or list(DEVIATIONS)
SECTIONS = {"system", "device", "hardware", "provider", "attributes", "port", "gids", "fabric"}


REPORTS = {}  # report of each model


class Failed(Exception):
    """A test has failed."""


def run(*words, model="mlx5", fault="", gids=""):
    environment = {**os.environ, "CARD_MODEL": model, "CARD_FAULT": fault, "CARD_GIDS": gids}
    limits = () if "--limit" in words else ("--limit", "3000")  # generous, because other tests may run beside this one
    return subprocess.run([PROGRAM, *words, *limits, "--test-limit", "600"], env=environment, capture_output=True, text=True, timeout=3600, check=False)


def need(condition, *shown):
    if not condition:
        raise Failed(" ".join(map(str, shown)))


def parse_tap(text):
    """Parses TAP 14, and fails for everything that it does not define. Returns (facts, results)."""
    lines = text.split("\n")
    need(lines[-1] == "" and lines[0] == "TAP version 14", "first or last line", lines[0], lines[-1])
    plan = re.fullmatch(r"1\.\.(\d+)", lines[1])
    need(plan, "plan", lines[1])
    facts, results, block = {}, [], None
    for line in lines[2:-1]:
        if block is not None:
            if line == "  ...":
                block = None
                continue
            name, value = re.fullmatch(r"  ([\w.]+): (.*)", line).groups()
            block[name] = json.loads(value)
        elif line == "  ---":
            need(results and not results[-1]["diagnostics"], "block without a result")
            block = results[-1]["diagnostics"]
        elif line.startswith("# "):
            name, value = re.fullmatch(r"# (\w+): (.*)", line).groups()
            facts[name] = json.loads(value)
        else:
            found = re.fullmatch(r"(not ok|ok) (\d+) - ((?:[^#\\]|\\.)+?)(?: # SKIP (.+))?", line)
            need(found and int(found[2]) == len(results) + 1, "line", repr(line))
            results.append({"name": found[3], "ok": found[1] == "ok", "skip": found[4], "diagnostics": {}})
    need(block is None and len(results) == int(plan[1]), "plan", plan[1], "but", len(results))
    need(facts.pop("end")["tests"] == len(results), "end")
    return facts, results


def report_of(done):
    need(done.stdout, done.stderr)
    return parse_tap(done.stdout)


def failed(results):
    return [result["name"] for result in results if not result["ok"]]


def every_model_is_reported_with_its_deviations():
    slowest = 0
    for model in CHECKED:
        wanted = DEVIATIONS[model]
        start = time.monotonic()
        done = run(model=model)
        took = time.monotonic() - start
        slowest = max(slowest, took)
        facts, results = report_of(done)
        REPORTS[model] = done.stdout
        found = failed(results)
        need(sorted(found) == sorted(wanted), model, "has", found, "\n", done.stdout)
        need(done.returncode == (1 if wanted else 0), model, "exits with", done.returncode)
        need(SECTIONS <= set(facts), model, "has the facts", sorted(facts))
        need(all(result["skip"] != "" for result in results), "a skip without a reason")
        skips = sum(result["skip"] is not None for result in results)
        print(f"# {model}: {len(results)} tests, {len(found)} failed, {skips} skipped, {took:.1f} s", flush=True)
    print("# " + json.dumps({"figure": "card_check_s", "where": "slowest model", "value": round(slowest, 1), "unit": "s", "goal": 60}))


def the_models_are_those_of_the_driver_suite():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "verbs_models.h"), encoding="utf-8") as file:
        named = re.findall(r'\.name = "(\w+)"', file.read())
    need(set(named) == set(DEVIATIONS), sorted(named), "are not", sorted(DEVIATIONS))


def failures_have_diagnostics():
    for model, name, part in (("irdma", WINDOWS, "Sluice probes and uses them"),
                              ("mana", DEVIATIONS["mana"][1], "refuses RDMA Reads"),
                              ("erdma", DEVIATIONS["erdma"][0], "without all of its bytes")):
        _, results = report_of(run("--test", name, model=model))
        result, = [result for result in results if result["name"] == name]
        need(any(part in failure for failure in result["diagnostics"]["failures"]), result)


def json_has_the_same_results():
    facts, results = report_of(run("--static", model="irdma"))
    done = run("--static", "--json", model="irdma")
    report = json.loads(done.stdout)
    outcomes = {"passed": True, "skipped": True, "failed": False}
    need(done.returncode == 1 and set(report["facts"]) == set(facts), done.returncode, report["facts"])
    need([(one["name"], outcomes[one["outcome"]]) for one in report["results"]] == [(one["name"], one["ok"]) for one in results], report["results"])


def explain(text, expected=0):
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        done = run("--explain", file.name)
    need(done.returncode == expected, "exits with", done.returncode, done.stdout, done.stderr)
    return done.stdout if expected == 0 else done.stderr


def a_report_is_explained_by_roles():
    for model in CHECKED:
        text = explain(REPORTS[model])
        roles = dict(re.findall(r"^  ([\w ]+): (yes|no|expected)", text, re.M))
        wanted = {name: "yes" for name in ("server", "gateway with TCP upstreams", "RDMA upstreams", "reverse gateway", "version 2")}
        need({name: roles.get(name) for name in wanted} == wanted, model, roles, text)
        need(text.count("only with window_less") == (0 if model in CLIENTS else 2), model, text)


def a_static_report_promises_nothing():
    for form in ((), ("--json",)):
        need("server: expected, run --loopback" in explain(run("--static", *form).stdout), "server")


def a_part_of_a_report_and_other_files_are_errors():
    whole = run("--static", model="irdma").stdout
    for share in (0, 1, 10, 50, 90, 99):
        sentence = explain(whole[:len(whole) * share // 100], 2)
        need(sentence.strip().endswith("."), sentence)
    for other in ("", "\x7fELF", "{}", "ok 1 - x\n", "TAP version 14\n1..0\n"):
        explain(other, 2)
    need(run("--explain", "/nonexistent").returncode == 2, "a file that does not exist")


def nothing_identifies_the_machine():
    """The stub has the addresses 192.0.2.1 and 192.0.2.2 and the GUID 02c9:03ff:fe0a:1b2c."""
    for words in (("--two-gids", "--test", "Windows."), ("--static",), ("--static", "--json")):
        text = run(*words, model="irdma", gids="2").stdout
        for secret in ("192.0.2.", "::ffff:", "c0000201", "c000:0201", "02c903fffe0a1b2c", "02c9:03ff:fe0a:1b2c"):
            need(secret not in text.lower(), secret, "is in the report")
        for word in re.findall(r"[0-9A-Fa-f:.]{7,}", text):
            try:
                need(ipaddress.ip_address(word).is_unspecified, word, "is an address in the report")
            except ValueError:
                continue
        need(re.search(r"<[0-9a-f]{16}>", text), "no hash is in the report")


def two_gids_are_used_or_the_reason_is_said():
    _, results = report_of(run("--two-gids", "--test", "Loopback."))
    need(results and all(result["skip"] and "one usable GID" in result["skip"] for result in results), results)
    _, results = report_of(run("--two-gids", "--test", "Loopback.", gids="2"))
    need(results and all(result["ok"] and not (result["skip"] and "GID" in result["skip"]) for result in results), results)


def a_function_that_is_null_is_a_failed_test():
    _, results = report_of(run("--loopback", "--test", "Loopback.reads", fault="null_poll"))
    found = [result for result in results if not result["ok"]]
    # A sanitizer reports the signal itself and ends the process with a status.
    need(found and re.search("SIGSEGV|: SEGV on", str(found[0]["diagnostics"])), results)
    done = run(fault="null_query")
    _, results = report_of(done)
    need(done.returncode == 1 and failed(results) == ["facts: the device can be opened and queried"], results)


def a_device_without_queue_pairs_fails_and_the_run_ends():
    done = run("--static", fault="no_queue_pairs")
    _, results = report_of(done)
    need(done.returncode == 1 and len(failed(results)) > 3, failed(results))


def refusals_say_what_to_do():
    for fault, part in (("no_permission", "Run sluice-card-check as root"), ("no_device", "RDMA device"),
                        ("iwarp", "its mode is iWARP")):
        done = run(fault=fault)
        need(done.returncode == 2 and part in done.stderr and not done.stdout, fault, done.returncode, done.stdout, done.stderr)
    for words, part in ((("--device", "nosuch0"), "There is no RDMA device 'nosuch0'. This machine has stub0"),
                        (("--gid", "77"), "no RoCEv2 GID with index 77"), (("--test", "nosuch"), "No test has 'nosuch'"), (("--nosuch",), "")):
        done = run(*words)
        need(done.returncode == 2 and part in done.stderr, words, done.returncode, done.stderr)


def tests_after_the_limit_fail():
    done = run("--static", "--limit", "0")
    _, results = report_of(done)
    need(done.returncode == 1 and len(failed(results)) == len(results), failed(results))
    need(all("not run" in result["diagnostics"]["failures"][0] for result in results), results)


def a_hidden_sysfs_is_no_obstacle():
    facts, results = report_of(run("--static", fault="no_sysfs"))
    need(not failed(results) and facts["hardware"]["driver"] is None, facts["hardware"])


def the_commands_for_a_second_machine_are_printed():
    text = run("--peer", "--device", "stub0").stdout
    need("sluice-conformance --device verbs --rdma-device stub0" in text and "sluice-bench --device verbs --rdma-device stub0" in text, text)


TESTS = [the_models_are_those_of_the_driver_suite, every_model_is_reported_with_its_deviations, failures_have_diagnostics,
         json_has_the_same_results, a_report_is_explained_by_roles, a_static_report_promises_nothing,
         a_part_of_a_report_and_other_files_are_errors, nothing_identifies_the_machine, two_gids_are_used_or_the_reason_is_said,
         a_function_that_is_null_is_a_failed_test, a_device_without_queue_pairs_fails_and_the_run_ends, refusals_say_what_to_do,
         tests_after_the_limit_fail, a_hidden_sysfs_is_no_obstacle, the_commands_for_a_second_machine_are_printed]


def main():
    print(f"1..{len(TESTS)}", flush=True)
    wrong = 0
    for number, test in enumerate(TESTS, 1):
        try:
            test()
            print(f"ok {number} {test.__name__}", flush=True)
        except (Failed, subprocess.TimeoutExpired, AttributeError, KeyError, ValueError) as error:
            wrong += 1
            print(f"not ok {number} {test.__name__}")
            shown = str(error) if isinstance(error, Failed) else traceback.format_exc()
            print("".join(f"# {line}\n" for line in shown.splitlines()), end="", flush=True)
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
