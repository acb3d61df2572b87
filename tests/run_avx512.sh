#!/usr/bin/env bash
# Runs an x86-64 Linux program on an emulated CPU with AVX-512 (F, CD, DQ, BW, VL), to check its
# results on a machine without AVX-512. QEMU's TCG has no AVX-512; Bochs has, but it emulates a
# whole PC. So this boots a Debian kernel in Bochs, with an initramfs that holds the program.
#
#   tests/run_avx512.sh [OPTION]... PROGRAM [ARG]...
#     --env NAME=VALUE  set a variable for the program (repeatable; none is inherited)
#     --file PATH       copy this file or folder into the guest, at the same path (repeatable)
#     --timeout SECONDS give up after this long (default 600)
#     --mem MIB         the guest's memory (default 512)
#
# The program's stdout and stderr both arrive on stdout. The exit status is the program's (128 + N
# if signal N killed it), 124 after a timeout, 125 if the guest could not be built or run.
# The libraries that ldd lists are copied along; the working folder has the same path but only
# holds what --file names. Needs Debian, and root or sudo for the first run's apt-get install.
set -euo pipefail

fail() { echo "run_avx512: $*" >&2; exit 125; }

mem=512 timeout=600 env=() files=()
while [[ ${1-} == --* ]]; do
  [[ $# -ge 2 ]] || fail "$1 needs a value"
  case $1 in
    --env) env+=("$2") ;;
    --file) files+=("$(realpath -s -- "$2")") ;;
    --timeout) timeout=$2 ;;
    --mem) mem=$2 ;;
    *) fail "unknown option $1" ;;
  esac
  shift 2
done
[[ $# -ge 1 ]] || fail "usage: run_avx512.sh [OPTION]... PROGRAM [ARG]..."
[[ -f $1 && -x $1 ]] || fail "$1 is not a program"
program=$(realpath -s -- "$1")
shift

cache=$(cd "$(dirname "$0")/.." && pwd)/build/avx512-guest
mkdir -p "$cache"
work=$(mktemp -d)
bochs_pid=
# SIGKILL, because Bochs's built-in debugger catches the gentler signals.
trap '[[ -z $bochs_pid ]] || kill -9 "$bochs_pid" 2>/dev/null || true; rm -rf "$work"' EXIT

# --- Packages and kernel, once --------------------------------------------------------------------
exec 9>"$cache/lock"
flock 9 # concurrent first runs build only once

packages=()
for pair in bochs-bin:bochs lz4:lz4 cpio:cpio as:binutils; do
  command -v "${pair%:*}" >/dev/null || packages+=("${pair#*:}")
done
[[ -e /usr/lib/x86_64-linux-gnu/bochs/plugins/libbx_term_gui.so ]] || packages+=(bochs-term)
dpkg -s busybox-static >/dev/null 2>&1 || packages+=(busybox-static)
apt=(apt-get -qq -o DPkg::Lock::Timeout=600)
[[ $EUID -eq 0 ]] || apt=(sudo "${apt[@]}")
if [[ ${#packages[@]} -gt 0 || ! -s $cache/kernel.img ]]; then
  "${apt[@]}" update >&2 || true
fi
if [[ ${#packages[@]} -gt 0 ]]; then
  DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -y --no-install-recommends \
    "${packages[@]}" >"$cache/apt.log" 2>&1 || fail "apt-get install failed, see $cache/apt.log"
fi

# A Bochs RAM image goes to consecutive host memory, but Bochs gives guest memory its host memory in
# 128 KiB blocks in the order of their first use. So an image of several blocks is only seen whole
# if the guest first touches its blocks in order. The BIOS has by then used an unknown few blocks,
# which the image leaves room for: 64 blocks of padding, the last one marked. The boot code below
# touches blocks until it sees the mark, then those where kernel and initramfs belong.
if [[ ! -s $cache/kernel.img ]]; then
  (
    cd "$work"
    image=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
    apt-get -qq download "$image" 2>/dev/null || fail "cannot download $image"
    dpkg -x linux-image-*.deb deb
    # Unpacked here, for the emulator would take longer. The offsets are the Linux boot protocol's.
    bz=$(echo deb/boot/vmlinuz-*)
    field() { od -An -t"$2" -j "$1" "$bz" -N "${2#u}" | tr -d ' '; }
    tail -c "+$((($(field 0x1f1 u1) + 1) * 512 + $(field 0x248 u4) + 1))" "$bz" |
      head -c "$(($(field 0x24c u4) - 4))" | lz4 -dc >vmlinux
    objcopy -O binary vmlinux flat
    truncate -s %128K flat
    { head -c $((63 * 131072)) /dev/zero; printf MARK | dd bs=128K conv=sync status=none; cat flat; } >img
    # Where the kernel's PVH entry point (32-bit, no boot loader) is: the ELF note of type 18.
    LC_ALL=C readelf -nW vmlinux | sed -n 's/.*0x00000012.*data: \(..\) \(..\) \(..\) \(..\).*/0x\4\3\2\1/p' >"$cache/entry"
    [[ -s $cache/entry ]] || fail "the kernel has no PVH entry point"
    mv img "$cache/kernel.img"
  ) || exit 125
fi
flock -u 9

# --- The initramfs --------------------------------------------------------------------------------
root=$work/root
mkdir -p "$root"/{bin,proc,sys,dev,tmp} "$root$PWD"
cp /bin/busybox "$root/bin/busybox"
for name in sh mount stty; do ln -s busybox "$root/bin/$name"; done
mapfile -t libraries < <(ldd "$program" 2>/dev/null | grep -oE '/[^ ]+' | sort -u)
for path in "$program" "${libraries[@]}" "${files[@]}"; do
  mkdir -p "$root$(dirname "$path")"
  cp -rL "$path" "$root$path"
done
[[ ${#env[@]} -gt 0 ]] && env=("${env[@]@Q}")
args=("$@")
[[ $# -gt 0 ]] && args=("${args[@]@Q}")
# LD_BIND_NOW: the dynamic linker's lazy binding saves registers with XSAVEC, which Bochs 2.7 gets
# wrong (the program crashes) once the upper halves of the 512-bit registers are in use.
# Kernel messages and the status use the first serial port, the program the second, so that neither
# disturbs the other. Leaving the braces closes and thereby drains the port.
cat >"$root/init" <<END
#!/bin/sh
export PATH=/usr/local/bin:/usr/bin:/bin LD_BIND_NOW=1
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
cd ${PWD@Q}
{
  stty raw -F /dev/ttyS1
  busybox env ${env[@]-} ${program@Q} ${args[@]-}
  status=\$?
} </dev/null >/dev/ttyS1 2>&1
echo "guest status \$status"
while :; do busybox sleep 60; done
END
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc -R 0:0 --quiet) >"$work/initrd"
cat "$cache/kernel.img" "$work/initrd" >"$work/mem.img"

# --- Boot code, as an option ROM: far quicker than a boot loader on an emulated disk ---------------
# noxsaves, clearcpuid: Bochs 2.7 reports a wrong size for the compacted XSAVE format, whereupon the
#   kernel would turn AVX off; it takes the standard format instead.
# tsc_early_khz: one tick per instruction (see ips below), not the GHz that the CPU model claims.
# cryptomgr.notests, initcall_blacklist, acpi=off: save about half of the boot time.
ips=15000000
cmdline="quiet console=ttyS0,115200 panic=0 mitigations=off tsc=reliable tsc_early_khz=$((ips / 1000)) \
random.trust_cpu=on noxsaves clearcpuid=xsaves,xsavec acpi=off cryptomgr.notests \
initcall_blacklist=trace_eval_init,tracer_init_tracefs,cubictcp_register"
rom=0xd0000 kernel=0x1000000 scratch=$((mem / 2 * 1048576))
initrd_size=$(stat -c %s "$work/initrd")
initrd=$((kernel + $(stat -c %s "$cache/kernel.img") - 64 * 131072))
[[ $((initrd + initrd_size)) -lt $scratch ]] || fail "too little memory for this program, raise --mem"
cat >"$work/boot.s" <<END
        .code16
start:  .byte 0x55, 0xaa, 2             # option ROM of 2 * 512 bytes
        cli
        movb \$2, %al                   # A20 on
        outb %al, \$0x92
        lgdtl %cs:gdtr - start
        movl %cr0, %eax
        orb \$1, %al
        movl %eax, %cr0                 # protected mode
        ljmpl \$8, \$($rom + (1f - start))
        .code32
1:      movl \$16, %eax
        movl %eax, %ds
        movl %eax, %es
        movl %eax, %ss
        movl \$$scratch, %edi           # use up the padding
2:      addl \$0x20000, %edi
        cmpl \$0x4b52414d, (%edi)       # "MARK"
        jne 2b
        movl \$$kernel, %edi            # place kernel and initramfs
3:      movl (%edi), %eax
        addl \$0x20000, %edi
        cmpl \$($initrd + $initrd_size), %edi
        jb 3b
        movl \$($rom + (info - start)), %ebx
        movl \$$(cat "$cache/entry"), %eax
        jmp *%eax
        .balign 8
gdt:    .quad 0, 0x00cf9b000000ffff, 0x00cf93000000ffff
gdtr:   .word 23
        .long $rom + (gdt - start)
        .balign 8
info:   .long 0x336ec578, 1, 0, 1       # struct hvm_start_info of the PVH boot protocol
        .quad $rom + (module - start), $rom + (cmdline - start), 0, $rom + (map - start)
        .long 2, 0
module: .quad $initrd, $initrd_size, 0, 0
map:    .quad 0, 0x9f000, 1, 0x100000, $((mem * 1048576 - 0x110000)), 1
cmdline: .asciz "$cmdline"
        .org 1024
END
as --32 "$work/boot.s" -o "$work/boot.o"
objcopy -O binary -j .text "$work/boot.o" "$work/boot.rom"
# The BIOS wants the ROM's bytes to sum up to 0.
sum=$(($(od -An -v -tu1 "$work/boot.rom" | tr -s ' \n' '+' | sed 's/+$//')))
printf "\\x$(printf %02x $((-sum & 255)))" | dd of="$work/boot.rom" bs=1 seek=1023 conv=notrunc status=none

# --- Run ------------------------------------------------------------------------------------------
# The CPU model is the one with just F, CD, DQ, BW and VL; the later corei7_icelake_u hangs at boot.
# sync=none: as fast as the host can. A low ips has few instructions wasted on waiting for devices.
cat >"$work/bochsrc" <<END
display_library: term
config_interface: textconfig
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
optromimage1: file=$work/boot.rom, address=$rom
optramimage1: file=$work/mem.img, address=$(printf 0x%x "$scratch")
megs: $mem
cpu: model=corei7_skylake_x, count=1, ips=$ips, reset_on_triple_fault=0
clock: sync=none, time0=local
boot: floppy
com1: enabled=1, mode=file, dev=$work/console
com2: enabled=1, mode=file, dev=$work/output
log: $work/log
panic: action=fatal
error: action=ignore
info: action=ignore
debug: action=ignore
END
echo c >"$work/continue" # Debian's Bochs has the debugger built in, which starts stopped
touch "$work/console" "$work/output"
TERM=xterm bochs-bin -q -f "$work/bochsrc" -rc "$work/continue" </dev/null >"$work/bochs.out" 2>&1 &
bochs_pid=$!
tail -n +1 -s 0.2 -f --pid=$bochs_pid "$work/output" &
tail_pid=$!
disown "$bochs_pid" # no message from bash when it is killed

end=$((SECONDS + timeout)) status=125
while kill -0 "$bochs_pid" 2>/dev/null; do
  grep -qaE '^guest status [0-9]+|Kernel panic' "$work/console" && break
  [[ $SECONDS -lt $end ]] || { status=124; break; }
  sleep 0.2
done
kill -9 "$bochs_pid" 2>/dev/null || true
wait "$tail_pid" || true # it ends by itself, with everything printed, once Bochs is gone

if guest=$(grep -aoE '^guest status [0-9]+' "$work/console"); then
  exit "${guest##* }"
fi
[[ $status -eq 124 ]] && echo "run_avx512: no end after $timeout s" >&2
tail -n 20 "$work/console" "$work/log" >&2
exit "$status"
