# Options of the build and the flags that all of hark is compiled with.

set(HARK_WITH_ONEDNN AUTO CACHE STRING "Large matrix products by oneDNN: AUTO, ON or OFF")
set(HARK_WITH_OPENMP AUTO CACHE STRING "Threads by OpenMP: AUTO (with gcc, when there), ON or OFF")
option(HARK_BUILD_TESTS "Build the tests, and for them a copy of the library that has the guard backend" ON)
option(HARK_BUILD_EXAMPLES "Build the examples" ON)
option(HARK_SHARED "Build and install the shared library besides the static one" ON)
option(HARK_WERROR "Treat warnings as errors" OFF)
set(HARK_SANITIZE "" CACHE STRING "Sanitizers, for instance address,undefined")
foreach(choice HARK_WITH_ONEDNN HARK_WITH_OPENMP)
  set_property(CACHE ${choice} PROPERTY STRINGS AUTO ON OFF)
  if(NOT ${choice} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${choice} is '${${choice}}', expected AUTO, ON or OFF")
  endif()
endforeach()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug or RelWithDebInfo" FORCE)
endif()
# Assertions stay out of a release; -O3 is for the loops over data (cmake/Library.cmake), the rest is small.
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Strict C17 hides POSIX, which the files, clocks and signals need; offsets in files are 64 bits everywhere.
add_compile_definitions(_POSIX_C_SOURCE=200809L _FILE_OFFSET_BITS=64)
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes)
if(HARK_WERROR)
  add_compile_options(-Werror)
endif()
if(HARK_SANITIZE)
  add_compile_options(-fsanitize=${HARK_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g)
  add_link_options(-fsanitize=${HARK_SANITIZE})
endif()
