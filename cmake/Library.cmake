# libhark, and libhark_test: the same objects, except that the backends are compiled with HARK_WITH_GUARD and the guard backend is there.

set(HARK_LAYERS core backend io group options positional attention ops autograd tokenizers nn models) # lab and cli are the command's
if(HARK_TRAIN)
  list(APPEND HARK_LAYERS json config data train) # what only training needs
endif()

# hark_objects(TARGET SOURCE...): objects with the flags that all objects of the library share.
function(hark_objects target)
  add_library(${target} OBJECT ${ARGN})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${target} PRIVATE hark_dependencies)
endfunction()

set(HARK_SOURCES)
foreach(layer ${HARK_LAYERS})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS src/${layer}/*.c)
  list(APPEND HARK_SOURCES ${sources})
endforeach()
if(NOT HARK_TRAIN)
  list(FILTER HARK_SOURCES EXCLUDE REGEX "/src/group/launch\\.c$") # only several processes need it
endif()
set(HARK_ISA_SOURCES ${HARK_SOURCES})
list(FILTER HARK_ISA_SOURCES INCLUDE REGEX "/src/backend/cpu/isa/")
set(HARK_GUARD_SOURCES ${HARK_SOURCES})
list(FILTER HARK_GUARD_SOURCES INCLUDE REGEX "/src/backend/guard/")
list(FILTER HARK_SOURCES EXCLUDE REGEX "/src/backend/(cpu/isa|guard)/")
# The sources that may ask for HARK_WITH_GUARD, so that only these are compiled twice: the list of backends and the cpu backend's own files.
set(HARK_BACKEND_SOURCES ${HARK_SOURCES})
list(FILTER HARK_BACKEND_SOURCES INCLUDE REGEX "/src/backend/([^/]*|cpu/[^/]*)\\.c$")
list(REMOVE_ITEM HARK_SOURCES ${HARK_BACKEND_SOURCES})
if(CMAKE_BUILD_TYPE STREQUAL Release)
  set(loops ${HARK_SOURCES} ${HARK_BACKEND_SOURCES} ${HARK_ISA_SOURCES})
  list(FILTER loops INCLUDE REGEX "/src/(backend|ops)/")
  # With sanitizers -O3 takes minutes for one file of unrolled tiles.
  set(loop_level -O3)
  if(HARK_SANITIZE)
    set(loop_level -O1)
  endif()
  set_source_files_properties(${loops} PROPERTIES COMPILE_OPTIONS ${loop_level})
endif()

set(HARK_OBJECT_TARGETS)
if(HARK_SOURCES)
  hark_objects(hark_common ${HARK_SOURCES})
  list(APPEND HARK_OBJECT_TARGETS hark_common)
  # Where modules are installed, from the folder of the command.
  file(RELATIVE_PATH modules "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}/hark")
  set_source_files_properties(src/group/launch.c PROPERTIES COMPILE_DEFINITIONS HARK_MODULE_FOLDER="${modules}")
endif()

# One compilation of isa/*.c for each instruction set. Infinities and NaN mean something to us: never -ffast-math.
set(HARK_ISA_FLAGS_generic)
set(HARK_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(HARK_ISA_FLAGS_avx512 -march=skylake-avx512 -mprefer-vector-width=512)
set(HARK_ISA_FLAGS_neon -DHARK_USE_NEON=1) # part of aarch64: the compiler has no flag for it
# GCC for aarch64: its first scheduling loads all operands of a tile in advance, which then do not fit into 32 registers. And predictive
# commoning (-O3) of GCC 12 gives wrong results for vectors that overlap at an offset of one element: a loop keeps an old value of memory that
# the previous store changed in part (add_distances() in isa/kernel_ridge_backward.c; conformance/ shows it).
if(HARK_AARCH64 AND CMAKE_C_COMPILER_ID STREQUAL GNU)
  list(APPEND HARK_ISA_FLAGS_neon -fno-schedule-insns -fno-predictive-commoning)
  list(APPEND HARK_ISA_FLAGS_generic -fno-predictive-commoning)
endif()
set(HARK_ISAS generic)
if(HARK_X86_64)
  list(APPEND HARK_ISAS avx2 avx512)
elseif(HARK_AARCH64)
  list(APPEND HARK_ISAS neon)
endif()
foreach(isa ${HARK_ISAS})
  if(HARK_ISA_SOURCES)
    hark_objects(hark_isa_${isa} ${HARK_ISA_SOURCES})
    target_compile_definitions(hark_isa_${isa} PRIVATE HARK_ISA_NAME=${isa})
    target_compile_options(hark_isa_${isa} PRIVATE ${HARK_ISA_FLAGS_${isa}} -ffp-contract=fast -fno-math-errno -fno-trapping-math)
    if(HARK_BUILD_FUZZERS) # no file's bytes reach these loops, and with sanitizers they take minutes to compile
      target_compile_options(hark_isa_${isa} PRIVATE -fno-sanitize=all)
    elseif(HARK_SANITIZE MATCHES undefined AND NOT isa STREQUAL generic) # five minutes for one file; the generic set checks the same sources
      target_compile_options(hark_isa_${isa} PRIVATE -fno-sanitize=alignment,null,object-size,pointer-overflow)
    endif()
    list(APPEND HARK_OBJECT_TARGETS hark_isa_${isa})
  endif()
endforeach()

set(HARK_SHARED_OBJECTS)
foreach(target ${HARK_OBJECT_TARGETS})
  list(APPEND HARK_SHARED_OBJECTS $<TARGET_OBJECTS:${target}>)
endforeach()

# hark_library(TARGET TYPE BACKENDS...): a library from the common objects and one compilation of the backends.
function(hark_library target type)
  add_library(${target} ${type} ${HARK_SHARED_OBJECTS} ${ARGN})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:hark_dependencies>)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
endfunction()

set(plain)
if(HARK_BACKEND_SOURCES)
  hark_objects(hark_backends ${HARK_BACKEND_SOURCES})
  set(plain $<TARGET_OBJECTS:hark_backends>)
endif()
hark_library(hark STATIC ${plain})
if(HARK_SHARED)
  hark_library(hark_shared SHARED ${plain})
  # The soname changes with what programs that are already built rely on: before 1.0 that may be any minor version (docs/abi.md).
  set(soname ${PROJECT_VERSION_MAJOR})
  if(PROJECT_VERSION_MAJOR EQUAL 0)
    set(soname 0.${PROJECT_VERSION_MINOR})
  endif()
  set_target_properties(hark_shared PROPERTIES OUTPUT_NAME hark VERSION ${PROJECT_VERSION} SOVERSION ${soname})
  if(NOT HARK_SANITIZE) # whose symbols come from the program
    target_link_options(hark_shared PRIVATE LINKER:-z,defs)
  endif()
endif()

# The names that installed programs use (cmake/Install.cmake) are there in the tree too.
add_library(hark::hark_static ALIAS hark)
if(HARK_SHARED)
  add_library(hark::hark ALIAS hark_shared)
else()
  add_library(hark::hark ALIAS hark)
endif()

if(HARK_TESTS_USED)
  set(guarded)
  if(HARK_BACKEND_SOURCES OR HARK_GUARD_SOURCES)
    hark_objects(hark_guarded_backends ${HARK_BACKEND_SOURCES} ${HARK_GUARD_SOURCES})
    target_compile_definitions(hark_guarded_backends PRIVATE HARK_WITH_GUARD=1)
    set(guarded $<TARGET_OBJECTS:hark_guarded_backends>)
  endif()
  # Sanitizers make it ten times as large: then all tests share one file of it, which must show them what the library hides.
  set(type STATIC)
  if(HARK_SANITIZE)
    set(type SHARED)
  endif()
  hark_library(hark_test ${type} ${guarded})
  target_compile_definitions(hark_test INTERFACE HARK_WITH_GUARD=1)
endif()
