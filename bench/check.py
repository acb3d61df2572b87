#!/usr/bin/env python3
"""Compares the fractions of a quick run with those known for the CPU's family.

A fraction is that of the best pass over the same bytes, taken in the same
process, so it depends little on the machine's load and clock. Status 3: a drop
that repeats.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import figures as figures_module

FOLDER = pathlib.Path(__file__).parent / "expectations"
TOLERANCE = 0.15  # One process may be slower than the next by this much.
RERUNS = 3
DROPPED = 3  # Exit status, unlike that of a failure.


def allowed(expected, figure):
    """The least fraction that counts as no drop, given the run's own spread."""
    return expected * (1 - max(TOLERANCE, 2 * figure["spread"],
                               figure["range"]))


def drops(figures, expected):
    return {key: figure for key, figure in figures.items()
            if figures_module.name_of(key) in expected and figure["roof"] <
            allowed(expected[figures_module.name_of(key)], figure)}


def rerun(binary, keys):
    names = "|".join(f"{figures_module.name_of(key)}/iter" for key in keys)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run(
            [binary, "--selection=all", f"--benchmark_filter=^({names})",
             f"--benchmark_out={file.name}", "--benchmark_out_format=json"],
            check=True, stdout=subprocess.DEVNULL)
        return figures_module.load([file.name])[1]


def write(path, context, figures):
    content = {
        "cpu": context["cpu"],
        "compiler": context["compiler"],
        "highway": context["highway"],
        "fractions": {figures_module.name_of(key): round(figure["roof"], 3)
                      for key, figure in figures.items()},
    }
    FOLDER.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path}")


def check(path, binary, figures):
    expected = json.loads(path.read_text(encoding="utf-8"))["fractions"]
    compared = [key for key in figures
                if figures_module.name_of(key) in expected]
    left = drops(figures, expected)
    for attempt in range(RERUNS):
        if not left:
            break
        print(f"check: {len(left)} of {len(compared)} below expectation, "
              f"again ({attempt + 1} of {RERUNS})")
        left = drops(rerun(binary, left), expected)
    for key, figure in left.items():
        name = figures_module.name_of(key)
        print(f"check: {name}: {figure['roof']:.2f}, expected "
              f"{expected[name]:.2f}, spread {figure['spread']:.0%}")
    if not left:
        print(f"check: {len(compared)} fractions as expected ({path.name})")
    return DROPPED if left else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true",
                        help="write the family's expectations instead")
    parser.add_argument("binary", help="bench_norms, to measure drops again")
    parser.add_argument("files", nargs="+", metavar="JSON", help="of the run")
    arguments = parser.parse_args()
    context, figures = figures_module.load(arguments.files)
    # Two threads depend on what else the machine does.
    figures = {key: figure for key, figure in figures.items()
               if key.threads == 1 and key.target != "scalar"}
    path = FOLDER / f"{context['cpu_family']}.json"
    if arguments.write:
        write(path, context, figures)
        return 0
    if not path.exists():
        print(f"check: no expectations for {context['cpu_family']} "
              f"({context['cpu']}): nothing is compared")
        return 0
    return check(path, arguments.binary, figures)


if __name__ == "__main__":
    sys.exit(main())
