# Options of the build and the flags that all of hark is compiled with.

set(HARK_WITH_ONEDNN AUTO CACHE STRING "Large matrix products by oneDNN: AUTO, ON or OFF")
set(HARK_WITH_THREADS AUTO CACHE STRING "Threads of a context's own (POSIX): AUTO (when there), ON or OFF")
set(HARK_WITH_SENTENCEPIECE AUTO CACHE STRING "Learning of sub-words by SentencePiece, which the command is linked with: AUTO, ON or OFF")
set(HARK_WITH_PCRE2 AUTO CACHE STRING "Regular expressions of tokenizer.json by PCRE2: AUTO, ON or OFF")
set(HARK_WITH_UTF8PROC AUTO CACHE STRING "Unicode normal forms and properties for tokenizer.json by utf8proc: AUTO, ON or OFF")
set(HARK_WITH_ZLIB AUTO CACHE STRING "Data compressed with gzip, by zlib: AUTO, ON or OFF")
set(HARK_WITH_LZMA AUTO CACHE STRING "Data compressed with xz, by liblzma: AUTO, ON or OFF")
set(HARK_WITH_ZSTD AUTO CACHE STRING "Data compressed with zstd, by libzstd: AUTO, ON or OFF")
set(HARK_WITH_BZIP2 AUTO CACHE STRING "Data compressed with bzip2, by libbz2: AUTO, ON or OFF")
set(HARK_WITH_PNG AUTO CACHE STRING "Pathfinder's pictures (PNG), by libpng: AUTO, ON or OFF")
set(HARK_WITH_MPI AUTO CACHE STRING "Messages between the processes of a training by MPI (hark-mpi.so, which the command loads when a launcher starts it): AUTO, ON or OFF")
set(HARK_WITH_GSL AUTO CACHE STRING "Closed forms of the laboratory (Bessel functions, quadrature) by GSL: AUTO, ON or OFF")
# As a part of another project (add_subdirectory, FetchContent) hark is its library alone, unless that project asks for more.
set(alone ${PROJECT_IS_TOP_LEVEL})
set(tests AUTO)
if(NOT alone)
  set(tests OFF)
endif()
option(HARK_TRAIN "The trainer and the command, which need jansson and libyaml. OFF: the library for programs that embed models, which needs neither" ${alone})
set(HARK_BUILD_TESTS ${tests} CACHE STRING "The tests, and for them a copy of the library that has the guard backend: AUTO (where cmocka is there), ON or OFF")
option(HARK_TEST_GUIDES "Among the tests, those of the guides (docs/adding-*.md), which compile a part of hark again" ON)
option(HARK_BUILD_EXAMPLES "Build the examples" ${alone})
option(HARK_INSTALL "Have what `make install` installs" ${alone})
option(HARK_SHARED "Build and install the shared library besides the static one" ON)
option(HARK_WERROR "Treat warnings as errors" OFF)
option(HARK_BUILD_FUZZERS "Build the fuzz targets of tests/fuzz with libFuzzer and the address and undefined-behaviour sanitizers (clang)" OFF)
set(HARK_SANITIZE "" CACHE STRING "Sanitizers, for instance address,undefined")
foreach(choice HARK_WITH_ONEDNN HARK_WITH_THREADS HARK_WITH_GSL HARK_WITH_SENTENCEPIECE HARK_WITH_PCRE2 HARK_WITH_UTF8PROC HARK_WITH_ZLIB HARK_WITH_LZMA
        HARK_WITH_ZSTD HARK_WITH_BZIP2 HARK_WITH_PNG HARK_WITH_MPI HARK_BUILD_TESTS)
  set_property(CACHE ${choice} PROPERTY STRINGS AUTO ON OFF)
  if(NOT ${choice} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${choice} is '${${choice}}', expected AUTO, ON or OFF")
  endif()
endforeach()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  if(alone)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug or RelWithDebInfo" FORCE)
  else()
    set(CMAKE_BUILD_TYPE Release) # of hark's own files
  endif()
endif()
# Assertions stay out of a release; -O3 is for the loops over data (cmake/Library.cmake), the rest is small.
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
if(HARK_SANITIZE)
  set(CMAKE_C_VISIBILITY_PRESET default) # tests share one file of the library and call what it hides (Library.cmake)
endif()
# For the one file of C++ (cmake/Dependencies.cmake).
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Strict C17 hides POSIX, which the files, clocks and signals need; offsets in files are 64 bits everywhere.
add_compile_definitions(_POSIX_C_SOURCE=200809L _FILE_OFFSET_BITS=64)
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow "$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes;-Wmissing-prototypes>")

# GCC sets and copies a descriptor of a tensor, 152 bytes, by string instructions, which take longer to begin than a loop of words to finish;
# what is large goes to the C library, which knows the machine.
include(CheckCCompilerFlag)
set(HARK_COPY_FLAGS "-mmemset-strategy=unrolled_loop:512:noalign,libcall:-1:noalign"
                    "-mmemcpy-strategy=unrolled_loop:512:noalign,libcall:-1:noalign")
string(REPLACE ";" " " HARK_COPY_FLAGS_TEXT "${HARK_COPY_FLAGS}")
check_c_compiler_flag("${HARK_COPY_FLAGS_TEXT}" HARK_HAS_COPY_FLAGS)
if(HARK_HAS_COPY_FLAGS)
  add_compile_options("$<$<COMPILE_LANGUAGE:C>:${HARK_COPY_FLAGS}>")
endif()
if(HARK_WERROR)
  add_compile_options(-Werror)
endif()
if(HARK_BUILD_FUZZERS)
  if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "HARK_BUILD_FUZZERS=ON needs clang, whose libFuzzer the targets are linked with: -DCMAKE_C_COMPILER=clang")
  endif()
  set(HARK_SANITIZE "fuzzer-no-link,address,undefined") # in front of what was chosen, for this run
endif()
if(HARK_SANITIZE)
  add_compile_options(-fsanitize=${HARK_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1 -gz) # lines, no variables
  add_link_options(-fsanitize=${HARK_SANITIZE})
endif()
