# Cross-compiling for 64-bit ARM with Debian's gcc-aarch64-linux-gnu, and running what was built with qemu-user.
#
#     cmake -S . -B build/aarch64 -DCMAKE_TOOLCHAIN_FILE=cmake/toolchains/aarch64-linux-gnu.cmake -DHARK_TRAIN=OFF
#
# HARK_AARCH64_ROOT (also of the environment): a folder with the target's libraries, laid out like / (usr/lib/aarch64-linux-gnu);
# scripts/check-aarch64.sh makes one. Without it, those of dpkg --add-architecture arm64 in / are found. libc is that of the cross compiler.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

if(NOT HARK_AARCH64_ROOT)
  set(HARK_AARCH64_ROOT "$ENV{HARK_AARCH64_ROOT}")
endif()
set(HARK_AARCH64_ROOT "${HARK_AARCH64_ROOT}" CACHE PATH "A folder with libraries for aarch64, laid out like /")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES HARK_AARCH64_ROOT)

set(HARK_AARCH64_LIBC /usr/aarch64-linux-gnu) # of libc6-dev-arm64-cross
set(CMAKE_FIND_ROOT_PATH ${HARK_AARCH64_ROOT} ${HARK_AARCH64_LIBC})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
if(NOT HARK_AARCH64_ROOT) # multiarch: only its folder, the others hold this machine's libraries
  set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY BOTH)
endif()
# The target's libraries and no others.
set(ENV{PKG_CONFIG_LIBDIR} "${HARK_AARCH64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${HARK_AARCH64_ROOT}/usr/share/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${HARK_AARCH64_ROOT}")

set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64;-L;${HARK_AARCH64_LIBC}") # ctest runs programs with it
