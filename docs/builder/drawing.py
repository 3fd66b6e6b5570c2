"""SVG pictures within a page: in its font and colours, for light and dark themes, and with a description."""

from html import escape

WIDTH = 340
"""Maximum width in pixels, which a phone shows without scaling down the text."""
LINE, MARGIN = 20, 8
COLOURS = {"worker": "#3182bd", "thread": "#2ca25f", "prefetch": "#d98c00", "main": "#808080"}
"""Colour of a box by the place of its stage, faint enough for any background."""


class Drawing:
    """Boxes and lines of text, from the top down.

    Args:
        name: Unique on its page.
        title: Subject of the picture.
        text: Description of the picture, for screen readers.
    """

    def __init__(self, name: str, title: str, text: str) -> None:
        self.name, self.title, self.text = name, title, text
        self.height = MARGIN
        self.parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, place: str = "", *, dashed: bool = False) -> None:
        """Draw a box, in the colour of a place if one is given."""
        fill = f'fill="{COLOURS[place]}" fill-opacity="0.2"' if place else 'fill="none"'
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" {fill} stroke="currentColor"'
            f' stroke-opacity="0.6"{dashes}/>'
        )

    def write(
        self, x: float, y: float, words: str, *, anchor: str = "middle", size: int = 13, bold: bool = False
    ) -> None:
        """Write a line of text."""
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}"{weight}>{escape(words)}</text>'
        )

    def line(self, points: list[tuple[float, float]], place: str) -> None:
        """Draw a line with a dot at each of its points, in the colour of a place."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[place]}" stroke-width="2"/>')
        self.parts += [f'<circle cx="{x:g}" cy="{y:g}" r="3" fill="{COLOURS[place]}"/>' for x, y in points]

    def arrow(self, x: float, y: float, length: float) -> None:
        """Draw an arrow down."""
        end = y + length
        self.parts.append(
            f'<path d="M{x:g} {y:g}V{end:g}m-4 -5l4 5l4 -5" fill="none" stroke="currentColor" stroke-width="1.5"/>'
        )

    def svg(self) -> str:
        """Return the picture."""
        heads = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height:g}" width="{WIDTH}" role="img"',
            f' aria-labelledby="{self.name}-title {self.name}-text" fill="currentColor">',
            f'<title id="{self.name}-title">{escape(self.title)}</title>',
            f'<desc id="{self.name}-text">{escape(self.text)}</desc>',
        ]
        return "\n".join(["".join(heads[:2]), *heads[2:], *self.parts, "</svg>\n"])


def chain(drawing: Drawing, boxes: list[tuple[str, str, str, bool]]) -> None:
    """Draw a chain of boxes.

    Args:
        drawing: Where to draw.
        boxes: For each its place or "", its first line, its second line or "", and whether it is dashed.
    """
    left = 76 if any(place for place, *_ in boxes) else 0
    for number, (place, first, second, dashed) in enumerate(boxes):
        height = 48 if second else 30
        if number:
            drawing.arrow((left + WIDTH) / 2, drawing.height, 16)
            drawing.height += 18
        drawing.box(left + 1, drawing.height, WIDTH - left - 2, height, place, dashed=dashed)
        middle = drawing.height + height / 2
        drawing.write((left + WIDTH) / 2, middle + (-4 if second else 5), first, bold=True)
        if second:
            drawing.write((left + WIDTH) / 2, middle + 15, second, size=11)
        if place and (number == 0 or boxes[number - 1][0] != place):
            drawing.write(left - 8, drawing.height + 20, place, anchor="end")
        drawing.height += height
    drawing.height += MARGIN


def grid(drawing: Drawing, columns: list[str], rows: list[tuple[str, list[tuple[str, str]]]]) -> None:
    """Draw a table.

    Args:
        drawing: Where to draw.
        columns: Their headings.
        rows: For each its heading and its cells: their text, and a place for the colour or "".
    """
    left = 8 * max(len(heading) for heading, _ in rows) - 4
    width = (WIDTH - left) / len(columns)
    for number, heading in enumerate(columns):
        drawing.write(left + (number + 0.5) * width, drawing.height + 14, heading, size=12)
    drawing.height += 24
    for heading, cells in rows:
        drawing.write(0, drawing.height + 18, heading, anchor="start", size=12)
        for number, (words, place) in enumerate(cells):
            drawing.box(left + number * width + 2, drawing.height, width - 4, 26, place)
            drawing.write(left + (number + 0.5) * width, drawing.height + 17, words, size=11)
        drawing.height += 32
    drawing.height += MARGIN
