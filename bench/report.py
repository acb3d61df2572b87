#!/usr/bin/env python3
"""Tables from the JSON of bench_rms_norm.

usage: report.py FILE...

Several files are runs of the same build: each figure is their median. One
process can be 20 % faster than the next with the same code, so figures that are
to be compared with others should come from more than one.
"""
import collections
import json
import statistics
import sys

NOISY = 0.25  # Spread from which a figure is named below the tables.
ABOVE = 1.05  # So is a fraction of the best copy from here.

Key = collections.namedtuple("Key", "op variant target shape cache threads")


def parse_name(name):
    # rms_norm/bf16/once/avx2/4096x128/warm[/t2]/iterations:1/manual_time
    op, dtype, rounding, target, shape, cache, *rest = name.split("/")
    threads = next((part for part in rest if part[0] == "t"), "t1")
    return Key(op, f"{dtype}/{rounding}", target, shape, cache, threads)


def load(files):
    """The context of the first file, and the median figures of each key."""
    samples = collections.defaultdict(list)
    context = None
    for file in files:
        with open(file, encoding="utf-8") as stream:
            run = json.load(stream)
        context = context or run["context"]
        for benchmark in run["benchmarks"]:
            if "roof" in benchmark:  # Failed and skipped ones have no figures.
                samples[parse_name(benchmark["name"])].append(benchmark)
    figures = {}
    for key, runs in samples.items():
        figures[key] = {
            field: statistics.median(run[field] for run in runs)
            for field, value in runs[0].items()
            if isinstance(value, float)
        }
        copy, models = runs[0]["label"].split("; ")
        figures[key].update(copy=copy, models=models)
    return context, figures


def describe(context):
    caches = {}
    for cache in context["caches"]:
        if cache["type"] != "Instruction":
            caches[cache["level"]] = cache["size"] >> 10
    sizes = ", ".join(f"L{level} {kib} KiB" for level, kib in caches.items())
    return "\n".join([
        f"{context['cpu']} at {context['clock_ghz']} GHz, "
        f"{context['num_cpus']} CPUs, {sizes}",
        f"fusednorm {context['fusednorm']} "
        f"({context.get('commit', 'commit unknown')}), {context['compiler']}, "
        f"Highway {context['highway']}, targets: {context['targets']}",
        f"{context['date']}, threads: {context['threads']}, load of the machine: "
        f"{', '.join(f'{load:.1f}' for load in context['load_avg'])}",
    ])


def print_table(title, figures, cell):
    """Shapes down, variants across; `cell` makes a string of the figures."""
    if not figures:
        return
    variants = list(dict.fromkeys(key.variant for key in figures))
    shapes = {}
    for key, figure in figures.items():
        row = shapes.setdefault(key.shape, {"": figure["models"]})
        row[key.variant] = cell(figure)
    print(f"\n{title}\n")
    print(" " * 12 + "".join(f"{variant:>14}" for variant in variants))
    for shape, row in shapes.items():
        cells = "".join(f"{row.get(variant, '-'):>14}" for variant in variants)
        print(f"{shape:>12}{cells}  {row['']}")


def groups(figures):
    """The figures by operation, target, cache state and threads."""
    parts = {}
    for key, figure in figures.items():
        threads = int(key.threads[1:])
        title = f"{key.op}, {key.target}, {key.cache}"
        if threads > 1:
            title += f", {threads} threads"
        parts.setdefault(title, {})[key] = figure
    return parts.items()


def select(figures, test):
    return {key: value for key, value in figures.items() if test(key)}


def print_notes(figures):
    noisy = [key for key, f in figures.items() if f["spread"] > NOISY]
    above = [key for key, f in figures.items() if f["roof"] > ABOVE]
    dram = [f["roof_GB/s"] for key, f in figures.items() if key.cache == "cold"]
    print()
    if dram:
        print(f"Best copy from memory: {max(dram):.1f} GB/s")
    print(f"Quartiles more than {NOISY:.0%} of the median apart: "
          f"{len(noisy)} of {len(figures)} figures")
    for key in sorted(noisy, key=lambda k: -figures[k]["spread"])[:10]:
        print(f"  {figures[key]['spread']:4.0%} {'/'.join(key)}")
    if above:
        print(f"Faster than {ABOVE} times the best copy:")
    for key in above:
        print(f"  {figures[key]['roof']:4.2f} {'/'.join(key)}")


def main(files):
    context, figures = load(files)
    print(describe(context))
    for title, part in groups(figures):
        print_table(f"{title}: GB/s, fraction of the best copy", part,
                    lambda f: f"{f['GB/s']:.1f} {f['roof']:4.2f}")

    warm = select(figures, lambda key: key.cache == "warm")
    for title, part in groups(select(warm, lambda k: k.target != "scalar")):
        print_table(f"{title}: cycles for 32 elements", part,
                    lambda f: f"{f['cycles_per_32']:.1f}")
    for title, part in groups(
            select(warm, lambda key: key.shape.startswith("1x"))):
        print_table(f"{title}: ns for a call with one row", part,
                    lambda f: f"{f['ns_per_row']:.0f}")
    for title, part in groups(
            select(figures, lambda key: key.op == "add_rms_norm")):
        print_table(f"{title}: addition, then norm, as a multiple of the fused time", part,
                    lambda f: f"{f['unfused']:.2f}")

    print_notes(figures)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
