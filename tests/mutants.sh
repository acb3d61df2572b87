#!/usr/bin/env bash
# Shows that the tests catch the well-known wrong variants of the formulas: each
# mutant changes one place of a copy of the source, and a test must turn red.
#
#   bash tests/mutants.sh [--list | --check] [NAME...]
#
# --list names the mutants; --check makes each of them, without running it: none
# may be left behind by a change of the source.
# NAME is a mutant, or the beginning of names ("reference", "vector"). Without
# one: all of them, half an hour on two cores. Exit status 1 if one survives.
# What the machine needs is what tests/run.sh sets up.
set -euo pipefail
cd "$(dirname "$0")/.."

# Run in this order until one fails. Those that know right answers come first:
# a mutant of the reference is one of every target that equals it. The longest
# come last.
readonly tests=(cases_test rounding_test oracle_test backward_cases_test
                backward_oracle_test gradcheck_test alias_test batch_test
                block_oracle_test accuracy_test backward_bits_test
                block_bits_test bits_test)

names=() files=() froms=() tos=()
mutant() {  # NAME FILE FROM TO: the text FROM, which occurs once, becomes TO.
  names+=("$1") files+=("$2") froms+=("$3") tos+=("$4")
}

# ------------------------------------------------- the statistic: all targets

mutant shared-eps-outside-the-root kernels/reduction.h \
  'return {1.0f / std::sqrt(m),' \
  'return {1.0f / (std::sqrt(s / width) + eps),'
mutant shared-eps-as-a-minimum kernels/reduction.h \
  'const float m = s / width + eps;' \
  'const float m = std::fmax(s / width, eps);'
mutant shared-sum-instead-of-mean kernels/reduction.h \
  'const float m = s / width + eps;' \
  'const float m = s + eps;'
mutant shared-finiteness-of-the-f64-sum kernels/reduction.h \
  'const bool finite = std::fabs(m) <= 3.402823466e38f;' \
  'const bool finite = std::isfinite(sum);'
mutant shared-vanishing-squares-unnoticed kernels/reduction.h \
  'return {1.0f / std::sqrt(m), finite && large};' \
  'return {1.0f / std::sqrt(m), finite && (large || true)};'

# ---------------------------------------------------------------- the reference

readonly scalar=kernels/scalar.h
readonly reference=kernels/reference.cc
mutant reference-eps-outside-the-root-f64 $scalar \
  'rstd_ = 1 / std::sqrt(m);' \
  'const double eps = static_cast<double>(plan.eps);
    rstd_ = 1 / (std::sqrt(m - eps) + eps);'
mutant reference-eps-outside-the-root-exceptional $scalar \
  'return m == 0 ? 0 : 1 / std::sqrt(m);' \
  'const double wide = static_cast<double>(eps);
  return m == 0 ? 0 : 1 / (std::sqrt(m - wide) + wide);'
mutant reference-sum-instead-of-mean-f64 $scalar \
  'SumSquares<double>(plan.width, u) / static_cast<double>(plan.width) +' \
  'SumSquares<double>(plan.width, u) +'
mutant reference-sum-instead-of-mean-exceptional $scalar \
  'sum / static_cast<double>(width) +' \
  'sum + 0 * static_cast<double>(width) +'
mutant reference-mean-subtracted $scalar \
  'return SumProducts<F>(width, u, u);' \
  'double total = 0;
  for (int64_t i = 0; i < width; ++i) total += static_cast<double>(u(i));
  return SumProducts<F>(width, u, u) -
         total * total / static_cast<double>(width);'
mutant reference-wrong-axis $reference \
  'return RmsNormRow(plan, row);' \
  '{
        const Row<F> first(plan, rows, 0);
        const Norm<F> norm(plan, [&](int64_t i) { return first.Get(kX, i); });
        StoreRstd(plan, row, norm);
        for (int64_t i = 0; i < plan.width; ++i) {
          row.Put(kOut, i, row.Normalise(norm, row.Get(kX, i), plan.dtype[kX],
                                         kWeight, i));
        }
        return;
      }'
mutant reference-offset-ignored $scalar \
  'return static_cast<F>(plan_.weight_offset) + w;' \
  'return w;'
mutant reference-offset-added-in-the-weights-dtype $scalar \
  'return static_cast<F>(plan_.weight_offset) + w;' \
  'return RoundTo(plan_.dtype[weight],
                   static_cast<F>(plan_.weight_offset) + w);'
mutant reference-middle-rounding-ignored $scalar \
  'if (plan_.rounding == Rounding::kBeforeWeight) y = RoundTo(vector, y);' \
  '(void)vector;'
mutant reference-middle-rounding-always $scalar \
  'if (plan_.rounding == Rounding::kBeforeWeight) y = RoundTo(vector, y);' \
  'y = RoundTo(vector, y);'
mutant reference-middle-rounding-after-the-weight $scalar \
  'if (plan_.rounding == Rounding::kBeforeWeight) y = RoundTo(vector, y);
    if (plan_.has[weight]) y = y * Gain(weight, i);' \
  'if (plan_.has[weight]) y = y * Gain(weight, i);
    if (plan_.rounding == Rounding::kBeforeWeight) y = RoundTo(vector, y);'
mutant reference-middle-rounding-in-outs-dtype $scalar \
  'y = RoundTo(vector, y);' \
  'y = RoundTo(plan_.dtype[vector == DType::kF64 ? kX : kOut], y);'
mutant reference-middle-rounding-in-xs-dtype $scalar \
  'y = RoundTo(vector, y);' \
  'y = RoundTo(plan_.dtype[vector == DType::kF64 ? kOut : kX], y);'
mutant reference-statistic-of-the-unrounded-sum $reference \
  'return plan.sum == Sum::kRounded ? rounded(i) : exact(i);' \
  'return exact(i);'
mutant reference-output-of-the-unrounded-sum $reference \
  'const F h = plan.sum == Sum::kExact ? exact(i) : rounded(i);' \
  'const F h = plan.sum != Sum::kRounded ? exact(i) : rounded(i);'
mutant reference-residual-out-stored-too-early $reference \
  'const bool store_first = plan.sum == Sum::kRounded && plan.has[kResidualOut];' \
  'const bool store_first = plan.has[kResidualOut];'
mutant reference-scale-not-fused $scalar \
  'return std::fma(static_cast<F>(plan_.residual_scale), Get(kResidual, i), y);' \
  'return static_cast<F>(plan_.residual_scale) * Get(kResidual, i) + y;'
mutant reference-truncation-to-bf16 kernels/convert.h \
  'return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);' \
  'return static_cast<uint16_t>(bits >> 16);'
mutant reference-nan-carried-out-of-bf16 kernels/convert.h \
  'if (nan) return' \
  'if (nan && bits == 0) return'

# ----------------------------------------------------------- the vector kernels

readonly simd=kernels/simd-inl.h
readonly norm=kernels/norm-inl.h
readonly rms_norm=kernels/rms_norm-inl.h
readonly add_rms_norm=kernels/add_rms_norm-inl.h
mutant vector-eps-outside-the-root $norm \
  'hn::Store(hn::Div(hn::Set(d, 1.0f), hn::Sqrt(m)), d, rstd);' \
  'const V4 root = hn::Sqrt(hn::Div(sums, hn::Set(d, width)));
  hn::Store(hn::Div(hn::Set(d, 1.0f), hn::Add(root, hn::Set(d, eps))), d, rstd);'
mutant vector-sum-instead-of-mean $norm \
  'hn::Add(hn::Div(sums, hn::Set(d, width)), hn::Set(d, eps));' \
  'hn::Add(hn::Mul(sums, hn::Set(d, width > 0 ? 1.0f : 0.0f)),
                      hn::Set(d, eps));'
mutant vector-overflow-unnoticed $norm \
  'hn::Le(m, hn::Set(d, 3.402823466e38f))' \
  'hn::Eq(m, m)'
mutant vector-vanishing-squares-unnoticed $norm \
  'hn::Ge(sums, hn::Set(d, least))' \
  'hn::Ge(sums, hn::Set(d, 0 * least))'
mutant vector-mean-subtracted $simd \
  'lanes.AddSquare(p, Load(row, i));' \
  'const Pair u = Load(row, i);
    const VF total = hn::SumOfLanes(DF(), hn::Add(u.a, u.b));
    const VF mean = hn::Mul(total, hn::Set(DF(), 0.5f / kLanes));
    lanes.AddSquare(p, {hn::Sub(u.a, mean), hn::Sub(u.b, mean)});'
mutant vector-wrong-axis $simd \
  'SumChunk<false>(plan, rows, index + g, 0, width, input, fetch);' \
  'SumChunk<false>(plan, rows, index, 0, width, input, fetch);'
mutant vector-tail-left-out-of-the-sum $simd \
  'AddStep(input, acc, tail.row(), 0);' \
  'if (i == begin) AddStep(input, acc, tail.row(), 0);'
mutant vector-tail-not-zeroed $simd \
  'std::memset(buffer_[k], 0, sizeof(buffer_[k]));' \
  'std::memset(buffer_[k], 0x3F, sizeof(buffer_[k]));'
mutant vector-offset-ignored $norm \
  'has_offset_(Opaque(offset != 0)),' \
  'has_offset_(false),'
mutant vector-offset-of-zero-added $norm \
  'has_offset_(Opaque(offset != 0)),' \
  'has_offset_(true),'
mutant vector-middle-rounding-ignored $norm \
  'Operation<T, T>>(plan)' \
  'Operation<T, F32>>(plan)'
mutant vector-middle-rounding-always $norm \
  'Operation<T, F32>>(plan)' \
  'Operation<T, T>>(plan)'
mutant vector-middle-rounding-after-the-weight $rms_norm \
  'const Pair v = middle_.Round(Mul(input_.Load(row, i), rstd));
    return added_(weight_.Apply(v, gain), row, i);' \
  'const Pair v = weight_.Apply(Mul(input_.Load(row, i), rstd), gain);
    return added_(middle_.Round(v), row, i);'
mutant vector-output-of-the-first-row $norm \
  'Store<kFar>(output[t], group.row[g], i);' \
  'Store<kFar>(output[0], group.row[g], i);'
mutant vector-output-into-the-first-row $norm \
  'row = row.Further(rows, 1);' \
  'row = row.Further(rows, 0);'
mutant vector-middle-rounding-in-outs-dtype $norm \
  'return plan.rounding == Rounding::kBeforeWeight ? plan.dtype[vector]' \
  'return plan.rounding == Rounding::kBeforeWeight ? plan.dtype[kOut]'
mutant vector-middle-rounding-in-xs-dtype $norm \
  'return plan.rounding == Rounding::kBeforeWeight ? plan.dtype[vector]' \
  'return plan.rounding == Rounding::kBeforeWeight ? plan.dtype[kX]'
mutant vector-statistic-of-the-unrounded-sum $add_rms_norm \
  'lanes.AddSquare(p, kRounded ? StoreSum(h, row, i) : h);' \
  'if (kRounded) StoreSum(h, row, i);
    lanes.AddSquare(p, h);'
mutant vector-output-of-the-unrounded-sum $add_rms_norm \
  'return kSum == Sum::kExact ? h : rounded;' \
  'return h;'
mutant vector-output-of-the-rounded-sum $add_rms_norm \
  'return kSum == Sum::kExact ? h : rounded;' \
  'return rounded;'
mutant vector-residual-out-stored-too-early $add_rms_norm \
  'lanes.AddSquare(p, kRounded ? StoreSum(h, row, i) : h);' \
  'const Pair rounded = StoreSum(h, row, i);
    lanes.AddSquare(p, kRounded ? rounded : h);'
mutant vector-stored-sum-made-again $norm \
  'ExceptionalRow(plan, rows, index + g, (stored >> g & 1) != 0);' \
  'ExceptionalRow(plan, rows, index + g, false);'
mutant vector-sum-taken-for-stored $norm \
  'ExceptionalRow(plan, rows, index + g, (stored >> g & 1) != 0);' \
  'ExceptionalRow(plan, rows, index + g, kStores);'
mutant vector-statistic-of-the-next-group $norm \
  'const bool ordinary = GroupStatistic(sums, width, plan.eps, rstd);' \
  'if (index + kGroup < end) {
      sums = SumRows<false>(plan, rows, index + kGroup, kernel.input(), 0);
    }
    const bool ordinary = GroupStatistic(sums, width, plan.eps, rstd);'
mutant vector-fused-sums-of-the-same-group $norm \
  'const GroupData next(rows, index + kGroup, 0);' \
  'const GroupData next(rows, index, 0);'
mutant vector-fused-sum-of-the-same-row $norm \
  'const int64_t next = index + kGroup + g;' \
  'const int64_t next = index + g;'
mutant vector-fused-rstd-of-the-first-row $norm \
  'const VF r = hn::Set(DF(), rstd[g]);' \
  'const VF r = hn::Set(DF(), rstd[0]);'
mutant vector-fused-blocks-as-one $simd \
  'for (int g = 0; g < kGroup; ++g) top[g].AddLanes(acc[g]);' \
  'for (int g = 0; g < kGroup; ++g) top[g] = acc[g];'
mutant vector-fused-unprepared-taken-for-stored $norm \
  '*summed &= ~(1u << g);
      continue;' \
  'continue;'
mutant vector-nan-of-a-given-rstd $norm \
  'return rstd == rstd ? rstd : std::numeric_limits<float>::quiet_NaN();' \
  'return rstd;'
mutant vector-scale-ignored kernels/add_rms_norm.cc \
  'scale_(hn::Set(DF(), plan.residual_scale))' \
  'scale_(hn::Set(DF(), 1.0f))'

# ------------------------------------------------------------------ the backward

readonly reference_backward=kernels/reference_backward.cc
readonly backward=kernels/backward.cc
readonly run_backward=kernels/run_backward.cc
readonly dweight=kernels/dweight-inl.h
mutant backward-reference-weight-twice $reference_backward \
  'return plan.has[kWeight] ? row.Gain(kWeight, i) * dy : dy;' \
  'return plan.has[kWeight]
               ? row.Gain(kWeight, i) * row.Gain(kWeight, i) * dy
               : dy;'
mutant backward-reference-offset-ignored $reference_backward \
  'return plan.has[kWeight] ? row.Gain(kWeight, i) * dy : dy;' \
  'return plan.has[kWeight] ? row.Get(kWeight, i) * dy : dy;'
mutant backward-reference-gain-as-a-constant $reference_backward \
  'sum = std::fma(row.Get(kDy, i), xh_i, sum);' \
  'sum = std::fma(a(i), xh_i, sum);'
mutant backward-reference-projection-missing $reference_backward \
  'F dx = (a(i) - t) * r;' \
  'F dx = (a(i) - 0 * t) * r;'
mutant backward-reference-residual-before-the-derivative $reference_backward \
  'F dx = (a(i) - t) * r;
    if (plan.has[kResidual]) dx = row.Get(kResidual, i) + dx;' \
  'F dx = a(i) - t;
    if (plan.has[kResidual]) dx = row.Get(kResidual, i) + dx;
    dx = dx * r;'
mutant backward-reference-projection-not-a-mean $reference_backward \
  'const F c = product / static_cast<F>(plan.width);' \
  'const F c = product;'
mutant backward-reference-statistic-as-a-constant $reference_backward \
  'const F t = xh_i * c;' \
  'const F t = row.Get(kX, i) * c;'
mutant backward-dweight-in-16-bits $run_backward \
  'slabs.totals[i] += total[i];' \
  '{
        const double cut = 0x1p45 * (slabs.totals[i] + total[i]);  // 8 bits.
        slabs.totals[i] = (slabs.totals[i] + total[i] + cut) - cut;
      }'
mutant backward-dweight-in-f32 $dweight \
  'hn::StoreU(total, d64, totals + k);' \
  'hn::StoreU(hn::PromoteTo(d64, hn::DemoteTo(DHalf32(), total)), d64,
                 totals + k);'
mutant backward-dweight-blocks-not-cleared $run_backward \
  'std::fill(block, block + slabs.width, 0.0);' \
  'if (row % slabs.rows_per_slab == 0) {
      std::fill(block, block + slabs.width, 0.0);
    }'
mutant backward-dweight-out-of-order $backward \
  'even_odd ? &AddSums<true> : &AddSums<false>' \
  'even_odd ? &AddSums<false> : &AddSums<false>'
mutant backward-dweight-rounded-twice $dweight \
  'return hn::BitCast(DHalf32(), hn::TruncateTo(du32, bits));' \
  '(void)bits;
  return nearest;'
mutant backward-dweight-not-accumulated $dweight \
  'if (accumulate) v = codec.Load(to, 0);' \
  ''
mutant backward-dweight-tail-left-out $dweight \
  'std::memcpy(row, tail, left * sizeof(uint16_t));' \
  ''
mutant backward-reference-dweight-rounded-twice $reference_backward \
  'return BF16FromF32(RoundToOdd(v));' \
  'return BF16FromF32(static_cast<float>(v));'
mutant backward-reference-dweight-not-accumulated $reference_backward \
  'if (plan.accumulate) value += Gradient::Load(to[i]);' \
  'if (plan.accumulate) value += 0 * Gradient::Load(to[i]);'
mutant backward-slab-for-each-thread $run_backward \
  'kRowsPerBlock * CeilDiv(parts.shared.rows, kRowsPerBlock * kMaxSlabs);' \
  'CeilDiv(parts.shared.rows, std::max(1, options.num_threads));'
mutant backward-vector-weight-twice $backward \
  'Pair dx = Mul(Sub(Mul(dy, gain), Mul(xh, factors.c)), factors.r);' \
  'Pair dx = Mul(Sub(Mul(Mul(dy, gain), gain), Mul(xh, factors.c)), factors.r);'
mutant backward-vector-gain-as-a-constant $backward \
  'sums->a = hn::MulAdd(dy.a, xh.a, sums->a);' \
  'sums->a = hn::MulAdd(hn::Mul(dy.a, gain.a), xh.a, sums->a);'
mutant backward-vector-projection-missing $backward \
  'Pair dx = Mul(Sub(Mul(dy, gain), Mul(xh, factors.c)), factors.r);' \
  'Pair dx = Mul(Mul(dy, gain), factors.r);'
mutant backward-vector-residual-before-the-derivative $backward \
  'const Pair dx = Mul(Sub(Mul(dy, gain), Mul(xh, factors.c)), factors.r);
    if (!has_stream_) return dx;
    return Add(stream_.Load(row.data[kResidual], i), dx);' \
  'const Pair dx = Sub(Mul(dy, gain), Mul(xh, factors.c));
    if (!has_stream_) return Mul(dx, factors.r);
    return Mul(Add(stream_.Load(row.data[kResidual], i), dx), factors.r);'
mutant backward-vector-products-with-the-first-rstd $backward \
  'product[g] = SumProducts(index + g, rstd[g], ahead);' \
  'product[g] = SumProducts(index + g, rstd[0], ahead);'
mutant backward-vector-output-of-the-first-row $backward \
  'Store<kFar>(dx[t], group.row[first + t], i);' \
  'Store<kFar>(dx[0], group.row[first + t], i);'
mutant backward-vector-factors-of-the-first-row $backward \
  'factors[g] = factors_in[g];' \
  'factors[g] = factors_in[0];'
mutant backward-vector-sums-of-the-first-pair $backward \
  'sums[p] = output.LoadSums(row, k);' \
  'sums[p] = output.LoadSums(row, i);'
mutant backward-vector-line-by-line-of-the-first-row $backward \
  'OutputRow<kFar>(group.row[g], group.fetched[g], g, whole, factors[g],' \
  'OutputRow<kFar>(group.row[0], group.fetched[g], g, whole, factors[g],'

# ------------------------------------------------------------------------ the run

die() {
  echo "mutants.sh: $*" >&2
  exit 2
}

chosen() {  # Whether mutant $1 was asked for on the command line.
  ((${#wanted[@]})) || return 0
  local prefix
  for prefix in "${wanted[@]}"; do
    [[ $1 == "$prefix"* ]] && return 0
  done
  return 1
}

apply() {  # Mutant $1, in the copy.
  local file=${files[$1]} from=${froms[$1]} text rest
  text=$(<"$file")
  [[ $text == *"$from"* ]] ||
    die "${names[$1]}: not in $file: $from"
  rest=${text#*"$from"}
  [[ $rest != *"$from"* ]] ||
    die "${names[$1]}: more than once in $file: $from"
  printf '%s\n' "${text%%"$from"*}${tos[$1]}$rest" >"$file"
}

build() {
  cmake --build build -j "$(nproc)" --target "${tests[@]}" >build.log 2>&1
}

first_red() {  # The first test that fails; status 1 if none does.
  local test
  for test in "${tests[@]}"; do
    (cd tests && FUSEDNORM_TEST_SUBSET=1 GTEST_FAIL_FAST=1 \
      "../build/tests/$test") >"$test.log" 2>&1 && continue
    # The first failing case of it, or nothing after a crash.
    sed -n "s/^\[  FAILED  \] \([A-Za-z0-9_.\/]*\).*/$test \1/p" "$test.log" |
      grep . | head -n 1 || echo "$test crashed"
    return 0
  done
  return 1
}

wanted=() check=false
for argument in "$@"; do
  case $argument in
    --check) check=true ;;
    --list)
      printf '%s\n' "${names[@]}"
      exit
      ;;
    -*) die "unknown option $argument" ;;
    *) wanted+=("$argument") ;;
  esac
done
for prefix in "${wanted[@]}"; do
  printf '%s\n' "${names[@]}" | grep -q "^$prefix" || die "no mutant $prefix"
done

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/source"
cp -r CMakeLists.txt cmake include kernels tests "$copy/source"
# One x86 target shows as much as two, in half the time. What AVX-512 alone has,
# as the backward pass's sums in turn, is out of reach here.
sed -i 's/HWY_AVX3 | //' "$copy/source/kernels/highway.h"
cp -r "$copy/source" "$copy/mutant"
cd "$copy/mutant"

restore() {  # The file of mutant $1.
  cp "../source/${files[$1]}" "${files[$1]}"
}

if $check; then
  for i in "${!names[@]}"; do
    chosen "${names[$i]}" || continue
    apply "$i"
    restore "$i"
  done
  echo "the mutants can be made"
  exit
fi

# Unoptimised: what takes time here is compiling.
cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O0 \
  -DFUSEDNORM_BENCHMARKS=OFF -DFUSEDNORM_BUILD_SHARED=OFF >build.log 2>&1 &&
  build || { tail -n 30 build.log >&2; die "the source does not build"; }
if red=$(first_red); then die "red without any mutant: $red"; fi

survivors=0 count=0
printf '%-48s %s\n' mutant 'found by'
for i in "${!names[@]}"; do
  chosen "${names[$i]}" || continue
  apply "$i"
  if ! build; then
    tail -n 30 build.log >&2
    die "${names[$i]} does not compile"
  fi
  if ! red=$(first_red); then
    red='NOTHING: it survives'
    survivors=$((survivors + 1))
  fi
  printf '%-48s %s\n' "${names[$i]}" "$red"
  restore "$i"
  count=$((count + 1))
done
echo "$count mutants, $survivors survive"
((survivors == 0))
