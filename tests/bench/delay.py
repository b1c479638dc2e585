#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of NFS work over a wire with delay, by protocol version and inline threshold.

delay.py BUILD [PAGE]

Prints tables in Markdown, or writes them between the marks of PAGE (deploy/docs/version-2.md)."""
import statistics
import sys

from pairs import Worker, quartiles

TRANSPORTS = {"v1_1k": "version 1, 1 KiB", "v1_4k": "version 1, 4 KiB", "v2": "version 2, 4 KiB"}
WORKS = {"call_8k": "call of 8 KiB", "reply_8k": "reply of 8 KiB", "readdir": "READDIR of 8 KiB", "write_2k": "WRITE of 2 KiB",
         "write_4k": "WRITE of 4 KiB", "metadata": "metadata mix"}
# One-way delay in microseconds, and number of outstanding calls.
SETTINGS = ((5, 1), (20, 1), (100, 1), (20, 8))
ROUNDS = 9
SECONDS = 0.1
COUNTING_ONE_WAY_US = 20
MARKS = ("<!-- delay.py -->", "<!-- end -->")


def row(*cells):
    return f"| {' | '.join(cells)} |"


def header(*titles):
    return [row(*titles), row(*["---"] * len(titles))]


def counted(number):
    return f"{number:.3g}".removesuffix(".0")


def operations(worker, transport, work):
    """Returns the RDMA operations and round trips of a call as text. One call at a time is counted, on a simulated clock."""
    def ask(quantity):
        return round(worker.ask(quantity, transport, work, COUNTING_ONE_WAY_US, 1, SECONDS / 10), 2)

    names = {"sends": "Send", "reads": "RDMA Read", "writes": "RDMA Write"}
    said = [f"{counted(number)} {name}{'' if number == 1 else 's'}" for quantity, name in names.items() if (number := ask(quantity))]
    return f"{', '.join(said)}; **{counted(ask('round_trips'))}**"


def times(worker, work, one_way_us, depth):
    """Returns the times of each transport. All transports are measured in each round."""
    rounds = [{transport: worker.ask("us", transport, work, one_way_us, depth, SECONDS) for transport in TRANSPORTS} for _ in range(ROUNDS)]
    return [[one[transport] for one in rounds] for transport in TRANSPORTS]


def compared(values, baseline):
    first, middle, third = quartiles([value / base for value, base in zip(values, baseline)])
    return f"**{middle:.2f}** ({first:.2f} to {third:.2f})"


def table(build):
    program = f"{build}/tests/bench/delay"
    lines = ["RDMA operations of both ends for a call; **round trips**:", "", *header("work", *TRANSPORTS.values())]
    with Worker(program) as worker:
        lines += [row(name, *(operations(worker, transport, work) for transport in TRANSPORTS)) for work, name in WORKS.items()]
    lines += ["", "Time of a call, in microseconds:", "",
              *header("work", "one way", *TRANSPORTS.values(), "1 KiB : version 2", "4 KiB : version 2")]
    for one_way_us, depth in SETTINGS:
        with Worker(program) as worker:
            for work, name in WORKS.items():
                measured = times(worker, work, one_way_us, depth)
                *version_1, version_2 = measured
                lines.append(row(name, f"{one_way_us} us" + (f", {depth} at a time" if depth > 1 else ""),
                                 *(f"{statistics.median(one):.3g}" for one in measured), *(compared(one, version_2) for one in version_1)))
    return "\n".join(lines)


def filled(text, content):
    begin, end = MARKS
    before, rest = text.split(begin)
    return f"{before}{begin}\n\n{content}\n\n{end}{rest.split(end)[1]}"


def main():
    content = table(sys.argv[1])
    if len(sys.argv) < 3:
        print(content)
        return
    with open(sys.argv[2], encoding="utf-8") as file:
        text = file.read()
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(filled(text, content))


if __name__ == "__main__":
    main()
