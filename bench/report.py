#!/usr/bin/env python3
"""Tables from the JSON of bench_norms and of the peers.

Several runs of the same build: each figure is their median.
"""
import argparse
import json
import pathlib
import statistics
import sys

import figures as figures_module
import plots

FOLDER = pathlib.Path(__file__).parent
FLOORS = json.loads((FOLDER / "floors.json").read_text(encoding="utf-8"))
VARIANTS = ("f32/once", "bf16/once", "bf16/before", "f16/once")
NOISY = 0.25  # Spread from which a figure is named.
ABOVE = 1.05  # So is a fraction of the best pass from here.
Key = figures_module.Key


# Markdown.

def table(head, rows):
    rows = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    text = ["| " + " | ".join(cell.ljust(width)
                              for cell, width in zip(row, widths)) + " |"
            for row in rows]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text) + "\n"


def bullets(title, items):
    return "\n- ".join([f"{title}: {len(items) or 'nothing'}\n", *items]) + "\n"


def pivot(part, cell, corner="shape"):
    """Shapes down, variants across."""
    if not part:
        return ""
    variants = list(dict.fromkeys(key.variant for key in part))
    shapes = {}
    for key, figure in part.items():
        shapes.setdefault(key.shape, {"": figure["models"]})
        shapes[key.shape][key.variant] = cell(figure)
    return table([corner, *variants, "whose"],
                 [[shape, *(row.get(v, "–") for v in variants), row[""]]
                  for shape, row in shapes.items()])


def select(figures, **wanted):
    return {key: figure for key, figure in figures.items()
            if all(getattr(key, name) == value
                   for name, value in wanted.items())}


def speed_cell(figure):
    return f"{figure['GB/s']:.1f} · {figure['roof']:.2f}"


# Floors and goals.

def verdict(value, floor, goal, less_is_better=False):
    """The value beside its floor and goal, with a mark."""
    def reached(limit):
        return value <= limit if less_is_better else value >= limit
    mark = ""
    if floor is not None:
        mark = " ✓" if reached(floor) else " ✗"
    if goal is not None and reached(goal):
        mark = " ★"
    of = "" if floor is None else f" ({floor:.2f})"
    return f"{value:.2f}{of}{mark}"


def floor_rows(figures, target):
    for entry in FLOORS["fractions"]:
        for shape in entry["shapes"]:
            cells = []
            for variant in VARIANTS:
                key = Key(entry["op"], variant, target, shape, entry["cache"],
                          1)
                floor = entry["floors"].get(variant, {})
                measure = entry.get("against", "roof")
                cells.append(
                    verdict(figures[key][measure], floor.get(target),
                            floor.get("goal")) if key in figures else "–")
            if any(cell != "–" for cell in cells):
                yield [entry["op"], shape, entry["class"], *cells]


def time_row(figures, target):
    """The time of one row, scaled to the clock that the floors are for."""
    entry = FLOORS["microseconds"]
    cells = []
    for variant in VARIANTS:
        key = Key(entry["op"], variant, target, entry["shape"], entry["cache"],
                  1)
        floor = entry["floors"][variant]
        if key not in figures:
            cells.append("–")
            continue
        figure = figures[key]
        measured = (figure["ns_per_row"] - FLOORS["call_ns"]) * 1e-3
        cells.append(verdict(
            measured * figure["clock_ghz"] / FLOORS["clock_ghz"],
            floor.get(target), floor.get("goal"), True))
    return [entry["op"], entry["shape"],
            f"µs at {FLOORS['clock_ghz']} GHz", *cells]


def floors(figures, target):
    rows = [time_row(figures, target), *floor_rows(figures, target)]
    return table(["operation", "shape", "class", *VARIANTS], rows)


def missed(figures, target):
    rows = [time_row(figures, target), *floor_rows(figures, target)]
    return [f"{row[0]} {row[1]} {variant}: {cell[:-2]}"
            for row in rows for variant, cell in zip(VARIANTS, row[3:])
            if cell.endswith("✗")]


# Sections of BENCHMARKS.md.

def hardware(context, figures):
    clocks = []
    for target in targets_of(figures):
        part = select(figures, target=target, threads=1).values()
        if part:
            ghz = statistics.median(f["clock_ghz"] for f in part)
            clocks.append(f"{target} {ghz:.2f}")
    caches = {}
    for cache in context["caches"]:
        if cache["type"] != "Instruction":
            caches[cache["level"]] = cache["size"] >> 10
    sizes = ", ".join(f"L{level} {kib} KiB" for level, kib in caches.items())
    load = ", ".join(f"{load:.1f}" for load in context["load_avg"])
    return table(["", ""], [
        ["CPU", f"{context['cpu']} ({context['cpu_family']}), "
                f"{context['num_cpus']} CPUs"],
        ["clock, GHz", f"{', '.join(clocks)}: additions after each kernel"],
        ["caches of a core", sizes],
        ["targets", context["targets"]],
        ["compiler", context["compiler"] + ", Release"],
        ["Highway", context["highway"]],
        ["fusednorm", f"{context['fusednorm']}, commit "
                      f"{context.get('commit', 'unknown')}"],
        ["date, load", f"{context['date']}, {load}"],
    ])


def targets_of(figures):
    return list(dict.fromkeys(key.target for key in figures))


def vector_targets(figures):
    return [t for t in targets_of(figures) if t != "scalar"]


def floors_section(figures):
    parts = []
    for target in vector_targets(figures):
        parts += [f"### {target}\n", floors(figures, target)]
        misses = missed(figures, target)
        parts.append(bullets("Missed", misses))
    return parts


def tables_section(figures, cache, threads=1):
    parts = []
    for target in vector_targets(figures):
        ops = dict.fromkeys(key.op for key in figures)
        for op in ops:
            part = select(figures, op=op, target=target, cache=cache,
                          threads=threads)
            if part and op != "rms_norm_then_read":
                parts += [f"#### {op}, {target}\n", pivot(part, speed_cell)]
    return parts


def cycles_section(figures):
    part = {key: f for key, f in figures.items()
            if key.cache == "warm" and key.threads == 1
            and key.shape in ("32x4096", "4096x128")
            and key.op in ("rms_norm", "add_rms_norm")}
    parts = []
    for target in vector_targets(part):
        for op in dict.fromkeys(key.op for key in part):
            parts.append(pivot(select(part, target=target, op=op),
                               lambda f: f"{f['cycles_per_32']:.1f}",
                               f"{op}, {target}"))
    return parts


def calls_section(figures):
    part = {key: f for key, f in figures.items()
            if key.shape.startswith("1x") and key.cache == "warm"
            and key.threads == 1}
    parts = []
    for target in targets_of(part):
        for op in dict.fromkeys(key.op for key in part):
            parts.append(pivot(select(part, target=target, op=op),
                               lambda f: f"{f['ns_per_row']:.0f}",
                               f"{op}, {target}, ns"))
    return [part for part in parts if part]


def unfused_section(figures):
    ops = [op for op in dict.fromkeys(key.op for key in figures)
           if any("unfused" in f for f in select(figures, op=op).values())]
    parts = []
    for op in ops:
        rows = [[key.shape, key.variant, key.target, key.cache, key.threads,
                 f"{f['unfused']:.2f}", f"{f['roof']:.2f}"]
                for key, f in select(figures, op=op).items()
                if "unfused" in f and key.target != "scalar"
                and key.shape in ("1x4096", "32x4096", "16384x4096")]
        parts += [f"#### {op}\n",
                  table(["shape", "variant", "target", "cache", "threads",
                         "separate / fused", "of the best pass"], rows)]
    return parts


def reader_section(figures):
    rows = [[key.shape, key.variant, key.target, key.threads,
             f"{f['MB'] / 2:.0f}", f"{f['never']:.2f}", f"{f['always']:.2f}"]
            for key, f in figures.items() if "never" in f
            and key.target != "scalar"
            and (key.cache == "warm" or f["MB"] * 1e6 > 32 << 20)]
    return [table(["shape", "variant", "target", "threads", "out, MB",
                   "never / auto", "always / auto"], rows)] if rows else []


def threads_section(figures):
    rows = []
    for key, f in figures.items():
        one = figures.get(key._replace(threads=1))
        if key.threads == 1 or one is None:
            continue
        gain = f["GB/s"] / one["GB/s"]
        copy = f["roof_GB/s"] / one["roof_GB/s"]
        least = min(FLOORS["two_threads"], copy)
        mark = "✓" if gain >= 0.97 * least else "✗"
        rows.append([key.op, key.shape, key.variant, key.target, key.cache,
                     f"{gain:.2f} {mark}", f"{copy:.2f}"])
    return [table(["operation", "shape", "variant", "target", "cache",
                   "two threads / one", "best pass"], rows)] if rows else []


def mixes_section(figures):
    """Each mix beside the slowest uniform dtype in it, on its own bytes."""
    rows = []
    for key, f in figures.items():
        dtype = key.variant.split("/")[0]
        if "-" not in dtype or key.target == "scalar" or key.threads > 1:
            continue
        parts = {dtype.split("-")[0], dtype.split(":")[1]}
        uniform = [figures.get(key._replace(variant=f"{part}/once"))
                   for part in parts]
        if None in uniform:
            continue
        slowest = min(u["GB/s"] for u in uniform)
        ratio = f["GB/s"] / slowest
        weight_only = "-w:" in dtype
        least = 0.95 if weight_only else FLOORS["mixes"]
        if weight_only:
            ratio = f["GB/s"] / figures[key._replace(
                variant=f"{dtype.split('-')[0]}/once")]["GB/s"]
        rows.append([key.op, key.shape, dtype, key.target, key.cache,
                     f"{f['GB/s']:.1f}",
                     f"{ratio:.2f} {'✓' if ratio >= least else '✗'}"])
    return [table(["operation", "shape", "mix", "target", "cache", "GB/s",
                   "of the uniform"], rows)] if rows else []


def views_section(figures):
    part = {key: f for key, f in figures.items()
            if "of" in key.shape and key.threads == 1}
    parts = []
    for target in vector_targets(part):
        for cache in ("warm", "cold"):
            parts.append(pivot(select(part, target=target, cache=cache),
                               speed_cell, f"{target}, {cache}"))
    return [part for part in parts if part]


# Peers.

def load_peers(files):
    """The first context, and per case the median of each kernel's ratio."""
    context, cases = None, {}
    for file in files:
        run = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
        context = context or run["context"]
        for result in run["results"]:
            name = tuple(result[field] for field in
                         ("op", "dtype", "shape", "cache", "threads"))
            for kernel in result["kernels"]:
                cases.setdefault(name, {}).setdefault(
                    kernel["name"], []).append(kernel)
    return context, {
        name: {kernel: figures_module.best_runs(runs)
               for kernel, runs in kernels.items()}
        for name, kernels in cases.items()}


def peers_section(context, cases):
    names = [name for name in ("vLLM", "PyTorch", "ONNX Runtime", "ggml",
                               "oneDNN")
             if any(name in kernels for kernels in cases.values())]
    rows, lost, short, others = [], [], [], {}
    for (op, dtype, shape, cache, threads), kernels in cases.items():
        limits = FLOORS["peers"].get(op, {})
        cells = []
        for name in names:
            if name not in kernels:
                cells.append("–")
                continue
            ratio = statistics.median(k["ratio"] for k in kernels[name])
            note = "" if all(k["agrees"] for k in kernels[name]) else " ≠"
            where = f"{op} {dtype} {shape} t{threads}: {name} {ratio:.2f}"
            least = None
            if name in limits.get("peers", ()):
                least = limits.get(dtype)
            if least is not None:
                note += " ✓" if ratio >= least else " ✗"
                if ratio < least:
                    short.append(where)
            if ratio < 1:
                lost.append(where)
            cells.append(f"{ratio:.2f}{note}")
            worst = max(kernels[name], key=lambda k: k["epsilons"])
            old = others.setdefault((name, dtype), (0, 0))
            others[name, dtype] = (max(old[0], worst["epsilons"]),
                                   max(old[1], worst["unequal"]))
        ours = statistics.median(k["us"] for k in kernels["fused"])
        rows.append([op, dtype, shape, cache, threads, f"{ours:.2f}", *cells])
    packages = ", ".join(f"{name} {version}" for name, version in
                         context["packages"].items())
    differences = [[name, dtype, f"{epsilons:.1f}", f"{unequal:.2%}"]
                   for (name, dtype), (epsilons, unequal) in others.items()]
    return [
        f"{packages}; vLLM's library: {context['vllm_build']}; "
        f"{context['date']}, load {context['load_avg'][0]:.1f}.\n",
        table(["operation", "dtype", "shape", "cache", "threads", "ours, µs",
               *names], rows),
        bullets("Slower than a peer", lost),
        bullets("Short of the aim", short),
        "How far the peers' results lie from the reference with their own "
        "semantics, in\nepsilons of the dtype, and how many elements differ "
        "at all:\n",
        table(["peer", "dtype", "largest difference", "elements unequal"],
              differences),
        f"A call into Python costs {context['callback_ns']} ns before ONNX "
        "Runtime begins.\n"]


# Plots.

def width_plot(figures, target):
    series = []
    for colour, variant in enumerate(VARIANTS):
        points, roofs = {}, {}
        for key, f in select(figures, op="rms_norm", variant=variant,
                             target=target, cache="warm", threads=1).items():
            rows, width = key.shape.split("x")[:2]
            if rows == "256" and width.isdigit():
                points[int(width)] = f["GB/s"]
                roofs[int(width)] = f["roof_GB/s"]
        if len(points) > 1:
            series.append((variant, points, False, colour))
            if variant in ("f32/once", "bf16/once"):
                series.append((f"copy, {variant[:-5]}", roofs, True, colour))
    return series and plots.lines(
        f"RmsNorm of 256 rows, {target}, one thread, warm", "width", "GB/s",
        series)


def rows_plot(figures, target):
    series = []
    for colour, variant in enumerate(VARIANTS):
        for op, dashed in (("rms_norm", False), ("add_rms_norm", True)):
            points = {}
            for key, f in select(figures, op=op, variant=variant, target=target,
                                 cache="warm", threads=1).items():
                rows, _, width = key.shape.partition("x")
                if width == "4096" and int(rows) <= 256:
                    points[int(rows)] = f["ns_per_row"] * int(rows) / 1000
            if len(points) > 1:
                series.append(((("add " if dashed else "") + variant), points,
                               dashed, colour))
    return series and plots.lines(
        f"Decode: time of a call over rows of 4096, {target}, one thread",
        "rows", "µs", series, log_y=True)


def fused_plot(figures, target):
    classes = (("32x4096", "warm"), ("16384x4096", "cold"))
    names = [f"{variant[:-5]} {shape}" for variant in VARIANTS[:2]
             for shape, _ in classes]
    groups = []
    for op in dict.fromkeys(key.op for key in figures):
        values = []
        for variant in VARIANTS[:2]:
            for shape, cache in classes:
                key = Key(op, variant, target, shape, cache, 1)
                values.append(figures.get(key, {}).get("unfused"))
        if any(values):
            label = op
            for before, after in (("norm", "backward"), ("norm_add", "rms"),
                                  ("norm", "in_place")):
                label = label.replace(f"{before}_{after}",
                                      f"{before}\n{after}")
            groups.append((label, values))
    return groups and plots.bars(
        f"Separate operations over fused, {target}, one thread", "ratio", names,
        groups)


def write_plots(figures, folder):
    """Writes what there are figures for; returns the files."""
    folder.mkdir(exist_ok=True)
    written = []
    for target in vector_targets(figures):
        for name, plot in (("width", width_plot), ("rows", rows_plot),
                           ("fused", fused_plot)):
            svg = plot(figures, target)
            if svg:
                written.append(folder / f"{name}_{target}.svg")
                written[-1].write_text(svg, encoding="utf-8")
    return written


# The two outputs.

def notes(figures):
    noisy = [key for key, f in figures.items() if f["spread"] > NOISY]
    above = [key for key, f in figures.items() if f["roof"] > ABOVE]
    text = [f"Quartiles more than {NOISY:.0%} of the median apart: "
            f"{len(noisy)} of {len(figures)} figures.\n"]
    for key in sorted(noisy, key=lambda k: -figures[k]["spread"])[:10]:
        text.append(f"- {figures[key]['spread']:.0%} "
                    f"{figures_module.name_of(key)}")
    if above:
        text.append(f"\nFaster than {ABOVE} times the best pass:\n")
    for key in above:
        text.append(f"- {figures[key]['roof']:.2f} "
                    f"{figures_module.name_of(key)}")
    return "\n".join(text) + "\n"


def console(context, figures):
    parts = [hardware(context, figures), *floors_section(figures)]
    for title, section in (("Unfused", unfused_section(figures)),
                           ("ns per call", calls_section(figures)),
                           ("Cycles for 32 elements", cycles_section(figures)),
                           ("Threads", threads_section(figures))):
        if section:
            parts += [f"## {title}\n", *section]
    for cache in ("warm", "cold"):
        parts += [f"## {cache}: GB/s · fraction\n",
                  *tables_section(figures, cache)]
    print("\n".join([*parts, notes(figures)]))


def markdown(context, figures, peers):
    fill = {
        "HARDWARE": [hardware(context, figures)],
        "FLOORS": floors_section(figures),
        "CYCLES": cycles_section(figures),
        "CALLS": calls_section(figures),
        "UNFUSED": unfused_section(figures),
        "READER": reader_section(figures),
        "VIEWS": views_section(figures),
        "MIXES": mixes_section(figures),
        "THREADS": threads_section(figures),
        "WARM": tables_section(figures, "warm"),
        "COLD": tables_section(figures, "cold"),
        "NOISE": [notes(figures)],
        "PEERS": peers_section(*peers) if peers[1] else ["Not measured.\n"],
        "TRIED": [(FOLDER / "tried.md").read_text(encoding="utf-8")],
        "PLOTS": [f"![{path.stem}](bench/plots/{path.name})\n"
                  for path in write_plots(figures, FOLDER / "plots")],
        "ABSENT": [f"{target} is not among them and was not measured here."
                   for target in ("avx512", "neon")
                   if target not in context["targets"].split()],
    }
    text = (FOLDER / "BENCHMARKS.in.md").read_text(encoding="utf-8")
    for name, parts in fill.items():
        text = text.replace(f"@{name}@\n", "\n".join(parts).rstrip() + "\n")
    path = FOLDER.parent / "BENCHMARKS.md"
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true",
                        help="write BENCHMARKS.md and its plots")
    parser.add_argument("files", nargs="+", metavar="JSON",
                        help="of runs, and of peers with --write")
    arguments = parser.parse_args()
    runs, peers = [], []
    for file in arguments.files:
        content = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
        (peers if "results" in content else runs).append(file)
    context, figures = figures_module.load(runs)
    if not figures:
        sys.exit("no figures")
    if arguments.write:
        markdown(context, figures, load_peers(peers))
    else:
        console(context, figures)


if __name__ == "__main__":
    main()
