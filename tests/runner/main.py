# SPDX-License-Identifier: Apache-2.0
"""Runs the requested steps, and those that they need. Ends in the line 'N passed, N failed[, N skipped]'.

main.py [TIER | SUITE...]"""
import collections
import json
import os
import signal
import sys
import threading
import time
import traceback

import plan
from results import Outcome
from steps import DEADLINE, LOGS, RUNNING, Failed, Unfinished, end_process

MANY_ALIKE = 10  # skipped cases that get a line each
QUICK_RESULTS = f"{LOGS}/quick.json"


class Run:
    def __init__(self, steps):
        self.steps = steps
        self.done = {step.name: threading.Event() for step in steps}
        self.outcomes = {}   # name of a suite -> Outcome
        self.seconds = {}    # name -> time that it took
        self.broken = set()  # steps that failed or were left out: what needs them cannot run
        self.left_out = []
        self.started = time.monotonic()

    def lane(self, name):
        for step in (step for step in self.steps if step.lane == name):
            try:
                self.take(step)
            except Exception:  # an error of the runner is a failure of its step
                traceback.print_exc()
                self.outcomes[step.name] = Outcome(failed=[f"{step.name} (runner)"])
                self.broken.add(step.name)
            self.done[step.name].set()

    def take(self, step):
        for needed in step.after:
            if needed in self.done:
                self.done[needed].wait()
        if time.time() > DEADLINE or any(needed in self.left_out for needed in step.after):
            self.left_out.append(step.name)
            return
        if step.kind == "suite" and any(needed in self.broken for needed in step.after):
            self.outcomes[step.name] = Outcome(failed=[f"{step.name}: not run, since something that it needs failed"])
            return
        begun = time.monotonic()
        try:
            outcome = step.run()
        except Unfinished:
            self.left_out.append(step.name)
            return
        except Failed as error:
            print(error, flush=True)
            outcome = Outcome(failed=[step.name])
            self.broken.add(step.name)
        self.seconds[step.name] = time.monotonic() - begun
        self.outcomes[step.name] = outcome
        print(f"== {step.name}: {self.seconds[step.name]:.0f} s" + (f", {outcome.line()}" if step.kind == "suite" else ""), flush=True)

    def run(self):
        lanes = [threading.Thread(target=self.lane, args=(name,), daemon=True) for name in dict.fromkeys(step.lane for step in self.steps)]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()


def chosen(words):
    """The steps for these words, and what they need, in the plan's order."""
    every = [*plan.ALL, plan.coverage(plan.ALL)]
    by_name = {step.name: step for step in every}
    suites = [step.name for step in every if step.kind == "suite"]
    unknown = [word for word in words if word not in plan.GROUPS and word not in suites]
    if unknown:
        sys.exit(f"Unknown suite '{unknown[0]}': there are {', '.join(sorted({*plan.GROUPS, *suites}))}; and bench, mutate, portability.")
    names = {name for word in words for name in plan.GROUPS.get(word, [word])}
    if "rest" not in words:  # continues after a quick tier
        names = closed(names, by_name)
    elif not os.path.exists(QUICK_RESULTS):
        sys.exit("'rest' continues after the quick tier: run tests/run.sh first, or 'all' for both.")
    return [step for step in every if step.name in names]


def closed(names, by_name):
    while more := {needed for name in names for needed in by_name[name].after} - names:
        names = names | more
    return names


def cache_hits():
    """How many compilations hit the compiler cache, from the log of its statistics."""
    try:
        with open(f"{LOGS}/ccache.log", encoding="utf-8", errors="replace") as log:
            return sum(line.strip() in ("direct_cache_hit", "preprocessed_cache_hit") for line in log)
    except OSError:
        return 0


def figure(name, seconds, product_s, goal):
    """The time of a build from the cache cannot be compared with others."""
    print(json.dumps({"figure": name, "value": None if cache_hits() else round(seconds / product_s, 2), "unit": "product builds", "minutes": round(seconds / 60, 1),
                      "product_build_minutes": round(product_s / 60, 1), "cache_hits": cache_hits(), "goal": goal}))


def skipped_lines(skipped):
    """One for each skipped case, or one for many of the same program and reason."""
    alike = collections.defaultdict(list)
    for name, reason in skipped:
        alike[name.rpartition(" / ")[0], reason].append(name)
    for (program, reason), names in alike.items():
        if len(names) > MANY_ALIKE:
            yield f"SKIPPED {len(names)} cases, the last {names[-1]}: {reason}"
        else:
            yield from (f"SKIPPED {name}: {reason}" for name in names)


def report(run, words):
    """Prints the times, the figures, what failed and what was not run; last the totals."""
    seconds = time.monotonic() - run.started
    earlier = {}
    if "rest" in words:
        with open(QUICK_RESULTS, encoding="utf-8") as file:
            earlier = json.load(file)
    print("\nSeconds, longest first:")
    for name, taken in sorted(run.seconds.items(), key=lambda item: -item[1]):
        print(f"  {taken:6.0f}  {name}")
    print(f"  {seconds:6.0f}  in all")
    product_s = run.seconds.get("product") or earlier.get("product_s")
    total = Outcome(**{key: earlier[key] for key in ("passed", "failed", "skipped", "excerpts")}) if earlier else Outcome()
    for step in run.steps:
        if step.name in run.outcomes and (step.kind == "suite" or run.outcomes[step.name].failed):
            total.add(run.outcomes[step.name])
    if words == ["quick"] and product_s:
        with open(QUICK_RESULTS, "w", encoding="utf-8") as file:
            json.dump({"seconds": seconds, "product_s": product_s, "passed": total.passed, "failed": total.failed,
                       "skipped": total.skipped, "excerpts": total.excerpts}, file)
        figure("quick_tier_vs_product_build", seconds, product_s, 6)
    if words in (["all"], ["rest"]) and product_s and not run.left_out:
        figure("all_tier_vs_product_build", seconds + earlier.get("seconds", 0), product_s, 22)
    for line in skipped_lines(total.skipped):
        print(line)
    for line in total.excerpts:
        print(line)
    for name in total.failed:
        print(f"FAILED {name}")
    if run.left_out:
        print(f"NOT RUN to the end, since time ran out: {', '.join(run.left_out)}")
    print(total.line())
    return 1 if total.failed or not total.passed else 0


def main():
    words = sys.argv[1:] or ["quick"]
    os.makedirs(LOGS, exist_ok=True)
    run = Run(chosen(words))
    if words == ["quick"] and os.path.exists(QUICK_RESULTS):
        os.unlink(QUICK_RESULTS)
    if "rest" not in words and os.path.exists(f"{LOGS}/ccache.log"):
        os.unlink(f"{LOGS}/ccache.log")
    os.environ["CCACHE_STATSLOG"] = os.path.abspath(f"{LOGS}/ccache.log")
    os.environ["CCACHE_SLOPPINESS"] = "locale"  # the package is built in another folder, from the same sources
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run.run()
    except KeyboardInterrupt:
        for process in list(RUNNING):
            end_process(process)
        return 130
    return report(run, words)


if __name__ == "__main__":
    sys.exit(main())
