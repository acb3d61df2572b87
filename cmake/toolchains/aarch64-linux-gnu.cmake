# Debian's cross compiler for AArch64; programs run under qemu's user mode, with
# the libraries of the arm64 packages. (The cross compiler's own copies are of
# another version, and threads hang where the two are mixed.)
# cmake/bootstrap.sh --neon installs what this needs.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
# Packages of the foreign architecture live in /usr/lib/aarch64-linux-gnu.
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
