#!/usr/bin/env bash
# instructions.sh LIBRARY...
#
# The libraries load and start on any x86-64: no instruction beyond SSE2 lies
# outside the functions of the per-target namespaces, and nothing runs before
# main.
set -euo pipefail

# Anything that an x86-64 of 2003 lacks. tzcnt is left out: compilers emit it
# for such machines too, which run it as bsf.
newer='^(v[a-z0-9]+'                                              # AVX and on
newer+='|k(add|and|andn|mov|not|or|ortest|shift|test|unpck|xnor|xor)[a-z]+'
newer+='|andn|bextr|bls(i|msk|r)|bzhi|mulx|pdep|pext|rorx|s[ah]rx|shlx'
newer+='|lzcnt|popcnt|movbe|crc32[bwlq]?|aes[a-z]+|pclmul[a-z]+'
newer+='|h(add|sub)p[sd]|addsubp[sd]|lddqu|movddup|movs[hl]dup|fisttp[a-z]*'
newer+='|pshufb|ph(add|sub)[a-z]+|pmaddubsw|pmulhrsw|psign[bwd]|palignr'
newer+='|pabs[bwd]|p?blend[a-z]+|round[ps][sd]|ptest|pmov[sz]x[a-z]+'
newer+='|p(ext|ins)r[bdq]|p(min|max)(s[bd]|u[wd])|dpp[sd]|insertps|extractps'
newer+='|pcmp(eq|gt)q|pcmp[ei]str[im]|packusdw|mpsadbw|phminposuw|movntdqa'
newer+='|pmul(ld|dq))$'

failed=0
fail() {
  echo "FAILED: $*" >&2
  failed=1
}

check_instructions() {
  "${OBJDUMP:-objdump}" --disassemble --no-show-raw-insn "$1" | awk -v newer="$newer" '
    /^[0-9a-f]+ <.*>:$/ {
      name = $2
      avx2 = name ~ /N_AVX2/
      avx512 = name ~ /N_AVX3/
      next
    }
    $2 ~ newer || /%[yz]mm/ {
      if (avx512 || (avx2 && !/%(zmm|k[0-7])/)) { ++expected; next }
      if (++found <= 20) print "  in " name " " $0
    }
    END {
      print expected + 0 " within the per-target functions, " found + 0 \
            " elsewhere"
      # None at all would mean that this script looks for the wrong names.
      exit found > 0 || expected == 0
    }' || fail "$1: instructions beyond SSE2"
}

# The shared library starts with the one entry of the C runtime.
check_initialisers() {
  local entries
  entries=$("${READELF:-readelf}" --wide --sections "$1" |
    awk '/\.(init_array|ctors|preinit_array)/ {
      sub(/.*\.(init_array|ctors|preinit_array)/, ""); print $4 }' || true)
  for size in $entries; do
    [[ $1 == *.so* && $((16#$size)) -le 8 ]] ||
      fail "$1: something runs before main ($((16#$size)) bytes)"
  done
  if "${NM:-nm}" "$1" 2>/dev/null | grep -E '_GLOBAL__(sub_)?I|__cxx_global_var_init'
  then
    fail "$1: static initialisers"
  fi
}

for library in "$@"; do
  echo "$library"
  check_initialisers "$library"
  case $(uname -m) in
    x86_64) check_instructions "$library" ;;
  esac
done
exit $failed
