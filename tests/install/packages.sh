#!/usr/bin/env bash
# packages.sh PREFIX WORK_DIRECTORY
#
# The installed tree, moved elsewhere, serves C and C++ programs and a plugin,
# by find_package and by pkg-config.
source "$(dirname "$0")/support.sh"
work=$2
rm -rf "$work"
mkdir -p "$work"
cp -a "$1" "$work/moved"
prefix=$work/moved
libdir=$(dirname "$(find "$prefix" -name libfusednorm.a)")
extract_examples "$work/examples"

digest=
for kind in fusednorm shared static; do
  build_consumer "$work/$kind" -DKIND=$kind -DEXAMPLES="$work/examples" \
    -DCMAKE_PREFIX_PATH="$prefix"
  check_examples "$work/$kind/example_cc" "$work/$kind/example_c"
  digest=${digest:-$("$work/$kind/digest")}
  expect "$digest" "$work/$kind/digest"
done
echo "$digest"
[[ $(cut -d' ' -f1 <<<"$digest" | sort -u | wc -l) == 1 ]] ||
  fail "the targets differ"

# The package's targets are the kinds they say.
ldd "$work/fusednorm/example_c" | grep libfusednorm > /dev/null || fail "not shared"
ldd "$work/shared/example_c" | grep libfusednorm > /dev/null || fail "not shared"
! ldd "$work/static/example_c" | grep libfusednorm > /dev/null || fail "not static"

# The plugin exports its own name and the library's, whoever loads it.
plugin=$work/static/libplugin.so
foreign=$("$NM" --dynamic --defined-only --demangle "$plugin" |
  grep -Ev ' (plugin_norm|fusednorm_[a-z0-9_]+|fusednorm::.*)$' || true)
[[ -z $foreign ]] || fail "the plugin exports $foreign"
expect "" "$work/static/host" "$plugin"
expect "" "$work/shared/host" "$plugin"

export PKG_CONFIG_PATH=$libdir/pkgconfig
read -ra cflags < <(pkg-config --cflags fusednorm)
read -ra libs < <(pkg-config --libs fusednorm)
read -ra static_libs < <(pkg-config --libs --static fusednorm)
# Both kinds are in one directory: the archive is asked for by its file name.
static_libs=("${static_libs[@]/#-lfusednorm/-l:libfusednorm.a}")
static_libs=("${static_libs[@]/-l:libfusednorm.a_hwy/-lfusednorm_hwy}")
cd "$work"
"$CXX" -std=c++17 examples/example.cc -o cc_shared "${cflags[@]}" \
  "${libs[@]}" -Wl,-rpath,"$libdir"
"$CC" examples/example.c -o c_shared "${cflags[@]}" \
  "${libs[@]}" -Wl,-rpath,"$libdir"
"$CXX" -std=c++17 examples/example.cc -o cc_static "${cflags[@]}" \
  "${static_libs[@]}"
"$CC" examples/example.c -o c_static "${cflags[@]}" "${static_libs[@]}"
check_examples ./cc_shared ./c_shared
check_examples ./cc_static ./c_static
