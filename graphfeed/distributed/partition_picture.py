"""Draws what a partition costs, as an SVG of plain shapes that browsers and documents show as it is."""

from collections.abc import Iterator

from graphfeed.distributed.partition_report import PartitionReport

WIDTH = 900
TOP = 96
ROW = 26
BAR = 340
"""How long the longest bar is."""
LEFT = (70, 500)
"""Where the bars of nodes and those of in-edges begin."""
STYLE = """
    text { font: 13px "Helvetica Neue", Helvetica, Arial, "Liberation Sans", "DejaVu Sans", sans-serif; fill: #57606a; }
    .head { font-size: 16px; font-weight: bold; fill: #1f2328; }
    .part { text-anchor: end; fill: #1f2328; }
    .nodes { fill: #3182bd; }
    .halo { fill: #bdd7ee; }
    .edges { fill: #6e7781; }
    .cut { fill: #c0392b; }
"""


def draw_report(report: PartitionReport) -> str:
    """Return a picture of a report: for each part a bar of its nodes and halo, and one of its in-edges and their cut.

    Example:
        >>> from graphfeed.distributed.partition_report import PartitionReport
        >>> draw_report(PartitionReport((2, 2), (2, 3), (0, 1), (0, 1), {}))[:4]
        '<svg'
    """
    height = TOP + ROW * report.num_parts + 20
    summary = (
        f"{report.cut:.1%} of the edges are cut; {report.halo:.2f} halo nodes per node; largest part over the mean: "
        f"nodes {report.balance['nodes']:.2f}, in-edges {report.balance['in-edges']:.2f}"
    )
    title = f"{sum(report.nodes):,} nodes and {sum(report.edges):,} edges in {report.num_parts} parts"
    groups = (("nodes", "halo", report.nodes, report.halo_nodes), ("edges", "cut", report.edges, report.cut_edges))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title">',
        f'  <title id="title">{title}</title>',
        f"  <style>{STYLE}  </style>",
        f'  <rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="12" fill="#ffffff" stroke="#d0d7de"/>',
        f'  <text class="head" x="{LEFT[0]}" y="36">{title}</text>',
        f'  <text x="{LEFT[0]}" y="58">{summary}</text>',
        *key(LEFT[0], (("nodes", "own nodes"), ("halo", "halo nodes, of other parts"))),
        *key(LEFT[1], (("edges", "in-edges of the part"), ("cut", "cut: from other parts"))),
    ]
    lines += (
        f'  <text class="part" x="{LEFT[0] - 10}" y="{TOP + ROW * part + 17}">{part}</text>'
        for part in range(report.num_parts)
    )
    for left, (own, other, counts, others) in zip(LEFT, groups, strict=True):
        within = counts if own == "nodes" else tuple(all_ - cut for all_, cut in zip(counts, others, strict=True))
        longest = max(1, *(first + second for first, second in zip(within, others, strict=True)))
        for part, (first, second) in enumerate(zip(within, others, strict=True)):
            y, length = TOP + ROW * part + 4, first * BAR / longest
            lines.append(bar(own, left, y, length, first))
            lines.append(bar(other, left + length, y, second * BAR / longest, second))
    return "\n".join([*lines, "</svg>", ""])


def key(left: float, entries: tuple[tuple[str, str], ...]) -> Iterator[str]:
    """Yield what the colours of some bars mean."""
    for kind, text in entries:
        yield f'  <rect class="{kind}" x="{left}" y="72" width="12" height="12"/>'
        yield f'  <text x="{left + 18}" y="83">{text}</text>'
        left += 40 + 6.5 * len(text)


def bar(kind: str, left: float, top: float, length: float, count: int) -> str:
    """Return a bar, which says its number when it is pointed at."""
    shape = f'x="{left:.1f}" y="{top}" width="{length:.1f}" height="{ROW - 8}"'
    return f'  <rect class="{kind}" {shape}><title>{count:,}</title></rect>'
