#!/usr/bin/env python3
"""Draws the panels of docs/grafana-dashboard.json from a running Prometheus, without Grafana.

  pip install matplotlib
  SECONDS=300 LISTEN=127.0.0.1:9464 cargo run -p zk-mutex-bench --example prometheus
  docs/dashboard.py http://127.0.0.1:9090 300 docs/dashboard.png    # the last 300 seconds

Each panel has the queries, the legends and the unit of the dashboard; the rest is not Grafana's look.
"""

import json
import math
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import EngFormatter, PercentFormatter

RATE_INTERVAL = "15s"
VARIABLES = {"$recipe": ".*", "$name": ".*", "$__rate_interval": RATE_INTERVAL}
UNITS = {"s": EngFormatter("s"), "percentunit": PercentFormatter(1.0)}


def query(prometheus, expr, start, end):
    """The series of a query: their labels, and their points."""
    for variable, value in VARIABLES.items():
        expr = expr.replace(variable, value)
    args = urllib.parse.urlencode({"query": expr, "start": start, "end": end, "step": 2})
    with urllib.request.urlopen(f"{prometheus}/api/v1/query_range?{args}") as answer:
        found = json.load(answer)["data"]["result"]
    return [(s["metric"], [(t, float(v)) for t, v in s["values"]]) for s in found]


def main(prometheus, seconds, picture):
    dashboard = json.loads(Path(__file__).with_name("grafana-dashboard.json").read_text())
    panels, end = dashboard["panels"], time.time()
    start = end - float(seconds)
    rows = math.ceil(len(panels) / 2)
    figure, axes = plt.subplots(rows, 2, figsize=(15, 2.4 * rows), sharex=True)
    for panel, axis in zip(panels, axes.flat):
        for target in panel["targets"]:
            for labels, points in query(prometheus, target["expr"], start, end):
                legend = target["legendFormat"]
                for label, value in labels.items():
                    legend = legend.replace("{{" + label + "}}", value)
                times = [t - start for t, v in points]
                axis.plot(times, [v for t, v in points], label=legend, linewidth=1.2)
        unit = panel["fieldConfig"]["defaults"]["unit"]
        axis.set_title(panel["title"], fontsize=10, loc="left", fontweight="bold")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.tick_params(labelsize=8)
        if unit in UNITS:
            axis.yaxis.set_major_formatter(UNITS[unit])
        if axis.lines:
            axis.legend(fontsize=6.5, ncols=1, loc="upper left", bbox_to_anchor=(1, 1))
    for axis in axes[-1]:
        axis.set_xlabel("seconds", fontsize=8)
    figure.tight_layout()
    figure.savefig(picture, dpi=75)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
