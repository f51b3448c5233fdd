"""Draw a plot as SVG: axes, marks, and bands that say their numbers to a pointer and to a screen reader.

Drawn when a page is written, a figure opens at once, prints as it looks, and survives without scripts. A hundred small
ones take a tenth of a second and one to five kilobytes each.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from markupsafe import escape

BLUE, VERMILION, GREY, INK = "#0072b2", "#d55e00", "#767676", "#3d4650"
"""Blue and vermilion of Okabe and Ito's palette, told apart with any colour vision; shapes differ as well."""

GREEN, PURPLE = "#009e73", "#cc79a7"
"""Further colours of the same palette."""

GRID, DOMAIN = "#eef0f3", "#c3c9d0"

LABEL_CHARACTERS = 20
"""Characters of a tick's label that are shown; names of datasets can be longer than the room next to the plot."""

_SI = ((1e9, "B"), (1e6, "M"), (1e3, "k"))  # a number of parameters is called billion, not giga
_NICE_STEPS = ((50**0.5, 10), (10**0.5, 5), (2**0.5, 2))  # as d3-array rounds the steps of an axis


class Room(NamedTuple):
    """Pixels around the plot, for labels of its axes."""

    left: float
    right: float
    top: float
    bottom: float


class Tick(NamedTuple):
    at: float
    label: str


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A scale with its ticks; `domain` runs from left to right or from bottom to top, and may fall."""

    domain: tuple[float, float]
    ticks: Sequence[Tick]
    title: str = ""
    is_log: bool = False
    has_grid: bool = True

    def share(self, value: float) -> float:
        """Where a value lies between the ends of the axis, from 0 to 1; values beyond lie at the ends."""
        low, high, at = (math.log10(number) if self.is_log else number for number in (*self.domain, value))
        return min(max((at - low) / (high - low), 0.0), 1.0)


class Plot:
    """A rectangle with two axes. Marks lie over one another in the order of the calls; None is not drawn.

    Args:
        width, height: of the rectangle, in pixels.
        room: around it.
    """

    def __init__(self, x: Axis, y: Axis, *, width: float, height: float, room: Room) -> None:
        self.x, self.y, self.width, self.height, self.room = x, y, width, height, room
        self._marks: list[str] = []

    def line(
        self,
        points: Iterable[tuple[float, float]],
        *,
        colour: str,
        width: float = 1.5,
        dash: str = "",
        opacity: float = 1,
        shape: Literal["linear", "step-before"] = "linear",
        description: str = "",
    ) -> None:
        """A line through points, which says its description when it is pointed at."""
        places = [self._place(*point) for point in points]
        if shape == "step-before":
            corners = [(before[0], after[1]) for before, after in pairwise(places)]
            places = [places[0], *(place for pair in zip(corners, places[1:], strict=True) for place in pair)]
        if places:
            style = _attributes(stroke=colour, stroke_width=width, stroke_dasharray=dash, opacity=opacity)
            self._marks.append(f'<path class="line" d="{_path(places)}" fill="none"{style}{_told(description)}/>')

    def points(
        self,
        points: Iterable[tuple[float, float]],
        *,
        colour: str,
        area: float | Sequence[float] = 46,
        opacity: float = 1,
        shape: Literal["circle", "diamond"] = "circle",
    ) -> None:
        """A mark a point, its area in square pixels; diamonds are hollow."""
        places = [self._place(*point) for point in points]
        areas = [area] * len(places) if isinstance(area, (int, float)) else area
        drawn = []
        for (x, y), size in zip(places, areas, strict=True):
            if shape == "circle":
                drawn.append(f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(math.sqrt(size / math.pi))}"/>')
            else:
                half = math.sqrt(size / 2)
                corners = [(x, y - half), (x + half, y), (x, y + half), (x - half, y)]
                drawn.append(f'<path d="{_path(corners)}Z"/>')
        ink = (
            _attributes(fill=colour) if shape == "circle" else _attributes(fill="none", stroke=colour, stroke_width=1.5)
        )
        if drawn:
            self._marks.append(f'<g class="points"{ink}{_attributes(opacity=opacity)}>{"".join(drawn)}</g>')

    def rule(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        *,
        colour: str,
        width: float = 1.5,
        dash: str = "",
    ) -> None:
        """A straight line between two places."""
        style = _attributes(stroke=colour, stroke_width=width, stroke_dasharray=dash)
        self._marks.append(f'<path class="rule" d="{_path([self._place(*start), self._place(*end)])}"{style}/>')

    def bar(self, x: tuple[float, float], y: tuple[float, float], *, colour: str, opacity: float = 1) -> None:
        """A rectangle from x to x and from y to y."""
        self._marks.append(
            f'<path class="bar" d="{self._rectangle(x, y)}"{_attributes(fill=colour, opacity=opacity)}/>'
        )

    def area(self, points: Sequence[tuple[float, float]], *, colour: str) -> None:
        """The area between points and the lower end of the y-axis."""
        floor = self.y.domain[0]
        edge = [*points, (points[-1][0], floor), (points[0][0], floor)]
        places = [self._place(*point) for point in edge]
        self._marks.append(f'<path class="area" d="{_path(places)}Z"{_attributes(fill=colour)}/>')

    def band(self, x: tuple[float, float], y: tuple[float, float], description: str) -> None:
        """An unseen rectangle over the marks that says what it covers."""
        self._marks.append(f'<path class="band" d="{self._rectangle(x, y)}" fill-opacity="0"{_told(description)}/>')

    def text(
        self,
        at: tuple[float, float],
        text: str,
        *,
        shift: tuple[float, float] = (0, 0),
        anchor: Literal["start", "middle", "end"] = "start",
        colour: str = INK,
        size: float = 11,
    ) -> None:
        """A text at a place, moved by `shift` pixels to the right and down."""
        x, y = (place + by for place, by in zip(self._place(*at), shift, strict=True))
        style = _attributes(text_anchor=anchor, fill=colour, font_size=size)
        self._marks.append(f'<text class="name" x="{_number(x)}" y="{_number(y)}"{style}>{escape(text)}</text>')

    def svg(self) -> str:
        """The plot as one SVG element; texts in it are escaped."""
        return figure_svg([[self]])

    @property
    def outer(self) -> tuple[float, float]:
        """Width and height with the room around the plot."""
        room = self.room
        return room.left + self.width + room.right, room.top + self.height + room.bottom

    def inner(self) -> str:
        """Grid, marks and labels, in coordinates of the plot."""
        along_x = [(self._place_x(tick.at), tick.label) for tick in self.x.ticks]
        along_y = [(self._place_y(tick.at), tick.label) for tick in self.y.ticks]
        width, height = _number(self.width), _number(self.height)
        grid = [f"M{_number(x)},0V{height}" for x, _ in along_x if self.x.has_grid]
        grid += [f"M0,{_number(y)}H{width}" for y, _ in along_y if self.y.has_grid]
        parts = [
            f'<path d="{"".join(grid)}" stroke="{GRID}"/>' if grid else "",
            f'<path d="M0,0V{height}H{width}" fill="none" stroke="{DOMAIN}"/>',
            *self._marks,
            *(f'<text x="{_number(x)}" y="{_number(self.height + 15)}">{_label(text)}</text>' for x, text in along_x),
            '<g text-anchor="end">',
            *(f'<text x="-6" y="{_number(y + 4)}">{_label(text)}</text>' for y, text in along_y),
            "</g>",
        ]
        if self.x.title:
            x, y = _number(self.width / 2), _number(self.height + 31)
            parts.append(f'<text class="title" x="{x}" y="{y}">{escape(self.x.title)}</text>')
        if self.y.title:
            x, y = _number(12 - self.room.left), _number(self.height / 2)
            turned = f'transform="rotate(-90 {x} {y})"'
            parts.append(f'<text class="title" x="{x}" y="{y}" {turned}>{escape(self.y.title)}</text>')
        return "".join(parts)

    def _place(self, x: float, y: float) -> tuple[float, float]:
        return self._place_x(x), self._place_y(y)

    def _place_x(self, value: float) -> float:
        return self.width * self.x.share(value)

    def _place_y(self, value: float) -> float:
        return self.height * (1 - self.y.share(value))

    def _rectangle(self, x: tuple[float, float], y: tuple[float, float]) -> str:
        (left, bottom), (right, top) = self._place(x[0], y[0]), self._place(x[1], y[1])
        return f"M{_number(left)},{_number(bottom)}H{_number(right)}V{_number(top)}H{_number(left)}Z"


def figure_svg(rows: Sequence[Sequence[Plot]], *, background: str = "") -> str:
    """Plots as one SVG element: rows below one another, the plots of a row side by side."""
    groups, y, widest = [], 0.0, 0.0
    for row in rows:
        x = 0.0
        for plot in row:
            place = f"translate({_number(x + plot.room.left)},{_number(y + plot.room.top)})"
            groups.append(f'<g transform="{place}">{plot.inner()}</g>')
            x += plot.outer[0]
        y, widest = y + max(plot.outer[1] for plot in row), max(widest, x)
    size = f'width="{_number(widest)}" height="{_number(y)}" viewBox="0 0 {_number(widest)} {_number(y)}"'
    ground = f'<rect width="100%" height="100%" fill="{background}"/>' if background else ""
    style = f'font-family="sans-serif" font-size="11" fill="{INK}" text-anchor="middle"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{ground}{"".join(groups)}</svg>'


def share_axis(title: str = "", *, step: float = 0.5, low: float = 0, high: float = 1) -> Axis:
    """From 0 to 1, or between other ends, with a tick a step."""
    n_steps = round((high - low) / step)
    return value_axis((low, high), title, at=[low + place * step for place in range(n_steps + 1)], decimals=1)


def value_axis(
    domain: tuple[float, float],
    title: str = "",
    *,
    at: Sequence[float] | None = None,
    count: int = 5,
    decimals: int | None = None,
) -> Axis:
    """A linear axis with about `count` ticks at round numbers, or with ticks at the places given."""
    places = _round_places(*domain, count) if at is None else at
    if decimals is None:
        step = min((abs(after - before) for before, after in pairwise(places)), default=1)
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    ticks = [Tick(place, f"{place + 0:.{decimals}f}".replace("-", "−")) for place in places]
    return Axis(domain=domain, ticks=ticks, title=title)


def log_axis(
    domain: tuple[float, float], title: str, at: Iterable[float], label: Callable[[float], str] | None = None
) -> Axis:
    """A logarithmic axis with ticks at those of the places given that lie within it."""
    name = label or si_text
    ticks = [Tick(place, name(place)) for place in at if domain[0] <= place <= domain[1]]
    return Axis(domain=domain, ticks=ticks, title=title, is_log=True)


def si_text(value: float) -> str:
    """1500 as 1.5k, a million as 1M, a billion as 1B."""
    scale, suffix = next(((scale, suffix) for scale, suffix in _SI if value >= scale), (1, ""))
    return f"{value / scale:g}{suffix}"


def _round_places(low: float, high: float, count: int) -> list[float]:
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next((factor for least, factor in _NICE_STEPS if rough / power >= least), 1)
    return [place * step for place in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _path(places: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_number(x)},{_number(y)}" for x, y in places)


def _number(value: float) -> str:
    """To a hundredth of a pixel."""
    return f"{round(value, 2) + 0:.2f}".rstrip("0").rstrip(".")


def _label(text: str) -> str:
    return str(escape(text if len(text) <= LABEL_CHARACTERS else f"{text[: LABEL_CHARACTERS - 1]}…"))


def _told(description: str) -> str:
    return f' role="img" aria-label="{escape(description)}"' if description else ""


def _attributes(**values: str | float) -> str:
    kept = [(name, value) for name, value in values.items() if value != "" and (name, value) != ("opacity", 1)]
    return "".join(f' {name.replace("_", "-")}="{value}"' for name, value in kept)
