"""Draws a sine wave. The picture comes out as an artifact:

    hotcell run --output-dir out examples/plot.py

With matplotlib if the interpreter has it, otherwise as an SVG made by hand.
"""

import math

POINTS = [(x / 20, math.sin(x / 20)) for x in range(200)]


def with_matplotlib(pyplot):
    pyplot.plot(*zip(*POINTS))
    pyplot.savefig("plot.png")
    return "plot.png"


def by_hand():
    line = " ".join(f"{x * 40:.1f},{100 - y * 80:.1f}" for x, y in POINTS)
    with open("plot.svg", "w") as file:
        file.write(
            '<svg xmlns="http://www.w3.org/2000/svg" width="400" height="200">'
            f'<polyline points="{line}" fill="none" stroke="black"/></svg>\n'
        )
    return "plot.svg"


try:
    import matplotlib.pyplot
except ImportError:
    name = by_hand()
else:
    name = with_matplotlib(matplotlib.pyplot)
print(f"wrote {name}")
