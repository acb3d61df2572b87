"""Small SVG charts, from the standard library alone."""
import html
import math

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 150, 34, 44
COLOURS = ("#1f6fb4", "#d1495b", "#2e8b57", "#8a5fbf", "#c77d0a", "#555555")


def text(x, y, content, anchor="middle", size=11):
    return (f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" '
            f'font-size="{size}">{html.escape(str(content))}</text>')


def line(x1, y1, x2, y2, colour="#ddd"):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{colour}"/>')


def page(title, body):
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} '
        f'{HEIGHT}" font-family="sans-serif" fill="#222">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        text(LEFT, 20, title, "start", 13), *body, "</svg>", ""])


def nice_ticks(top):
    """Up to six round values from 0 to beyond `top`."""
    step = 10 ** math.floor(math.log10(top / 5))
    step *= next(factor for factor in (1, 2, 5, 10) if factor * step * 5 >= top)
    return [step * i for i in range(math.ceil(top / step) + 1)]


def powers(low, high):
    """Powers of ten that enclose both."""
    return [10.0 ** e for e in range(math.floor(math.log10(low)),
                                     math.ceil(math.log10(high)) + 1)]


def number(value):
    return f"{value:g}"


def lines(title, x_title, y_title, series, log_y=False):
    """Lines over a logarithmic x. `series`: (name, {x: y}, dashed, colour)."""
    xs = sorted({x for _, points, _, _ in series for x in points})
    ys = [y for _, points, _, _ in series for y in points.values()]
    ticks = powers(min(ys), max(ys)) if log_y else nice_ticks(max(ys))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    low, high = math.log2(xs[0]), math.log2(xs[-1])
    scale = math.log10 if log_y else float
    y_low, y_high = scale(ticks[0]), scale(ticks[-1])

    def x_of(x):
        part = (math.log2(x) - low) / ((high - low) or 1)
        return LEFT + part * (right - LEFT)

    def y_of(y):
        return bottom - (scale(y) - y_low) / (y_high - y_low) * (bottom - TOP)

    body = []
    for tick in ticks:
        body += [line(LEFT, y_of(tick), right, y_of(tick)),
                 text(LEFT - 6, y_of(tick) + 4, number(tick), "end")]
    labelled = -100
    for x in xs:
        body.append(line(x_of(x), bottom, x_of(x), bottom + 4, "#888"))
        if x_of(x) - labelled >= 32:
            body.append(text(x_of(x), bottom + 17, x))
            labelled = x_of(x)
    body += [text((LEFT + right) / 2, HEIGHT - 8, x_title),
             text(8, TOP - 12, y_title, "start")]
    for i, (name, points, dashed, colour) in enumerate(series):
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}"
                        for x, y in sorted(points.items()))
        stroke = f'stroke="{COLOURS[colour]}" stroke-width="2" fill="none"'
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        y = TOP + 8 + 17 * i
        body += [f'<polyline points="{path}" {stroke}{dash}/>',
                 f'<polyline points="{right + 8},{y} {right + 28},{y}" '
                 f'{stroke}{dash}/>',
                 text(right + 33, y + 4, name, "start")]
    return page(title, body)


def bars(title, y_title, names, groups):
    """Bars beside each other. `groups`: (label, [value of each name])."""
    values = [v for _, group in groups for v in group if v is not None]
    ticks = nice_ticks(max(values))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    slot = (right - LEFT) / len(groups)
    bar = slot * 0.8 / len(names)

    def y_of(y):
        return bottom - y / ticks[-1] * (bottom - TOP)

    body = [text(8, TOP - 12, y_title, "start")]
    for tick in ticks:
        body += [line(LEFT, y_of(tick), right, y_of(tick)),
                 text(LEFT - 6, y_of(tick) + 4, number(tick), "end")]
    for g, (label, group) in enumerate(groups):
        start = LEFT + slot * g + slot * 0.1
        for i, value in enumerate(group):
            if value is not None:
                body.append(
                    f'<rect x="{start + bar * i:.1f}" y="{y_of(value):.1f}" '
                    f'width="{bar:.1f}" height="{bottom - y_of(value):.1f}" '
                    f'fill="{COLOURS[i]}"/>')
        for row, part in enumerate(label.split("\n")):
            body.append(text(start + slot * 0.4, bottom + 15 + 13 * row, part,
                             size=9))
    body.append(line(LEFT, y_of(1), right, y_of(1), "#222"))
    for i, name in enumerate(names):
        y = TOP + 8 + 17 * i
        body += [f'<rect x="{right + 8}" y="{y - 5}" width="20" height="10" '
                 f'fill="{COLOURS[i]}"/>',
                 text(right + 33, y + 4, name, "start")]
    return page(title, body)
