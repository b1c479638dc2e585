# SPDX-License-Identifier: Apache-2.0
"""Panels of the dashboard as one picture."""
import io
import math

import matplotlib
from matplotlib import pyplot
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator, PercentFormatter

COLUMNS = 2
WIDTH, HEIGHT = 6.4, 2.7  # of a panel, in inches
DOTS_PER_INCH = 80
MOST_NAMED = 8            # series with an entry in the legend
UNITS = {"s": "s", "Bps": "B/s", "bytes": "B", "ops": "/s", "pps": "/s"}

matplotlib.use("agg")
matplotlib.rcParams.update({"font.family": "sans-serif", "font.size": 8})


def formatter(unit):
    if unit == "percentunit":
        return PercentFormatter(1.0, decimals=None)
    engineering = EngFormatter(UNITS.get(unit, ""), sep=" " if unit in UNITS else "")
    if unit == "s":
        return engineering
    # Counts below 1 get no prefix, because there is no millicall.
    return FuncFormatter(lambda value, _=None: f"{value:g}{engineering.sep}{engineering.unit}" if 0 < value < 1 else engineering(value))


def largest(series):
    return max((value for _, value in series.points if not math.isnan(value)), default=0)


def numbers(axes, panel, series):
    """Draws the last value of each series, as a panel of the kind `stat` does."""
    axes.set_axis_off()
    for place, one in enumerate(series):
        at = (place + 0.5) / len(series)
        axes.text(at, 0.5, formatter(panel.unit)(one.points[-1][1]), fontsize=28, ha="center", va="center", color="tab:green")
        axes.text(at, 0.2, one.name, ha="center", va="center")


def lines(axes, panel, series, span):
    moving = sorted((one for one in series if largest(one) > 0), key=largest, reverse=True)
    for place, one in enumerate(moving):
        axes.plot([time - span[0] for time, _ in one.points], [value for _, value in one.points], linewidth=1,
                  label=one.name if place < MOST_NAMED else None)
    axes.set_xlim(0, span[1] - span[0])
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(formatter(panel.unit))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(EngFormatter("s"))
    axes.grid(linewidth=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if moving:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1.02), frameon=False, fontsize=7, handlelength=1)
    more = [f"{len(moving) - MOST_NAMED} smaller ones" if len(moving) > MOST_NAMED else "",
            f"{len(series) - len(moving)} at 0" if len(series) > len(moving) else ""]
    axes.text(1.02, 0, " and ".join(filter(None, more)), transform=axes.transAxes, fontsize=7, color="grey")


def drawn(panels, span):
    """Returns a PNG. `panels`: a list of (panel, [Series])."""
    rows = -(-len(panels) // COLUMNS)
    figure, grid = pyplot.subplots(rows, COLUMNS, figsize=(WIDTH * COLUMNS, HEIGHT * rows), squeeze=False, layout="constrained")
    for axes in grid.flat[len(panels):]:
        axes.set_axis_off()
    for axes, (panel, series) in zip(grid.flat, panels):
        axes.set_title(panel.title, loc="left", fontweight="bold")
        if not series:
            axes.set_axis_off()
            axes.text(0.5, 0.5, "no data", ha="center", color="grey")
        elif panel.kind == "stat":
            numbers(axes, panel, series)
        else:
            lines(axes, panel, series, span)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    pyplot.close(figure)
    return image.getvalue()
