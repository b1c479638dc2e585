# SPDX-License-Identifier: Apache-2.0
"""Runs the requested steps, and the steps that they need.

main.py [TIER | SUITE...]

Prints a line for each step that has ended, then the seconds of each step, the cost of builds, figures as JSON, and skipped and failed
cases. The last line is 'N passed, N failed[, N skipped]'."""
import collections
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback

import plan
from results import Outcome
from steps import DEADLINE, LOGS, RUNNING, Failed, Unfinished, end_process

MANY_ALIKE = 10  # maximum number of skipped cases with a line each
QUICK_RESULTS = f"{LOGS}/quick.json"


class Run:
    def __init__(self, steps):
        self.steps = steps
        self.done = {step.name: threading.Event() for step in steps}
        self.outcomes = {}   # name of a suite -> Outcome
        self.seconds = {}    # name -> duration
        self.broken = set()  # steps that failed or were omitted; steps that need them cannot run
        self.left_out = []
        self.running = {}    # name -> (step, start time)
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
        self.running[step.name] = (step, begun)
        try:
            outcome = step.run()
        except Unfinished:
            self.left_out.append(step.name)
            return
        except Failed as error:
            print(error, flush=True)
            outcome = Outcome(failed=[step.name])
            self.broken.add(step.name)
        finally:
            del self.running[step.name]
        self.seconds[step.name] = time.monotonic() - begun
        self.outcomes[step.name] = outcome
        clear = "\r\033[K" if sys.stdout.isatty() else ""
        print(f"{clear}== {step.name}: {self.seconds[step.name]:.0f} s" + (f", {outcome.line()}" if step.kind == "suite" else ""), flush=True)

    def run(self):
        lanes = [threading.Thread(target=self.lane, args=(name,), daemon=True) for name in dict.fromkeys(step.lane for step in self.steps)]
        for lane in lanes:
            lane.start()
        while sys.stdout.isatty() and any(lane.is_alive() for lane in lanes):
            self.show_progress()
            time.sleep(1)
        for lane in lanes:
            lane.join()

    def show_progress(self):
        """Prints a line with the running steps, their progress, and the number of remaining steps. The next output overwrites it."""
        now = time.monotonic()
        parts = [f"{name} {step.progress()} {now - begun:.0f} s" for name, (step, begun) in list(self.running.items())]
        left = len(self.steps) - len(self.seconds) - len(self.left_out)
        text = f"{', '.join(parts)}; {left} of {len(self.steps)} steps left"
        print(f"\r\033[K{text[:os.get_terminal_size().columns - 1]}\r", end="", flush=True)


def chosen(words):
    """Returns the steps for these words and the steps that they need, in the order of the plan."""
    every = [*plan.ALL, plan.coverage(plan.ALL)]
    by_name = {step.name: step for step in every}
    suites = [step.name for step in every if step.kind == "suite"]
    unknown = [word for word in words if word not in plan.GROUPS and word not in suites]
    if unknown:
        sys.exit(f"Unknown suite '{unknown[0]}'. The suites are {', '.join(sorted({*plan.GROUPS, *suites}))}; and bench, mutate, portability.")
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


def cache_hits(run):
    """Returns how many compilations of this run hit the compiler cache."""
    return sum(step.cost().get("cached", 0) for step in run.steps if hasattr(step, "cost") and step.name in run.seconds)


def figure(name, seconds, reference_s, hits):
    """Prints a figure in minutes. Because minutes depend on the machine, the time of a fixed compilation is printed with them."""
    print(json.dumps({"figure": name, "value": round(seconds / 60, 1), "unit": "minutes", "cache_hits": hits, "reference_file_s": reference_s}))


def reference_seconds():
    """Returns the processor time of compiling the reference file, by which figures of different machines and days can be compared."""
    done = subprocess.run([sys.executable, "tests/bench/build_cost.py", "--reference"], capture_output=True, text=True)
    return float(done.stdout) if done.returncode == 0 else None


def skipped_lines(skipped):
    """Yields a line for each skipped case, or one line for many cases of one program with the same reason."""
    alike = collections.defaultdict(list)
    for name, reason in skipped:
        alike[name.rpartition(" / ")[0], reason].append(name)
    for (program, reason), names in alike.items():
        if len(names) > MANY_ALIKE:
            yield f"SKIPPED {len(names)} cases, the last {names[-1]}: {reason}"
        else:
            yield from (f"SKIPPED {name}: {reason}" for name in names)


def report_builds(run):
    """Prints the cost of each build, and its slowest outputs."""
    for step in run.steps:
        if step.kind != "build" or not hasattr(step, "cost") or step.name not in run.seconds or not (cost := step.cost()):
            continue
        print(f"\nBuild '{step.name}': {cost['processor_s']:.0f} s of processor time, {cost['compiled']} objects compiled, {cost['cached']} from the cache")
        for seconds, output in cost["slowest"]:
            print(f"  {seconds:6.1f}  {output}")


def report(run, words):
    """Prints the times, the figures, failed steps, steps that were not run, and the totals. Returns the exit status."""
    seconds = time.monotonic() - run.started
    earlier = {}
    if "rest" in words:
        with open(QUICK_RESULTS, encoding="utf-8") as file:
            earlier = json.load(file)
    print("\nSeconds, longest first:")
    for name, taken in sorted(run.seconds.items(), key=lambda item: -item[1]):
        print(f"  {taken:6.0f}  {name}")
    print(f"  {seconds:6.0f}  in all")
    report_builds(run)
    product_s = run.seconds.get("product") or earlier.get("product_s")
    total = Outcome(**{key: earlier[key] for key in ("passed", "failed", "skipped", "excerpts")}) if earlier else Outcome()
    for step in run.steps:
        if step.name in run.outcomes and (step.kind == "suite" or run.outcomes[step.name].failed):
            total.add(run.outcomes[step.name])
    if words == ["quick"] and product_s:
        with open(QUICK_RESULTS, "w", encoding="utf-8") as file:
            json.dump({"seconds": seconds, "product_s": product_s, "passed": total.passed, "failed": total.failed,
                       "skipped": total.skipped, "excerpts": total.excerpts}, file)
        figure("quick_tier_minutes", seconds, reference_seconds(), cache_hits(run))
    if words in (["all"], ["rest"]) and product_s and not run.left_out:
        figure("all_tier_minutes", seconds + earlier.get("seconds", 0), reference_seconds(), cache_hits(run))
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
