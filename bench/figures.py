"""Reads the JSON of bench_norms."""
import collections
import json
import statistics

Key = collections.namedtuple("Key", "op variant target shape cache threads")


def parse_name(name):
    # rms_norm/bf16/once/avx2/4096x128/warm[/t2]/iterations:1/manual_time
    op, dtype, rounding, target, shape, cache, *rest = name.split("/")
    threads = next((int(part[1:]) for part in rest if part[0] == "t"), 1)
    return Key(op, f"{dtype}/{rounding}", target, shape, cache, threads)


def name_of(key):
    name = "/".join(key[:5])
    return name if key.threads == 1 else f"{name}/t{key.threads}"


def best_runs(runs):
    """Those that had the core to themselves, if any had."""
    return [run for run in runs if run.get("alone")] or runs


def load(files):
    """The context of the first file, and the median figures of each key.

    Several files are runs of the same build. One process can be 20 % faster
    than the next with the same code, so figures that are to be compared with
    others should come from more than one.
    """
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
        runs = best_runs(runs)
        figures[key] = {
            field: statistics.median(run[field] for run in runs)
            for field, value in runs[0].items()
            if isinstance(value, float)
        }
        roof_of, models = runs[0]["label"].split("; ")
        roofs = [run["roof"] for run in runs]
        figures[key].update(roof_of=roof_of, models=models, runs=len(runs),
                            range=(max(roofs) - min(roofs)) /
                            figures[key]["roof"])
    return context, figures
